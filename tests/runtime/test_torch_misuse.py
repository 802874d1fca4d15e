"""What autograd and torch's transformations must see of a call, and tensors that are none: the same on every road."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError, GradientError, UnsupportedError

torch = pytest.importorskip("torch")
ROADS = {"long": 0, "short": 2, "native": 16}  # calls of a kind before the one that is looked at


def doubled(x: Any) -> Any:
    return np.tanh(x) * 2


def store(x: Any, y: Any) -> Any:
    x[...] = x * 2 + y
    return np.sum(x)


def store_only(x: Any, y: Any) -> None:
    x += y


@pytest.mark.parametrize("program", [store, store_only])
@pytest.mark.parametrize("road", ROADS)
def test_backward_after_a_store_raises_as_after_torch_s_own(road: str, program: Callable[..., Any]) -> None:
    run, x, y = fuser.compile(program), torch.ones(5), torch.ones(5)
    for _ in range(ROADS[road]):
        run(x, y)
    w = torch.ones(5, requires_grad=True)
    loss = (w * x).sum()
    before, others = x._version, y._version
    run(x, y)
    assert x._version == before + 1
    assert y._version == others
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def inferred() -> Any:
    with torch.inference_mode():
        return torch.ones(5)


@pytest.mark.parametrize("program", [store, store_only])
@pytest.mark.parametrize("known", [torch.ones, lambda n: inferred()], ids=["plain", "inference"])
@pytest.mark.parametrize("road", ROADS)
def test_inference_tensors_are_stored_into_in_inference_mode_only(
    road: str, known: Callable[[int], Any], program: Callable[..., Any]
) -> None:
    """As torch has it. known: the tensors of the calls before, in inference mode."""
    run, x, y = fuser.compile(program), inferred(), torch.ones(5)
    with torch.inference_mode():
        before = known(5)
        for _ in range(ROADS[road]):
            run(before, y)
        run(x, y)
    stored = x.clone()
    assert not torch.equal(stored, torch.ones(5))
    with pytest.raises(FuserError, match="`x` is stored into") as caught:
        run(x, y)
    assert "torch.inference_mode()" in str(caught.value)
    assert torch.equal(x, stored)
    run(torch.ones(5), x)  # it may be read


@pytest.mark.parametrize("road", ROADS)
def test_inference_tensors_as_out(road: str) -> None:
    run, x, out = fuser.compile(doubled), inferred(), inferred()
    with torch.inference_mode():
        for _ in range(ROADS[road] + 1):
            assert run(x, out=out) is out
    for _ in range(ROADS[road] + 1):
        with pytest.raises(FuserError, match="out= cannot be written"):
            run(x, out=out)
    torch.testing.assert_close(run(x), torch.tanh(x) * 2)


@pytest.mark.parametrize("road", ROADS)
def test_leaves_that_require_grad_are_stored_into_without_grad_only(road: str) -> None:
    run, leaf, y = fuser.compile(store_only), torch.ones(5, requires_grad=True), torch.ones(5)
    with torch.no_grad():
        for _ in range(ROADS[road] + 1):
            run(leaf, y)
    stored = leaf.detach().clone()
    assert torch.equal(stored, torch.full((5,), ROADS[road] + 2.0))
    with pytest.raises(GradientError, match="`x` requires grad"):
        run(leaf, y)
    assert torch.equal(leaf.detach(), stored)


@pytest.mark.parametrize("road", ROADS)
def test_backward_after_out_raises(road: str) -> None:
    run, x, out = fuser.compile(doubled), torch.ones(5), torch.zeros(5)
    for _ in range(ROADS[road]):
        run(x, out=out)
    loss = (torch.ones(5, requires_grad=True) * out).sum()
    assert run(x, out=out) is out
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    before = x._version
    run(x)
    assert x._version == before, "nothing was written"


@pytest.mark.parametrize("road", ROADS)
def test_a_derivative_of_forward_mode_is_not_lost(road: str) -> None:
    from torch.autograd import forward_ad

    run, x = fuser.compile(doubled), torch.ones(5)
    for _ in range(ROADS[road]):
        run(x)
    with forward_ad.dual_level():
        torch.testing.assert_close(run(x), torch.tanh(x) * 2)  # carries none
        with pytest.raises(GradientError):
            run(forward_ad.make_dual(x, torch.ones(5)))
    torch.testing.assert_close(run(x), torch.tanh(x) * 2)


def freed() -> Any:
    x = torch.ones(5)
    x.untyped_storage().resize_(0)
    return x


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(5))


NONE: dict[str, Callable[[], Any]] = {
    "freed": freed,
    "fake": fake,
    "meta": lambda: torch.ones(5, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(5), torch.ones(3)]),
    "sparse": lambda: torch.ones(5).to_sparse(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NONE)
@pytest.mark.parametrize("road", ROADS)
def test_tensors_without_memory_are_refused(road: str, name: str) -> None:
    run, x = fuser.compile(doubled), torch.ones(5)
    for _ in range(ROADS[road]):
        run(x)
    with pytest.raises(UnsupportedError, match="`x`"):
        run(NONE[name]())
    with pytest.raises(FuserError):
        run(x, out=NONE[name]())


@pytest.mark.filterwarnings("ignore")
def test_tracing_and_mapping() -> None:
    run = fuser.compile(doubled)
    for transform in (lambda: torch.jit.trace(run, torch.ones(5)), lambda: torch.func.vmap(run)(torch.ones(5, 3))):
        with pytest.raises(UnsupportedError):
            transform()
    with pytest.raises(GradientError):
        torch.func.grad(lambda x: run(x).sum())(torch.ones(5))


def test_out_that_is_one_element_many_times() -> None:
    with pytest.raises(FuserError, match="the same memory"):
        fuser.compile(doubled)(torch.ones(5), out=torch.ones(1).expand(5))
