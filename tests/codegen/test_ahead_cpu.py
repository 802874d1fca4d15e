"""Full sums with an operand that is read across rows: copied ahead, and not a bit of the answer changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.codegen.schedule import cpu
from fuser.schedule import CpuSchedule

Array = np.ndarray[Any, Any]
PROGRAMS: dict[str, Callable[[Array, Array], Any]] = {
    "sum": lambda x, y: np.sum(x + y.T),
    "alone": lambda x, y: np.sum(np.abs(y.T)),
    "two results": lambda x, y: (np.sum(x * y.T), np.max(y.T)),
    "two stages": lambda x, y: np.var(x + y.T),
    "slices": lambda x, y: np.sum((x + y.T)[1:, :-1]),
    "positions": lambda x, y: np.argmax(x + y.T),
}


def _chosen(monkeypatch: pytest.MonkeyPatch, ahead: bool) -> list[CpuSchedule]:
    """The schedules that are chosen from here on; without `ahead`, none copies anything."""
    seen: list[CpuSchedule] = []
    choose = cpu._choose

    def chosen(*args: Any) -> CpuSchedule:
        schedule = choose(*args)
        seen.append(schedule if ahead else replace(schedule, ahead=0))
        return seen[-1]

    monkeypatch.setattr(cpu, "_choose", chosen)
    return seen


def _results(program: Callable[[Array, Array], Any], x: Array, y: Array) -> list[Array]:
    out = fuser.compile(lambda a, b: program(a, b))(x, y)
    return [np.asarray(v) for v in (out if isinstance(out, tuple) else (out,))]


CASES = [(name, "f4", shape) for name in PROGRAMS for shape in ((5, 7), (33, 130), (700, 600))]
CASES += [("sum", t, shape) for t in ("f8", "f2", "i4") for shape in ((40, 3000), (1000, 37), (9, 20_000))]


@pytest.mark.parametrize(("name", "dtype", "shape"), CASES)
def test_copies_change_nothing(name: str, dtype: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    r = np.random.default_rng(shape[0])
    x, y = (r.integers(-99, 99, s).astype(dtype) for s in (shape, shape[::-1]))
    if dtype != "i4":
        x, y = x / np.dtype(dtype).type(7), y / np.dtype(dtype).type(7)
    seen = _chosen(monkeypatch, ahead=True)
    got = _results(PROGRAMS[name], x, y)
    assert any(s.ahead for s in seen) == (shape[1] < 20_000 or dtype == "f2")  # longer rows are not copied
    monkeypatch.undo()
    _chosen(monkeypatch, ahead=False)
    for a, b in zip(got, _results(PROGRAMS[name], x, y), strict=True):
        assert a.tobytes() == b.tobytes()


def test_blocks_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    r = np.random.default_rng(0)
    x, y = r.standard_normal((6, 5, 40, 70)), r.standard_normal((6, 5, 70, 40))
    seen = _chosen(monkeypatch, ahead=True)
    program = lambda a, b: np.sum(a * b.swapaxes(2, 3), axis=(1, 2, 3))  # noqa: E731
    got = _results(program, x, y)[0]
    assert any(s.ahead for s in seen)
    monkeypatch.undo()
    _chosen(monkeypatch, ahead=False)
    assert got.tobytes() == _results(program, x, y)[0].tobytes()
    np.testing.assert_allclose(got, program(x, y), rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i1"])
def test_arrays_without_elements(dtype: str, shape: tuple[int, int]) -> None:
    """Rows of no elements divide nothing: the number of rows in a share is not a quotient by zero."""
    x, y = np.zeros(shape, dtype), np.zeros(shape[::-1], dtype)
    for program in (lambda a, b: np.sum(a + b.T), lambda a, b: a.T.sum() + b.sum(), lambda a, b: (a * b.T).prod()):
        run = fuser.compile(program)
        run(np.ones((3, 4), dtype), np.ones((4, 3), dtype))  # memory that held something
        for _ in range(3):
            assert run(x, y) == program(x, y)
    every = fuser.compile(lambda a, b: (a == b.T).all())
    assert every(x, y)
