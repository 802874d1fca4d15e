"""Records are dataclasses: each property of `dataclasses.dataclass` that fuser relies on holds for them."""

import copy
import dataclasses
import pickle
import threading
from dataclasses import field
from typing import Any

import pytest

from fuser.record import dataclass
from tests.threads import together


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 2
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Named(Point):
    name: str = "n"


@dataclass(frozen=True, slots=True)
class Slim:
    x: int
    y: int = 2


@dataclass
class Loose:
    x: int
    items: list[int] = field(default_factory=list)
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.made = self.x + 1


@dataclass(frozen=True, eq=False)
class Alone:
    x: int


@dataclass(frozen=True, kw_only=True)
class Keywords:
    a: int
    b: int = 1


STANDARD = dataclasses.make_dataclass(
    "Point",
    [
        ("x", int),
        ("y", int, 2),
        ("tags", tuple, field(default_factory=tuple)),
        ("note", str, field(default="", compare=False)),
    ],
    frozen=True,
)


def test_the_standard_functions_know_records() -> None:
    p = Point(1, note="a")
    assert dataclasses.is_dataclass(Point)
    assert [f.name for f in dataclasses.fields(Point)] == ["x", "y", "tags", "note"]
    assert dataclasses.replace(p, y=5) == Point(1, 5)
    assert dataclasses.asdict(p) == {"x": 1, "y": 2, "tags": (), "note": "a"}
    assert repr(p) == repr(STANDARD(1, note="a"))
    match p:
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_equal_means_the_same_class_and_fields() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert hash(Point(1, note="a")) == hash(Point(1, note="b"))
    assert Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert Point(1) != (1, 2, (), "")
    assert Alone(1) != Alone(1)
    assert hash(Alone(1)) != hash(None)
    assert Slim(1) == Slim(1, 2)
    assert len({Slim(1), Slim(1), Slim(2)}) == 2
    nan = float("nan")
    assert Slim(nan) == Slim(nan)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Loose(1))


def test_frozen_records_refuse_changes() -> None:
    for record in (Point(1), Named(1), Slim(1), Keywords(a=1)):
        name = dataclasses.fields(record)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(record, name, 3)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(record, name)
    loose = Loose(1)
    loose.x = 4
    assert (loose.x, loose.made) == (4, 2)


@pytest.mark.parametrize("call", [lambda: Point(), lambda: Point(1, z=2), lambda: Keywords(1), lambda: Loose(1, [], 2)])  # type: ignore[call-arg, misc]
def test_wrong_arguments_are_type_errors(call: Any) -> None:
    for _ in range(2):  # before and after the constructor was made
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            call()


def test_defaults_are_made_for_each_instance() -> None:
    a, b = Loose(1), Loose(1)
    a.items.append(1)
    assert b.items == []
    assert Keywords(a=2) == Keywords(a=2, b=1)


def test_copies_and_pickles_of_records() -> None:
    for record in (Point(1, 3, ("a",)), Named(1), Slim(1), Loose(2), Keywords(a=1)):
        assert copy.copy(record) == record
        assert pickle.loads(pickle.dumps(record)) == record


def test_a_record_read_before_any_was_made() -> None:
    @dataclass(frozen=True)
    class Fresh:
        x: int

    record = object.__new__(Fresh)
    record.__dict__["x"] = 1
    assert repr(record).endswith("Fresh(x=1)")
    assert record == Fresh(1)


def test_threads_may_make_the_first_instance_together() -> None:
    for _ in range(50):

        @dataclass(frozen=True)
        class Fresh:
            x: int
            y: int

        gate = threading.Barrier(4)
        made: list[Any] = []

        def make(fresh: Any, gate: threading.Barrier = gate, made: list[Any] = made) -> None:
            gate.wait()
            made.append(fresh(1, y=2))

        together(make, [Fresh] * 4)
        assert made == [Fresh(1, 2)] * 4
