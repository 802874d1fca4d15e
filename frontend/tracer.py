"""`TracedArray`: what a program sees in place of an array while it is traced.

In: operators, attributes, subscripts and methods, as NumPy has them. Out: nodes, through `protocols`; stores
become new versions of the shared `Storage`. Anything that would need the elements now raises, naming the line.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.construct.common import canonical_shape, fail
from fuser.errors import TraceError, TraceTypeError
from fuser.frontend import locations
from fuser.frontend.overrides import Overrides
from fuser.frontend.scalar import host
from fuser.frontend.storage import Index, Step, Storage
from fuser.graph import Node
from fuser.hostexpr import HostExpr, wrap
from fuser.runtime.arrays import torch_dtype
from fuser.shapes import Shape, numel, text_of

if TYPE_CHECKING:
    from fuser.frontend.context import Context


def _operator(ufunc: Any) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """`x + y`, `y + x` and `x += y` for a ufunc."""

    def forward(self: TracedArray, other: Any) -> Any:
        return protocols.operator(self._ctx, ufunc, (self, other))

    def backward(self: TracedArray, other: Any) -> Any:
        return protocols.operator(self._ctx, ufunc, (other, self))

    def in_place(self: TracedArray, other: Any) -> Any:
        if self.is_scalar:  # NumPy scalars are values: `s += 1` makes another one
            return protocols.operator(self._ctx, ufunc, (self, other))
        return protocols.ufunc(self._ctx, ufunc, "__call__", (self, other), {"out": (self,)})

    return forward, backward, in_place


def _unary(ufunc: Any) -> Callable[[Any], Any]:
    def apply(self: TracedArray) -> Any:
        return protocols.operator(self._ctx, ufunc, (self,))

    return apply


class TracedArray(Overrides):
    """An array (or NumPy scalar) of a traced program.

    `_parent` and `_step` say how a view looks into its storage (None for the whole of it). `is_scalar` marks
    rank-0 results that NumPy gives as scalars: values, never stored into.
    """

    __slots__ = ("_ctx", "_node", "_parent", "_step", "_storage", "_version", "is_scalar")

    def __init__(
        self,
        ctx: Context,
        storage: Storage,
        parent: TracedArray | None = None,
        step: Step | None = None,
        is_scalar: bool = False,
    ) -> None:
        self._ctx, self._storage, self._parent, self._step = ctx, storage, parent, step
        self._node: Node | None = None
        self._version = -1
        self.is_scalar = is_scalar

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # so that `isinstance(x, np.ndarray)` takes the branch it takes without tracing
        return TracedArray if self._ctx.torch else np.ndarray

    # -- values -------------------------------------------------------------------------------------
    @property
    def node(self) -> Node:
        """The present value. Views are re-read from the nearest array that is up to date."""
        pending: list[TracedArray] = []
        array: TracedArray | None = self
        while array is not None and (array._node is None or array._version != self._storage.version):
            pending.append(array)
            array = array._parent
        node = array._node if array is not None else None
        for view in reversed(pending):
            if view._step is None:
                node = self._storage.node
            else:
                assert node is not None
                node = view._step.read(self._ctx.b, node)
            view._node, view._version = node, self._storage.version
        assert node is not None
        return node

    def through(self, step: Step) -> TracedArray:
        """A view of this array: the same storage seen through one more step."""
        return TracedArray(self._ctx, self._storage, self, step)

    @property
    def ordered(self) -> bool:
        """Whether strides surely fall from the first axis to the last."""
        return self._storage.ordered and all(v._step is None or v._step.ordered for v in self._lineage())

    @property
    def contiguous(self) -> bool:
        """Whether memory is surely row-major without gaps (for arguments: as the trace assumes)."""
        return self._storage.ordered and all(v._step is None or v._step.contiguous for v in self._lineage())

    def _lineage(self) -> Iterator[TracedArray]:
        """This array and what it looks into, outwards."""
        array: TracedArray | None = self
        while array is not None:
            yield array
            array = array._parent

    def assign(self, value: Node) -> None:
        """Store a whole new value (of this array's shape and dtype) through the view into the storage."""
        lineage = list(self._lineage())
        self._check_writable(lineage)
        values = [value]
        for view, into in itertools.pairwise(lineage):
            assert view._step is not None
            values.append(view._step.write(self._ctx.b, into.node, values[-1]))
        storage = self._storage
        storage.store(values[-1])
        for view, new in zip(lineage, values, strict=True):
            view._node, view._version = new, storage.version
        if storage.name is not None and values[-1].op not in ("input", "scalar"):
            self._ctx.b.label(values[-1], storage.name)

    def _check_writable(self, lineage: list[TracedArray]) -> None:
        storage = self._storage
        if any(v._step is not None and not v._step.writable for v in lineage):
            fail(self._ctx.b, TraceError, "assignment destination is read-only", "read-only", "write to a .copy()")
        if storage.uncertain is not None:
            if storage.uncertain.symbols:
                self._ctx.specialize("whether a reshape is a view", storage.uncertain)
            message = "a store here changes a view or a copy, depending on the layout of the call's arrays"
            fail(self._ctx.b, TraceError, message, "view-or-copy", "write .copy() before the reshape")
        if storage.merged and storage.argument is not None:
            self._ctx.needs_contiguous.add(storage.argument)

    # -- attributes ---------------------------------------------------------------------------------
    @property
    def _dims(self) -> Shape:
        return canonical_shape(self._ctx.b, self.node.shape)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(host(self._ctx, wrap(d)) for d in self._dims)

    @property
    def ndim(self) -> int:
        return self.node.rank

    @property
    def size(self) -> Any:
        if self._ctx.torch:
            return methods.lookup(self, "size")
        return host(self._ctx, wrap(numel(self._dims)))

    @property
    def dtype(self) -> Any:
        """NumPy's dtype, torch's in a function of tensors."""
        return torch_dtype(self.node.dtype) if self._ctx.torch else self.node.dtype.numpy

    @property
    def itemsize(self) -> int:
        return self.node.dtype.bytes

    @property
    def nbytes(self) -> Any:
        return host(self._ctx, wrap(numel(self._dims))) * self.itemsize

    @property
    def T(self) -> Any:
        return methods.transpose(self)

    @property
    def mT(self) -> Any:
        return np.matrix_transpose(self)

    @property
    def real(self) -> Any:
        """A view of the real parts; a real array itself."""
        return methods.part(self, "real") if self.node.dtype.is_complex else self

    @real.setter
    def real(self, value: Any) -> None:
        methods.setitem(self.real, Ellipsis, value)

    @property
    def imag(self) -> Any:
        """A view of the imaginary parts; zeros for a real array."""
        return methods.part(self, "imag") if self.node.dtype.is_complex else np.zeros_like(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if not self.node.dtype.is_complex:
            raise TraceTypeError("array does not have imaginary part to set", "complex")
        methods.setitem(self.imag, Ellipsis, value)

    @property
    def device(self) -> Any:
        if self._ctx.torch:
            return sys.modules["torch"].device("cpu")
        return "cpu"

    def __array_namespace__(self, api_version: Any = None) -> Any:
        return protocols.namespace(self._ctx)

    def __repr__(self) -> str:
        kind = "scalar" if self.is_scalar else "array"
        return f"<traced {kind} {self.node.dtype}{text_of(self._dims)}>"

    def __getattr__(self, name: str) -> Any:
        """Methods that are NumPy functions of the same name (`sum`, `clip`, `cumsum`...)."""
        return methods.lookup(self, name)

    # -- where Python wants the elements ---------------------------------------------------------------
    def _known(self) -> Any:
        """The NumPy value if this is (an element of) a constant that nothing was stored to; None otherwise."""
        steps = [v._step for v in self._lineage() if v._step is not None]
        keys = [s.key for s in steps if isinstance(s, Index)]
        if self._storage.constant is None or len(keys) < len(steps):
            return None
        value = self._storage.constant()
        for key in reversed(keys):
            value = value[key]
        return value

    def _what(self) -> str:
        return f"{self.node.dtype}{text_of(self._dims) if self.node.rank else ''}"

    def _number(self, keyword: str, needs: str, slug: str, note: str) -> Any:
        known = self._known()
        if known is None:
            raise self._ctx.ask(keyword, needs, self._what(), slug, note)
        return known

    def __bool__(self) -> bool:
        return bool(self._number("bool()", "one truth value", "data-dependent-if", "per element: np.where"))

    def __int__(self) -> int:
        note = "per element: x.astype(np.int64)    option: pass a Python int"
        return int(self._number("int()", "a number", "data-dependent-number", note))

    def __float__(self) -> float:
        note = "leave it out: a traced scalar computes like a number; option: pass a Python float"
        return float(self._number("float()", "a number", "data-dependent-number", note))

    def __complex__(self) -> complex:
        return complex(
            self._number(
                "complex()", "a number", "data-dependent-number", "leave it out: a traced scalar computes like a number"
            )
        )

    def __index__(self) -> int:
        note = "option: pass a Python int, which specialises the function; or index with the array itself"
        value = self._number("range()", "an integer", "data-dependent-number", note)
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(value.__index__())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        known = self._known()
        if known is not None:
            return np.array(known, dtype=dtype)
        note = "np.asarray(x) is x while tracing, np.stack([x, y]) joins arrays; what needs elements is called outside"
        raise self._ctx.ask("np.array()", "the elements now", self._what(), "array-conversion", note)

    def item(self, *index: Any) -> Any:
        known = self._known()
        if known is not None:
            return known.item(*index)
        note = "leave it out: a traced scalar computes like a number"
        raise self._ctx.ask("item()", "a number", self._what(), "data-dependent-number", note)

    def tolist(self) -> Any:
        known = self._known()
        if known is not None:
            return known.tolist()
        raise self._ctx.ask("tolist()", "the elements now", self._what(), "array-conversion", "convert the result")

    def __len__(self) -> int:
        if not self.node.rank:
            raise TypeError("len() of unsized object")
        n = self.shape[0]
        return n if isinstance(n, int) and type(n) is int else int(n.__index__())

    def __iter__(self) -> Iterator[Any]:
        if not self.node.rank:
            raise TypeError("iteration over a 0-d array")
        n = self._dims[0]
        frame = locations.user_frame(sys._getframe(1))
        if isinstance(n, HostExpr):
            if frame is not None and locations.unpacked_count(frame) is not None:
                self._ctx.specialize("unpacking", n)
            note = "compute on the whole array; option: for i in range(x.shape[0]) unrolls and fixes that length"
            raise self._ctx.ask("for", "a known length", self._what(), "unknown-length", note)
        return (self[i] for i in range(n))

    def __contains__(self, value: Any) -> bool:
        raise self._ctx.ask("contains", "one truth value", self._what(), "data-dependent-if")

    def __hash__(self) -> int:
        if self.is_scalar:
            note = "write np.where or np.select"
            raise self._ctx.ask("hash()", "a number", self._what(), "data-dependent-number", note)
        raise TraceTypeError("unhashable type: 'numpy.ndarray'", "unhashable")

    def __format__(self, spec: str) -> str:
        return repr(self)

    # -- subscripts -----------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        return methods.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        methods.setitem(self, key, value)

    # -- protocols ------------------------------------------------------------------------------------
    __array_priority__ = 2000

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        return protocols.cupy_kernel(self._ctx, kernel, args, kwargs)

    # -- operators --------------------------------------------------------------------------------------
    __add__, __radd__, __iadd__ = _operator(np.add)
    __sub__, __rsub__, __isub__ = _operator(np.subtract)
    __mul__, __rmul__, __imul__ = _operator(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _operator(np.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operator(np.floor_divide)
    __mod__, __rmod__, __imod__ = _operator(np.remainder)
    __pow__, __rpow__, __ipow__ = _operator(np.power)
    __and__, __rand__, __iand__ = _operator(np.bitwise_and)
    __or__, __ror__, __ior__ = _operator(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _operator(np.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _operator(np.left_shift)
    __rshift__, __rrshift__, __irshift__ = _operator(np.right_shift)
    __matmul__, __rmatmul__, __imatmul__ = _operator(np.matmul)
    __divmod__, __rdivmod__, _idivmod = _operator(np.divmod)
    __lt__ = _operator(np.less)[0]
    __le__ = _operator(np.less_equal)[0]
    __gt__ = _operator(np.greater)[0]
    __ge__ = _operator(np.greater_equal)[0]
    __eq__ = _operator(np.equal)[0]
    __ne__ = _operator(np.not_equal)[0]
    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()


# Last, because these modules are about TracedArray and import it.
from fuser.frontend import methods, protocols  # noqa: E402
