"""What an expression of a program can be while its graph is built.

In: nodes and Python values. Out: one closed set of kinds of values, and the way between arrays and nodes. Arrays
are `Array`: a view into a `Storage`, as in the Python tracer, so that both front ends alias as NumPy does.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Union

from fuser.construct import indexing, storing
from fuser.construct.common import fail
from fuser.dtypes import DType
from fuser.errors import IndexingError
from fuser.frontend import ast
from fuser.frontend.storage import Index, Permute, Step, Storage
from fuser.graph import Builder, Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import ExprKind, HostExpr
from fuser.optable.base import Row
from fuser.record import dataclass
from fuser.shapes import Shape, text_of


@dataclass(frozen=True)
class Origin:
    """The array that a function's result looks into (as `reshape` does), and its version at that moment."""

    storage: Storage
    version: int
    function: str


class Array:
    """An array value: a storage, seen through the steps of its parents and its own."""

    __slots__ = ("_node", "_version", "origin", "parent", "step", "storage")

    def __init__(
        self, storage: Storage, parent: Array | None = None, step: Step | None = None, origin: Origin | None = None
    ) -> None:
        self.storage, self.parent, self.step, self.origin = storage, parent, step, origin
        self._node: Node | None = None  # the value seen at `_version` of the storage
        self._version = -1

    def node(self, b: Builder) -> Node:
        """The present value. Raises IndexingError [stale-view] if NumPy might or might not see a later store."""
        if self.origin is not None and self.origin.storage.version != self.origin.version:
            message = f"what `{self.origin.function}` gave is read after its source was stored into"
            hint = f"make it independent: copy({self.origin.function}(...)); or call it again"
            fail(b, IndexingError, message, "stale-view", hint)
        version = self.storage.version
        chain: list[Array] = []
        array: Array | None = self
        while array is not None and array._version != version:
            chain.append(array)
            array = array.parent
        x = self.storage.node if array is None or array._node is None else array._node
        for array in reversed(chain):
            x = x if array.step is None else array.step.read(b, x)
            array._node, array._version = x, version
        return x

    def view(self, step: Step) -> Array:
        """The array seen through one more step."""
        return Array(self.storage, self, step, self.origin)

    def store(self, b: Builder, key: Any, value: Any) -> Node:
        """`self[key] = value`; every array over the same storage sees it. Returns the storage's new value."""
        if self.origin is not None:
            message = f"a store into what `{self.origin.function}` gave might change its source or not"
            hint = f"store into the source, or into copy({self.origin.function}(...))"
            fail(b, IndexingError, message, "store-into-view", hint)
        new = storing.setitem(b, self.node(b), key, value)
        array = self
        while array.parent is not None and array.step is not None:
            new = array.step.write(b, array.parent.node(b), new)
            array = array.parent
        self.storage.store(new)
        return new


@dataclass(frozen=True)
class PythonType:
    """`float`, `int`, `bool`: converts host values when called, stands for f64, i64, bool as a `dtype=`."""

    kind: ExprKind


@dataclass(frozen=True, eq=False)
class Method:
    """A method of a value, not yet called."""

    receiver: Value
    name: str


@dataclass(frozen=True)
class Builtin:
    """A function of the language itself, such as `len`."""

    name: str


Value = Union[
    Array, HostExpr, HostComplex, bool, int, float, complex, str, None, DType, PythonType, slice, range, EllipsisType,
    "tuple[Value, ...]", "list[Value]", ast.Function, Row, Method, Builtin,
]  # fmt: skip


def fresh(node: Node, origin: Origin | None = None) -> Array:
    """An array of its own, unless it has an origin."""
    return Array(Storage(node), origin=origin)


def is_number(value: object) -> bool:
    """A Python number, known while compiling."""
    return isinstance(value, bool | int | float | complex)


def is_host(value: object) -> bool:
    """A number that the host computes: known now, or at the call."""
    return is_number(value) or isinstance(value, HostExpr | HostComplex)


def settled(value: Any) -> Any:
    """A host expression without symbols as a Python number; anything else unchanged."""
    return value.value if isinstance(value, HostExpr) and value.is_literal else value


def subscript(b: Builder, array: Array, key: tuple[Any, ...]) -> Array:
    """`array[key]`: a view for ints, slices, None and Ellipsis; a copy for index arrays; a scalar for a full index."""
    basic = all(
        k is None or k is ... or (isinstance(k, int | HostExpr | slice) and not isinstance(k, bool)) for k in key
    )
    x = array.node(b)
    result = indexing.getitem(b, x, key)
    if not basic or result.rank == 0:
        return fresh(result)
    return array.view(Index(key))


def transposed(b: Builder, array: Array) -> Array:
    """`array.T`: a view."""
    rank = array.node(b).rank
    return array.view(Permute(tuple(reversed(range(rank)))))


def dims_of(b: Builder, node: Node) -> Shape:
    """The shape, under the equalities found so far."""
    return tuple(b.shapes.canonical(d) for d in node.shape)


def describe(b: Builder, value: Any) -> str:
    """The kind of a value, for messages: `f32[n, d]`, `a tuple`, `2.0`."""
    if isinstance(value, Array):
        node = value.node(b)
        return f"{node.dtype}{text_of(dims_of(b, node))}"
    if isinstance(value, HostExpr | HostComplex):
        return f"`{value}`, a run-time {value.kind}"
    if isinstance(value, tuple | list):
        return "a tuple" if isinstance(value, tuple) else "a list"
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, DType):
        return f"the dtype {value}"
    if isinstance(value, PythonType):
        return f"the type {value.kind}"
    if isinstance(value, slice):
        return "a slice"
    name = getattr(value, "name", None)
    return f"`{name}`, a function" if name else repr(value)
