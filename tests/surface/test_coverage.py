"""docs/coverage.md says what the operator table says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.surface import coverage

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


@pytest.mark.skipif(not np.__version__.startswith("2.4"), reason="the page lists NumPy 2.4's names")
def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == coverage.page(), (
        "run: python -m tests.surface.coverage > docs/coverage.md"
    )


def test_most_functions_trace() -> None:
    functions = coverage.numpy_functions()
    assert sum(functions.values()) / len(functions) > 0.5
    assert sum(coverage.standard().values()) / len(coverage.standard()) > 0.9
