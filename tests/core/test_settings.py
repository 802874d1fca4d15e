"""Settings: read from the environment, typed, refused where they make no sense."""

from __future__ import annotations

import pytest

from fuser.errors import ArgumentError
from fuser.settings import Settings, read


def test_every_kind_of_value() -> None:
    found = read({"FUSER_DEBUG": "2", "FUSER_STABLE": "no", "FUSER_COMPILE": "Never", "FUSER_CACHE": "0"})
    assert (found.debug, found.stable, found.compile, found.cache) == (2, False, "Never", "0")
    assert read({"FUSER_DEBUG": ""}) == Settings()
    assert read({"OMP_NUM_THREADS": "3"}).num_threads == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FUSER_DEBUG", "yes", "'yes' is not an integer"),
        ("FUSER_COMPILE", "nevr", "'nevr' is not one of auto, never"),
        ("FUSER_CACHE", "none", "'none' is not one of on, off"),
    ],
)
def test_values_that_make_no_sense_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name}={message}"):
        read({name: value})
