"""Two GPUs in one machine: a Compiled follows its arrays, and keeps nothing of one device for another.

The current device stays 0 throughout, where nothing else is said: what lies on device 1 must be enough. Calls are
repeated, because the first ones, the remembered ones and the native ones take different roads.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError
from fuser.runtime import cuda
from tests.threads import together

pytestmark = pytest.mark.gpu
SECOND = 1  # the device that is not the current one
CALLS = 12  # of each kind: the native road is taken from the eighth


@pytest.fixture(autouse=True)
def _needs_two_gpus() -> None:
    if cuda.device_count() <= SECOND:
        pytest.skip("one GPU only")


def pointwise(x: Any, y: Any) -> Any:
    return np.tanh(x) * y + 1


def everything(x: Any, y: Any) -> Any:
    """Several kernels: partial sums of a split reduction, a temporary, a column sum."""
    return np.sum(np.abs(x)), (x - np.mean(x)) * y, np.sum(y, axis=0)


def rows(x: Any, y: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True) + y


def running(x: Any, y: Any) -> Any:
    return np.cumsum(x, axis=-1), np.cumsum(y, axis=0)


def product(x: Any, y: Any) -> Any:
    return np.maximum(x @ y.T + 1, 0)


# one block a row, rows that wait in shared memory, rows over a cluster of blocks, tiles that wait for each other
SHAPES = {
    "pointwise": (pointwise, (33, 1000)), "everything": (everything, (700, 3001)), "rows": (rows, (64, 1000)),
    "long-rows": (rows, (9, 20_000)), "clusters": (rows, (5, 150_000)), "scans": (running, (3, 100_000)),
    "product": (product, (65, 130)),
}  # fmt: skip


def arrays(shape: tuple[int, int]) -> list[Any]:
    rng = np.random.default_rng(sum(shape))
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]


def on(ordinal: int, *values: Any) -> list[Any]:
    import cupy

    with cupy.cuda.Device(ordinal):
        return [cupy.asarray(v) for v in values]


def bits(results: Any) -> list[Any]:
    found = results if isinstance(results, tuple) else (results,)
    return [r.cpu().numpy() if hasattr(r, "cpu") else r.get() for r in found]


def same(got: list[Any], want: list[Any]) -> bool:
    return all(np.array_equal(g, w) for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("graph", [False, True], ids=["launches", "graph"])
def test_cupy_arrays_of_either_device(name: str, graph: bool) -> None:
    """The same bits on both, in turns, on the arrays' device; the caller's current device is left alone."""
    import cupy

    function, shape = SHAPES[name]
    given = arrays(shape)
    run = fuser.compile(function, cuda_graph=graph)
    want = None
    for ordinal in [0, SECOND] * CALLS + [SECOND] * CALLS:
        results = run(*on(ordinal, *given))
        assert cupy.cuda.runtime.getDevice() == 0
        assert {r.device.id for r in (results if isinstance(results, tuple) else (results,))} == {ordinal}
        want = bits(results) if want is None else want
        assert same(bits(results), want)


@pytest.mark.parametrize("name", SHAPES)
def test_torch_tensors_of_either_device(name: str) -> None:
    torch = pytest.importorskip("torch")
    function, shape = SHAPES[name]
    given = arrays(shape)
    run = fuser.compile(function)
    want = None
    for ordinal in [SECOND, 0] * CALLS:
        results = run(*(torch.as_tensor(v, device=f"cuda:{ordinal}") for v in given))
        assert torch.cuda.current_device() == 0
        assert {r.device.index for r in (results if isinstance(results, tuple) else (results,))} == {ordinal}
        want = bits(results) if want is None else want
        assert same(bits(results), want)


def test_a_kernel_is_compiled_once_for_two_cards_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.codegen.cuda import nvrtc

    if cuda.architecture(0) != cuda.architecture(SECOND):
        pytest.skip("cards of two kinds")
    seen: list[str] = []
    compile_once: Callable[..., Any] = nvrtc.compile

    def counted(source: str, name: str, *rest: Any) -> Any:
        seen.append(name)
        return compile_once(source, name, *rest)

    monkeypatch.setattr(nvrtc, "compile", counted)
    monkeypatch.setenv("FUSER_CACHE", "off")
    run = fuser.compile(lambda x, y: np.sqrt(np.abs(x)) * 3.25 + y)
    for ordinal in (SECOND, 0, SECOND):
        run(*on(ordinal, *arrays((10, 10))))
    assert len(seen) == 1


def test_arrays_of_two_devices_are_refused_by_name() -> None:
    torch = pytest.importorskip("torch")
    (x,), (y,) = on(0, np.ones(3, np.float32)), on(SECOND, np.ones(3, np.float32))
    run = fuser.compile(pointwise)
    for pair in ((x, y), (torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1"))):
        for _ in range(CALLS):
            run(pair[0], pair[0])
        with pytest.raises(FuserError, match=r"`x` is on cuda:0 but `y` is on cuda:1") as caught:
            run(*pair)
        assert caught.value.slug == "mixed-devices"
        run(pair[1], pair[1])


def test_results_go_where_out_is() -> None:
    for ordinal in (SECOND, 0):
        x, y = on(ordinal, *arrays((40, 50)))
        (out,) = on(ordinal, np.zeros((40, 50), np.float32))
        run = fuser.compile(pointwise)
        for _ in range(CALLS):
            assert run(x, y, out=out) is out
        np.testing.assert_array_equal(out.get(), fuser.compile(pointwise)(x, y).get())
    (elsewhere,) = on(SECOND, np.zeros((40, 50), np.float32))
    with pytest.raises(FuserError, match="cuda:1"):
        fuser.compile(pointwise)(*on(0, *arrays((40, 50))), out=elsewhere)


def test_streams_of_the_second_device() -> None:
    """Work waits for what is before it on the caller's current stream of the arrays' device, and for nothing else."""
    import cupy

    x, y = arrays((500, 1000))
    run = fuser.compile(pointwise)
    want = run(*on(SECOND, x, y)).get()
    with cupy.cuda.Device(SECOND):
        stream = cupy.cuda.Stream(non_blocking=True)
        for _ in range(CALLS):
            with stream:
                late = cupy.zeros(x.shape, np.float32)
                for _ in range(20):
                    late += cupy.asarray(x) / 20
                late[...] = cupy.asarray(x)
                got = run(late, cupy.asarray(y))
            stream.synchronize()
            np.testing.assert_array_equal(got.get(), want)


def test_memory_comes_from_the_arrays_device() -> None:
    import cupy

    x, y = on(SECOND, *arrays((2000, 3001)))
    run = fuser.compile(everything)
    run(x, y)
    pool = cupy.get_default_memory_pool()
    with cupy.cuda.Device(0):
        before = pool.total_bytes()
    for _ in range(CALLS):
        run(x, y)
    with cupy.cuda.Device(0):
        assert pool.total_bytes() == before
    arena = {r.data.device_id for r in run(x, y)}
    assert arena == {SECOND}


def test_two_threads_each_with_a_device() -> None:
    import cupy

    given = arrays((300, 2000))
    run = fuser.compile(everything)
    want = bits(run(*on(0, *given)))
    wrong: list[object] = []

    def work(ordinal: int) -> None:
        mine = on(ordinal, *given)
        with cupy.cuda.Device(ordinal), cupy.cuda.Stream(non_blocking=True) as stream:
            for _ in range(100):
                results = run(*mine)
                stream.synchronize()
                if not same(bits(results), want):
                    wrong.append(ordinal)

    together(work, (0, SECOND, 0, SECOND))
    assert wrong == []


def test_captured_arrays_pickles_and_questions_on_the_second_device() -> None:
    (weight,) = on(SECOND, np.arange(100, dtype=np.float32))
    (x,) = on(SECOND, np.ones((7, 100), np.float32))
    scaled = fuser.compile(lambda x: x * weight)
    for _ in range(CALLS):
        np.testing.assert_array_equal(scaled(x).get(), np.ones((7, 1)) * np.arange(100))
    with pytest.raises(FuserError, match="cuda:"):
        scaled(on(0, np.ones((7, 100), np.float32))[0])
    again = pickle.loads(pickle.dumps(fuser.compile(rows)))
    np.testing.assert_array_equal(again(x, x).get(), fuser.compile(rows)(x, x).get())
    fuser.compile(rows).check(x, x)
    fuser.compile(rows).report(x, x)
    before = fuser.compile(rows)(x, x).get()
    tuned = fuser.compile(rows)
    tuned.tune(x, x)
    np.testing.assert_array_equal(tuned(x, x).get(), before)


def test_dask_blocks_on_two_workers_one_a_gpu() -> None:
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    x = np.random.default_rng(0).standard_normal((4000, 1000)).astype(np.float32)
    workers = {
        k: {"cls": distributed.Nanny, "options": {"nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": str(k)}}}
        for k in range(2)
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "dashboard_address": None}}
    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        seen = client.run(_visible)
        assert sorted(seen.values()) == ["0", "1"]
        blocks = da.from_array(x, chunks=(500, 1000)).map_blocks(_to_gpu, meta=_empty_cupy())
        mean, scaled = fuser.compile(lambda x: (np.mean(x, axis=0), np.tanh(x) * 2))(blocks)
        np.testing.assert_allclose(_to_host(mean.compute()), x.mean(0), rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(_to_host(scaled.compute()), np.tanh(x) * 2, rtol=2e-6)


def _visible() -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


def _to_gpu(block: Any) -> Any:
    import cupy

    return cupy.asarray(block)


def _to_host(value: Any) -> Any:
    return value.get() if hasattr(value, "get") else value


def _empty_cupy() -> Any:
    import cupy

    return cupy.empty((0, 0), np.float32)
