"""Recycled buffers: handed out again when nobody can see them any more, and never before."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fuser.runtime import memory
from tests.threads import together

LARGE = memory.SMALL
F32 = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    memory.release()
    yield
    memory.release()


def address(a: np.ndarray[Any, Any]) -> int:
    return int(a.__array_interface__["data"][0])


def test_a_block_returns_when_the_last_view_dies() -> None:
    a = memory.empty((LARGE,), F32)
    place = address(a)
    view = a[5:].reshape(-1, 1)
    del a
    assert memory.held_bytes() == 0
    other = memory.empty((LARGE,), F32)
    assert address(other) != place
    del view
    assert memory.held_bytes() > 0
    assert address(memory.empty((LARGE,), F32)) == place


def test_arrays_are_ordinary() -> None:
    a = memory.empty((3, LARGE), np.dtype(np.float64))
    assert a.shape == (3, LARGE)
    assert a.flags.c_contiguous
    assert a.flags.writeable
    assert address(a) % 64 == 0
    a[:] = 1
    assert a.sum() == 3 * LARGE


def test_shapes_of_one_size_class_share_blocks() -> None:
    first = memory.empty((LARGE,), F32)
    place = address(first)
    del first
    assert address(memory.empty((2, LARGE // 2 - 8), F32)) == place


@pytest.mark.parametrize("nbytes", [LARGE, LARGE + 1, 3 * LARGE - 1, 5 * LARGE, (1 << 28) + 12345])
def test_size_classes_waste_at_most_a_quarter(nbytes: int) -> None:
    size = memory._class_of(nbytes)
    assert nbytes <= size <= 1.25 * nbytes + memory.PAGE
    assert size % memory.PAGE == 0
    assert memory._class_of(size) == size


def test_small_arrays_and_empty_ones_come_from_numpy() -> None:
    assert memory.empty((10,), F32).base is None
    assert memory.empty((0, 5), F32).shape == (0, 5)
    assert memory.empty((), F32).shape == ()


def test_the_limit_holds_and_zero_switches_recycling_off(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = memory._shelf()
    monkeypatch.setattr(shelf, "limit", 5 * LARGE)
    arrays = [memory.empty((k * LARGE // 4,), F32) for k in (1, 2, 3, 4)]
    while arrays:
        arrays.pop(0)
        assert memory.held_bytes() <= 5 * LARGE
    assert memory.held_bytes() == 4 * LARGE  # the older, smaller ones went
    monkeypatch.setattr(shelf, "limit", 0)
    assert memory.empty((LARGE,), F32).base is None


def test_cycles_and_threads() -> None:
    def work(number: int) -> None:
        for k in range(number, 200):
            a = memory.empty((LARGE,), F32)
            a[:3] = k
            knot: list[Any] = [a]
            knot.append(knot)
            assert (a[:3] == k).all()

    together(work, range(4))
    gc.collect()
    assert memory.held_bytes() > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_writes_its_own_copy() -> None:
    a = memory.empty((LARGE,), F32)
    a[:] = 1
    child = os.fork()
    if child == 0:
        a[:] = 2
        memory.empty((LARGE,), F32)[:] = 3
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (a == 1).all()
