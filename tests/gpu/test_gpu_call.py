"""Calls with arrays that live on a GPU: CuPy and torch in kind, views, `out=`, stores, streams, several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError
from tests import engines
from tests.engines import CUDA, SIMT
from tests.runtime.test_call import VIEWS, affine, base, step
from tests.threads import together

pytestmark = pytest.mark.gpu


def test_cupy_arrays_come_back_in_kind() -> None:
    import cupy

    x = cupy.arange(1000, dtype=cupy.float32)
    run = fuser.compile(lambda x: (x * 2, np.sum(x)))
    doubled, total = run(x)
    assert type(doubled) is type(total) is cupy.ndarray
    assert total.shape == ()
    np.testing.assert_array_equal(doubled.get(), np.arange(1000) * 2)
    assert float(total) == 499500


@pytest.mark.parametrize("name", [n for n in VIEWS if n not in ("odd-address", "big-endian")])
def test_any_view_is_read_where_it_lies(name: str) -> None:
    x, y = VIEWS[name](), base(6, 35)
    run = CUDA.compile(lambda x, y: (affine(x, y), np.sum(x, axis=0), np.sum(x, axis=1), np.max(x), x.T))
    want = (affine(x, y), np.sum(x, axis=0), np.sum(x, axis=1), np.max(x), x.T)
    assert engines.unlike(run(x, y), want) is None


@pytest.mark.parametrize("name", ["contiguous", "transposed", "both-backwards-by-2", "columns-from-1", "misaligned"])
def test_stores_reach_the_array(name: str) -> None:
    mine, theirs = (VIEWS[name](), base(6, 35)), (VIEWS[name]().copy(), base(6, 35))
    CUDA.compile(step)(*mine)
    step(*theirs)
    assert engines.unlike(list(mine), list(theirs)) is None


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1, 1), (2, 0, 3)], ids=str)
def test_small_and_empty_shapes(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    run = CUDA.compile(lambda x: (x + 1, np.sum(x), x * 2 - np.sum(x)))
    assert engines.unlike(run(x), (x + 1, np.sum(x), x * 2 - np.sum(x))) is None


def test_out_on_the_device() -> None:
    import cupy

    x, out = cupy.arange(100, dtype=cupy.float32), cupy.zeros((10, 20), cupy.float32)
    view = out[:, ::2].T
    assert fuser.compile(lambda x: x.reshape(10, 10) + 1)(x, out=view) is view
    np.testing.assert_array_equal(view.get(), np.arange(100).reshape(10, 10) + 1)
    assert not out[:, 1::2].any()
    shifted = x[1:]
    fuser.compile(lambda x: x[::-1] + 0)(x[:-1], out=shifted)  # overlaps its input
    np.testing.assert_array_equal(shifted.get(), np.arange(99)[::-1])


def test_bits_are_those_of_the_interpreter() -> None:
    """The order of reductions is the program's, on rows, columns and all, short and long."""
    rng = np.random.default_rng(1)
    for shape in ((7,), (5, 33), (33, 5), (3, 4097), (1000, 17), (300_001,), (2, 70_000), (70_000, 2)):
        x = rng.standard_normal(shape).astype(np.float32)
        axes = range(len(shape))
        outcome = [e.compile(lambda x, a=axes: (*(np.sum(x, axis=k) for k in a), np.sum(x), np.var(x)))(x)
                   for e in (CUDA, SIMT)]  # fmt: skip
        assert engines.unlike(*outcome) is None, shape


def test_the_callers_stream_is_used() -> None:
    """A long kernel on the caller's stream must come before ours, and a copy on it after."""
    import cupy

    run = fuser.compile(lambda x: x + 1)
    x = cupy.zeros(1 << 24, cupy.float32)
    run(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(50):
            x += 1
        y = run(x)
        z = y * 2
    stream.synchronize()
    assert float(z[0]) == 102
    assert float(z[-1]) == 102


def test_two_streams_at_once() -> None:
    import cupy

    run = fuser.compile(lambda x: (np.cumsum(x), np.sum(x)))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    arrays = [cupy.full(200_000, k + 1, cupy.float64) for k in range(4)]
    cupy.cuda.Device().synchronize()
    results = []
    for _ in range(10):
        for stream, x in zip(streams, arrays, strict=True):
            with stream:
                results.append((float(x[0].get()), run(x)))
    cupy.cuda.Device().synchronize()
    for value, (scan, total) in results:
        assert float(total) == value * 200_000
        assert float(scan[-1]) == value * 200_000


def test_counters_last_on_the_default_stream_and_are_right_on_all() -> None:
    """Threads launch split sums of several programs on the default stream while other streams run them too."""
    import cupy

    runs = [fuser.compile(lambda x, k=k: np.sum(x * k)) for k in (1, 2, 3)]
    x = cupy.arange(1 << 20, dtype=cupy.float64)
    want = [float((np.arange(1 << 20) * k).sum()) for k in (1, 2, 3)]
    assert [float(run(x)) for run in runs] == want
    found: list[list[float]] = []

    def work(stream: Any) -> None:
        with stream:
            sums = [run(x) for _ in range(50) for run in runs]
            found.append([float(s) for s in sums])

    streams = [cupy.cuda.Stream.null] * 4 + [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    cupy.cuda.Device().synchronize()
    together(work, streams)
    assert found == [want * 50] * 8


def test_torch_tensors_come_back_in_kind() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4).t()
    out = fuser.compile(lambda x: (x * 2, np.sum(x, axis=0)))(x)
    assert all(isinstance(o, torch.Tensor) and o.is_cuda for o in out)
    assert torch.equal(out[0], x * 2)
    half = torch.randn(100, device="cuda").to(torch.bfloat16)
    assert torch.equal(fuser.compile(lambda x: x + 1)(half), half + 1)


def test_arrays_of_host_and_device_are_refused() -> None:
    import cupy

    x = np.ones(3, np.float32)
    with pytest.raises(FuserError) as caught:
        fuser.compile(lambda x, y: x + y)(x, cupy.asarray(x))
    assert caught.value.slug == "mixed-devices"
    with pytest.raises(FuserError) as wrong:
        fuser.compile(lambda x: x, device="cpu")(cupy.asarray(x))
    assert wrong.value.slug == "wrong-device"


def test_arrays_that_a_program_refers_to() -> None:
    import cupy

    weight, host = cupy.arange(5, dtype=cupy.float32), np.ones(5, np.float32)
    x = cupy.ones((3, 5), cupy.float32)
    scaled = fuser.compile(lambda x: x * weight)
    for _ in range(12):
        np.testing.assert_array_equal(scaled(x).get(), np.tile(np.arange(5), (3, 1)))
    weight += 1
    np.testing.assert_array_equal(scaled(x).get(), np.tile(np.arange(5) + 1, (3, 1)))
    with pytest.raises(FuserError, match=r"`host`, which the program refers to, is on cpu"):
        fuser.compile(lambda x: x * host)(x)
    with pytest.raises(FuserError, match="out= is on cpu"):
        fuser.compile(lambda x: x * 2)(x, out=np.ones((3, 5), np.float32))


def test_several_devices() -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU only")
    run = fuser.compile(lambda x: x * 2 + np.sum(x))
    for ordinal in (1, 0, 1):
        with cupy.cuda.Device(ordinal):
            x = cupy.arange(1000, dtype=cupy.float64)
        y = run(x)
        assert y.device.id == ordinal
        np.testing.assert_array_equal(y.get(), np.arange(1000) * 2 + 499500)
    with cupy.cuda.Device(0):  # another library of the process may have made device 1 the current one
        one = cupy.ones(3)
    with cupy.cuda.Device(1):
        other = cupy.ones(3)
    with pytest.raises(FuserError) as caught:
        fuser.compile(lambda x, y: x + y)(one, other)
    assert caught.value.slug == "mixed-devices"


def many_results(x: Any) -> Any:
    return tuple(x * k + k for k in range(60))


def test_a_kernel_with_many_arguments() -> None:
    x = base(40, 33)
    assert engines.unlike(CUDA.compile(many_results)(x), many_results(x)) is None
