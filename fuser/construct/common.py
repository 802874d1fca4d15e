"""What every constructor shares: the kinds of values, axes, dims, and the wording of errors.

In: axes, shapes and numbers as users write them. Out: normalised ones, or an error of fuser's own that names the
operands and carries the current source span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Union

import numpy as np

from fuser.dtypes import DType, WeakKind, find, weak_kind
from fuser.errors import ArgumentError, DTypeError, FuserError, OverflowArgumentError, ShapeError, TraceError
from fuser.graph import Builder, Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import Dim, HostExpr, Operand, as_dim, from_terms, is_scalar_symbol, terms, wrap
from fuser.indexmap import bounds
from fuser.shapes import Relation, Shape, text_of

UNBOUNDED = 1 << 60  # stands for "any length" in interval analysis

Value = Union[Node, HostExpr, HostComplex, bool, int, float, complex, "np.generic[Any]"]


class NeedsStatic(TraceError):
    """A run-time scalar was used where the trace needs its value (an axis, a shape, a slice bound).

    `expr` is the host expression: a front end may catch this, make its symbols static and trace again.
    """

    def __init__(self, message: str, slug: str, expr: HostExpr, spans: Sequence[Any] = ()) -> None:
        super().__init__(message, slug, spans, ("option: make the argument static (static_argnames)",))
        self.expr = expr


def fail(b: Builder, kind: type[FuserError], message: str, slug: str, *notes: str) -> NoReturn:
    """Raise `kind` at the builder's current source span."""
    raise kind(message, slug, (b.span,) if b.span else (), notes)


# -- values ----------------------------------------------------------------------------------------
def is_host(value: object) -> bool:
    """A weak scalar: a host expression or a plain Python number."""
    return isinstance(value, HostExpr) or (isinstance(value, bool | int | float) and not isinstance(value, np.generic))


def is_complex_host(value: object) -> bool:
    """A weak complex scalar: a Python complex number, or one of run-time parts."""
    return isinstance(value, HostComplex) or (isinstance(value, complex) and not isinstance(value, np.generic))


def operand_of(b: Builder, value: Value) -> DType | WeakKind:
    """What promotion sees of a value: a strong dtype or a weak kind."""
    if isinstance(value, Node):
        return value.dtype
    if isinstance(value, HostExpr):
        return value.kind
    if isinstance(value, np.generic):
        dtype = find(value.dtype)
        if dtype is None:
            fail(b, DTypeError, f"a NumPy scalar of dtype {value.dtype} has no counterpart here", "dtype")
        return dtype
    if isinstance(value, np.ndarray):
        fail(b, DTypeError, f"an array of shape {value.shape} is not traced here", "operand", "pass it as an argument")
    if isinstance(value, HostComplex):
        return "complex"
    kind = weak_kind(value)
    if kind is None:
        message, *notes = no_operand(value)
        fail(b, DTypeError, message, "operand", *notes)
    return kind


def no_operand(value: object) -> list[str]:
    """What is wrong with a value that is neither an array nor a number, and the way out."""
    if isinstance(value, tuple):
        pair = "torch's max and min along an axis give (values, indices): np.max(x, axis) and x.amax(axis) give values"
        return ["a tuple of results is not an array or a number", f"take one of them; {pair}"]
    return [f"a {type(value).__name__} is not an array or a number"]


def dtype_of(b: Builder, spelling: object) -> DType:
    """The dtype a user asked for; DTypeError for an unknown or unsupported one."""
    dtype = find(spelling)
    if dtype is None:
        fail(b, DTypeError, f"unknown dtype {spelling!r}", "dtype")
    return dtype


def describe(b: Builder, value: object) -> str:
    """A value for an error message: the user's name for it if it has one, and its type."""
    if isinstance(value, Node):
        names = b.names.get(value)
        head = f"`{next(reversed(names))}` " if names else ""
        return f"{head}{value.dtype}{text_of(value.shape)}"
    return f"`{value}`" if isinstance(value, HostExpr) else repr(value)


def check_range(b: Builder, value: int, dtype: DType) -> None:
    """NumPy 2's rule for a Python int that meets an integer dtype: it must fit."""
    if not dtype.is_integer:
        return
    info = np.iinfo(dtype.numpy)
    if not info.min <= value <= info.max:
        message = f"Python integer {value} out of bounds for {dtype.numpy}"
        fail(b, OverflowArgumentError, message, "integer-range", "convert it, or give the array a wider dtype")


def check_value(b: Builder, value: float, dtype: DType) -> None:
    """NumPy's rule for a Python number that is stored into an array: what becomes of it must exist in the dtype."""
    if not dtype.is_integer:
        return
    if value != value or abs(value) == float("inf"):
        what = "NaN" if value != value else "infinity"
        message = f"cannot convert float {what} to integer"
        fail(b, OverflowArgumentError, message, "integer-range", "give the array a float dtype")
    check_range(b, int(value), dtype)


# -- static numbers, axes, dims --------------------------------------------------------------------
def static_int(b: Builder, value: object, what: str) -> int:
    """An integer that the trace needs now; NeedsStatic for a run-time scalar."""
    if isinstance(value, HostExpr):
        value = as_dim(value) if value.kind == "int" or value.is_literal else value
    if isinstance(value, HostExpr):
        spans = (b.span,) if b.span else ()
        raise NeedsStatic(f"{what} must be known while tracing; `{value}` is known at the call", "static", value, spans)
    if isinstance(value, Node):
        fail(b, TraceError, f"{what} must be an integer, not the array {describe(b, value)}", "data-dependent-int")
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        fail(b, ArgumentError, f"{what} must be an integer, not {value!r}", "integer")
    return int(value)


def dim_of(b: Builder, value: object, what: str = "a dimension") -> Dim:
    """A length: an int, or an integer host expression over dims. Negative ints are refused."""
    if isinstance(value, HostExpr) and value.kind == "int" and not value.is_literal:
        if any(is_scalar_symbol(s) for s in value.symbols):
            return static_int(b, value, what)
        return b.shapes.canonical(value)
    number = static_int(b, value, what)
    if number < 0:
        fail(b, ShapeError, f"{what} cannot be negative: {number}", "negative-dim")
    return number


def shape_of(b: Builder, shape: object) -> Shape:
    """A shape as users give it: an integer or a sequence of integers."""
    if isinstance(shape, tuple | list):
        return tuple(dim_of(b, d) for d in shape)
    return (dim_of(b, shape),)


def normal_axis(b: Builder, axis: object, rank: int, what: str = "axis") -> int:
    """An axis in [0, rank); negative ones count from the end."""
    number = static_int(b, axis, what)
    if not -rank <= number < rank:
        fail(b, ShapeError, f"{what} {number} is out of bounds for an array of rank {rank}", "axis")
    return number % rank


def normal_axes(b: Builder, axis: object, rank: int, what: str = "axis") -> tuple[int, ...]:
    """Axes in the order given; None means all. A repeated axis is an error."""
    if axis is None:
        return tuple(range(rank))
    items: Iterable[object] = axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(normal_axis(b, a, rank, what) for a in items)
    if len(set(axes)) < len(axes):
        fail(b, ShapeError, f"{what} {tuple(axes)} names an axis twice", "axis")
    return axes


def canonical_shape(b: Builder, shape: Iterable[Dim]) -> Shape:
    """Every dim replaced by its representative under the unions found so far."""
    return tuple(b.shapes.canonical(d) for d in shape)


def same_shape(b: Builder, one: Shape, two: Shape) -> bool:
    """Whether two shapes are known equal."""
    return len(one) == len(two) and all(b.shapes.same(p, q) for p, q in zip(one, two, strict=True))


def difference(b: Builder, left: Operand, right: Operand) -> Dim:
    """`left - right` in canonical dims (an int when known)."""
    return as_dim(wrap(b.shapes.canonical(as_dim(left))) - b.shapes.canonical(as_dim(right)))


def assume(b: Builder, left: Operand, relation: Relation, right: Operand) -> bool:
    """Whether a relation holds: decided now if it can be, else recorded as a guard and taken to hold."""
    gap = difference(b, left, right)
    if isinstance(gap, int):
        return gap == 0 if relation == "==" else gap != 0 if relation == "!=" else gap >= 0
    if relation == ">=" and _surely_positive(gap):
        return True
    parts = terms(gap)
    constant = parts.pop((), 0)
    return b.shapes.guard(as_dim(from_terms(parts)), relation, -constant, b.span)


def _surely_positive(gap: HostExpr) -> bool:
    """Whether `gap >= 0` for dims of any length from 1 on (a dim symbol is never 0: that is a class of its own)."""
    if any(is_scalar_symbol(s) for s in gap.symbols):
        return False
    found = bounds(gap, dict.fromkeys(gap.symbols, (1, UNBOUNDED)))
    return found is not None and found[0] >= 0


def has(b: Builder, d: Dim, count: int = 1) -> bool:
    """Whether an axis has that many elements (1 or 2): decided now, or guarded. Plain dims of arguments have two."""
    d = b.shapes.canonical(d)
    return d >= count if isinstance(d, int) else not maybe_empty(d) or assume(b, d, ">=", count)


def maybe_empty(d: Dim) -> bool:
    """Whether a dim could be 0 at a call: argument dims never are (0 is a static class), derived ones may be."""
    return d == 0 if isinstance(d, int) else d.op != "sym"
