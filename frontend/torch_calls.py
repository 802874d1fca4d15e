"""torch functions and methods on traced arrays, with torch's promotion, names of arguments and results.

In: what `torch.Tensor.__torch_function__` hands over, or a method by name. Out: calls of rows of the operator table
(its torch column), operands cast beforehand to the dtype that torch computes in. Its own file because torch differs
from NumPy in all three: an integer meets a float as a float of the default dtype, `dim=` is an axis, `max(dim=)` gives
a pair.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from fuser.construct import elementwise
from fuser.construct.common import no_operand
from fuser.dtypes import BOOL, C64, F32, I64, U8, DType, complex_of, find, promote, weak_kind
from fuser.errors import ArgumentError, DTypeError, TraceError
from fuser.frontend import advice, calls, protocols
from fuser.frontend.context import Context
from fuser.frontend.poison import Poison
from fuser.frontend.scalar import Scalar
from fuser.frontend.tracer import TracedArray
from fuser.graph import Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import HostExpr
from fuser.optable import table
from fuser.optable.base import Reduction, Row, ScalarOp, Scan

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_DEFAULT = {"bool": BOOL, "int": I64, "float": F32, "complex": C64}
# Parameters after the array(s), where torch's order or names are not the row's own.
_FOLD = ("axis", "keepdims")
PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("sum", "prod", "mean", "nansum", "nanmean", "amax", "amin", "all", "any", "argmax", "argmin",
         "logsumexp"), _FOLD
    ),
    "count_nonzero": _FOLD, "cumsum": ("axis",), "cumprod": ("axis",), "std": ("axis", "unbiased", "keepdims"),
    "var": ("axis", "unbiased", "keepdims"), "softmax": ("axis", "dtype"), "log_softmax": ("axis", "dtype"),
    "linalg.norm": ("ord", "axis", "keepdims"),
    "linalg.vector_norm": ("ord", "axis", "keepdims"), "roll": ("shift", "axis"), "flip": ("axis",),
    "squeeze": ("axis",), "unsqueeze": ("axis",), "tril": ("k",), "triu": ("k",), "diag": ("k",),
    "repeat_interleave": ("repeats", "axis"), "unbind": ("axis",), "chunk": ("chunks", "axis"),
    "cat": ("axis",), "stack": ("axis",), "tensor_split": ("indices_or_sections", "axis"),
}  # fmt: skip
_RENAMED = {
    "dim": "axis", "keepdim": "keepdims", "diagonal": "k", "shifts": "shift", "p": "ord", "indices": "index",
    "size": "shape",
}  # fmt: skip
_LEADING = ("input", "self", "tensors", "condition", "equation", "target", "other", "mat2", "vec2", "exponent")
_DROPPED = frozenset(  # about memory, gradients and warnings, not values
    {
        "_stacklevel",
        "memory_format",
        "non_blocking",
        "requires_grad",
        "pin_memory",
        "device",
        "layout",
        "padding_idx",
        "norm_type",
    }
)
_OPTIONAL = frozenset({"out", "dtype", "reduce", "size_average", "weight", "bias", "label_smoothing"})
_INTEGER_FOLDS = ("sum", "prod", "cumsum", "cumprod")


class Extreme(NamedTuple):
    """What `torch.max(x, dim)` gives."""

    values: Any
    indices: Any


# -- promotion -------------------------------------------------------------------------------------
def result_type(operands: Sequence[Any]) -> DType:
    """torch's: arrays with axes outrank those without, which outrank numbers, unless of a lower kind."""
    classes: list[list[DType]] = [[], [], []]
    for v in operands:
        if isinstance(v, Node):
            classes[0 if v.rank else 1].append(v.dtype)
        elif isinstance(v, np.generic):
            classes[1].append(promote([find(v.dtype) or F32]))
        else:
            kind = v.kind if isinstance(v, HostExpr | HostComplex) else weak_kind(v)
            if kind not in _DEFAULT:
                message, *notes = no_operand(v)
                raise DTypeError(message, "operand", notes=notes)
            classes[2].append(_DEFAULT[kind])
    found: DType | None = None
    for group in classes:
        other = _joined(group)
        if other is not None and (found is None or _RANK[other.kind] > _RANK[found.kind]):
            found = complex_of(found) if other.is_complex and found is not None and found.is_float else other
    assert found is not None
    return found


def _joined(group: list[DType]) -> DType | None:
    """One dtype for operands of one class: a float and an integer give the float, a complex and a float count both."""
    if not group:
        return None
    highest = max(_RANK[t.kind] for t in group)
    return promote([t for t in group if _RANK[t.kind] >= min(highest, _RANK["f"])])


def promoted(ctx: Context, row: ScalarOp, values: Sequence[Any]) -> list[Any]:
    """Operands as nodes of the dtype that torch computes `row` in; a `where`'s condition as it is."""
    lead = 1 if row.name == "where" else 0
    common = result_type(values[lead:])
    found = row.resolve([common] * row.arity) if not lead else None
    if (found is not None and found.result.is_float and not common.is_inexact) or (
        row.name == "reciprocal" and not common.is_inexact
    ):
        common = F32
    if row.name == "square" and common == BOOL:
        common = I64
    rest = [elementwise.as_node(ctx.b, v, common) for v in values[lead:]]
    return [*values[:lead], *rest]


# -- dispatch --------------------------------------------------------------------------------------
def function(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`__torch_function__`."""
    ctx = next(v._ctx for v in calls.leaves([list(args), dict(kwargs)]) if type(v) in (TracedArray, Scalar, Poison))
    return named(ctx, _name(func), args, kwargs)


def _name(func: Callable[..., Any]) -> str:
    """`softmax`, `linalg.norm`, `erf` for `torch.special.erf`."""
    name = getattr(func, "__name__", str(func))
    for prefix, shown in (("linalg_", "linalg."), ("special_", ""), ("fft_", "fft.")):
        if name.startswith(prefix):
            return shown + name.removeprefix(prefix)
    return name


def named(ctx: Context, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A torch function or method by name."""
    from fuser.frontend import torch_methods

    frame = ctx.enter()
    try:
        args, options = [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}
    except TraceError as error:
        raise ctx.located(error, frame) from None
    if calls.is_poisoned(args, options):
        return Poison(ctx)
    own = torch_methods.OWN.get(name)
    if own is not None:
        return calls.attempt(ctx, frame, lambda: own(ctx, *args, **options))
    row = table().find("torch", name)
    if options.pop("inplace", False):
        return _in_place(ctx, name, args, options, frame)
    if row is None and name.endswith("_") and not name.startswith("_"):
        return _in_place(ctx, name[:-1], args, options, frame)
    if row is None:
        ctx.refuse(frame, advice.unsupported_torch(name), f"torch.{name}")
        return Poison(ctx)
    return call_row(ctx, name, row, args, options, frame)


def _in_place(ctx: Context, name: str, args: Sequence[Any], options: Mapping[str, Any], frame: FrameType | None) -> Any:
    """`x.add_(y)`: the function, stored into its first argument."""
    result = named(ctx, name, args, options)
    if type(result) is Poison:
        return result
    calls.attempt(ctx, frame, lambda: calls.store_out(ctx, args[0], result.node, "unsafe"))
    return args[0]


def call_row(
    ctx: Context, name: str, row: Row, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType | None
) -> Any:
    """A row by torch's arguments."""
    args, options = arranged(name, row, args, kwargs)
    if isinstance(row, ScalarOp):
        out = options.pop("out", None)
        _check(row, args, options)
        nodes = calls.attempt(ctx, frame, lambda: promoted(ctx, row, [calls.unwrap(ctx, a) for a in args]))
        if type(nodes) is Poison:
            return nodes
        return calls.invoke(ctx, row, nodes, {"out": out} if out is not None else {}, frame)
    if type(args[0]) is TracedArray and not args[0].node.dtype.is_inexact:
        if name in ("logsumexp", "sinc", "angle"):
            args[0] = args[0].astype(F32)
        if name == "relu":  # integers stay what they are
            return call_row(ctx, "maximum", table().scalar("maximum"), [args[0], 0], options, frame)
        if name in _INTEGER_FOLDS and isinstance(row, (Reduction, Scan)):
            options.setdefault("dtype", I64)
        if name in ("mean", "var", "std", "softmax", "log_softmax") and "dtype" not in options:
            raise ctx.located(DTypeError(f"{name} takes floats in torch, not {args[0].node.dtype}", "dtype"), frame)
    result = protocols.call_row(ctx, row, args, options, frame)
    if row.name in ("torch.max", "torch.min") and isinstance(result, tuple):
        return Extreme(*result)
    if name in ("all", "any") and type(result) is TracedArray and args[0].node.dtype == U8:
        return result.astype(U8)
    return tuple(result) if isinstance(result, list) else result


def _check(row: ScalarOp, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    if options or len(args) != row.arity:
        extra = f" and {', '.join(options)}=" if options else ""
        raise ArgumentError(
            f"torch's `{row.name}` takes {row.arity} operands here, not {len(args)}{extra}", "call-signature"
        )


def arranged(name: str, row: Row, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arrays by position; options under the row's names."""
    options = {k: v for k, v in kwargs.items() if k not in _DROPPED and not (k in _OPTIONAL and v is None)}
    positional = list(args)
    for lead in _LEADING:
        if (lead in options and (not isinstance(row, (Reduction, Scan)))) or (
            lead in ("input", "self") and lead in options
        ):
            positional.append(options.pop(lead))
    names = PARAMETERS.get(name)
    if names is not None:
        options = {**dict(zip(names, positional[1:], strict=False)), **options}
        positional = positional[:1]
    known = _known(row)
    renamed = {}
    for k, v in options.items():
        new = _RENAMED.get(k, k)
        if k == "dims":
            new = "axis" if known is None or "axis" in known else "axes"
        if known is None or k in known or new in known or (v is not None and v is not False):
            renamed[k if known is not None and k in known else new] = v
    if name in ("prod", "sum"):
        renamed = {k: v for k, v in renamed.items() if v is not None or k == "axis"}
    return positional, renamed


def _known(row: Row) -> frozenset[str] | None:
    """Option names that a row takes."""
    if isinstance(row, (Reduction, Scan)):
        return frozenset({"axis", "keepdims", "dtype"})
    return None if isinstance(row, ScalarOp) else calls.parameters(calls.builder_of(row))


def is_tensor(value: object) -> bool:
    """Whether a value is a real torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def plain(value: Any) -> Any:
    """torch's dtypes as fuser's, inside containers too; a tensor from elsewhere is refused."""
    if is_tensor(value):
        message = "a tensor is used that fuser cannot follow: it belongs to an object of torch's own"
        raise TraceError(
            message, "outside-tensor", notes=("pass it as an argument, or refer to it as a global or attribute",)
        )
    if type(value).__module__ == "torch":
        name = type(value).__name__
        if name == "dtype":
            return find(str(value).removeprefix("torch."))
        if name == "Size":
            return tuple(value)
    if type(value) in (tuple, list):
        return type(value)(plain(v) for v in value)
    return value


# -- operators and stores ---------------------------------------------------------------------------
def operator(ctx: Context, row: Row, inputs: Sequence[Any], frame: FrameType | None) -> Any:
    """`x + y` by a row's name."""
    name = row.names.torch[0] if row.names.torch else row.name
    return call_row(ctx, name, row, list(inputs), {}, frame)


def torch_dtype(dtype: DType) -> Any:
    """The torch dtype of a traced array."""
    from fuser.runtime.arrays import torch_dtype as of

    return of(dtype)
