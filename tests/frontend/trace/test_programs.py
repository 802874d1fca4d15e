"""Unmodified NumPy programs trace, and their graphs mean what NumPy computes: values, dtypes, shapes and stores."""

import pytest

from tests.frontend.trace.programs import ARGUMENTS, PROGRAMS, X
from tests.frontend.trace.running import check


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_numpy(name: str) -> None:
    check(PROGRAMS[name], *ARGUMENTS.get(name, (X,)))
