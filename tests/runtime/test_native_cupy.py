"""The native road of CuPy arrays: real array objects over memory that does not exist, and a driver that takes notes."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fuser.dtypes import F32, F64
from fuser.errors import InternalError
from fuser.hostexpr import scalar_symbol
from fuser.runtime import cuda, native_cupy, native_entry, native_plan, quickcuda
from fuser.runtime import native_words as w
from fuser.runtime.arrays import Place
from fuser.runtime.bound import Arena, Launch, encode_ctype
from fuser.runtime.quickcpu import Places
from tests.runtime.fake_driver import FakeDriver

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.skipif(not native_entry.usable(), reason="this interpreter has no native road")
ADD, SCALE = 0x1000, 0x2000
SHAPE = (3, 4)
RESULT, ARENA = 0x7F00_0000_2000, 0x7F00_0000_4000


def array(address: int, shape: tuple[int, ...] = SHAPE, dtype: str = "f4", device: int = 0) -> Any:
    return native_cupy.probe(cupy, shape, dtype, address - 64, device)


class Allocator:
    """Gives out the same addresses every time: results at RESULT, the arena at ARENA; keeps count of what lives."""

    def __init__(self) -> None:
        self.full = False

    def __call__(self, nbytes: int) -> Any:
        if self.full:
            raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0)
        address = ARENA if nbytes == 512 else RESULT
        return cupy.cuda.memory.MemoryPointer(cupy.cuda.memory.UnownedMemory(address, nbytes, None, 0), 0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver({ADD: 4, SCALE: 3})
    known = native_plan.Driver(fake)
    monkeypatch.setattr(native_plan, "driver", lambda: known)
    monkeypatch.setattr(cuda, "_getters", lambda: (lambda: 0, lambda k: None, lambda: SimpleNamespace(ptr=0x77)))
    monkeypatch.setattr(cuda, "launch_failed", lambda code: InternalError(f"code {code}", "launch"))
    stream = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0x77)
    block = native_cupy.library.__wrapped__()
    assert block is not None, "CuPy's arrays or functions have changed: teach native_cupy, or calls are slower"
    block[w.Y_STREAM] = ctypes.cast(stream, ctypes.c_void_p).value
    block.keep = stream
    monkeypatch.setattr(native_cupy, "library", lambda: block)
    return fake


@pytest.fixture
def allocator() -> Iterator[Allocator]:
    made = Allocator()
    cupy.cuda.set_allocator(made)
    yield made
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def launch(function: int, slots: tuple[int, ...], scalars: tuple[Any, ...], dynamic: tuple[Any, ...] = ()) -> Launch:
    binary = SimpleNamespace(on=lambda ordinal: SimpleNamespace(function=function, shared=0))
    return Launch(SimpleNamespace(binary=binary), slots, scalars, dynamic, (2, 1), 64, 1)  # type: ignore[arg-type]


def made(out: int | None = None, flat: Any = (), graphs: bool = False) -> quickcuda.CudaCall:
    """x, a, y -> one result, over a temporary behind counters; the second kernel takes the number `a`."""
    node = SimpleNamespace(id=9)
    program = SimpleNamespace(
        arguments=2,
        results=(SimpleNamespace(shape=SHAPE, dtype=F32, node=node),),
        scratch=(1,),
        arena=Arena((256,), 512, 256),
        result_bytes=48,
        graph=SimpleNamespace(outputs=(node,), effects=()),
        steps=(
            launch(ADD, (0, 1, 3), (encode_ctype(np.float64(2.5), F64),)),
            launch(SCALE, (3, 2), (None,), ((0, F32, scalar_symbol("a", "float")),)),
        ),
    )
    launchable: Any = SimpleNamespace(program=program, family="cupy", place=Place("cuda", 0))
    places = Places((0, 2), ((1, "=a"),), out=out)
    return quickcuda.CudaCall(launchable, places, (), None, flat, graphs)


def road(call: quickcuda.CudaCall, args: Any) -> Any:
    call(args)
    entry = native_cupy.entry(call, args)
    assert entry is not None
    found = native_entry.Road((), "device_road")
    found.add(entry)
    return found


def seen(x: int, a: float, y: int, result: int = RESULT) -> list[Any]:
    bits = int(np.float32(a).view(np.uint32))
    sizes = (2, 1, 1, 64, 1, 1, 0)
    return [
        ("clear", ARENA, 256, 0x77),
        (ADD, sizes, 0x77, [x, y, ARENA + 256, int(np.float64(2.5).view(np.uint64))]),
        (SCALE, sizes, 0x77, [ARENA + 256, result, bits]),
    ]


@pytest.mark.parametrize("graphs", [False, True])
def test_a_call(driver: FakeDriver, allocator: Allocator, graphs: bool) -> None:
    found = road(made(graphs=graphs), [array(0x1000), 1.0, array(0x2000)])
    for x, a, y in ((0x1000, 1.5, 0x2000), (0x7F0000000010 - 16, -2.0, 0x3000)):
        driver.seen.clear()
        result = found.call(array(x), a, array(y))
        assert type(result) is cupy.ndarray
        assert (result.shape, result.dtype, result.data.ptr) == (SHAPE, np.float32, RESULT)
        assert driver.seen == seen(x, a, y)
    assert driver.replays == (2 if graphs else 0)


def test_what_does_not_fit_is_left_to_the_other_road(driver: FakeDriver, allocator: Allocator) -> None:
    found = road(made(), [array(0x1000), 1.0, array(0x2000)])
    driver.seen.clear()
    y = array(0x2000)
    for x in (
        array(0x1000, (4, 3)), array(0x1000, (12,)), array(0x1000, dtype="f8"), array(0x1004), array(0x1000, device=1),
        array(0x1000, (3, 8))[:, ::2], np.ones(SHAPE, np.float32), None, 1.0,
    ):  # fmt: skip
        assert found.call(x, 1.0, y) is NotImplemented
    assert found.call(array(0x1000), 1, y) is NotImplemented
    assert found.call(array(0x1000), 1.0) is NotImplemented
    driver.device = 1  # another device is current
    assert found.call(array(0x1000), 1.0, y) is NotImplemented
    driver.device = 0
    allocator.full = True
    assert found.call(array(0x1000), 1.0, y) is NotImplemented
    allocator.full = False
    assert driver.seen == []
    assert found.call(array(0x1000), 1.0, y).data.ptr == RESULT


def test_a_refused_launch_raises(driver: FakeDriver, allocator: Allocator) -> None:
    found = road(made(), [array(0x1000), 1.0, array(0x2000)])
    driver.codes = [700]
    with pytest.raises(InternalError, match="code 700"):
        found.call(array(0x1000), 1.0, array(0x2000))
    assert found.call(array(0x1000), 1.0, array(0x2000)) is not NotImplemented


def test_out(driver: FakeDriver, allocator: Allocator) -> None:
    args = [array(0x1000), 1.0, array(0x2000), array(0x9000)]
    found = road(made(3, args), args)
    driver.seen.clear()
    out = array(0xA000)
    assert found.call(args[0], 2.0, args[2], out) is out
    assert driver.seen == seen(0x1000, 2.0, 0x2000, 0xA000)
    assert found.call(args[0], 2.0, args[2], array(0x2000 - 32)) is NotImplemented  # it would overlap an argument


def test_nothing_is_leaked(driver: FakeDriver, allocator: Allocator) -> None:
    found = road(made(), [array(0x1000), 1.0, array(0x2000)])
    x, y = array(0x1000), array(0x2000)
    held = [x, y, x.dtype, x.data, None, NotImplemented]

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(v) for v in held] + [len(gc.get_objects())]

    for warm in (True, False):
        before = counts()
        for _ in range(300):
            driver.seen.clear()
            found.call(x, 1.0, y)
            found.call(x, 1, y)
            allocator.full = True
            found.call(x, 1.0, y)
            allocator.full = False
        if not warm:
            assert max(abs(a - b) for a, b in zip(before, counts(), strict=True)) < 20
