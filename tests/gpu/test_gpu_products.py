"""Programs with matrix products on a real device: the fast roads and graphs keep the bits of the first call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.runtime import cublas
from fuser.runtime.quickcuda import CudaCall
from tests.threads import together

pytestmark = pytest.mark.gpu
MANY = 24  # calls of a kind until native code has taken over


def layers(x: Any, w: Any, b: Any) -> Any:
    """Two products with kernels around them: operands that are arguments, temporaries and views."""
    h = np.tanh(x @ w + b)
    return np.maximum(h @ w.T, 0) + np.sum(x * x)


def arrays(rows: int = 96, n: int = 128, dtype: str = "f4") -> list[Any]:
    import cupy

    rng = np.random.default_rng(rows)
    shapes = ((rows, n), (n, n), (n,))
    return [cupy.asarray((rng.standard_normal(s) / 16).astype(dtype)) for s in shapes]


def test_cublas_is_found() -> None:
    assert cublas.direct() is not None
    assert cublas.handle_function()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_all_roads_give_the_bits_of_the_first_call(graph: bool, dtype: str) -> None:
    run = fuser.compile(layers, cuda_graph=graph)
    given = arrays(dtype=dtype)
    first = run(*given).get()
    want = layers(*(a.get().astype(np.float64) for a in given))
    np.testing.assert_allclose(first, want, rtol=1e-2 if dtype == "f2" else 1e-4, atol=1e-2 if dtype == "f2" else 1e-4)
    for k in range(MANY):
        np.testing.assert_array_equal(run(*given).get(), first, err_msg=str(k))
    assert "device_road" in repr(run._roads.native)
    (quick,) = run._roads._table.values()
    assert isinstance(quick, CudaCall)
    assert quick.plan is not None
    assert quick.plan.recorded is graph


@pytest.mark.parametrize("graph", [False, True])
def test_changing_arrays_results_kept_and_shapes(graph: bool) -> None:
    run, plain = fuser.compile(layers, cuda_graph=graph), fuser.compile(layers)
    sets = [arrays(rows) for rows in (96, 96, 33, 128)]
    sets[1] = [a * 2 for a in sets[1]]
    want = [plain(*given).get() for given in sets]
    kept = []
    for turn in range(MANY):
        for k, given in enumerate(sets):
            kept.append((k, run(*given)))
            if turn % 3:
                kept.pop(0)
    for k, y in kept:
        np.testing.assert_array_equal(y.get(), want[k])


@pytest.mark.parametrize("graph", [False, True])
def test_streams_and_threads(graph: bool) -> None:
    import cupy

    run = fuser.compile(layers, cuda_graph=graph)
    sets = [arrays(96) for _ in range(4)]
    for k, given in enumerate(sets):
        given[0] *= k + 1
    want = [fuser.compile(layers)(*given).get() for given in sets]
    cupy.cuda.Device().synchronize()
    wrong: list[int] = []

    def work(k: int) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(100):
                y = run(*sets[k])
            stream.synchronize()
            if not np.array_equal(y.get(), want[k]):
                wrong.append(k)

    together(work, range(len(sets)))
    assert wrong == []


def test_out_batches_and_views() -> None:
    import cupy

    def heads(q: Any, k: Any) -> Any:
        return np.einsum("bthd,bshd->bhts", q, k) * 0.125

    rng = np.random.default_rng(0)
    q, k = (cupy.asarray(rng.standard_normal((2, t, 3, 16), np.float32)) for t in (7, 5))
    for graph in (False, True):
        run = fuser.compile(heads, cuda_graph=graph)
        want = np.einsum("bthd,bshd->bhts", q.get(), k.get()) * 0.125
        out = cupy.empty(want.shape, np.float32)
        for _ in range(MANY):
            assert run(q, k, out=out) is out
            np.testing.assert_allclose(out.get(), want, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(run(q, k).get(), out.get())
            out[...] = -1


def test_torch_tensors_bf16() -> None:
    torch = pytest.importorskip("torch")
    x, w, b = (torch.from_numpy(a.get()).cuda().to(torch.bfloat16) for a in arrays())
    for graph in (False, True):
        run = fuser.compile(layers, cuda_graph=graph)
        first = run(x, w, b)
        for _ in range(MANY):
            assert torch.equal(run(x, w, b), first)
        assert "torch_device_road" in repr(run._roads.native)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.default_stream())
            again = run(x, w, b)
            stream.synchronize()
        assert torch.equal(again, first)


def test_cupy_goes_on_as_before() -> None:
    """The handle is CuPy's, and is left without our workspace and stream."""
    import cupy

    run, given = fuser.compile(layers), arrays()
    want = (given[0] @ given[1]).get()
    for _ in range(MANY):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            run(*given)
            stream.synchronize()
        np.testing.assert_array_equal((given[0] @ given[1]).get(), want)
