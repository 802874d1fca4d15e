"""Values of several iterations at once: what a variable is while a vector loop's body is written.

In: IR values. Out: `Value`s: the same in every lane (`Uniform`), an arithmetic sequence over the lanes
(`Linear`: indices), or a vector (`Varying`). Outside vector loops, and in their scalar remainder,
the width is 1 and every value is `Uniform`: one emitter writes both, so body and tail are the same arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from fuser.codegen.llvm import irtypes as types
from fuser.record import dataclass


@dataclass(frozen=True)
class Uniform:
    """One scalar for all lanes."""

    ir: Any


@dataclass(frozen=True)
class Linear:
    """Lane k holds `base + k * step`: a 64-bit index; `step` is a Python int or a uniform IR value."""

    base: Any
    step: Any


@dataclass(frozen=True)
class Varying:
    """A vector."""

    ir: Any


Value = Uniform | Linear | Varying
_WRITE = {"add": "add", "subtract": "sub", "multiply": "mul"}
_UNIT = {"add": 0, "subtract": 0, "multiply": 1}
_FOLD = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}


class Lanes:
    """Moves values between the three forms, at the current width."""

    def __init__(self, builder: Any) -> None:
        self.b = builder
        self.width = 1

    def vector(self, value: Value) -> Any:
        """The value as IR of the current width (a scalar when the width is 1)."""
        if isinstance(value, Varying):
            return value.ir
        if isinstance(value, Linear):
            return self._sequence(value)
        return value.ir if self.width == 1 else self.splat(value.ir)

    def splat(self, scalar: Any) -> Any:
        """A scalar in every lane."""
        if isinstance(scalar, ir.Constant):
            return types.constant(scalar.type, scalar.constant, self.width)
        wide = types.lanes(scalar.type, self.width)
        first = self.b.insert_element(ir.Constant(wide, ir.Undefined), scalar, ir.Constant(types.I32, 0))
        return self.b.shuffle_vector(first, ir.Constant(wide, ir.Undefined), types.index_vector([0] * self.width))

    def _sequence(self, value: Linear) -> Any:
        base, numbers = self.splat(value.base), list(range(self.width))
        if isinstance(value.step, int):
            return self.b.add(base, types.index_vector([n * value.step for n in numbers], types.I64))
        steps = self.b.mul(self.splat(value.step), types.index_vector(numbers, types.I64))
        return self.b.add(base, steps)

    def lane(self, value: Value, k: int) -> Any:
        """The scalar in lane `k`."""
        if isinstance(value, Uniform):
            return value.ir
        if isinstance(value, Varying):
            return self.b.extract_element(value.ir, ir.Constant(types.I32, k))
        offset = ir.Constant(types.I64, k)
        return self.combine("add", value.base, self.combine("multiply", self._number(value.step), offset))

    def wrap(self, value: Any) -> Value:
        """An IR result as a value: a vector varies."""
        return Varying(value) if types.width_of(value) > 1 else Uniform(value)

    def linear(self, op: str, args: Sequence[Value]) -> Value | None:
        """`op` on indices where the result is linear again; None where it is not."""
        if op not in _WRITE or any(isinstance(a, Varying) for a in args):
            return None
        if not any(isinstance(a, Linear) for a in args):
            return None
        x, y = args
        if op == "multiply":
            return self._scaled(x, y) if isinstance(x, Linear) else self._scaled(y, x)
        step = self.combine(op, self._number(_step(x)), self._number(_step(y)))
        return _sequence(self.combine(op, _base(x), _base(y)), step)

    def _scaled(self, x: Value, factor: Value) -> Value | None:
        if not isinstance(x, Linear) or isinstance(factor, Linear):
            return None
        base = self.combine("multiply", x.base, _base(factor))
        return _sequence(base, self.combine("multiply", self._number(x.step), _base(factor)))

    def combine(self, op: str, x: Any, y: Any) -> Any:
        """Scalar i64 arithmetic on IR values, folded where it is known."""
        a, b = constant_int(x), constant_int(y)
        if a is not None and b is not None:
            return ir.Constant(types.I64, _FOLD[op](a, b))
        if b == _UNIT[op]:
            return x
        if a == _UNIT[op] and op != "subtract":
            return y
        return getattr(self.b, _WRITE[op])(x, y)

    def _number(self, step: Any) -> Any:
        return ir.Constant(types.I64, step) if isinstance(step, int) else step


def constant_int(value: Any) -> int | None:
    """The number an IR integer constant holds."""
    return int(value.constant) if isinstance(value, ir.Constant) and isinstance(value.constant, int) else None


def _sequence(base: Any, step: Any) -> Value:
    """A linear value, uniform where the step is known to be 0."""
    known = constant_int(step)
    return Uniform(base) if known == 0 else Linear(base, step if known is None else known)


def _step(value: Value) -> Any:
    return value.step if isinstance(value, Linear) else 0


def _base(value: Value) -> Any:
    return value.base if isinstance(value, Linear) else value.ir
