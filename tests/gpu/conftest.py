"""What every test of this folder needs."""

import pytest

from tests import engines


@pytest.fixture(autouse=True)
def _needs_cupy() -> None:
    if reason := engines.why_no_cuda():
        pytest.skip(reason)
