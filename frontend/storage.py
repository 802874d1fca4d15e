"""Memory as a traced program sees it: a base with versions, and the steps by which views look into it.

In: stores through views. Out: the base's next value, a pure node. NumPy's aliasing comes from sharing one `Storage`:
basic slices, permutations and reshapes are steps over it, so a store through any view is seen by all of them.

A reshape that merges axes is a view in NumPy only when the memory is contiguous. `Storage.ordered` knows that for
values made in the trace. Where it does not, reading is fine, but a later store on either side is refused rather
than guessed (`uncertain`). Arguments are taken as contiguous; a trace that leans on that says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

from fuser.construct import complexes, indexing, storing, views
from fuser.graph import Builder, Node
from fuser.hostexpr import HostExpr, lit
from fuser.record import dataclass
from fuser.shapes import Shape

_clock = itertools.count(1)  # orders stores; only comparisons of its values mean anything


class Storage:
    """One allocation: its present value, and how it came to be.

    argument: the argument position whose memory this is, None for memory of the program's own.
    ordered: whether memory is row-major for certain. merged: a view that merges axes looks into it.
    uncertain: the number of elements of a reshape of which nobody knows whether it was a view (so that neither side may
    be stored to any more); None if there is none. With that number's dims known, it may be decided.
    make: gives the first value when it is first needed (outside arrays, constants).
    constant: gives the NumPy array that this still equals, for values Python may look at while tracing.
    origin: the first value that `make` gave. changed: when the last store was.
    """

    __slots__ = (
        "_node", "argument", "changed", "constant", "make", "merged", "name", "ordered", "origin",
        "uncertain", "version",
    )  # fmt: skip

    def __init__(
        self,
        node: Node | None,
        *,
        argument: int | None = None,
        ordered: bool = True,
        make: Callable[[], Node] | None = None,
        constant: Callable[[], Any] | None = None,
    ) -> None:
        self._node, self.make = node, make
        self.argument, self.ordered, self.constant = argument, ordered, constant
        self.version = 0
        self.name: str | None = None
        self.merged = False
        self.uncertain: HostExpr | None = None
        self.origin: Node | None = None
        self.changed = 0

    @property
    def node(self) -> Node:
        """The present value."""
        if self._node is None:
            assert self.make is not None
            self._node = self.origin = self.make()
        return self._node

    def store(self, node: Node) -> None:
        """Replace the whole value."""
        self._node = node
        self.version += 1
        self.changed = next(_clock)
        self.constant = None


class Step(Protocol):
    """One look from an array into a view of it.

    ordered: strides still fall from the first axis to the last. contiguous: and leave no gaps.
    """

    @property
    def writable(self) -> bool: ...
    @property
    def ordered(self) -> bool: ...
    @property
    def contiguous(self) -> bool: ...
    def read(self, b: Builder, x: Node) -> Node: ...
    def write(self, b: Builder, x: Node, value: Node) -> Node: ...


@dataclass(frozen=True)
class Index:
    """`x[key]` with ints, slices, None and Ellipsis."""

    key: Any
    writable: bool = True
    ordered: bool = True

    @property
    def contiguous(self) -> bool:
        """Ints, then at most one slice without a step, then whole axes."""
        items = list(self.key) if isinstance(self.key, tuple) else [self.key]
        while items and ((isinstance(items[-1], slice) and items[-1] == slice(None)) or items[-1] is Ellipsis):
            items.pop()
        if items and isinstance(items[-1], slice) and items[-1].step in (None, 1):
            items.pop()
        return all(isinstance(i, (int, HostExpr)) or i is None for i in items)

    def read(self, b: Builder, x: Node) -> Node:
        return indexing.getitem(b, x, self.key)

    def write(self, b: Builder, x: Node, value: Node) -> Node:
        return storing.setitem(b, x, self.key, value)


@dataclass(frozen=True)
class Permute:
    """Axes permuted: result axis k is source axis perm[k]."""

    perm: tuple[int, ...]
    writable: bool = True

    @property
    def ordered(self) -> bool:
        return self.perm == tuple(range(len(self.perm)))

    @property
    def contiguous(self) -> bool:
        return self.ordered

    def read(self, b: Builder, x: Node) -> Node:
        return views.transpose(b, x, self.perm)

    def write(self, b: Builder, x: Node, value: Node) -> Node:
        inverse = sorted(range(len(self.perm)), key=self.perm.__getitem__)
        return views.transpose(b, value, tuple(inverse))


@dataclass(frozen=True)
class Reshape:
    """The same elements under another shape, row-major."""

    shape: Shape
    writable: bool = True
    ordered: bool = True
    contiguous: bool = True

    def read(self, b: Builder, x: Node) -> Node:
        return views.reshape(b, x, self.shape)

    def write(self, b: Builder, x: Node, value: Node) -> Node:
        return views.reshape(b, value, x.shape)


@dataclass(frozen=True)
class Flip:
    """Elements in reverse order along some axes."""

    axes: tuple[int, ...]
    writable: bool = True
    ordered: bool = True
    contiguous: bool = False

    def read(self, b: Builder, x: Node) -> Node:
        return views.flip(b, x, self.axes)

    def write(self, b: Builder, x: Node, value: Node) -> Node:
        return views.flip(b, value, self.axes)


@dataclass(frozen=True)
class Part:
    """The real or imaginary parts of complex elements."""

    name: str
    writable: bool = True
    ordered: bool = True
    contiguous: bool = False

    def read(self, b: Builder, x: Node) -> Node:
        return complexes.real(b, x) if self.name == "real" else complexes.imag(b, x)

    def write(self, b: Builder, x: Node, value: Node) -> Node:
        if self.name == "real":
            return complexes.join(b, value, complexes.imag(b, x))
        return complexes.join(b, complexes.real(b, x), value)


@dataclass(frozen=True)
class ReadOnly:
    """A view that NumPy makes read-only (broadcast_to, diagonal): follows its base, refuses stores."""

    function: Callable[[Builder, Node], Node]
    writable: bool = False
    ordered: bool = False
    contiguous: bool = False

    def read(self, b: Builder, x: Node) -> Node:
        return self.function(b, x)

    def write(self, b: Builder, x: Node, value: Node) -> Node:
        raise AssertionError("stores are refused before they get here")


def merges_axes(source: Shape, target: Shape) -> bool:
    """Whether a reshape joins axes, so that it needs contiguous memory to be a view.

    From the left, every source axis longer than 1 must be split into whole target axes.
    """
    left = [d for d in target if d != 1]
    for d in (d for d in source if d != 1):
        product = lit(1)
        while left and product != lit(1) * d:
            product = product * left.pop(0)
        if product != lit(1) * d:
            return True
    return False
