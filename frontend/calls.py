"""From the arguments of a call in the user's program to a row of the operator table, and back.

In: a row, and arguments that may be traced arrays, scalars, NumPy values, nested in lists. Out: traced results.
Every way to call an operator (ufunc, array function, method, `fuser.ops`) ends here, so argument handling,
`out=`, refusals and error places are the same for all.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import FrameType
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.construct import elementwise, reduction, storing, views
from fuser.construct.common import NeedsStatic, fail
from fuser.errors import DTypeError, FuserError, ShapeError, TraceError, UnsupportedError
from fuser.frontend.complexscalar import ComplexScalar, number
from fuser.frontend.context import Context, Specialize
from fuser.frontend.poison import Poison, StopTrace
from fuser.frontend.scalar import Scalar, host
from fuser.frontend.storage import Storage
from fuser.frontend.tracer import TracedArray
from fuser.graph import Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import HostExpr
from fuser.optable.adapt import INERT
from fuser.optable.base import Composite, Function, OpaqueOp, Reduction, Row, ScalarOp, Scan

Build = Callable[..., Any]


# -- values in and out -----------------------------------------------------------------------------
def unwrap(ctx: Context, value: Any) -> Any:
    """A user's value as `fuser.construct` takes it: nodes, host expressions, Python values; containers kept."""
    kind = type(value)
    if kind is TracedArray:
        known = value._known() if not value.node.rank else None
        return value.node if known is None else np.asarray(known)[()]
    if kind is Scalar:
        return value.expr
    if kind is ComplexScalar:
        return value.value
    if kind is str:
        return dtypes.in_python(value)
    if kind in (list, tuple):
        return kind([unwrap(ctx, v) for v in value])
    if kind is slice:
        return slice(*(unwrap(ctx, v) for v in (value.start, value.stop, value.step)))
    if isinstance(value, np.ndarray):
        return ctx.outside(value) if value.ndim else value[()]
    if isinstance(value, (int, float)) and kind not in (bool, int, float) and not isinstance(value, np.generic):
        return int(value) if isinstance(value, int) else float(value)  # IntEnum and its kin
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return builds(ctx, value)
    return value


def _shown(ctx: Context, value: Node | HostExpr | HostComplex) -> Any:
    """A node or a number of the host as the program sees it."""
    if isinstance(value, Node):
        return fresh(ctx, value)
    return number(ctx, value) if isinstance(value, HostComplex) else host(ctx, value)


def builds(ctx: Context, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the program's as `fuser.construct` calls it: the same on nodes and host expressions."""

    @functools.wraps(fn)
    def call(*values: Any) -> Any:
        result = fn(*(_shown(ctx, v) for v in values))
        if is_poisoned(result):
            raise StopTrace
        return unwrap(ctx, result)

    return call


def wrap(ctx: Context, result: Any, frame: FrameType | None, ordered: bool = True) -> Any:
    """A constructed result as the program sees it, named after the variable it goes to."""
    if isinstance(result, Node):
        made = fresh(ctx, result, ordered)
        made._storage.name = ctx.label(result, frame)
        return made
    if isinstance(result, HostExpr):  # NumPy's functions make Python numbers NumPy scalars
        return wrap(ctx, elementwise.as_node(ctx.b, result), frame)
    if isinstance(result, (tuple, list)):
        return type(result)(wrap(ctx, r, None, ordered) for r in result)
    return result


def fresh(ctx: Context, node: Node, ordered: bool = True) -> TracedArray:
    """A new array (NumPy's scalar when it has no axes) with memory of its own."""
    return TracedArray(ctx, Storage(node, ordered=ordered), is_scalar=not node.rank)


def leaves(value: Any) -> Iterator[Any]:
    """Every value inside nested lists, tuples and dicts; iterative."""
    stack = [value]
    while stack:
        v = stack.pop()
        if type(v) in (list, tuple):
            stack.extend(reversed(v))
        elif type(v) is dict:
            stack.extend(reversed(list(v.values())))
        else:
            yield v


def are_ordered(values: Any) -> bool:
    """Whether results of these arguments are surely laid out row-major (NumPy keeps the layout of operands)."""
    return all(v.ordered for v in leaves(values) if type(v) is TracedArray)


def is_poisoned(*values: Any) -> bool:
    """Whether a refused call's result is among the values."""
    return any(type(v) is Poison for v in leaves(list(values)))


# -- calls -----------------------------------------------------------------------------------------
def attempt(ctx: Context, frame: FrameType | None, build: Callable[[], Any]) -> Any:
    """Run a construction; what has no operator is collected, what needs a value now specialises."""
    try:
        return build()
    except NeedsStatic as need:
        what = need.message.partition(" must be known")[0]
        raise Specialize(what, need.expr, need.spans[0] if need.spans else ctx.b.span) from None
    except UnsupportedError as error:
        ctx.refuse(frame, "; ".join(error.notes or (error.message,)), kind=type(error))
        return Poison(ctx)
    except FuserError as error:
        raise ctx.located(error, frame) from None


def invoke(ctx: Context, row: Row, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType | None) -> Any:
    """Call a row with a user's arguments; `out=` stores into a traced array."""
    options = dict(kwargs)
    out = options.pop("out", None)
    if isinstance(out, tuple):
        out = None if all(o is None for o in out) else out[0] if len(out) == 1 else out
    if is_poisoned(list(args), options, out):
        return Poison(ctx)
    casting = options.pop("casting", "same_kind")
    if out is not None:
        check_out(ctx, out)
        if options.get("where") is not None and isinstance(row, ScalarOp):
            options["out"] = out

    def make() -> Any:
        return build(ctx, row, [unwrap(ctx, a) for a in args], {k: unwrap(ctx, v) for k, v in options.items()})

    result = attempt(ctx, frame, make)
    if type(result) is Poison:
        return result
    if out is not None:
        return attempt(ctx, frame, lambda: store_out(ctx, out, result, casting))
    return wrap(ctx, result, frame, are_ordered(list(args)))


def build(ctx: Context, row: Row, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """The row's construction, by its kind."""
    b = ctx.b
    if isinstance(row, ScalarOp):
        known = {k: v for k, v in options.items() if k in ("dtype", "where", "out")}
        refuse_others(row, set(options) - set(known) - INERT)
        return elementwise.apply(b, row.name, *args, **known)
    if isinstance(row, Reduction):
        if row.name in ("argmax", "argmin"):
            return reduction.arg(b, row.name, *args, **options)
        return reduction.reduce(b, row.name, *args, **options)
    if isinstance(row, Scan):
        return reduction.scan(b, row.name, *args, **options)
    assert isinstance(row, (Function, Composite, OpaqueOp))
    make = builder_of(row)
    names = parameters(make)
    if names is not None:
        refuse_others(row, set(options) - names - INERT)
    return make(b, *args, **options)


def builder_of(row: Function | Composite | OpaqueOp) -> Build:
    """The user-facing construction of a row."""
    if row.build is not None:
        return row.build
    from fuser.construct.composite import composite
    from fuser.construct.creation import array

    return lambda b, *args, **options: composite(b, row.name, [array(b, a) for a in args], **options)


@cache
def parameters(build: Build) -> frozenset[str] | None:
    """Names that a construction takes by keyword; None if it takes any."""
    found = inspect.signature(build).parameters
    if any(p.kind is p.VAR_KEYWORD for p in found.values()):
        return None
    return frozenset(n for n, p in found.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))


def refuse_others(row: Row, names: set[str] | frozenset[str]) -> None:
    """Options that a row does not have are refused by name."""
    if names:
        shown = ", ".join(f"{n}=" for n in sorted(names))
        raise UnsupportedError(f"{shown} is not supported with {row.name}", "unsupported-call")


# -- out= ------------------------------------------------------------------------------------------
def check_out(ctx: Context, out: Any) -> None:
    """`out=` must be an array of the trace."""
    for o in out if isinstance(out, tuple) else (out,):
        if type(o) is TracedArray or o is None:
            continue
        message = "out= is a NumPy array made outside the traced function"
        fail(ctx.b, TraceError, message, "outside-store", "pass it as an argument, or make it inside")


def store_out(ctx: Context, out: Any, result: Any, casting: str) -> Any:
    """Store results into `out` arrays (casting as NumPy checks it) and give these."""
    if isinstance(out, tuple):
        pairs = zip(out, result, strict=True)
        return tuple(store_out(ctx, o, r, casting) if o is not None else wrap(ctx, r, None) for o, r in pairs)
    value = elementwise.as_node(ctx.b, result)
    target = out.node
    check_casting(ctx, value.dtype, target.dtype, casting)
    if value.rank > target.rank:
        message = f"out= has {target.rank} axes, the result {value.rank}"
        fail(ctx.b, ShapeError, message, "out-shape")
    out.assign(views.broadcast_to(ctx.b, elementwise.cast(ctx.b, value, target.dtype), target.shape))
    return out


def check_casting(ctx: Context, source: dtypes.DType, target: dtypes.DType, casting: str) -> None:
    """NumPy's casting rule between the computed dtype and the stored one; bf16 counts as f16."""
    a, b = (dtypes.F16.numpy if t == dtypes.BF16 else t.numpy for t in (source, target))
    if not np.can_cast(a, b, casting=casting):  # type: ignore[arg-type]
        message = f"Cannot cast the result from {source} to {target} with casting rule {casting!r}"
        note = "make the array of the wider dtype, or convert the operand: .astype(...)"
        fail(ctx.b, DTypeError, message, "casting", note)


def store(ctx: Context, array: TracedArray, key: Any, value: Any, frame: FrameType | None) -> None:
    """`array[key] = value`."""

    def run() -> None:
        array.assign(storing.setitem(ctx.b, array.node, key, value))

    attempt(ctx, frame, run)
