"""150 fusion programs, compiled on the CPU: values, dtypes, shapes and stores equal NumPy's, in both spellings."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import fuser
from tests.surface import programs_fusion as fusion
from tests.surface.programs_stores import STORES
from tests.surface.running import assert_same

GROUPS = {
    "elementwise": fusion.ELEMENTWISE, "all": fusion.ALL_AXES, "outer": fusion.OUTER, "inner": fusion.INNER,
    "middle": fusion.MIDDLE, "views": fusion.VIEWS, "stores": STORES,
}  # fmt: skip
PROGRAMS = {f"{group}-{name}": program for group, programs in GROUPS.items() for name, program in programs.items()}


def check(name: str, module: Any) -> None:
    program = PROGRAMS[name]
    mine, theirs = (copy.deepcopy(fusion.data()) for _ in range(2))
    with np.errstate(all="ignore"):
        wanted = program(np, theirs)
    got = fuser.compile(program)(module, mine)
    assert_same(got, wanted, name, scale=3)
    assert_same(tuple(mine), tuple(theirs), f"{name}: arguments", scale=3)


def test_there_are_150() -> None:
    assert len(PROGRAMS) >= 150


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_numpy(name: str) -> None:
    check(name, np)


@pytest.mark.parametrize("name", list(PROGRAMS)[::5])
def test_cupys_spelling_traces_alike(name: str) -> None:
    check(name, pytest.importorskip("cupy"))
