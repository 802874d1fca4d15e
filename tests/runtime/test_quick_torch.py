"""torch's tensors on the CPU: the short roads give what the long one gives, and see what memory alone does not tell."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError, GradientError
from fuser.runtime import memory, native_entry, native_torch, tensors
from fuser.runtime.arrays import CPU
from tests.threads import together

torch = pytest.importorskip("torch")
needs_native = pytest.mark.skipif(
    not native_entry.usable() or native_torch.library() is None, reason="this torch cannot be asked by native code"
)
MANY = 12  # calls of a kind until native code has taken over


def base(*shape: int, dtype: Any = None) -> Any:
    values = torch.arange(1, 1 + int(np.prod(shape, dtype=int)), dtype=torch.float32).reshape(shape) / 8
    return values if dtype is None else values.to(dtype)


def affine(x: Any, y: Any) -> Any:
    return x * 2 + y


def settled(run: Any, *args: Any, **kwargs: Any) -> Any:
    """The answer of a call after many of its kind."""
    for _ in range(MANY):
        answer = run(*args, **kwargs)
    return answer


def goes_native(run: Any) -> bool:
    return "torch_road" in repr(run._roads.native)


DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "complex64", "complex128"]


@needs_native
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_in_kind(name: str) -> None:
    x = base(6, 5, dtype=getattr(torch, name))
    run = fuser.compile(lambda x: x + x)
    first, last = run(x), settled(run, x)
    assert goes_native(run)
    assert type(last) is torch.Tensor
    assert last.dtype == x.dtype
    assert torch.equal(first, last)
    assert torch.equal(last, x + x)


LAYOUTS: dict[str, Callable[[], Any]] = {
    "contiguous": lambda: base(6, 35),
    "transposed": lambda: base(35, 6).T,
    "every second": lambda: base(12, 70)[::2, ::2],
    "from an odd element": lambda: base(6 * 35 + 1)[1:].reshape(6, 35),
    "broadcast": lambda: base(1, 35).expand(6, 35),
    "parameter": lambda: torch.nn.Parameter(base(6, 35), requires_grad=False),
}


@needs_native
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read_where_it_lies(name: str) -> None:
    x, y = LAYOUTS[name](), base(6, 35)
    run = fuser.compile(lambda x, y: (affine(x, y), np.sum(x), np.max(x, axis=0)))
    found = settled(run, x, y)
    assert goes_native(run)
    wanted = (affine(x, y), x.sum(), x.amax(0))
    assert [type(f) for f in found] == [torch.Tensor] * 3
    for f, want in zip(found, wanted, strict=True):
        assert torch.allclose(f, want)


@needs_native
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1)], ids=str)
def test_small_and_empty_shapes(shape: tuple[int, ...]) -> None:
    x = base(*shape)
    run = fuser.compile(lambda x: (x + 1, np.sum(x * 2)))
    more, total = settled(run, x)
    assert goes_native(run)
    assert torch.equal(more, x + 1)
    assert torch.equal(total, (x * 2).sum())


@needs_native
def test_kinds_take_turns_on_one_road() -> None:
    run = fuser.compile(affine)
    kinds = [base(3, 4), base(4, 3), base(4, 3).T, base(3, 4, dtype=torch.float64), base(5)]
    for x in kinds * MANY:
        assert torch.equal(run(x, x), affine(x, x))
    array = np.ones((3, 4), np.float32)
    assert type(settled(run, array, array)) is np.ndarray
    assert type(settled(run, kinds[0], kinds[0])) is torch.Tensor


@needs_native
def test_numbers_are_read_at_every_call() -> None:
    run = fuser.compile(lambda x, a, k: x * a + k)
    x = base(3, 4)
    settled(run, x, 2.0, 3)
    assert goes_native(run)
    for a, k in ((0.5, 7), (-1.5, -2), (float("inf"), 0)):
        assert torch.equal(run(x, a, k), x * a + k)


@needs_native
def test_out() -> None:
    run, x = fuser.compile(affine), base(6, 35)
    out = torch.empty(6, 35)
    assert settled(run, x, x, out=out) is out
    assert torch.equal(out, affine(x, x))
    spread = torch.empty(6, 70)[:, ::2]
    assert settled(run, x, x, out=spread) is spread
    assert torch.equal(spread, affine(x, x))
    wanted = affine(x[:5], x[1:])
    assert torch.equal(settled(fuser.compile(affine), x[:5].clone(), x[1:].clone(), out=out[:5]), wanted)
    room = torch.empty(7 * 35)
    mine = room[: 6 * 35].reshape(6, 35)
    mine.copy_(x)
    for _ in range(MANY):  # overlapping arguments take the longer road
        mine.copy_(x)
        wanted = affine(mine, mine)
        assert torch.equal(run(mine, mine, out=mine), wanted)


@needs_native
def test_stores_reach_the_tensor() -> None:
    def step(x: Any, g: Any) -> Any:
        x[...] = x - g * 0.5
        return np.sum(x)

    run, x, g = fuser.compile(step), base(6, 35), base(6, 35) * 0.25
    wanted = x.clone()
    for _ in range(MANY):
        total = run(x, g)
        wanted -= g * 0.5
        assert torch.equal(x, wanted)
        assert torch.allclose(total, wanted.sum())


@needs_native
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parameters_take_the_native_road_where_no_gradients_are_recorded(mode: Callable[[], Any]) -> None:
    run, x, w = fuser.compile(affine), base(6, 35), torch.nn.Parameter(base(6, 35))
    with mode():
        found = settled(run, x, w)
        assert run._roads.native(x, w) is not NotImplemented
    assert torch.equal(found, affine(x, w.detach()))
    assert run._roads.native(x, w) is NotImplemented
    with pytest.raises(GradientError):
        run(x, w)


# -- what memory does not tell -----------------------------------------------------------------------------
@needs_native
def test_gradients_are_seen_after_calls_without() -> None:
    run, x = fuser.compile(affine), base(3, 4)
    settled(run, x, x)
    leaf = x.clone().requires_grad_()
    with pytest.raises(GradientError, match="requires grad"):
        run(leaf, x)
    with pytest.raises(GradientError, match="requires grad"):
        run(x, leaf)
    with torch.no_grad():
        assert torch.equal(run(leaf, x), affine(x, x))


def test_lazy_conjugates_and_negatives_are_refused_after_calls_with_others() -> None:
    run = fuser.compile(lambda z: z * 2)
    z = torch.complex(base(3, 4), base(3, 4))
    settled(run, z)
    with pytest.raises(FuserError, match="lazy conjugate"):
        run(z.conj())
    real = z.imag.clone()
    strided = fuser.compile(lambda x: x * 2)
    settled(strided, z.imag)
    with pytest.raises(FuserError, match="lazy conjugate"):
        strided(z.conj().imag)
    assert torch.equal(strided(z.imag), real * 2)


def test_other_layouts_are_refused_after_calls_with_dense_tensors() -> None:
    run = fuser.compile(lambda x: x * 2)
    x = base(3, 4)
    settled(run, x)
    with pytest.raises(FuserError, match="sparse"):
        run(x.to_sparse())
    assert torch.equal(run(x), x * 2)


def test_tensors_without_memory_are_refused_after_calls_with_others() -> None:
    run, x = fuser.compile(lambda x: x * 2), base(3, 4)
    settled(run, x)
    with pytest.raises(FuserError, match="has no memory"):
        torch.func.vmap(run)(x)
    assert torch.equal(run(x), x * 2)


def test_a_changed_global_is_seen() -> None:
    scope: dict[str, Any] = {"k": 2.0}
    exec("def f(x):\n    return x * k\n", scope)
    run, x = fuser.compile(scope["f"]), base(3, 4)
    settled(run, x)
    scope["k"] = 3.0
    assert torch.equal(run(x), x * 3)


def test_without_dlpack_functions_tensors_go_the_direct_road(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_torch, "exchange", lambda: None)
    monkeypatch.setattr(native_torch, "library", lambda: None)
    run, x = fuser.compile(affine), base(3, 4)
    assert torch.equal(settled(run, x, x), affine(x, x))
    assert run._roads.native == run._roads.direct
    assert torch.equal(run(x.T, x.T), affine(x.T, x.T))


def test_a_table_of_another_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = native_torch.exchange()
    if known is None:
        pytest.skip("this torch has no table")
    monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", object())
    assert native_torch.exchange.__wrapped__() is None


# -- memory ------------------------------------------------------------------------------------------------
@needs_native
def test_nothing_is_kept_of_calls() -> None:
    run, x, y = fuser.compile(affine), base(6, 35), base(6, 35)
    settled(run, x, y)
    before = sys.getrefcount(x), sys.getrefcount(False), sys.getrefcount(torch.float32)
    for _ in range(10_000):
        run(x, y)
    after = sys.getrefcount(x), sys.getrefcount(False), sys.getrefcount(torch.float32)
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("dtype", [fuser.dtypes.F32, fuser.dtypes.BF16, fuser.dtypes.C64, fuser.dtypes.BOOL], ids=str)
def test_large_tensors_lie_in_recycled_blocks(dtype: Any) -> None:
    memory.release()
    make, given = tensors.maker((1 << 10, 1 << 10), dtype, CPU)
    made = make(*given)
    assert made.shape == (1 << 10, 1 << 10)
    assert made.stride() == (1 << 10, 1)
    assert made.dtype == tensors.torch_dtype(dtype)
    address = made.data_ptr()
    view = made[3:]
    del made
    assert memory.held_bytes() == 0
    del view
    gc.collect()
    assert memory.held_bytes() >= dtype.bytes << 20
    assert make(*given).data_ptr() == address


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)], ids=str)
def test_small_tensors_are_torch_s_own(shape: tuple[int, ...]) -> None:
    make, given = tensors.maker(shape, fuser.dtypes.F32, CPU)
    made = make(*given)
    assert (made.shape, made.stride(), made.dtype) == (shape, torch.empty(shape).stride(), torch.float32)


@needs_native
def test_many_threads_share_one_road() -> None:
    run, failures = fuser.compile(affine), []

    def work(k: int) -> None:
        x = base(4 + k % 3, 5) + k
        for _ in range(300):
            if not torch.equal(run(x, x), affine(x, x)):
                failures.append(k)

    together(work, range(6))
    assert not failures
