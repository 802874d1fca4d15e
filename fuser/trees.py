"""Nested arguments and results: containers taken apart into leaves, and put together again.

In: values nested in tuples, lists, dicts and named tuples. Out: flat leaves with a hashable `Tree` (part of a
trace's key) that puts them back, readable leaf names, and the `OutputTree` by which a call's results take
the shape that the program returned. Its own file because front ends, the call path and tests share it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from fuser.hostexpr import Env, HostExpr
from fuser.record import dataclass

Kind = Literal["leaf", "tuple", "list", "dict", "namedtuple"]


@dataclass(frozen=True)
class Tree:
    """A container and its children in order; `keys` are a dict's keys or a named tuple's fields."""

    kind: Kind
    type: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()

    @property
    def size(self) -> int:
        """Number of leaves."""
        return 1 if self.kind == "leaf" else sum(c.size for c in self.children)


LEAF = Tree("leaf")


def _kind(value: Any) -> Kind:
    if isinstance(value, tuple):
        return "namedtuple" if hasattr(value, "_fields") else "tuple"
    return "list" if type(value) is list else "dict" if type(value) in (dict, OrderedDict) else "leaf"


def is_static_tuple(value: Any) -> bool:
    """A tuple with no array inside is one value (an axis, a shape): `(0, 1)`, `(None, ("a", 2.0))`."""
    if not isinstance(value, tuple):
        return False
    return all(
        is_static_tuple(v) if isinstance(v, tuple) else not hasattr(v, "dtype") and _kind(v) == "leaf" for v in value
    )


def flatten(
    value: Any, static: frozenset[str] = frozenset(), is_leaf: Callable[[Any], bool] = is_static_tuple
) -> tuple[list[Any], Tree]:
    """Leaves in order, and the tree. Entries of a top-level dict named in `static` stay whole."""
    leaves: list[Any] = []
    if static and _kind(value) == "dict":
        children = []
        for key, item in value.items():
            leaves_of, tree = ([item], LEAF) if key in static else flatten(item, is_leaf=is_leaf)
            leaves += leaves_of
            children.append(tree)
        return leaves, Tree("dict", type(value), tuple(value), tuple(children))
    return leaves, _take_apart(value, leaves, is_leaf)


def _take_apart(value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool]) -> Tree:
    kind = _kind(value)
    if kind == "leaf" or is_leaf(value):
        leaves.append(value)
        return LEAF
    keys: tuple[Any, ...] = ()
    items: Sequence[Any] = value
    if kind == "dict":
        keys, items = tuple(value), tuple(value.values())
    elif kind == "namedtuple":
        keys = tuple(value._fields)
    return Tree(kind, type(value), keys, tuple(_take_apart(v, leaves, is_leaf) for v in items))


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The containers again, with these leaves."""
    if len(leaves) != tree.size:
        raise ValueError(f"{len(leaves)} leaves for a tree of {tree.size}")
    return _put_together(tree, iter(leaves))


def _put_together(tree: Tree, leaves: Iterator[Any]) -> Any:
    if tree.kind == "leaf":
        return next(leaves)
    items = [_put_together(c, leaves) for c in tree.children]
    if tree.kind == "dict":
        return tree.type(zip(tree.keys, items, strict=True))
    if tree.kind == "namedtuple":
        return tree.type(*items)
    return items if tree.kind == "list" else tuple(items)


def leaf_names(value: Any) -> list[str]:
    """A name for each leaf by its path: `x`, `params.w`, `state.0`. Takes a tree, or a value to flatten."""
    tree = value if isinstance(value, Tree) else flatten(value)[1]
    return list(_names(tree, ""))


def _names(tree: Tree, path: str) -> Iterator[str]:
    if tree.kind == "leaf":
        yield path
        return
    steps: Sequence[Any] = tree.keys or range(len(tree.children))
    for step, child in zip(steps, tree.children, strict=True):
        yield from _names(child, f"{path}.{step}" if path else str(step))


# -- results ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ArrayLeaf:
    """Result number `index` (in `Graph.outputs`). `argument`: the program returned this argument itself."""

    index: int
    argument: int | None = None


@dataclass(frozen=True)
class HostLeaf:
    """A Python number computed per call from dims and scalars."""

    expr: HostExpr


@dataclass(frozen=True, eq=False)
class StaticLeaf:
    """A value known while tracing (None, a string, a number)."""

    value: Any


OutputLeaf = ArrayLeaf | HostLeaf | StaticLeaf


@dataclass(frozen=True, eq=False)
class OutputTree:
    """How a program's results are nested (`Graph.output_tree`), and what its trace leans on beside its arguments.

    captured: a getter for each hidden input, in the order of `Graph.arguments`.
    contiguous: positions of arguments whose memory the program's stores take to be row-major without gaps.
    """

    tree: Tree
    leaves: tuple[OutputLeaf, ...]
    captured: tuple[Callable[[], Any], ...] = ()
    contiguous: frozenset[int] = frozenset()


def rebuild(output: OutputTree | None, arrays: Sequence[Any], env: Env) -> Any:
    """What the program returns: `arrays` are the values of `Graph.outputs`, `env` binds dims and scalars.

    Without a tree: the only result, or a tuple of them.
    """
    if output is None:
        return arrays[0] if len(arrays) == 1 else tuple(arrays)
    return unflatten(output.tree, [_result(leaf, arrays, env) for leaf in output.leaves])


def _result(leaf: OutputLeaf, arrays: Sequence[Any], env: Env) -> Any:
    if isinstance(leaf, ArrayLeaf):
        return arrays[leaf.index]
    return leaf.expr.evaluate(env) if isinstance(leaf, HostLeaf) else leaf.value


def mapped(function: Callable[[Any], Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """A dict of nested values with every leaf replaced by `function(leaf)`."""
    leaves, tree = flatten(dict(value))
    rebuilt: dict[str, Any] = unflatten(tree, [function(leaf) for leaf in leaves])
    return rebuilt
