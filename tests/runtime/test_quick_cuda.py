"""The CUDA short road with a driver that only takes notes: which kernels are launched how, with which arguments."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from fuser.dtypes import F32, F64, I64
from fuser.errors import InternalError, OutOfMemory
from fuser.hostexpr import scalar_symbol
from fuser.runtime import cuda, native_entry, native_plan, quickcuda
from fuser.runtime.arrays import Place
from fuser.runtime.bound import Arena, Launch, encode_ctype
from fuser.runtime.launch_steps import Clear, KernelLaunch
from fuser.runtime.native_plan import LaunchPlan
from fuser.runtime.quickcpu import Places
from fuser.runtime.values import convert
from tests.runtime.fake_driver import FakeDriver

pytestmark = pytest.mark.skipif(not native_entry.usable(), reason="this interpreter has no native road")

ADD, SCALE, BROKEN = 0x1000, 0x2000, 0x3000
COUNTS = {ADD: 4, SCALE: 3, BROKEN: 0}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver(COUNTS)
    known = native_plan.Driver(fake)
    monkeypatch.setattr(native_plan, "driver", lambda: known)
    monkeypatch.setattr(cuda, "_getters", lambda: (lambda: 0, lambda k: None, lambda: SimpleNamespace(ptr=0x77)))
    monkeypatch.setattr(cuda, "launch_failed", lambda code: InternalError(f"code {code}", "launch"))
    return fake


def test_kernels_get_words_and_constants(driver: FakeDriver) -> None:
    kernels = [
        KernelLaunch(ADD, (5, 6), 128, 0, ((0, 0), (1, 0), (None, 77), (2, 0))),
        KernelLaunch(SCALE, (1, 1), 32, 99, ((2, 0), (None, 2**63 + 5), (0, 0))),
    ]
    assert LaunchPlan(kernels, 3, native_plan.Driver(driver)).launch(0xABC, 10, 20, 2**64 - 1) == 0
    assert driver.seen == [
        (ADD, (5, 6, 1, 128, 1, 1, 0), 0xABC, [10, 20, 77, 2**64 - 1]),
        (SCALE, (1, 1, 1, 32, 1, 1, 99), 0xABC, [2**64 - 1, 2**63 + 5, 10]),
    ]


def test_the_first_error_ends_it(driver: FakeDriver) -> None:
    driver.codes = [700]
    kernels = [KernelLaunch(BROKEN, (1, 1), 32, 0, ())] * 3
    assert LaunchPlan(kernels, 0, native_plan.Driver(driver)).launch(None or 0) == 700
    assert len(driver.seen) == 1


def test_on_the_default_stream_counters_last(driver: FakeDriver) -> None:
    """Elsewhere kernels of two streams could meet at one counter: those are cleared before each call."""
    kernels = [KernelLaunch(ADD, (5, 6), 128, 0, ((0, 0), (1, 0), (2, 0), (3, 0)))]
    made = LaunchPlan(kernels, 4, native_plan.Driver(driver), Clear(1, 512, ((2, 0x900), (3, 0xA00))))
    size = (5, 6, 1, 128, 1, 1, 0)
    for stream in (0, 7, 0):
        driver.seen.clear()
        assert made.launch(stream, 1, 20, 30, 40) == 0
        if stream:
            assert driver.seen == [("clear", 20, 512, 7), (ADD, size, 7, [1, 20, 30, 40])]
        else:
            assert driver.seen == [(ADD, size, None, [1, 20, 0x900, 0xA00])]


class Memory:
    """Something with a device address, as CuPy's arrays have."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr
        self.data = self


def launch(function: int, slots: tuple[int, ...], scalars: tuple[Any, ...], dynamic: tuple[Any, ...] = ()) -> Launch:
    binary = SimpleNamespace(on=lambda ordinal: SimpleNamespace(function=function, shared=0))
    return Launch(SimpleNamespace(binary=binary), slots, scalars, dynamic, (2, 1), 64, 1)  # type: ignore[arg-type]


@pytest.fixture
def quick(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> quickcuda.CudaCall:
    """x, y -> one result, over a temporary; the second kernel takes a run-time number."""
    node = SimpleNamespace(id=9)
    program = SimpleNamespace(
        arguments=2,
        results=(SimpleNamespace(shape=(4,), dtype=F32, node=node),),
        scratch=(1,),
        arena=Arena((256,), 512, 0),
        result_bytes=16,
        graph=SimpleNamespace(outputs=(node,), effects=()),
        steps=(
            launch(ADD, (0, 1, 3), (encode_ctype(convert(-3, I64), I64),)),
            launch(SCALE, (3, 2), (None,), ((0, F32, scalar_symbol("a", "float")),)),
        ),
    )
    made: Any = SimpleNamespace(program=program, family="cupy", place=Place("cuda", 0))
    monkeypatch.setattr(quickcuda, "_cupy_makers", lambda wanted, place: [(Memory, (0x3000,))])
    monkeypatch.setattr(cuda, "allocate", lambda nbytes: Memory(0x4000))
    return quickcuda.CudaCall(made, Places((0, 2), ((1, "=a"),)), (), None)


def bits(value: float) -> int:
    return int.from_bytes(bytes(ctypes.c_float(value)), "little")


def test_a_call(quick: quickcuda.CudaCall, driver: FakeDriver) -> None:
    for a in (1.5, -2.0):
        driver.seen.clear()
        result = quick([Memory(0x1000), a, Memory(0x2000)])
        assert result.ptr == 0x3000
        assert driver.seen == [
            (ADD, (2, 1, 1, 64, 1, 1, 0), 0x77, [0x1000, 0x2000, 0x4100, 2**64 - 3]),
            (SCALE, (2, 1, 1, 64, 1, 1, 0), 0x77, [0x4100, 0x3000, bits(a)]),
        ]


def test_a_thread_without_a_context_gets_one(
    quick: quickcuda.CudaCall, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_current: list[int] = []
    monkeypatch.setattr(cuda, "make_current", made_current.append)
    driver.codes = [cuda.INVALID_CONTEXT]
    quick([Memory(0x1000), 1.0, Memory(0x2000)])
    assert made_current == [0]
    assert [kernel for kernel, *_ in driver.seen] == [ADD, ADD, SCALE]
    driver.codes = [719]
    with pytest.raises(InternalError, match="code 719"):
        quick([Memory(0x1000), 1.0, Memory(0x2000)])


def test_a_plan_takes_lasting_counters_on_the_default_stream(
    quick: quickcuda.CudaCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "counters", lambda ordinal: 0x7000)
    quick.arena = Arena((0, 256, 512), 768, 512, (0, 1))
    quick._count = 7
    assert quick._lasting(cuda.DEFAULT_STREAM) == ((3, 0x7000), (4, 0x7100))
    assert quick._lasting(0x77) == ()
    quick.arena = Arena((0,), 1 << 20, 1 << 20, (0,))
    assert quick._lasting(cuda.DEFAULT_STREAM) == (), "too many for the room there is"


def test_out_of_memory_says_what_was_needed(quick: quickcuda.CudaCall, monkeypatch: pytest.MonkeyPatch) -> None:
    class OutOfMemoryError(MemoryError):
        """Named as CuPy's and torch's."""

    def full(*_: Any) -> Any:
        raise OutOfMemoryError("tried to allocate 512 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "allocate", full)
        with pytest.raises(OutOfMemory, match="528 bytes"):
            quick([Memory(0x1000), 1.0, Memory(0x2000)])
    assert quick([Memory(0x1000), 1.0, Memory(0x2000)]).ptr == 0x3000


def test_scalars_are_encoded_alike_on_both_roads() -> None:
    for value, dtype in ((1.25, F64), (-7, I64), (0.1, F32)):
        constant = encode_ctype(convert(value, dtype), dtype)
        assert quickcuda._bits(constant) == int.from_bytes(convert(value, dtype).tobytes(), "little")
