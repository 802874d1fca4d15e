"""Every ufunc of NumPy on samples of every real, integer and boolean dtype that it takes.

In: a ufunc. Out: programs (`cases`) that apply it to arrays of one dtype, and of two; and `measure`, which runs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
MIXED = (("int32", "float32"), ("uint8", "int8"), ("int64", "uint64"), ("float16", "float32"), ("bool", "int16"))
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 3.5)
SMALL_EXPONENTS = ("power", "left_shift", "right_shift", "ldexp")  # second operands: counts, not any integer


def names() -> list[str]:
    """The ufuncs of NumPy that have a real, integer or boolean loop, under their own names."""
    found = {u.__name__ for n in dir(np) if isinstance(u := getattr(np, n), np.ufunc)}
    return sorted(n for n in found if signatures(getattr(np, n)))


def signatures(ufunc: Any) -> list[str]:
    """Loops over numbers that are not complex, `longdouble` ones left out."""
    return [t for t in ufunc.types if set(t) <= set("?bBhHiIlLqQefd->")]


def sample(dtype: str, seed: int, counts: bool = False) -> np.ndarray[Any, Any]:
    """24 values (4, 6) of a dtype: special ones and random ones."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, (4, 6)).astype(bool)
    if counts:
        return rng.integers(0, 7, (4, 6)).astype(dtype)
    if dtype.startswith("float"):
        values = rng.standard_normal(24) * 2
        values[: len(SPECIAL)] = rng.permutation(SPECIAL)
        return values.reshape(4, 6).astype(dtype)
    low, high = (0, 101) if dtype.startswith("u") else (-100, 101)
    return rng.integers(low, high, (4, 6)).astype(dtype)


def cases(name: str) -> Iterator[tuple[str, list[np.ndarray[Any, Any]]]]:
    """(description, arguments) for every dtype (and some pairs of them) that the ufunc takes."""
    ufunc = getattr(np, name)
    if ufunc.signature is not None:
        yield from _matrix_cases(ufunc)
        return
    for dtypes in itertools.chain(((t,) * ufunc.nin for t in DTYPES), MIXED if ufunc.nin == 2 else ()):
        arrays = [sample(t, k, counts=k == 1 and name in SMALL_EXPONENTS) for k, t in enumerate(dtypes)]
        if name == "ldexp" and not dtypes[-1].startswith(("int", "bool")):
            arrays[1] = arrays[1].astype("int32")
        yield ", ".join(str(a.dtype) for a in arrays), arrays


def _matrix_cases(ufunc: Any) -> Iterator[tuple[str, list[np.ndarray[Any, Any]]]]:
    """Generalised ufuncs: small finite matrices and vectors of their core dimensions."""
    cores = [c.strip("()").split(",") for c in ufunc.signature.partition("->")[0].replace("),(", ");(").split(";")]
    sizes = {"n": 3, "m": 2, "p": 4, "k": 4}
    for t in DTYPES:
        rng = np.random.default_rng(0)
        shapes = [(2, *(sizes[c.strip(" ?")] for c in core)) for core in cores]
        yield t, [rng.integers(0, 5, s).astype(t) for s in shapes]


def accepted(name: str, arrays: list[np.ndarray[Any, Any]]) -> bool:
    """Whether NumPy computes these."""
    try:
        with np.errstate(all="ignore"):
            getattr(np, name)(*arrays)
    except TypeError:
        return False
    return True
