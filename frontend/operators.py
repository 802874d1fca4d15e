"""Calls of what a program does not define: operators of the table, methods, dtypes as casts, `len`, `range`, `copy`.

In: a callee and evaluated arguments. Out: its value. Arguments are handed to `fuser.construct` as the user gave
them; what does not fit a signature is refused here, by name, before it could become a Python TypeError there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fuser import hostcomplex
from fuser.construct import complexes, composite, elementwise, reduction
from fuser.dtypes import BOOL, F64, I64, DType
from fuser.errors import ArgumentError, DTypeError, TraceTypeError
from fuser.frontend import ast
from fuser.frontend.loops import RunRange
from fuser.frontend.resolve import unknown_attribute
from fuser.frontend.storage import Part
from fuser.frontend.values import (
    Array,
    Builtin,
    Method,
    Origin,
    PythonType,
    Value,
    describe,
    dims_of,
    fresh,
    is_host,
    settled,
    transposed,
)  # fmt: skip
from fuser.graph import Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import HostExpr, wrap
from fuser.hostexpr import call as host_call
from fuser.optable import table
from fuser.optable.base import Composite, Function, OpaqueOp, Reduction, Row, ScalarOp, Scan
from fuser.shapes import numel

if TYPE_CHECKING:
    from fuser.frontend.machine import Machine

ROWS = ScalarOp | Reduction | Scan | Composite | OpaqueOp | Function
_PYTHON_DTYPES = {"float": F64, "int": I64, "bool": BOOL}
_HOST_FOLDS = {"max": "maximum", "min": "minimum"}


def as_dtype(value: PythonType) -> DType:
    """`float` where a dtype is meant, as in NumPy."""
    return _PYTHON_DTYPES[value.kind]


def plain(m: Machine, value: Value, place: ast.Place) -> Any:
    """A value as `construct` takes it: arrays as nodes, Python types as dtypes, inside tuples and lists too."""
    if isinstance(value, Array):
        return value.node(m.b)
    if isinstance(value, PythonType):
        return as_dtype(value)
    if isinstance(value, tuple | list):
        return type(value)(plain(m, v, place) for v in value)
    if isinstance(value, ast.Function | Method | Builtin | ROWS):
        m.fail(TraceTypeError, f"`{value.name}` is a function; call it", "operand", place)
    return value


def call(m: Machine, callee: Value, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    """The value of `callee(*args, **kwargs)` for anything but a function of the program."""
    if isinstance(callee, Method):
        return _method(m, callee, args, kwargs, node)
    if isinstance(callee, DType | PythonType):
        return _cast(m, callee, args, kwargs, node)
    if isinstance(callee, Builtin):
        return _BUILTINS[callee.name](m, args, kwargs, node)
    if isinstance(callee, ROWS):
        return call_row(m, callee, args, kwargs, node)
    m.fail(TraceTypeError, f"{describe(m.b, callee)} cannot be called", "not-callable", node.function.place)


# -- operators of the table ------------------------------------------------------------------------
def call_row(m: Machine, row: Row, args: list[Value], kwargs: Mapping[str, Value], node: ast.Call) -> Value:
    """An operator of the table. The result of a function that only rearranges remembers what it looks into."""
    if row.name in _HOST_FOLDS and len(args) > 1 and not kwargs and all(map(is_host, args)):
        return _fold(m, row.name, args, node)
    if row.name in _HOST_FOLDS and len(args) > 1 and isinstance(args[1], Array | float):
        hint = f"element by element it is `{_HOST_FOLDS[row.name]}(a, b)`"
        m.fail(ArgumentError, f"`{row.name}` reduces one array", "call", node.place, hint)
    given = [plain(m, a, node.place) for a in args]
    options = {k: plain(m, v, node.place) for k, v in kwargs.items()}
    if isinstance(row, ScalarOp):
        _fits(m, row.name, lambda *values, dtype=None, where=None: None, given, options, node)
        if not options:
            return m.apply(row.name, row.name, tuple(args), node.place)
        return wrapped(m, elementwise.apply(m.b, row.name, *given, **options), node)
    build = _builder(row)
    _fits(m, row.name, build, [m.b, *given], options, node)
    result = build(m.b, *given, **options)
    if isinstance(row, Function):
        return wrapped(m, result, node, row.name, [*args, *kwargs.values()])
    return wrapped(m, result, node)


def _fold(m: Machine, name: str, args: list[Value], node: ast.Call) -> Value:
    """Python's `max(a, b, ...)` on numbers."""
    value = args[0]
    for other in args[1:]:
        value = m.apply(_HOST_FOLDS[name], name, (value, other), node.place)
    return value


def _builder(row: Row) -> Callable[..., Any]:
    """The constructor of a row that is not a scalar operator, with the signature that users see."""
    if isinstance(row, Reduction):
        return _reduction(row)
    if isinstance(row, Scan):
        return lambda b, x, axis=None, dtype=None, *, exclusive=False, reverse=False: reduction.scan(
            b, row.name, x, axis, dtype, exclusive, reverse
        )
    if isinstance(row, Function | OpaqueOp | Composite) and row.build is not None:
        return row.build
    return lambda b, *arrays, **params: composite.composite(
        b, row.name, [elementwise.as_node(b, a) for a in arrays], **params
    )


def _reduction(row: Reduction) -> Callable[..., Any]:
    if row.uses_index:
        return lambda b, x, axis=None, *, keepdims=False: reduction.arg(b, row.name, x, axis, keepdims)

    def build(
        b: Any, x: Any, axis: Any = None, *,
        keepdims: Any = False, dtype: Any = None, where: Any = None, initial: Any = None,
    ) -> Any:  # fmt: skip
        first = reduction.reduce(b, row.name, x, axis, keepdims, dtype, where, initial)
        count = len(row.results(first.dtype)) if first.op == row.name else 1
        return first if count == 1 else tuple(reduction.item(b, first, k) for k in range(count))

    return build


def _fits(
    m: Machine, name: str, function: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any], node: ast.Call
) -> None:
    """Refuse arguments that a signature does not take. Raises ArgumentError [call]."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        shown = [str(p).split(":")[0].split(" =")[0] for p in signature.parameters.values()]
        shown = shown[1:] if args and args[0] is m.b else shown
        hint = () if any(p.startswith("*") for p in shown[:1]) else (f"it takes `{name}({', '.join(shown)})`",)
        m.fail(ArgumentError, f"`{name}`: {error}", "call", node.place, *hint)


def wrapped(
    m: Machine, result: Any, node: ast.Call, function: str = "", args: list[Value] | tuple[Value, ...] = ()
) -> Value:
    """What `construct` gave, as values of the program."""
    if isinstance(result, tuple | list):
        return tuple(wrapped(m, r, node, function, args) for r in result)
    if isinstance(result, Node):
        origin = _origin(m, result, function, args) if function and result.rank else None
        return fresh(result, origin)
    return m.host(result, node.place)


def _origin(m: Machine, result: Node, function: str, args: list[Value] | tuple[Value, ...]) -> Origin | None:
    """Which argument a result is only a view of: NumPy might share its memory."""
    seen = {result}
    while result.op == "view" and len(result.inputs) == 1:
        result = result.inputs[0]
        seen.add(result)
    for value in args:
        if isinstance(value, Array) and not seen.isdisjoint((value.node(m.b), value.storage.node)):
            return value.origin or Origin(value.storage, value.storage.version, function)
    return None


# -- attributes and methods ------------------------------------------------------------------------
def attribute(m: Machine, value: Value, node: ast.Attribute) -> Value:
    """`value.name`. Raises NameResolutionError [unknown-method] with the nearest name."""
    if isinstance(value, Array):
        if node.name in _PROPERTIES:
            return _PROPERTIES[node.name](m, value)
        if node.name in _OWN_METHODS or table().find("method", node.name) is not None:
            return Method(value, node.name)
        known = [*_PROPERTIES, *_OWN_METHODS, *table().names("method")]
        raise unknown_attribute(m.module.span(node.name_place), describe(m.b, value), node.name, known)
    if isinstance(value, complex | HostComplex) and node.name in ("real", "imag"):
        both = hostcomplex.of(value)
        part: Value = settled(both.re if node.name == "real" else both.im)
        return part
    raise unknown_attribute(m.module.span(node.name_place), describe(m.b, value), node.name, [])


def _shape(m: Machine, x: Array) -> Value:
    return dims_of(m.b, x.node(m.b))


_PROPERTIES: dict[str, Callable[[Any, Array], Value]] = {
    "shape": _shape,
    "ndim": lambda m, x: x.node(m.b).rank,
    "size": lambda m, x: settled(numel(dims_of(m.b, x.node(m.b)))),
    "dtype": lambda m, x: x.node(m.b).dtype,
    "T": lambda m, x: transposed(m.b, x),
    "real": lambda m, x: _part(m, x, "real"),
    "imag": lambda m, x: _part(m, x, "imag"),
    "mT": lambda m, x: wrapped_row(m, "matrix_transpose", x),
}


def _part(m: Machine, x: Array, name: str) -> Value:
    """The real or imaginary parts: of a complex array a view; of a real one itself, or zeros."""
    if x.node(m.b).dtype.is_complex:
        return x.view(Part(name))
    return x if name == "real" else fresh(complexes.imag(m.b, x.node(m.b)))


def wrapped_row(m: Machine, name: str, x: Array) -> Value:
    """A one-argument function of the table, by its row's name."""
    row = table().rows[name]
    assert isinstance(row, Function)
    result: Node = row.build(m.b, x.node(m.b))
    return fresh(result, _origin(m, result, name, (x,)))


def _method(m: Machine, method: Method, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    row = table().find("method", method.name)
    if method.name in _OWN_METHODS:
        return _OWN_METHODS[method.name](m, [method.receiver, *args], kwargs, node)
    assert row is not None
    return call_row(m, row, [method.receiver, *args], kwargs, node)


def _astype(m: Machine, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    _fits(m, "astype", lambda x, dtype: None, args, kwargs, node)
    x, target = args[0], plain(m, args[1] if len(args) > 1 else kwargs["dtype"], node.place)
    return wrapped(m, elementwise.cast(m.b, plain(m, x, node.place), target), node)


def _copy(m: Machine, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    _fits(m, "copy", lambda x: None, args, kwargs, node)
    return fresh(args[0].node(m.b)) if isinstance(args[0], Array) else args[0]


_OWN_METHODS: dict[str, Callable[..., Value]] = {"astype": _astype, "copy": _copy}


# -- casts and builtins ----------------------------------------------------------------------------
def _cast(m: Machine, target: DType | PythonType, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    """`f32(x)`: an array or a strong scalar of that dtype. `float(h)`: a number as Python converts it."""
    name = target.kind if isinstance(target, PythonType) else target.name
    _fits(m, name, lambda x: None, args, kwargs, node)
    value = args[0]
    if isinstance(target, DType):
        return fresh(elementwise.cast(m.b, m.operand(value, name, node.place), target))
    if not is_host(value):
        hint = f"for an array write `{as_dtype(target)}(...)`"
        m.fail(DTypeError, f"`{name}` takes a number, not {describe(m.b, value)}", "operand", node.place, hint)
    result = host_call(target.kind, value)  # type: ignore[arg-type]
    if result.op == target.kind and result.args[0].is_literal:
        m.fail(DTypeError, f"`{name}({result.args[0]})` has no value", "operand", node.place)
    return m.host(result, node.place)


def _len(m: Machine, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    _fits(m, "len", lambda x: None, args, kwargs, node)
    value = args[0]
    if isinstance(value, tuple | list):
        return len(value)
    if isinstance(value, Array) and value.node(m.b).rank:
        return dims_of(m.b, value.node(m.b))[0]
    m.fail(TraceTypeError, f"{describe(m.b, value)} has no length", "operand", node.place)


def _at_run_time(m: Machine, value: Value) -> bool:
    """Whether a bound of a `range` is an integer that a call knows."""
    if isinstance(value, Array):
        node = value.node(m.b)
        return node.rank == 0 and node.dtype.is_integer
    return isinstance(value, HostExpr) and value.kind != "float"


def _range(m: Machine, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    """`range` of numbers known while compiling, as a tuple would be."""
    if kwargs or not 1 <= len(args) <= 3:
        m.fail(ArgumentError, "`range` takes one to three integers", "call", node.place)
    for value in args:
        if _at_run_time(m, value):
            if len(args) == 3 and args[2] != 1:
                unknown = next((a for a in args if isinstance(a, HostExpr)), wrap(0))
                raise m.needs_static("the length of a loop", unknown, node.place)
            return RunRange(*args[:2]) if len(args) > 1 else RunRange(0, value)  # type: ignore[return-value]
        if not isinstance(value, int) or isinstance(value, bool):
            m.fail(TraceTypeError, f"`range` takes integers, not {describe(m.b, value)}", "operand", node.place)
    if len(args) == 3 and args[2] == 0:
        m.fail(ArgumentError, "the step of a `range` cannot be 0", "call", node.place)
    return range(*args)  # type: ignore[arg-type]


def _mark(m: Machine, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
    """`must_fuse(a, b)` or `no_fuse(a, b)`: a mark on the graph; as a statement it does something, as a store does."""
    name = node.function.id if isinstance(node.function, ast.Name) else "must_fuse"
    if kwargs or not all(isinstance(a, Array) for a in args):
        m.fail(TraceTypeError, f"`{name}` takes arrays", "operand", node.place)
    m.b.mark(name == "must_fuse", [a.node(m.b) for a in args if isinstance(a, Array)])
    m.stores += 1
    return None


_BUILTINS: dict[str, Callable[..., Value]] = {
    "len": _len, "range": _range, "copy": _copy, "must_fuse": _mark, "no_fuse": _mark,
}  # fmt: skip
