"""Inputs named on the command line: `randn(f32[1024, 4096])`, `@file.npy`, `0.5`.

In: the text of an `--arg`. Out: a NumPy array or a Python value. The text is parsed, never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fuser import specs
from fuser.errors import ArgumentError
from fuser.hostexpr import HostExpr
from fuser.runtime.arrays import DEFAULT_DIM
from fuser.specs import ArraySpec

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
GENERATORS = ("randn", "rand", "zeros", "ones", "arange", "randint")


def value(text: str, dims: Mapping[str, int], seed: int = 0) -> Any:
    """The value an `--arg` describes; ArgumentError [bad-arg] lists what can be written."""
    text = text.strip()
    if text.startswith("@"):
        return _load(text[1:])
    call = _CALL.fullmatch(text)
    if call and call.group(1) in GENERATORS:
        return generate(call.group(1), specs.parse(call.group(2)), dims, seed)
    if specs.looks_like_array(text):
        return generate("randn", specs.parse(text), dims, seed)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ArgumentError(
            f"cannot read the argument `{text}`",
            "bad-arg",
            notes=[f"write one of {', '.join(GENERATORS)} with a spec, as randn(f32[8, n]); @file.npy; or a number"],
        ) from None


def _load(path: str) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"cannot load {path}: {error}", "bad-arg") from None
    if isinstance(loaded, np.lib.npyio.NpzFile):
        raise ArgumentError(f"{path} holds several arrays", "bad-arg", notes=["save each as .npy"])
    return loaded


def concrete(spec: ArraySpec, dims: Mapping[str, int]) -> tuple[int, ...]:
    """A spec's shape with named dims looked up (1024 where nobody said)."""
    return tuple(dims.get(d.value, DEFAULT_DIM) if isinstance(d, HostExpr) else d for d in spec.shape)


def generate(kind: str, spec: object, dims: Mapping[str, int], seed: int) -> Any:
    """An array of a spec: normal, uniform [0, 1), constants, 0..n-1, or small random integers."""
    if not isinstance(spec, ArraySpec):
        raise ArgumentError(f"{kind}({spec}) needs an array spec", "bad-arg", notes=["for instance f32[8, n]"])
    shape, dtype = concrete(spec, dims), spec.dtype.numpy
    rng = np.random.default_rng(seed)
    if kind in ("zeros", "ones"):
        return np.full(shape, int(kind == "ones"), dtype)
    if kind == "arange":
        return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape).astype(dtype)
    if kind == "randint" or not spec.dtype.is_float:
        return rng.integers(0, 2 if spec.dtype.kind == "b" else 100, shape).astype(dtype)
    drawn = rng.standard_normal(shape) if kind == "randn" else rng.random(shape)
    return drawn.astype(dtype)


def parse_dims(text: str) -> dict[str, int]:
    """`n=8192,d=4096` as a dictionary."""
    out: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, number = part.partition("=")
        if not number.strip().isdigit() or not name.strip().isidentifier():
            raise ArgumentError(f"--dims {part}", "bad-arg", notes=["write --dims n=8192,d=4096"])
        out[name.strip()] = int(number)
    return out
