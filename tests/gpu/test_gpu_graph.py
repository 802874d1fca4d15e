"""Calls replayed as CUDA graphs, and calls on the native road, on a real device: the answer of the plain calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.runtime import native_cupy
from tests.threads import together

pytestmark = pytest.mark.gpu


def chain(x: Any, a: float) -> Any:
    """Several kernels with temporaries and counters, and a run-time number."""
    x = np.exp(x - x.max()) * a
    x = np.sqrt(x / x.sum())
    return np.tanh(x - x.min())


def arrays(count: int, shape: tuple[int, ...] = (300, 700)) -> list[Any]:
    import cupy

    return [cupy.random.default_rng(k).standard_normal(shape, np.float32) for k in range(count)]


def test_cupy_is_what_native_code_knows() -> None:
    assert native_cupy.library() is not None


@pytest.mark.parametrize("graph", [False, True])
def test_changed_arrays_numbers_and_kept_results(graph: bool) -> None:
    plain, f = fuser.compile(chain), fuser.compile(chain, cuda_graph=graph)
    given = arrays(6)
    want = [plain(x, 0.5 + k).get() for k, x in enumerate(given)]
    kept = []
    for turn in range(5):
        for k, x in enumerate(given):
            y = f(x, 0.5 + k)
            kept.append((k, y))
            if turn % 2:
                kept.pop(0)
    for k, y in kept:
        np.testing.assert_array_equal(y.get(), want[k])


def test_changed_shapes_and_out() -> None:
    import cupy

    plain, f = fuser.compile(chain), fuser.compile(chain, cuda_graph=True)
    for turn in range(4):
        for shape in ((300, 700), (700, 300), (1000,), (64, 64), (0, 5)):
            if 0 in shape:
                continue
            (x,) = arrays(1, shape)
            out = cupy.zeros_like(x)
            assert f(x, 1.0 + turn, out=out) is out
            np.testing.assert_array_equal(out.get(), plain(x, 1.0 + turn).get())
            np.testing.assert_array_equal(f(x, 2.0).get(), plain(x, 2.0).get())


def test_streams() -> None:
    import cupy

    f = fuser.compile(chain, cuda_graph=True)
    given = arrays(4)
    want = [fuser.compile(chain)(x, 1.0).get() for x in given]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in given]
    cupy.cuda.Device().synchronize()
    found: list[Any] = [None] * len(given)
    for _ in range(20):
        for k, (x, stream) in enumerate(zip(given, streams, strict=True)):
            with stream:
                found[k] = f(x, 1.0)
    for y, w, stream in zip(found, want, streams, strict=True):
        stream.synchronize()
        np.testing.assert_array_equal(y.get(), w)


def test_threads() -> None:
    import cupy

    f = fuser.compile(chain, cuda_graph=True)
    given = arrays(4)
    want = [fuser.compile(chain)(x, 1.0).get() for x in given]
    wrong: list[int] = []

    def work(k: int) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(200):
                y = f(given[k], 1.0)
            stream.synchronize()
            if not np.array_equal(y.get(), want[k]):
                wrong.append(k)

    together(work, range(len(given)))
    assert wrong == []


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    f = fuser.compile(chain, cuda_graph=True)
    for x in (torch.randn(300, 700, device="cuda") for _ in range(5)):
        want = fuser.compile(chain)(x, 1.5)
        assert torch.equal(f(x, 1.5), want)
        with torch.cuda.stream(torch.cuda.Stream()) as _:
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            got = f(x, 1.5)
            torch.cuda.current_stream().synchronize()
        assert torch.equal(got, want)


def test_torch_calls_of_changing_kinds() -> None:
    """Kinds that take turns on the direct road: shapes, dtypes, views, gradients, numbers."""
    torch = pytest.importorskip("torch")
    factor = 3.0

    def f(x: Any, a: float) -> Any:
        return np.tanh(x) * a + factor

    run = fuser.compile(f)
    x = torch.randn(64, 96, device="cuda")
    for _ in range(3):
        for y in (x, x[:7], x.t(), x[:, 1:], x.double(), x[:0], x.reshape(-1), x[1, 1]):
            for a in (1.5, 2):
                torch.testing.assert_close(run(y, a), torch.tanh(y) * a + factor)
    wanted = torch.tanh(x) * 2 + 5.0
    factor = 5.0
    torch.testing.assert_close(run(x, 2), wanted)
    with pytest.raises(fuser.errors.GradientError):
        run(x.clone().requires_grad_(), 2)
    kept = [run(x, k) for k in range(4)]
    assert len({k.data_ptr() for k in kept}) == 4


def test_stores() -> None:
    import cupy

    def step(x: Any, y: Any) -> None:
        x += y * 2
        y[...] = np.tanh(x)

    plain, f = fuser.compile(step), fuser.compile(step, cuda_graph=True)
    x, y = arrays(2)
    p, q = x.copy(), y.copy()
    for _ in range(5):
        f(x, y)
        plain(p, q)
    np.testing.assert_array_equal(x.get(), p.get())
    np.testing.assert_array_equal(y.get(), q.get())
    assert isinstance(x, cupy.ndarray)


def test_the_device_runs_out_of_memory_and_goes_on() -> None:
    import cupy

    f = fuser.compile(chain, cuda_graph=True)
    (x,) = arrays(1)
    for _ in range(4):
        want = f(x, 1.0)
    pool = cupy.get_default_memory_pool()
    before = pool.get_limit()
    pool.set_limit(size=pool.total_bytes())
    try:
        with pytest.raises(fuser.errors.OutOfMemory, match="no room"):
            _ = [f(x, 1.0) for _ in range(100_000)]
    finally:
        pool.set_limit(size=before)
    np.testing.assert_array_equal(f(x, 1.0).get(), want.get())
