"""Arrays of libraries that fuser does not know by name: read where they lie, answered in kind, on the short roads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import traces
from fuser.errors import FuserError, UnsupportedError
from fuser.runtime import arrays, cuda, foreign

MANY = 12  # calls of a kind until native code has taken over


# -- a library of one class, known by DLPack alone -----------------------------------------------------
class Box:
    """An array library's array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.fixture(autouse=True)
def boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("boxes")
    library.from_dlpack = lambda array: Box(np.from_dlpack(array))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "boxes", library)
    monkeypatch.setattr(Box, "__module__", "boxes")


def test_boxes_go_in_and_come_out() -> None:
    run = fuser.compile(lambda x, y: (x * 2 + y, np.sum(x), {"d": x.T}))
    x, y = np.arange(12.0).reshape(3, 4), np.ones((3, 4))
    for _ in range(MANY):
        doubled, total, rest = run(Box(x), y=Box(y))
    for found, wanted in ((doubled, x * 2 + y), (total, x.sum()), (rest["d"], x.T)):
        assert type(found) is Box
        np.testing.assert_array_equal(found.array, wanted)
    assert (("y",), False) in run._roads._native  # NumPy's, and taken by names
    assert type(run(Box(x), 1.0)[0]) is Box
    assert type(run(Box(x), y)[0]) is Box  # NumPy's arrays go along


def test_an_argument_that_is_returned_is_the_very_object() -> None:
    def step(x: Any) -> Any:
        x[...] = x + 1
        return x

    run, x = fuser.compile(step), np.zeros(5)
    box = Box(x)
    for k in range(1, MANY):
        assert run(box) is box
        np.testing.assert_array_equal(x, np.full(5, float(k)))


def test_what_a_view_refuses_is_refused() -> None:
    def step(x: Any) -> None:
        x[...] = x + 1

    class Locked(Box):
        """Of memory that may not be written."""

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("read-only")

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            view = self.array.view()
            view.flags.writeable = False
            return view

    run = fuser.compile(step)
    with pytest.raises(FuserError, match="cannot be written"):
        run(Locked(np.zeros(5)))


def test_arrays_of_no_device_of_ours_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Box, "__dlpack_device__", lambda self: (8, 0))  # Metal
    with pytest.raises(FuserError, match="on a device that fuser does not run on"):
        fuser.compile(lambda x: x + 1)(Box(np.zeros(3)))


def test_only_plain_calls_of_one_library_are_taken() -> None:
    box = Box(np.zeros(3))
    assert foreign.among((box, 1.0, None, "a", np.float32(1), np.ones(3))) == "foreign:boxes"
    assert foreign.among((1.0, np.ones(3))) is None
    assert foreign.among((box, [box])) is None

    class Other(Box):
        pass

    Other.__module__ = "others"
    assert foreign.among((box, Other(np.zeros(3)))) is None


def test_memory_of_others_is_kept_until_the_stream_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []

    def event(**options: Any) -> Any:
        events.append(SimpleNamespace(done=False, record=lambda: None))
        return events[-1]

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Event=event)))
    kept = cuda._Kept()
    monkeypatch.setattr(cuda, "_kept", lambda ordinal: kept)
    monkeypatch.setattr(cuda, "_getters", lambda: (lambda: 0, None, None))
    gone: list[int] = []

    class Memory:
        def __init__(self, k: int) -> None:
            self.k = k

        def __del__(self) -> None:
            gone.append(self.k)

    cuda.keep_until_done([Memory(0)])
    cuda.keep_until_done([Memory(1)])
    assert gone == []
    events[0].done = True
    cuda.keep_until_done([Memory(2)])
    assert gone == [0]
    events[1].done = events[2].done = True
    cuda.keep_until_done([])
    assert sorted(gone) == [0, 1, 2]
    assert len(events) == 3, "one of them was used again"


class DeviceBox(Box):
    """Of a GPU's memory, by both protocols."""

    waited = 0
    __cuda_array_interface__ = MappingProxyType({"version": 2})

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def block_until_ready(self) -> None:
        self.waited += 1


def test_streams_are_ordered_before_memory_of_a_device_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(value: Any) -> Any:
        raise BufferError("no such dtype")

    box = DeviceBox(np.zeros(3))
    library = SimpleNamespace(asarray=lambda value: "unordered", from_dlpack=lambda value: "ordered")
    monkeypatch.setitem(sys.modules, "cupy", library)
    assert foreign.view(box) == "ordered"
    assert box.waited == 0
    library.from_dlpack = refuses
    assert foreign.view(box) == "unordered"
    assert box.waited == 1  # so it may be


def test_views_of_a_device_that_must_not_change_are_not_stored_into(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: Any) -> None:
        x[...] = x + 1

    view = SimpleNamespace(dtype=np.dtype("f4"), shape=(3,))
    monkeypatch.setattr(foreign, "view", lambda value, name="x": view)
    monkeypatch.setattr(foreign, "IMMUTABLE", "foreign:boxes")
    called: list[Any] = []
    roads: Any = None
    assert foreign.call(called.append, roads, (Box(0),), {}, True) is NotImplemented
    assert called == []
    monkeypatch.undo()
    run = fuser.compile(step)
    assert traces.may_store(run._traces)  # nothing is known yet
    run(np.zeros(3))
    assert traces.may_store(run._traces)
    monkeypatch.setattr(Box, "__module__", "boxes")
    monkeypatch.setattr(foreign, "IMMUTABLE", "foreign:boxes")
    assert not arrays.describe(Box(np.zeros(3)), "x").writable
    other = fuser.compile(lambda x: x + 1)
    other(np.zeros(3))
    assert not traces.may_store(other._traces)


# -- JAX -------------------------------------------------------------------------------------------------
@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="JAX is not installed")


@pytest.fixture
def on_cpu(jax: Any) -> Any:
    with jax.default_device(jax.devices("cpu")[0]):
        yield jax


DTYPES = ["float32", "float16", "bfloat16", "int8", "int32", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("name", DTYPES)
def test_jax_arrays_of_every_dtype(on_cpu: Any, name: str) -> None:
    jnp = on_cpu.numpy
    x = jnp.arange(12).reshape(3, 4).astype(name)
    run = fuser.compile(lambda x: (x + x, np.max(x) if x.dtype.kind != "c" else np.sum(x)))
    for _ in range(MANY):
        twice, largest = run(x)
    for found, wanted in ((twice, x + x), (largest, jnp.sum(x) if name == "complex64" else jnp.max(x))):
        assert type(found) is type(x)
        assert (found.dtype, found.shape, found.weak_type) == (x.dtype, wanted.shape, False)
        assert bool(jnp.all(found == wanted))
    assert "fuser_road" in repr(run._roads.native)


def test_jax_memory_is_not_copied(on_cpu: Any) -> None:
    jnp = on_cpu.numpy
    x = jnp.ones((1 << 10, 1 << 10), jnp.float32)
    view = foreign.view(x)
    assert view.__array_interface__["data"][0] == x.unsafe_buffer_pointer()
    made = np.zeros((1 << 10, 1 << 10), np.float32)
    start = -made.__array_interface__["data"][0] % 64 // 4
    aligned = made.reshape(-1)[start : start + 1024]
    given = foreign.give(aligned, "foreign:jax")
    assert given.unsafe_buffer_pointer() == aligned.__array_interface__["data"][0]


def test_jax_results_in_64_bits_are_what_jax_makes_of_them(on_cpu: Any) -> None:
    x = on_cpu.numpy.arange(6, dtype="int32")
    total = fuser.compile(lambda x: np.sum(x))(x)  # NumPy adds in int64
    assert total.dtype == (np.int64 if on_cpu.config.jax_enable_x64 else np.int32)
    assert int(total) == 15


def test_jax_calls_of_a_kind_learned_keep_their_answers(on_cpu: Any) -> None:
    """Kinds that take turns, numbers, results as they are, in tuples and dicts, and a changed global."""
    jnp = on_cpu.numpy
    factor = 2.0

    def f(x: Any, a: float, deep: bool = False) -> Any:
        y = x * a * factor
        return {"y": y, "all": (np.sum(y), x)} if deep else y

    run, x = fuser.compile(f), jnp.arange(6, dtype="float32")
    others = (x, x.reshape(2, 3), x.astype("int32"), jnp.zeros((0, 3), "float32"), x[2])
    for _ in range(MANY):
        for y in others:
            for a in (3.0, 2):
                found = run(y, a)
                assert isinstance(found, on_cpu.Array)
                assert bool(jnp.all(found == y * a * factor))
        deep = run(x, 3.0, True)
        assert deep["all"][1] is x
        assert float(deep["all"][0]) == 90.0
    assert run._roads._foreign
    factor = 5.0
    assert bool(jnp.all(run(x, 3.0) == x * 15.0))


def test_jax_values_that_are_still_being_computed(on_cpu: Any) -> None:
    jnp = on_cpu.numpy
    run, slow = fuser.compile(lambda x: x * 2), on_cpu.jit(lambda x: jnp.linalg.matrix_power(x, 40) * 0 + 3)
    x = jnp.eye(500)
    for _ in range(5):
        assert bool(jnp.all(run(slow(x)) == 6))


def test_jax_arrays_that_are_gone(on_cpu: Any) -> None:
    x = on_cpu.numpy.ones(5)
    run = fuser.compile(lambda x: x * 2)
    for _ in range(MANY):
        run(x)
    x.delete()
    with pytest.raises(FuserError, match="deleted"):
        run(x)


def test_jax_arrays_by_the_public_way_only(on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.runtime import jaxarrays

    def changed(ordinal: int | None) -> Any:
        raise ImportError("no such function in this version")

    monkeypatch.setattr(jaxarrays, "_beneath", changed)
    assert jaxarrays._swift.__wrapped__(None) is None
    monkeypatch.setattr(jaxarrays, "_swift", lambda ordinal: None)
    x = on_cpu.numpy.arange(6.0)
    assert bool((fuser.compile(lambda x: x * 2)(x) == x * 2).all())
    wrong = lambda array: on_cpu.numpy.zeros((2, 3), "int8")  # noqa: E731
    monkeypatch.setattr(jaxarrays, "_beneath", lambda ordinal: wrong)
    monkeypatch.undo()
    monkeypatch.setattr(jaxarrays, "_beneath", lambda ordinal: wrong)
    assert jaxarrays._swift.__wrapped__(None) is None


def test_jax_tracers_are_refused_by_name(on_cpu: Any) -> None:
    jnp = on_cpu.numpy
    run, x = fuser.compile(lambda x, y: x * 2 + y), jnp.ones(5)
    for _ in range(2):
        transforms: list[Callable[[Any], Any]] = [
            on_cpu.jit(lambda y: run(x, y)),
            on_cpu.vmap(lambda y: run(x, y)),
            on_cpu.grad(lambda y: run(x, y).sum()),
            lambda y: on_cpu.eval_shape(lambda y: run(x, y), y),
        ]
        for transform in transforms:
            with pytest.raises(UnsupportedError, match="`y` is a JAX tracer"):
                transform(x)
        for _ in range(MANY):
            run(x, x)
