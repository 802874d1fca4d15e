"""The functions that host expressions apply, in Python's own semantics.

In: nothing. Out: `FUNCTIONS` by name, and which of them always give a bool, a float or an int. Its own file because
front ends and the reference evaluate them too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any


def _truediv(a: Any, b: Any) -> Any:
    return a / b


def _clip(x: Any, lo: Any, hi: Any) -> Any:
    return max(lo, min(x, hi))


def literal_text(value: Any) -> str:
    """`repr` of a number, -nan for a NaN whose sign is set: literals are one where their texts are."""
    text = repr(value)
    return "-nan" if text == "nan" and math.copysign(1.0, value) < 0 else text


def ceil_pow2(n: int) -> int:
    """Smallest power of two >= n (1 for n <= 1): the size-class bucket of a length."""
    return 1 << max(n - 1, 0).bit_length()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "neg": operator.neg, "pos": operator.pos,
    "abs": abs, "min": min, "max": max, "clip": _clip, "ceil_pow2": ceil_pow2, "bit_length": int.bit_length,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne, "not": operator.not_,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "~": operator.invert, "float": float, "int": int, "bool": bool, "where": lambda c, a, b: a if c else b,
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "hypot": math.hypot, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
BOOL_RESULT = frozenset({"<", "<=", ">", ">=", "==", "!=", "not", "bool"})
FLOAT_RESULT = frozenset({"/", "float", "sqrt", "exp", "log", "sin", "cos", "tanh", "hypot"})
INT_RESULT = frozenset({"int", "floor", "ceil", "ceil_pow2", "bit_length"})
