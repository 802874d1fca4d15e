"""Names of dtypes in Python functions are NumPy's, whatever a name means in `.fuse` programs (`i8` is int64 here)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import DTypeError

X = np.arange(12, dtype=np.float32).reshape(3, 4)

PROGRAMS: dict[str, Any] = {
    "astype": lambda x, t: x.astype(t),
    "sum": lambda x, t: x.sum(dtype=t),
    "cumsum": lambda x, t: np.cumsum(x, dtype=t),
    "zeros": lambda x, t: np.zeros(3, t),
    "ones_like": lambda x, t: np.ones_like(x, dtype=t),
    "arange": lambda x, t: np.arange(2, dtype=t),
    "array": lambda x, t: np.array([x[0, 0], 1], dtype=t),
    "asarray": lambda x, t: np.asarray(x, dtype=t),
    "concatenate": lambda x, t: np.concatenate([x, x], dtype=t, casting="unsafe"),
}


@pytest.mark.parametrize("code", ["i8", "u8", "i1", "u2", "f8", "f2", "c8", "q", "int64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_codes_are_those_of_numpy(name: str, code: str) -> None:
    program = PROGRAMS[name]
    got, wanted = fuser.compile(lambda x: program(x, code))(X), program(X, code)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def test_names_that_numpy_lacks_are_fusers() -> None:
    assert fuser.compile(lambda x: x.astype("f32"))(X).dtype == np.float32
    assert fuser.compile(lambda x: x.astype("i16"))(X).dtype == np.int16
    assert fuser.compile(lambda x: x.astype("bf16"))(X).dtype.name == "bfloat16"
    with pytest.raises(DTypeError):
        fuser.compile(lambda x: x.astype("S3"))(X)


def test_in_a_fuse_program_they_are_fusers() -> None:
    program = fuser.parse("def f(x):\n    return x.astype(i8), u8(x)\n")
    assert [r.dtype.name for r in program.f(X)] == ["int8", "uint8"]
