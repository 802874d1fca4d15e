"""Scalar operators on whole arrays: promotion, casts, broadcasting.

In: a row's name and operands (nodes, weak host values, strong NumPy scalars). Out: one scalar-operator node
whose inputs have its own shape, behind explicit casts and views; or a host expression when every operand is a
host value and the operator exists there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import hostcomplex
from fuser.construct import views
from fuser.construct.common import Value, check_range, describe, dtype_of, fail, is_complex_host, is_host, operand_of
from fuser.dtypes import BOOL, C128, I64, DType, promote
from fuser.errors import ArgumentError, ComplexError, DTypeError, OverflowArgumentError, UnsupportedError
from fuser.graph import Builder, Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import HostExpr, call, lit, wrap
from fuser.optable import complexes, table
from fuser.optable.base import Resolution, ScalarOp, is_complex

# Comparisons of an integer array with a Python int outside its range: NumPy answers exactly, never overflows.
_BEYOND: dict[str, tuple[bool, bool]] = {  # name -> (answer when the array side is less, when it is greater)
    "less": (True, False), "less_equal": (True, False), "greater": (False, True), "greater_equal": (False, True),
    "equal": (False, False), "not_equal": (True, True),
}  # fmt: skip


def apply(
    b: Builder, name: str, *values: Value, dtype: object = None, where: Value | None = None, out: Node | None = None
) -> Node | HostExpr:
    """Apply scalar row `name`.

    dtype: as a ufunc's `dtype=`: the computation's dtype. where: a bool mask; elements where it is False come
    from `out`, or are 0 without one (NumPy leaves them undefined). Host operands alone give a HostExpr when
    the operator exists on the host. Raises DTypeError, ShapeError, OverflowArgumentError.
    """
    row = table().scalar(name)
    if name == "where" and len(values) == 1:
        message = "where with a condition only: the result's shape depends on data"
        fail(b, UnsupportedError, message, "data-dependent-shape", "give both branches: np.where(c, x, y)")
    if len(values) != row.arity:
        takes = f"{row.arity} operand{'s' if row.arity > 1 else ''}"
        fail(b, ArgumentError, f"`{name}` takes {takes}, not {len(values)}", "arity")
    if dtype is None and where is None and all(is_host(v) for v in values):
        host = on_host(name, values)
        if host is not None:
            return host
    result = _compare_beyond(b, name, values) if name in _BEYOND and dtype is None else None
    if result is None:
        resolution = resolve(b, row, values, dtype)
        if name == "power" and (unary := _plain_power(values[1], resolution)):
            name, values = unary, values[:1]
        elif name == "power" and resolution.result.is_complex and (n := _whole(values[1])) is not None:
            return _masked(b, multiplied_out(b, values[0], n, resolution.result), where, out)
        nodes = [as_node(b, v, t) for v, t in zip(values, resolution.operands, strict=False)]
        result = combine(b, name, nodes, resolution.result)
    return _masked(b, result, where, out)


# NumPy's own short forms of `x ** literal`; they are correctly rounded where `pow` is only close.
_FLOAT_POWERS = {2.0: "square", 1.0: "positive", 0.5: "sqrt", -1.0: "reciprocal"}
_INTEGER_POWERS = {2: "square", 1: "positive"}


def _plain_power(exponent: Value, resolution: Resolution) -> str | None:
    """The unary row that `power` by this literal exponent is; None for any other exponent."""
    literal: Any = exponent
    if isinstance(exponent, HostExpr):
        literal = exponent.value if exponent.is_literal else None
    if isinstance(literal, Node) or literal is None:
        return None
    if resolution.result.is_inexact:
        if isinstance(literal, complex) or (literal is exponent and isinstance(exponent, HostComplex)):
            return None
        return _FLOAT_POWERS.get(float(literal))
    return _INTEGER_POWERS.get(int(literal)) if resolution.result.is_integer else None


def _whole(exponent: Value) -> int | None:
    """A literal whole exponent that NumPy multiplies out for complex bases."""
    literal: Any = exponent.value if isinstance(exponent, HostExpr) and exponent.is_literal else exponent
    if not isinstance(literal, int | float) or literal != literal or abs(literal) >= complexes.LARGEST_INTEGER_POWER:
        return None
    return int(literal) if literal == int(literal) else None


def multiplied_out(b: Builder, base: Value, n: int, dtype: DType) -> Node:
    """`base ** n` of a complex base by multiplications, as NumPy does."""
    x = as_node(b, base, dtype)
    if n == 0:
        return views.broadcast_to(b, as_node(b, 1, dtype), x.shape)
    result = complexes.integer_power(x, abs(n), lambda p, q: node(b, "multiply", p, q))
    return result if n > 0 else node(b, "divide", as_node(b, 1, dtype), result)


def node(b: Builder, name: str, *values: Value, dtype: object = None) -> Node:
    """`apply`, always as a node: host results become 0-d nodes of their default dtype."""
    return as_node(b, apply(b, name, *values, dtype=dtype))


def on_host(name: str, values: Sequence[Value]) -> HostExpr | None:
    """The operator on host values alone, None where it does not exist on the host."""
    row, operands = table().scalar(name), [v for v in values if isinstance(v, HostExpr | bool | int | float)]
    spelled = row.host or (row.symbol if row.arity == 2 else "")
    if isinstance(spelled, str):
        return call(spelled, *operands) if spelled else None
    return spelled(*operands)


def resolve(b: Builder, row: ScalarOp, values: Sequence[Value], dtype: object = None) -> Resolution:
    """The operand and result dtypes by the row's rule; DTypeError where it refuses."""
    seen = [operand_of(b, v) for v in values]
    if any(is_complex(s) for s in seen) and row.pairs is None and row.resolve(seen) is None:
        from fuser.construct.complexes import refuse

        refuse(b, row.name)
    found = row.resolve(seen)
    if dtype is not None:
        wanted = dtype_of(b, dtype)
        if found is None or found.result != wanted or found.result != BOOL:
            found = row.resolve([wanted if s != BOOL or row.name != "where" else s for s in seen])
            if found is not None and found.result != wanted:
                fail(b, DTypeError, f"`{row.name}` has no form with dtype={wanted}", "dtype")
    if found is None:
        shown = " and ".join(describe(b, v) for v in values)
        fail(b, DTypeError, f"`{row.name}` does not take {shown}", "dtype", *_advice(row.name, seen))
    return found


def _advice(name: str, seen: Sequence[object]) -> tuple[str, ...]:
    if name == "subtract" and all(s in (BOOL, "bool") for s in seen):
        return ("bool - bool has no meaning here: write `p ^ q` or `np.logical_xor(p, q)`",)
    if name == "negative" and all(s in (BOOL, "bool") for s in seen):
        return ("write `~p` or `np.logical_not(p)`",)
    if name in _OF_BITS and any(s == "float" or (isinstance(s, DType) and s.is_float) for s in seen):
        return (f"only integers have bits{_OF_BITS[name]}; or convert: .astype(...)",)
    return ()


_OF_BITS = {
    "bitwise_and": ": np.logical_and", "bitwise_or": ": np.logical_or", "bitwise_xor": ": a power is x ** y",
    "invert": ": np.logical_not", "left_shift": ": x * 2**n", "right_shift": ": x / 2**n",
}  # fmt: skip


def as_node(b: Builder, value: Value, dtype: DType | None = None) -> Node:
    """A value as a node, of `dtype` if given. Host values convert at the call; an int must fit an integer dtype."""
    if isinstance(value, Node):
        return value if dtype is None else cast(b, value, dtype)
    if is_complex_host(value):
        return _host_complex(b, hostcomplex.of(value), dtype)  # type: ignore[arg-type]
    if is_host(value) and dtype is not None and dtype.is_complex:
        return _host_complex(b, HostComplex(wrap(value), lit(0.0)), dtype)  # type: ignore[arg-type]
    if is_host(value):
        return b.scalar(*_host_scalar(b, wrap(value), dtype))  # type: ignore[arg-type]
    strong = operand_of(b, value)
    assert isinstance(value, np.generic)
    assert isinstance(strong, DType)
    if strong.is_complex:
        made = _host_complex(b, hostcomplex.of(complex(value)), strong)
        return made if dtype is None else cast(b, made, dtype)
    literal = b.scalar(lit(value.item() if not isinstance(value.item(), np.generic) else float(value)), strong)
    return literal if dtype is None else cast(b, literal, dtype)


def _host_complex(b: Builder, value: HostComplex, dtype: DType | None) -> Node:
    """A complex number of the host as a node: its parts as two scalars."""
    target = C128 if dtype is None else dtype
    if not target.is_complex:
        return cast(b, _host_complex(b, value, C128), target)
    parts = [as_node(b, p, target.component) for p in (value.re, value.im)]
    return b.make("complex", parts, None, target, ())


def _host_scalar(b: Builder, expr: HostExpr, dtype: DType | None) -> tuple[HostExpr, DType]:
    """A host expression with its dtype; literals take the Python type of the dtype, so equal ones are one node."""
    target = dtype or promote([expr.kind])
    if not expr.is_literal:
        return expr, target
    if target.is_float:
        try:
            return lit(float(expr.value)), target
        except OverflowError:
            fail(b, OverflowArgumentError, f"Python integer too large to convert to {target}", "integer-range")
    if target == BOOL:
        return lit(bool(expr.value)), target
    if expr.kind != "float":
        check_range(b, int(expr.value), target)
        return lit(int(expr.value)), target
    return expr, target


def cast(b: Builder, x: Value, dtype: object) -> Node:
    """Convert to `dtype`; the same node when it has it already."""
    target = dtype_of(b, dtype)
    if not isinstance(x, Node):
        made = as_node(b, x)
        return as_node(b, x, target) if is_host(x) and target.is_inexact else cast(b, made, target)
    if x.dtype.is_complex and not target.is_complex and target != BOOL:
        message = f"{describe(b, x)} as {target} would lose its imaginary part"
        fail(b, ComplexError, message, "complex", "write z.real, z.imag or np.abs(z)")
    return x if x.dtype == target else b.make("cast", (x,), None, target, x.shape)


def bitcast(b: Builder, x: Node, dtype: DType) -> Node:
    """Reinterpret the bits of `x` as a dtype of the same width."""
    if x.dtype.bits != dtype.bits or x.dtype.is_complex != dtype.is_complex:
        fail(
            b,
            DTypeError,
            f"{describe(b, x)} cannot be viewed as {dtype}: {x.dtype.bits} bits are not {dtype.bits}",
            "dtype",
        )
    return x if x.dtype == dtype else b.make("bitcast", (x,), None, dtype, x.shape)


def combine(b: Builder, op: str, nodes: Sequence[Node], dtype: DType) -> Node:
    """A scalar-operator node over operands that already have their dtypes: broadcasts, and writes out what reads the
    bits of half values."""
    if dtype.is_half and table().scalar(op).by_bits:
        from fuser.construct import formula

        return formula.expanded(b, table().scalar(op), nodes)
    shape = views.broadcast_shape(b, nodes)
    return b.make(op, [views.broadcast_to(b, n, shape) for n in nodes], None, dtype, shape)


def where(b: Builder, condition: Value, x: Value, y: Value) -> Node:
    """`x` where `condition` holds, else `y`; always a node."""
    return node(b, "where", condition, x, y)


def _masked(b: Builder, result: Node, mask: Value | None, out: Node | None) -> Node:
    if mask is None:
        return result
    base = out if out is not None else as_node(b, 0, result.dtype)
    chosen = where(b, cast(b, mask, BOOL), cast(b, result, base.dtype), base)
    if out is not None and len(chosen.shape) != len(out.shape):
        fail(b, ArgumentError, f"`out` {describe(b, out)} is smaller than the result", "out")
    return chosen


def _compare_beyond(b: Builder, name: str, values: Sequence[Value]) -> Node | None:
    """A comparison of an integer array with a weak int that its dtype may not hold; None when it surely does."""
    x, y = values
    swapped = not isinstance(x, Node)
    array, scalar = (y, x) if swapped else (x, y)
    if not isinstance(array, Node) or not array.dtype.is_integer or not is_host(scalar):
        return None
    host = wrap(scalar)  # type: ignore[arg-type]
    if host.kind != "int":
        return None
    if not host.is_literal:
        if array.dtype.bits == 64:
            return None
        wide = [cast(b, array, I64), as_node(b, host, I64)]
        return combine(b, name, wide[::-1] if swapped else wide, BOOL)
    info = np.iinfo(array.dtype.numpy)
    if info.min <= host.value <= info.max:
        return None
    array_less = host.value > info.max
    answer = _BEYOND[name][0 if array_less != swapped else 1]
    return views.broadcast_to(b, as_node(b, answer), array.shape)
