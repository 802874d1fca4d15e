"""Inputs named on the command line: `randn(f32[1024, 4096])`, `@file.npy`, `0.5`.

In: the text of an `--arg`. Out: a NumPy array or a Python value. The text is parsed, never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from fuser import progress, specs
from fuser.errors import ArgumentError
from fuser.hostexpr import HostExpr
from fuser.runtime.arrays import DEFAULT_DIM
from fuser.specs import ArraySpec

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
LARGEST = 1 << 36  # bytes of one generated array
PIECE = 1 << 21  # random numbers drawn at once
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
        raise ArgumentError(f"cannot load {path}: {getattr(error, 'strerror', None) or error}", "bad-arg") from None
    if isinstance(loaded, np.lib.npyio.NpzFile):
        raise ArgumentError(f"{path} holds several arrays", "bad-arg", notes=["save each as .npy"])
    return loaded


def defaults(found: Iterable[ArraySpec], given: Mapping[str, int]) -> dict[str, int]:
    """Sizes of every dim of these specs: those given, else 1024, or less where some array has more than two axes."""
    listed = list(found)
    rank = max((len(s.shape) for s in listed), default=0)
    size = DEFAULT_DIM if rank < 3 else 1 << (20 // rank)
    names = {name: None for s in listed for d in s.shape if isinstance(d, HostExpr) for name in sorted(d.symbols)}
    return {**dict.fromkeys(names, size), **given}


def generate(kind: str, spec: object, dims: Mapping[str, int], seed: int) -> Any:
    """An array of a spec: normal, uniform [0, 1), constants, 0..n-1, or small random integers."""
    if not isinstance(spec, ArraySpec):
        raise ArgumentError(f"{kind}({spec}) needs an array spec", "bad-arg", notes=["for instance f32[8, n]"])
    free = {s for d in spec.shape if isinstance(d, HostExpr) for s in d.symbols}
    shape, dtype = specs.concrete(spec, {**dict.fromkeys(free, DEFAULT_DIM), **dims}), spec.dtype.numpy
    if prod(shape) * spec.dtype.bytes > LARGEST:
        raise ArgumentError(
            f"{spec} at {shape} is {prod(shape) * spec.dtype.bytes:.2g} bytes",
            "too-large",
            notes=["give smaller --dims"],
        )
    rng = np.random.default_rng(seed)
    if kind in ("zeros", "ones"):
        return np.full(shape, int(kind == "ones"), dtype)
    if kind == "arange":
        return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape).astype(dtype)
    if spec.dtype.is_complex:
        parts = [generate(kind, ArraySpec(spec.dtype.component, shape), {}, seed + k) for k in range(2)]
        return (parts[0] + 1j * parts[1]).astype(dtype)
    if kind == "randint" or not spec.dtype.is_float:
        below = 2 if spec.dtype.kind == "b" else 100
        return _drawn(lambda count: rng.integers(0, below, count), shape, dtype, str(spec))
    return _drawn(rng.standard_normal if kind == "randn" else rng.random, shape, dtype, str(spec))


def _drawn(draw: Callable[[int], Any], shape: tuple[int, ...], dtype: Any, what: str) -> Any:
    """Random numbers piece by piece: the same as drawn at once, while only a piece of them is in double precision."""
    flat = np.empty(prod(shape), dtype)
    with progress.task("data", flat.size, what) as work:
        for start in range(0, flat.size, PIECE):
            piece = flat[start : start + PIECE]
            piece[...] = draw(piece.size).astype(dtype)
            work.advance(piece.size)
    return flat.reshape(shape)


def parse_dims(text: str) -> dict[str, int]:
    """`n=8192,d=4096` as a dictionary."""
    out: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, number = part.partition("=")
        if not number.strip().isdigit() or not name.strip().isidentifier():
            raise ArgumentError(f"--dims {part}", "bad-arg", notes=["write --dims n=8192,d=4096"])
        out[name.strip()] = int(number)
    return out
