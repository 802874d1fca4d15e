"""Programs of scientific practice, unmodified, compiled on the CPU and compared with NumPy."""

from __future__ import annotations

import pytest

from tests.surface.programs_scientific import PROGRAMS
from tests.surface.running import compare


def test_there_are_forty() -> None:
    assert len(PROGRAMS) >= 40


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_numpy(name: str) -> None:
    function, arguments = PROGRAMS[name]
    compare(function, arguments, scale=100)
