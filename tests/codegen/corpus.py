"""Programs that schedules are tested on, built by hand through `fuser.construct`, and what runs their plans.

`PROGRAMS` names small programs, each made to need one thing of the schedules. `Case` binds one to sizes: inputs,
reference, planned groups (fused, or one operator a group), kernels of each group, and their run in the interpreter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np

from fuser import device as devices
from fuser import shapes
from fuser.codegen import schedule, simt
from fuser.codegen.expand import expand
from fuser.codegen.loops import Kernel
from fuser.construct import elementwise as ew
from fuser.construct import indexing, joining, random, reduction, storing, views
from fuser.dtypes import BF16, BOOL, F32, F64, I32, I64, DType
from fuser.graph import Builder, Graph, Node, ReduceAttrs, ScanAttrs
from fuser.group import Group
from fuser.hostexpr import HostExpr, lit, scalar_symbol, sym
from fuser.interpreter import evaluate
from fuser.keys import SizeClass, dim_buckets, dim_factors, length_bucket, vector_unit
from fuser.passes import fuse
from fuser.passes.pipeline import prepare
from fuser.passes.repair import Recompute
from fuser.passes.search import Search
from fuser.schedule import Schedule
from fuser.shapes import numel

Build = Callable[[Builder, DType], Sequence[Node]]
Array = np.ndarray[Any, Any]
N, M, K = sym("n"), sym("m"), sym("k")


def _op(b: Builder, name: str, *values: Any) -> Node:
    made = ew.apply(b, name, *values)
    assert isinstance(made, Node)
    return made


def matrix(b: Builder, t: DType, name: str = "x") -> Node:
    return b.argument(name, t, (N, M))


# -- pointwise -------------------------------------------------------------------------------------
def polynomial(b: Builder, t: DType) -> Sequence[Node]:
    """2*x + 3*y*y - x*y: one flat axis."""
    x, y = matrix(b, t), matrix(b, t, "y")
    return [_op(b, "subtract", _op(b, "add", _op(b, "multiply", x, 2), _op(b, "multiply", _op(b, "multiply", y, y), 3)),
                _op(b, "multiply", x, y))]  # fmt: skip


def broadcast(b: Builder, t: DType) -> Sequence[Node]:
    """x*g + (x - column), a row vector, a column vector and a host scalar."""
    x, g, c = matrix(b, t), b.argument("g", t, (M,)), b.argument("c", t, (N, 1))
    scaled = _op(b, "add", _op(b, "multiply", x, g), _op(b, "subtract", x, c))
    return [_op(b, "multiply", scaled, scalar_symbol("a", "float" if t.is_float else "int"))]


def transposed(b: Builder, t: DType) -> Sequence[Node]:
    x, y = matrix(b, t), b.argument("y", t, (M, N))
    return [_op(b, "maximum", _op(b, "add", x, views.transpose(b, y)), 0)]


def shifted(b: Builder, t: DType) -> Sequence[Node]:
    """Flip, roll and a slice with a step: affine, wrapped and strided addresses."""
    x = b.argument("x", t, (N,))
    flipped = _op(b, "subtract", views.flip(b, x), views.roll(b, x, 3))
    return [flipped, indexing.getitem(b, x, slice(1, None, 2))]


def joined(b: Builder, t: DType) -> Sequence[Node]:
    """A concatenation: piecewise domains and masked loads."""
    x, y = matrix(b, t), b.argument("y", t, (N, K))
    return [_op(b, "add", joining.concat(b, [x, y, x], 1), 1)]


def gathered(b: Builder, t: DType) -> Sequence[Node]:
    """Rows picked by an index array, scaled and shifted."""
    table, i = matrix(b, t), b.argument("i", I64, (K,))
    rows = indexing.take(b, table, i, 0)
    return [_op(b, "add", rows, rows)]


def stencil(b: Builder, t: DType) -> Sequence[Node]:
    x = b.argument("x", t, (N + 2, M + 2))
    at = [(slice(1, -1), slice(1, -1)), (slice(2, None), slice(1, -1)), (slice(1, -1), slice(0, -2))]
    center, below, left = (indexing.getitem(b, x, key) for key in at)
    return [_op(b, "subtract", _op(b, "add", below, left), center)]


def edged_stencil(b: Builder, t: DType) -> Sequence[Node]:
    """Seven points in three dimensions, the edges kept as they were."""
    x = b.argument("x", t, (K, N, M))
    inside = (slice(1, -1),) * 3
    total = indexing.getitem(b, x, inside)
    for axis in range(3):
        for side in (slice(None, -2), slice(2, None)):
            total = _op(b, "add", total, indexing.getitem(b, x, (*inside[:axis], side, *inside[axis + 1 :])))
    return [storing.setitem(b, x, inside, total)]


def wide_stencil(b: Builder, t: DType) -> Sequence[Node]:
    """Along one axis, further than a vector reaches, beside an array that is read in one place."""
    x, y = b.argument("x", t, (N + 12,)), b.argument("y", t, (N,))
    parts = [indexing.getitem(b, x, slice(k, k - 12 or None)) for k in (0, 5, 6, 12)]
    total = y
    for part in parts:
        total = _op(b, "add", total, part)
    return [total]


def positions(b: Builder, t: DType) -> Sequence[Node]:
    """Index values as data, a comparison, a select."""
    from fuser.construct import creation

    x = matrix(b, t)
    column = ew.cast(b, creation.iota(b, x.shape, 1), t)
    return [ew.where(b, _op(b, "less", x, column), x, column)]


def drawn(b: Builder, t: DType) -> Sequence[Node]:
    """Random numbers, of which neighbours share a call."""
    x = matrix(b, t)
    return [_op(b, "add", x, random.uniform(b, 5, x.shape)), random.bits(b, 6, x.shape, dtype="u64")]


# -- reductions ------------------------------------------------------------------------------------
def abs_sum(b: Builder, t: DType) -> Sequence[Node]:
    return [reduction.reduce(b, "sum", _op(b, "absolute", matrix(b, t)))]


def row_sum(b: Builder, t: DType) -> Sequence[Node]:
    x = matrix(b, t)
    return [reduction.reduce(b, "sum", _op(b, "add", _op(b, "multiply", x, x), 1), axis=1)]


def row_statistics(b: Builder, t: DType) -> Sequence[Node]:
    """Several reductions in one read, results of two dtypes."""
    x = matrix(b, t)
    return [reduction.reduce(b, name, x, axis=1) for name in ("sum", "max", "min", "argmax")]


def softmax(b: Builder, t: DType) -> Sequence[Node]:
    """Three stages, the last one stores whole rows."""
    x = matrix(b, t)
    e = _op(b, "exp", _op(b, "subtract", x, reduction.reduce(b, "max", x, axis=1, keepdims=True, initial=-100)))
    return [_op(b, "divide", e, reduction.reduce(b, "sum", e, axis=1, keepdims=True))]


def layer_norm(b: Builder, t: DType) -> Sequence[Node]:
    x, w = matrix(b, t), b.argument("w", t, (M,))
    centred = _op(b, "subtract", x, reduction.mean(b, x, axis=1, keepdims=True))
    scale = _op(b, "rsqrt", _op(b, "add", reduction.var(b, x, axis=1, keepdims=True), 1e-5))
    return [_op(b, "multiply", _op(b, "multiply", centred, scale), w)]


def residual_norm(b: Builder, t: DType) -> Sequence[Node]:
    """A stored sum that later stages read again, two outputs."""
    x, r, w = matrix(b, t), matrix(b, t, "r"), b.argument("w", t, (M,))
    s = _op(b, "add", x, r)
    mean = reduction.mean(b, _op(b, "multiply", s, s), axis=1, keepdims=True)
    return [s, _op(b, "multiply", _op(b, "multiply", s, _op(b, "rsqrt", _op(b, "add", mean, 1e-6))), w)]


def dropped_norm(b: Builder, t: DType) -> Sequence[Node]:
    """A value too dear to compute again in each stage."""
    s = random.dropout(b, matrix(b, t), 0.25, 3)
    return [_op(b, "subtract", s, reduction.mean(b, s, axis=1, keepdims=True))]


def cross_entropy(b: Builder, t: DType) -> Sequence[Node]:
    """A composite reduction with two results, and a gather along the reduced axis."""
    x, target = matrix(b, t), b.argument("i", I64, (N, 1))
    picked = views.squeeze(b, indexing.take_along_axis(b, x, target, 1), 1)
    top = reduction.reduce(b, "max", x, axis=1, keepdims=True, initial=-100)
    e = reduction.reduce(b, "sum", _op(b, "exp", _op(b, "subtract", x, top)), axis=1)
    return [_op(b, "subtract", _op(b, "add", _op(b, "log", e), views.squeeze(b, top, 1)), picked)]


def image_norm(b: Builder, t: DType) -> Sequence[Node]:
    """Normalised over a batch of images, a channel at a time."""
    x = b.argument("x", t, (K, 3, N, M))
    centred = _op(b, "subtract", x, reduction.mean(b, x, axis=(0, 2, 3), keepdims=True))
    return [_op(b, "divide", centred, _op(b, "add", reduction.std(b, x, axis=(0, 2, 3), keepdims=True), 1))]


def column_sum(b: Builder, t: DType) -> Sequence[Node]:
    return [reduction.reduce(b, "sum", _op(b, "multiply", matrix(b, t), 2), axis=0)]


def column_normalise(b: Builder, t: DType) -> Sequence[Node]:
    """Two stages down the columns, then whole columns stored."""
    x = matrix(b, t)
    centred = _op(b, "subtract", x, reduction.mean(b, x, axis=0, keepdims=True))
    return [_op(b, "divide", centred, _op(b, "add", reduction.std(b, x, axis=0, keepdims=True), 1)),
            reduction.reduce(b, "argmax", x, axis=0)]  # fmt: skip


def column_softmax(b: Builder, t: DType) -> Sequence[Node]:
    """Logarithms of softmax down the columns, and the columns' maxima."""
    x = matrix(b, t)
    top = reduction.reduce(b, "max", x, axis=0, keepdims=True, initial=-100)
    shifted = _op(b, "subtract", x, top)
    total = reduction.reduce(b, "sum", _op(b, "exp", shifted), axis=0, keepdims=True)
    return [_op(b, "subtract", shifted, _op(b, "log", total)), top]


def unit_sum(b: Builder, t: DType) -> Sequence[Node]:
    """The directions from a point to all others, added: three columns with most of their steps in common."""
    x = b.argument("x", t, (N, 3))
    gap = _op(b, "subtract", views.expand_dims(b, x, 0), views.expand_dims(b, x, 1))
    parts = [indexing.getitem(b, gap, (slice(None), slice(None), k)) for k in range(3)]
    squared = _op(b, "multiply", parts[0], parts[0])
    for part in parts[1:]:
        squared = _op(b, "add", squared, _op(b, "multiply", part, part))
    length = _op(b, "sqrt", _op(b, "add", squared, 1))
    return [reduction.reduce(b, "sum", _op(b, "divide", gap, views.expand_dims(b, length, 2)), axis=1)]


def middle_sum(b: Builder, t: DType) -> Sequence[Node]:
    x = b.argument("x", t, (K, N, M))
    return [reduction.reduce(b, "sum", x, axis=1), reduction.reduce(b, "sum", x, axis=(0, 2))]


def running_sum(b: Builder, t: DType) -> Sequence[Node]:
    x = matrix(b, t)
    return [reduction.scan(b, "cumsum", _op(b, "add", x, 1), axis=1)]


def running_max(b: Builder, t: DType) -> Sequence[Node]:
    return [reduction.scan(b, "cummax", matrix(b, t), axis=0)]


def scan_variants(b: Builder, t: DType) -> Sequence[Node]:
    """Exclusive, reversed, and reversed exclusive sums, along rows and down columns."""
    x = matrix(b, t)
    y = _op(b, "multiply", x, 2)
    return [
        b.make("cumsum", (y,), ScanAttrs(axis, exclusive, reverse), t, y.shape)
        for axis in (0, 1)
        for exclusive, reverse in ((True, False), (False, True), (True, True))
    ]


POINTWISE = (
    polynomial,
    broadcast,
    transposed,
    shifted,
    joined,
    gathered,
    stencil,
    wide_stencil,
    positions,
    drawn,
)
ROWS = (abs_sum, row_sum, row_statistics, softmax, layer_norm, residual_norm, dropped_norm, cross_entropy, image_norm)
COLUMNS = (column_sum, column_normalise, column_softmax, middle_sum)
SCANS = (running_sum, running_max, scan_variants)
PROGRAMS: dict[str, Build] = {p.__name__: p for p in (*POINTWISE, *ROWS, *COLUMNS, *SCANS)}
SIZED: dict[str, Build] = {"edged_stencil": edged_stencil, "unit_sum": unit_sum}  # not for all sizes
FLOAT_ONLY = frozenset(
    {
        "scan_variants",
        "softmax",
        "layer_norm",
        "residual_norm",
        "cross_entropy",
        "column_normalise",
        "column_softmax",
        "unit_sum",
        "drawn",
        "dropped_norm",
        "image_norm",
    }
)
HALF = frozenset({BF16})
DTYPES = (F32, F64, I32, BOOL, BF16)


def applies(name: str, t: DType) -> bool:
    """Whether a program is meant for a dtype."""
    return t.is_float or (name not in FLOAT_ONLY and t != BOOL) or (t == BOOL and name in ("joined", "gathered"))


@dataclass(frozen=True)
class Case:
    """A program at given sizes on a CUDA device. `fused`: as planned; else one operator a group."""

    name: str
    dtype: DType
    sizes: tuple[tuple[str, int], ...]
    fused: bool = True
    aligned: bool = True
    arch: str = "sm_90"
    strided: bool = False  # arguments are given as strided views
    index_bits: int = 32

    @cached_property
    def graph(self) -> Graph:
        b = Builder(self.name)
        outputs = {**PROGRAMS, **SIZED}[self.name](b, self.dtype)
        return prepare(b.close(outputs))

    @cached_property
    def env(self) -> dict[str, Any]:
        env: dict[str, Any] = dict(self.sizes)
        env["=a"] = 1.5 if self.dtype.is_float else 3
        for position, array in enumerate(self.memory if self.strided else ()):
            env.update({f"#{position}.{k}": s // array.itemsize for k, s in enumerate(self.arrays[position].strides)})
        return env

    @cached_property
    def arrays(self) -> list[Array]:
        """Arguments as the reference sees them."""
        rng = np.random.default_rng(7)
        dims = dict(self.sizes)
        made = []
        for a in self.graph.arguments:
            shape = shapes.evaluate(a.shape, dims)
            made.append(_random(rng, a.dtype, shape, limit=min(dims.get("n", 1), dims.get("m", 1))))
        if self.strided:
            made = [np.repeat(a, 2, axis=-1)[..., ::2] for a in made]
        return made

    @cached_property
    def memory(self) -> list[Array]:
        """Arguments as kernels see them, one-dimensional."""
        if self.strided:
            return [a.base.reshape(-1) if a.base is not None else a.reshape(-1) for a in self.arrays]
        return [np.ascontiguousarray(a).reshape(-1) for a in self.arrays]

    @cached_property
    def size_class(self) -> SizeClass:
        lengths: dict[HostExpr, None] = {}
        for n in self.graph.nodes:
            if isinstance(n.attrs, ReduceAttrs):
                lengths[lit(1) * numel(n.inputs[0].shape[a] for a in n.attrs.axes)] = None
        layouts = ("s" if self.strided else "c",) * len(self.graph.arguments)
        dims = {k: v for k, v in self.sizes if k in self.graph.symbols}
        buckets = tuple(length_bucket(e, dims) for e in lengths)
        factors = dim_factors(vector_unit(self.graph), (a.shape for a in self.graph.arguments), dims)
        return SizeClass(dim_buckets(dims), buckets, layouts, self.aligned, self.index_bits, factors)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        device, sizes = devices.find(self.arch), self.size_class.representative
        if self.fused:
            return fuse.plan_groups(self.graph, sizes, device)[0]
        with patch.object(Search, "run", lambda _: None), patch.object(Recompute, "run", lambda _: None):
            return fuse.plan_groups(self.graph, sizes, device)[0]

    @cached_property
    def schedules(self) -> tuple[Schedule, ...]:
        device = devices.find(self.arch)
        return tuple(schedule.choose(self.graph, g, self.size_class, device) for g in self.groups)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        device, layouts = devices.find(self.arch), self.size_class.layouts
        pairs = zip(self.groups, self.schedules, strict=True)
        return tuple(k for g, s in pairs for k in schedule.lower(self.graph, g, s, device, layouts))

    def reference(self) -> list[Array]:
        return evaluate(self.graph, self.arrays, self.env)[0]

    def run(self, lowered: bool = True) -> list[Array]:
        """The outputs of all kernels in the interpreter. lowered: after `expand`."""
        memory: dict[int, Array] = {n.id: self.memory[p] for p, n in self.graph.inputs.items()}
        for kernel in self.kernels:
            buffers = {}
            for p in kernel.buffers:
                size = int((lit(1) * p.size).evaluate(self.env))
                if p.node is None:
                    buffers[p.name] = np.zeros(size, p.dtype.numpy)
                else:
                    buffers[p.name] = memory.setdefault(p.node, np.zeros(size, p.dtype.numpy))
            simt.run(expand(kernel) if lowered else kernel, buffers, self.env)
        return [memory[n.id].reshape(shapes.evaluate(n.shape, self.env)) for n in self.graph.outputs]


def _random(rng: np.random.Generator, t: DType, shape: tuple[int, ...], limit: int) -> Array:
    """Values that reductions of a thousand do not overflow on; integers of type i64 are indices below `limit`."""
    if t == I64:
        return rng.integers(0, max(limit, 1), shape)
    if t == BOOL:
        return rng.random(shape) < 0.5
    if t.is_integer:
        return rng.integers(-50, 50, shape).astype(t.numpy)
    return (rng.standard_normal(shape) * 2).astype(t.numpy)
