"""How array libraries hand calls on traced arrays to fuser: NumPy's ufunc and function protocols, and the operators.

In: a ufunc or function object and its arguments. Out: a call of the row of the operator table that bears its
name, or a refusal that the trace collects. CuPy's and torch's protocols belong here too: each is a lookup
in another column of the same table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FrameType
from typing import Any

import numpy as np

from fuser.construct import elementwise
from fuser.errors import ArgumentError
from fuser.frontend import aliasing, calls, context, numpy_functions
from fuser.frontend.complexscalar import ComplexScalar
from fuser.frontend.context import Context
from fuser.frontend.poison import Poison
from fuser.frontend.scalar import Scalar
from fuser.frontend.tracer import TracedArray
from fuser.hostfunctions import literal_text
from fuser.optable import table
from fuser.optable.base import Row

_REDUCE = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}


# -- ufuncs ----------------------------------------------------------------------------------------
def row_of(ufunc: Any) -> Row | None:
    """The row of a NumPy ufunc, else of a scipy.special one."""
    space = "numpy" if getattr(np, ufunc.__name__, None) is ufunc else "scipy"
    return table().find(space, ufunc.__name__)


def operator(ctx: Context, ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """A Python operator: the ufunc without options; NotImplemented for what NumPy would not take."""
    if any(isinstance(v, (str, bytes, dict, set)) or v is None for v in inputs):
        return NotImplemented
    row = row_of(ufunc) if ctx.torch else None
    if row is not None:
        from fuser.frontend import torch_calls

        return torch_calls.operator(ctx, row, inputs, ctx.enter())
    return ufunc_call(ctx, ufunc, ctx.enter(), inputs, {})


def ufunc(ctx: Context, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`__array_ufunc__`."""
    frame = ctx.enter()
    options = {k: v for k, v in kwargs.items() if k not in ("order", "subok")}
    if ctx.torch and method == "__call__" and "out" in options:  # x += y
        result = operator(ctx, ufunc, inputs)
        return calls.attempt(ctx, frame, lambda: calls.store_out(ctx, options["out"], (result.node,), "same_kind")[0])
    if method == "__call__":
        return ufunc_call(ctx, ufunc, frame, inputs, options)
    if method == "outer":
        first, second = (elementwise_operand(v) for v in inputs)
        return ufunc_call(ctx, ufunc, frame, (first[(..., *(None,) * second.ndim)], second), options)
    if method in ("reduce", "accumulate"):
        return _fold(ctx, ufunc, method, frame, inputs, options)
    return refused(ctx, frame, f"{ufunc.__name__}.{method}")


def elementwise_operand(value: Any) -> Any:
    """An operand with `ndim` and subscripts."""
    return value if type(value) in (TracedArray, Poison) else np.asarray(value)


def ufunc_call(
    ctx: Context, ufunc: Any, frame: FrameType | None, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """`ufunc(*inputs, **options)`."""
    row = row_of(ufunc)
    if ufunc is np.conjugate and not options and not calls.is_poisoned(list(inputs)):
        return numpy_functions.conjugate(ctx, frame, *inputs)
    if row is None:
        return refused(ctx, frame, ufunc.__name__)
    inputs = [_literal_list(ctx, v) for v in inputs]
    if len(inputs) > ufunc.nin:  # the outputs given by position
        options = {**options, "out": tuple(inputs[ufunc.nin :])}
        inputs = inputs[: ufunc.nin]
    where = options.get("where", True)
    if where is True:
        options = {k: v for k, v in options.items() if k != "where"}
    if not any(type(v) in (TracedArray, np.ndarray, Poison) or isinstance(v, np.generic) for v in inputs):
        inputs = [_strong(ctx, v) for v in inputs]  # NumPy's functions make Python numbers NumPy scalars
    return calls.invoke(ctx, row, inputs, options, frame)


def _literal_list(ctx: Context, value: Any) -> Any:
    """A list operand is an array: `x + [1, 2, 3]`."""
    if isinstance(value, (list, tuple)):
        from fuser.frontend import creation

        return creation.array(ctx, value)
    return value


def _strong(ctx: Context, value: Any) -> Any:
    if type(value) is ComplexScalar:
        return calls.fresh(ctx, elementwise.as_node(ctx.b, value.value))
    if type(value) is not Scalar:
        return value
    return calls.fresh(ctx, elementwise.as_node(ctx.b, value.expr))


def _fold(
    ctx: Context, ufunc: Any, method: str, frame: FrameType | None, inputs: Sequence[Any], options: dict[str, Any]
) -> Any:
    """`np.add.reduce`, `np.maximum.accumulate`: over axis 0 by default."""
    names = _REDUCE if method == "reduce" else _ACCUMULATE
    row = table().known.get(names.get(ufunc.__name__, ""))
    if row is None:
        return refused(ctx, frame, f"{ufunc.__name__}.{method}")
    parameters = ("axis", "dtype", "out", "keepdims", "initial", "where")
    inputs = [_literal_list(ctx, inputs[0]), *inputs[1:]]
    options = {**dict(zip(parameters, inputs[1:], strict=False)), **options}
    options.setdefault("axis", 0)
    cleaned = {k: v for k, v in options.items() if not _is_default(k, v)}
    cleaned["axis"] = options["axis"]
    if method == "accumulate" and cleaned["axis"] is None:
        cleaned["axis"] = 0
    return calls.invoke(ctx, row, inputs[:1], cleaned, frame)


def _is_default(name: str, value: Any) -> bool:
    if value is None or value is np._NoValue:
        return True
    return (name == "keepdims" and value is False) or (name == "where" and value is True)


def refused(ctx: Context, frame: FrameType | None, name: str, args: Sequence[Any] = ()) -> Any:
    """Collect a call without an operator. Functions that keep shape and dtype give an array to go on with."""
    from fuser.frontend import advice

    ctx.refuse(frame, advice.unsupported(name), f"np.{name}")
    if name in advice.SAME_SHAPE and args and type(args[0]) is TracedArray:
        node = args[0].node
        return calls.fresh(ctx, ctx.b.argument(f"<{name}>", node.dtype, node.shape))
    return Poison(ctx)


# -- array functions -------------------------------------------------------------------------------
def function(ctx: Context, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`__array_function__`."""
    frame = ctx.enter()
    name = function_name(func)
    own = numpy_functions.OWN.get(name)
    if own is not None:
        return calls.attempt(ctx, frame, lambda: own(ctx, frame, *args, **kwargs))
    row = table().find("numpy", name)
    if row is None or (name == "where" and len(args) == 1):
        return refused(ctx, frame, name if row is None else "nonzero", args)
    args, options = arranged(func, args, kwargs)
    return call_row(ctx, row, args, options, frame)


def call_row(ctx: Context, row: Row, args: Sequence[Any], options: Mapping[str, Any], frame: FrameType | None) -> Any:
    """A row by a user's arguments, aliasing as NumPy does."""
    if (kind := aliasing.looks(row, args, options)) is not None:
        return aliasing.call(ctx, row, kind, args, options, frame)
    return calls.invoke(ctx, row, args, options, frame)


def function_name(func: Callable[..., Any]) -> str:
    """`sum`, `linalg.norm`: a NumPy function's name below `np`."""
    module = (getattr(func, "__module__", "") or "").removeprefix("numpy").removeprefix(".")
    name = func.__name__
    if module.startswith("_") or module in ("", "lib", "core"):
        return name
    return f"{module}.{name}"


def arranged(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Required arguments by position and given options by name, as NumPy's own signature has them."""
    signature = _signature(func)
    if signature is None:
        return list(args), {k: v for k, v in kwargs.items() if v is not np._NoValue}
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"{func.__name__}{signature}: {error}", "call-signature") from None
    positional: list[Any] = []
    options: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            options.update(value)
        elif parameter.default is parameter.empty or parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        elif not _same_default(value, parameter.default):
            options[name] = value
    return positional, options


def _same_default(value: Any, default: Any) -> bool:
    if value is np._NoValue or value is default:
        return True
    plain = (bool, int, float, str, type(None))
    return type(value) is type(default) and type(value) in plain and literal_text(value) == literal_text(default)


@cache
def _signature(func: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError):
        return None


def cupy_kernel(ctx: Context, kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`__cupy_override_elementwise_kernel__`: a CuPy ufunc by its name; other kernels have no operator."""
    frame = ctx.enter()
    name = str(getattr(kernel, "name", "")).removeprefix("cupy_")
    row = table().find("cupy", name)
    if name == "conjugate":
        return numpy_functions.conjugate(ctx, frame, *args)
    if row is None:
        ctx.refuse(frame, "its code is CUDA C: write it with CuPy's functions", f"cupy kernel {name}")
        return Poison(ctx)
    return call_row(ctx, row, args, kwargs, frame)


# -- fuser.ops ---------------------------------------------------------------------------------------
def public_function(row: Row) -> Callable[..., Any]:
    """`fuser.ops.<name>`: inside a trace an operator of it, on plain arrays computed there and then."""

    def call(*args: Any, **kwargs: Any) -> Any:
        ctx = context.current()
        if ctx is not None:
            return call_row(ctx, row, args, kwargs, ctx.enter())
        from fuser.frontend.alone import alone

        return alone(row, args, kwargs)

    call.__name__ = call.__qualname__ = row.name
    call.__doc__ = row.notes
    return call


def namespace(ctx: Context) -> Any:
    """The array-API namespace of traced arrays: NumPy, with creation functions that trace."""
    from fuser.frontend import shims

    return shims.numpy_shim(ctx)
