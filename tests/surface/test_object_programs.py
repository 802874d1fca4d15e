"""Programs with objects, parameters in dataclasses and complex numbers, unmodified, compared with NumPy."""

from __future__ import annotations

import pytest

from tests.surface.programs_objects import PROGRAMS
from tests.surface.running import compare


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_numpy(name: str) -> None:
    function, arguments = PROGRAMS[name]
    compare(function, arguments, scale=100)
