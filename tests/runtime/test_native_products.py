"""Matrix products on the native road, with a driver and a cuBLAS that only take notes: what is asked for, in which
order, on which stream, with which workspace, one by one and in a graph."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import device as devices
from fuser.compiled import _with_strides
from fuser.dtypes import F32
from fuser.errors import InternalError
from fuser.runtime import call, cublas, cuda, library, native_cupy, native_entry, native_graph, native_plan, quickcuda
from fuser.runtime.arrays import Place
from fuser.runtime.bound import Launch, Library
from fuser.runtime.cublas import Direct, Factor, Product
from fuser.runtime.launch_steps import Blas, KernelLaunch, ProductLaunch
from fuser.runtime.native_plan import LaunchPlan
from fuser.runtime.quickcpu import Places
from tests.runtime.fake_driver import HANDLE, FakeDriver
from tests.runtime.test_cublas import perform
from tests.runtime.test_library import CASES as LIBRARY_CASES

pytestmark = pytest.mark.skipif(not native_entry.usable(), reason="this interpreter has no native road")
SCALE = 0x2000
ROOM = 0x700000
KIND, COMPUTE = 0, 68


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver({SCALE: 2})
    known = native_plan.Driver(fake)
    monkeypatch.setattr(native_plan, "driver", lambda: known)
    monkeypatch.setattr(cublas, "direct", lambda: Direct(fake))
    monkeypatch.setattr(cublas, "handle_function", lambda: handle_function(HANDLE))
    monkeypatch.setattr(cuda, "architecture", lambda ordinal: "sm_90")
    return fake


def handle_function(value: int) -> int:
    """The address of CuPy's function for a thread's handle."""
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int)(lambda skip: value)
    _KEEP.append(function)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_KEEP: list[Any] = []


def plan(driver: FakeDriver, count: int = 1, graphs: bool = False, handle: int = HANDLE) -> LaunchPlan:
    """x, w, t, y, workspace -> t = x @ w, SCALE(t, y)."""
    a, b = Factor(64, False, 7, 21), Factor(0, True, 9, 0)
    steps = [
        ProductLaunch(Product(3, 5, 7, count, a, b, 128), (0, 1, 2), F32),
        KernelLaunch(SCALE, (1, 1), 32, 0, ((2, 0), (3, 0))),
    ]
    blas = Blas(handle_function(handle), Direct(driver), 4, 1 << 20)
    return LaunchPlan(steps, 5, native_plan.Driver(driver), None, blas, graphs)


def launches(stream: int | None, x: int, w: int, t: int, y: int, room: int = ROOM, count: int = 1) -> list[Any]:
    if count == 1:
        sides = (w, KIND, 9), (x + 64, KIND, 7), (t + 128, KIND, 5, COMPUTE, -1)
    else:
        sides = (w, KIND, 9, 0), (x + 64, KIND, 7, 21), (t + 128, KIND, 5, 15, count, COMPUTE, -1)  # type: ignore[assignment]
    return [
        ("product", stream or 0, (room, 1 << 20), (1, 0, 5, 3, 7), *sides),
        (SCALE, (1, 1, 1, 32, 1, 1, 0), stream, [t, y]),
    ]


@pytest.mark.parametrize("count", [1, 4])
def test_products_and_kernels_in_order_on_one_stream(driver: FakeDriver, count: int) -> None:
    made = plan(driver, count)
    for stream in (0x77, 0):
        driver.seen.clear()
        assert made.launch(stream, 1000, 2000, 3000, 4000, ROOM) == 0
        assert driver.seen == launches(stream or None, 1000, 2000, 3000, 4000, count=count)
        assert (driver.blas_stream, driver.blas_room) == (0, (0, 0)), "the handle is left without the workspace"


def test_what_cublas_refuses_is_an_error_and_ends_the_call(driver: FakeDriver) -> None:
    made = plan(driver)
    driver.blas_codes = [13]
    code = made.launch(1, 1000, 2000, 3000, 4000, ROOM)
    assert [name for name, *_ in driver.seen] == ["product"]
    assert driver.blas_room == (0, 0)
    assert isinstance(cuda.launch_failed(code), InternalError)
    assert "cuBLAS refused a matrix product with status 13" in str(cuda.launch_failed(code))
    assert plan(driver, handle=0).launch(1, 1000, 2000, 3000, 4000, ROOM) == cublas.ERROR + 1, "no handle"


def test_a_graph_is_made_for_addresses_that_come_again(driver: FakeDriver) -> None:
    made = plan(driver, graphs=True)
    for turn in range(4):
        driver.seen.clear()
        assert made.launch(5, 1000, 2000, 3000, 4000 + turn, ROOM) == 0
        assert driver.seen == launches(5, 1000, 2000, 3000, 4000 + turn)
    assert (driver.replays, len(driver.patches)) == (2, 2), "only the kernel sees another result"


def test_other_addresses_are_launched_one_by_one_or_have_their_own_graph(driver: FakeDriver) -> None:
    made = plan(driver, graphs=True)
    first, second = (1000, 2000, 3000, 4000, ROOM), (1000, 2000, 3008, 4000, ROOM)
    for words in (first, first, second, second):
        made.launch(5, *words)
    assert driver.replays == 0
    for stream, words in ((5, first), (6, second), (5, first), (None, second)):
        driver.seen.clear()
        made.launch(stream or 0, *words)
        assert driver.seen == launches(stream, *words)
    assert driver.replays == 4
    driver.seen.clear()
    made.launch(5, 1000, 2000, 3000, 4000, ROOM + 256)
    assert driver.seen == launches(5, 1000, 2000, 3000, 4000, ROOM + 256)
    assert driver.replays == 4


def test_addresses_that_always_change_make_few_graphs(driver: FakeDriver) -> None:
    made = plan(driver, graphs=True)
    for x in range(100):
        made.launch(5, 1000 + x, 2000, 3000, 4000, ROOM)
    assert not driver.graphs
    for x in range(100):
        for _ in range(2):
            made.launch(5, 5000 + x, 2000, 3000, 4000, ROOM)
    assert sum(g.template is not None for g in driver.graphs.values()) == native_graph.GRAPHS
    driver.seen.clear()
    made.launch(5, 5000, 2000, 3000, 4001, ROOM)
    assert driver.seen == launches(5, 5000, 2000, 3000, 4001)
    assert driver.replays == 1


def test_a_product_refused_while_a_graph_is_made_leaves_nothing(driver: FakeDriver) -> None:
    made = plan(driver, graphs=True)
    made.launch(5, 1000, 2000, 3000, 4000, ROOM)
    driver.blas_codes = [0, 14]
    with pytest.raises(InternalError, match="status 14"):
        made.launch(5, 1000, 2000, 3000, 4000, ROOM)
    assert all(nodes is None for nodes in driver.captures.values())
    assert not made.recorded
    made.launch(5, 1000, 2000, 3000, 4000, ROOM)
    assert driver.seen[-2:] == launches(5, 1000, 2000, 3000, 4000)


def refused(code: int) -> None:
    raise InternalError(f"code {code}", "launch")


def test_a_capture_that_another_thread_broke_is_made_later(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the device invalidates every capture; what is launched one by one is right all the same."""
    made = plan(driver, graphs=True)
    words = (5, 1000, 2000, 3000, 4000, ROOM)
    driver.blas_codes, driver.capture_codes = [0, 0, 14], [901]
    for _ in range(4):
        driver.seen.clear()
        assert made.launch(*words) == 0
        assert driver.seen == launches(*words[:-1])
    assert made.recorded
    made.launch(*words)
    assert driver.replays == 1
    monkeypatch.setattr(native_plan, "raise_error", refused)
    other = plan(driver, graphs=True)
    driver.capture_codes = [901] * native_graph.TRIES
    for _ in range(2 * native_graph.TRIES - 1):
        assert other.launch(*words) == 0
    with pytest.raises(InternalError, match="901"):
        other.launch(*words)


def test_graphs_go_with_their_plan(driver: FakeDriver) -> None:
    made = plan(driver, graphs=True)
    for x in (1000, 1000, 1008, 1008):
        made.launch(5, x, 2000, 3000, 4000, ROOM)
    assert made.recorded
    del made
    assert all(g.dead for g in driver.graphs.values())


# -- whole programs ------------------------------------------------------------------------------------
def bound(program: Any, args: tuple[Any, ...]) -> tuple[Any, Places]:
    """A program planned for a GPU, bound to the shapes and strides of NumPy arrays."""
    compiled = fuser.compile(program)
    found, traced = compiled._trace(args, {})
    made = compiled._plan_for(found, traced, devices.find("sm_90"))
    steps = tuple(zip(made.groups, made.built, strict=True))
    env = _with_strides(found, found.infos)
    return call.bind(made.graph, steps, Place("cuda", 0), env), Places(tuple(range(len(args))), ())


WORKED = {name: case for name, case in LIBRARY_CASES.items() if name not in ("nothing to add",)}


@pytest.mark.parametrize("layout", ["as it is", "spread", "turned"])
@pytest.mark.parametrize("name", WORKED)
def test_products_of_a_program_by_hand(driver: FakeDriver, name: str, layout: str) -> None:
    """What cuBLAS is to compute, done by hand in the host's memory, against NumPy's product of the same views."""
    fn, given, _ = WORKED[name]
    args = tuple(ARRANGED[layout](a.astype(np.float64)) for a in given)
    program, places = bound(fn, args)
    found = quickcuda.products_of(program, places, args)
    for k, step in enumerate(program.steps):
        if not isinstance(step, Library):
            continue
        rng = np.random.default_rng(1)
        memory = [a if o.place < len(args) else rng.random(program.shapes[o.node.id])
                  for o, a in ((o, args[o.place] if o.place < len(args) else None) for o in step.operands)]  # fmt: skip
        operands = [library.seen(m, o.view) for m, o in zip(memory, step.operands, strict=True)]
        copied = any(library.layout(x.shape, x.strides, 8) is None or (not np.shares_memory(x, m) and x.size)
                     for x, m in zip(operands, memory, strict=True))  # fmt: skip
        assert (found is None) == copied
        if found is None:
            return
        out = np.full(program.shapes[step.node.id], np.nan)
        for launch in found[k]:
            perform(launch.at(*(m.ctypes.data for m in memory), out.ctypes.data))
        np.testing.assert_allclose(out, np.matmul(*operands), rtol=1e-12)


ARRANGED: dict[str, Any] = {
    "as it is": lambda a: a,
    "spread": lambda a: np.repeat(a, 2, axis=0)[::2] if a.ndim > 1 else a,
    "turned": np.asfortranarray,
}


@pytest.mark.parametrize(
    "program", [lambda x, w: x[:, :0] @ w[:0], lambda x, w: x.astype(np.int32) @ w.astype(np.int32)], ids=["k=0", "i32"]
)
def test_what_cublas_does_not_do_goes_another_road(driver: FakeDriver, program: Any) -> None:
    args = np.ones((6, 5)), np.ones((5, 4))
    found, places = bound(program, args)
    assert quickcuda.products_of(found, places, args) is None


def test_all_products_take_the_workspace_in_turn(driver: FakeDriver) -> None:
    x = np.ones((64, 64), np.float32)
    program, _ = bound(lambda x, w: np.tanh(np.tanh(x @ w) @ w) @ x, (x, x))
    rooms = {s.workspace for s in program.steps if isinstance(s, Library)}
    assert len(rooms) == 1
    (room,) = rooms
    assert program.scratch[room - 3].nbytes == 32 << 20
    first = program.arena.offsets[room - 3]
    apart = [o for k, o in enumerate(program.arena.offsets) if k != room - 3]
    assert all(o + x.nbytes <= first or o >= first + (32 << 20) for o in apart)


def test_a_call_launches_kernels_and_products(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of the short road, over memory that does not exist."""
    cupy = pytest.importorskip("cupy")
    x = np.ones((64, 64), np.float32)
    program, places = bound(lambda x, w: np.tanh(x @ w) @ w, (x, x))
    for step in program.steps:
        if isinstance(step, Launch):
            binary = SimpleNamespace(on=lambda ordinal: SimpleNamespace(function=SCALE, shared=0))
            object.__setattr__(step.built, "binary", binary)
            driver.counts[SCALE] = len(step.slots) + len(step.scalars)
    monkeypatch.setattr(
        quickcuda, "_cupy_makers", lambda wanted, place: [(native_cupy.probe, (cupy, (64, 64), "f4", 0x3000, 0))]
    )
    monkeypatch.setattr(cuda, "allocate", lambda nbytes: SimpleNamespace(ptr=0x100000))
    monkeypatch.setattr(cuda, "_getters", lambda: (lambda: 0, lambda k: None, lambda: SimpleNamespace(ptr=0x77)))
    arrays = [native_cupy.probe(cupy, (64, 64), "f4", at, 0) for at in (0x1000, 0x2000)]
    made: Any = SimpleNamespace(program=program, family="cupy", place=Place("cuda", 0))
    assert quickcuda.CudaCall.suits(made, places, arrays)
    quick = quickcuda.CudaCall(made, places, (), None, arrays)
    answer = quick(arrays)
    assert answer.data.ptr == 0x3000 + 64
    assert [name for name, *_ in driver.seen] == ["product", SCALE, "product"]
    (_, stream, room, shape, second, first, out), _, (*_, last) = driver.seen
    assert (stream, room[1], shape) == (0x77, 32 << 20, (0, 0, 64, 64, 64))
    assert (second[0], first[0]) == (0x2000 + 64, 0x1000 + 64)
    assert 0x100000 <= out[0] < 0x100000 + program.arena.nbytes
    assert last[0] == 0x3000 + 64
    assert native_cupy.entry(quick, arrays) is not None
