"""torch's CUDA tensors and JAX's GPU arrays: the short roads, streams, temporaries, and a device without room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError, GradientError, OutOfMemory

pytestmark = pytest.mark.gpu
MANY = 24  # calls of a kind until native code has taken over


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch", reason="torch is not installed")
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return found


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = pytest.importorskip("jax", reason="JAX is not installed")
    if found.default_backend() not in ("gpu", "cuda"):
        pytest.skip("this JAX has no GPU")
    return found


def normalised(x: Any) -> Any:
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def settled(run: Any, *args: Any, **kwargs: Any) -> Any:
    for _ in range(MANY):
        answer = run(*args, **kwargs)
    return answer


def goes_native(run: Any) -> bool:
    return "torch_device_road" in repr(run._roads.native)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int32", "complex64"])
@pytest.mark.parametrize("shape", [(64, 64), (1000, 333), (7,), ()], ids=str)
def test_tensors_take_the_native_road_and_keep_their_bits(torch: Any, name: str, shape: tuple[int, ...]) -> None:
    x = (torch.arange(int(np.prod(shape)), device="cuda").reshape(shape) % 97).to(getattr(torch, name))
    run = fuser.compile(lambda x: (x * x + x, np.sum(x * x)))
    first, last = run(x), settled(run, x)
    assert goes_native(run)
    for a, b in zip(first, last, strict=True):
        assert type(b) is torch.Tensor
        assert (b.device, b.dtype) == (x.device, a.dtype)
        assert torch.equal(a, b)


def test_temporaries_out_and_graphs_keep_their_bits(torch: Any) -> None:
    x = torch.randn(1 << 22, device="cuda")
    run = fuser.compile(normalised)
    assert run.plan(x).temporary_bytes or len(run.plan(x).groups) > 1
    first, out = run(x), torch.empty_like(x)
    assert torch.equal(settled(run, x), first)
    assert goes_native(run)
    assert settled(run, x, out=out) is out
    assert torch.equal(out, first)
    assert torch.equal(settled(fuser.compile(normalised, cuda_graph=True), x), first)


def test_work_of_the_current_stream_is_waited_for(torch: Any) -> None:
    run = fuser.compile(lambda x: x * 2 + 1)
    settled(run, torch.zeros(1 << 22, device="cuda"))
    assert goes_native(run)
    with torch.cuda.stream(torch.cuda.Stream()):
        for k in range(10):
            x = torch.full((1 << 22,), float(k), device="cuda")
            torch.cuda._sleep(1_000_000)
            x.add_(1)
            assert bool((run(x) == 2 * (k + 1) + 1).all())


def test_stores_and_gradients(torch: Any) -> None:
    def step(p: Any, g: Any) -> Any:
        p[...] = p - g * 0.5
        return np.sum(p)

    run, p, g = fuser.compile(step), torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
    total = settled(run, p, g)
    assert goes_native(run)
    assert float(p[0]) == 1 - MANY / 2
    assert float(total) == 1000 * (1 - MANY / 2)
    with pytest.raises(GradientError):
        run(p, g.clone().requires_grad_())


def test_a_device_without_room_says_what_was_needed_and_goes_on(torch: Any) -> None:
    run, small = fuser.compile(lambda x: x * 2.0 + 1), torch.zeros(1 << 20, device="cuda")
    settled(run, small)
    large = torch.zeros(int(torch.cuda.mem_get_info()[0] * 0.6) // 4, device="cuda")
    with pytest.raises(OutOfMemory, match="temporaries at their peak"):
        run(large)
    del large
    torch.cuda.empty_cache()
    assert bool((run(small) == 1).all())


def test_a_device_without_room_for_cupy(torch: Any) -> None:
    import cupy

    run, small = fuser.compile(normalised), cupy.ones(1 << 20, cupy.float32)
    settled(run, small)
    torch.cuda.empty_cache()
    cupy.get_default_memory_pool().free_all_blocks()
    large = cupy.ones(int(cupy.cuda.runtime.memGetInfo()[0] * 0.6) // 4, cupy.float32)
    with pytest.raises(OutOfMemory, match="temporaries at their peak"):
        run(large)
    del large
    cupy.get_default_memory_pool().free_all_blocks()
    assert bool((run(small) == cupy.float32(1) / (1 << 20)).all())


def test_jax_and_fuser_take_turns(jax: Any) -> None:
    jnp = jax.numpy
    mine, theirs = fuser.compile(lambda x: x * 2 + 1), jax.jit(lambda x: x * 3 - 1)
    for k in range(30):  # what is passed on dies at once, and its memory is wanted again
        found = mine(theirs(mine(theirs(jnp.full((1 << 22,), float(k))))))
        waste = [jnp.full((1 << 22,), -1.0) for _ in range(2)]
        assert type(found) is type(waste[0])
        assert found.devices() == waste[0].devices()
        assert bool(jnp.all(found == (((3 * k - 1) * 2 + 1) * 3 - 1) * 2 + 1))
    assert "device_road" in repr(mine._roads.native)


def test_arrays_of_jax_are_not_stored_into(jax: Any) -> None:
    def step(x: Any) -> None:
        x[...] = x + 1

    import cupy

    run, x = fuser.compile(step), jax.numpy.zeros(5)
    with pytest.raises(FuserError, match="cannot be written"):
        run(x)
    settled(run, cupy.zeros(5))
    with pytest.raises(FuserError, match="cannot be written"):
        run(x)
    assert not x.any()
