"""At least 85% of the array-API standard's functions trace and equal NumPy; NumPy's other functions too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import FuserError
from tests.surface import array_functions as functions
from tests.surface.running import compare

DTYPES = ("float64", "float32", "float16", "int32", "uint8", "bool")
PROGRAMS = {n: p for n, p in {**functions.STANDARD, **functions.LINALG, **functions.MORE}.items() if p is not None}


def arrays(dtype: str) -> list[Any]:
    """x, y (4, 6) and v (6,): normal floats, small integers."""
    made = []
    for seed, shape in enumerate(((4, 6), (4, 6), (6,))):
        rng = np.random.default_rng(seed)
        low, high = {"bool": (0, 2), "int32": (-5, 9)}.get(dtype, (0, 9))
        floats = rng.standard_normal(shape) * 2
        made.append((floats if dtype.startswith("f") else rng.integers(low, high, shape)).astype(dtype))
    return made


def _taken(name: str, dtype: str) -> bool:
    """Whether NumPy computes the program on a dtype."""
    try:
        with np.errstate(all="ignore"):
            PROGRAMS[name](*arrays(dtype))
    except (TypeError, ValueError):
        return False
    return True


def test_at_least_85_of_100_of_the_standard() -> None:
    assert len(functions.STANDARD) > 130
    whole = [n for n, p in functions.STANDARD.items() if p is not None]
    assert len(whole) / len(functions.STANDARD) >= 0.94


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_means_what_numpy_computes(name: str) -> None:
    taken = [d for d in DTYPES if _taken(name, d)]
    assert taken
    for dtype in taken:
        compare(PROGRAMS[name], arrays(dtype), scale=10, runner=fuser.reference)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_equals_numpy(name: str) -> None:
    for dtype in DTYPES:
        if _taken(name, dtype):
            compare(PROGRAMS[name], arrays(dtype), scale=10)


def _call(name: str, x: Any) -> Any:
    owner: Any = np
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner(x)


REFUSED = [n for n, p in {**functions.STANDARD, **functions.LINALG}.items() if p is None and n != "linalg.solve"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fused_is_refused_by_name(name: str) -> None:
    with pytest.raises(FuserError, match=name.rpartition(".")[2]):
        fuser.compile(lambda x: _call(name, x))(np.eye(3))
