"""Functions that make arrays: rows over `fuser.construct.creation`.

In: nothing. Out: `Function` rows named as NumPy names them. Shapes may be dims of arguments, which stay symbolic.
"""

from __future__ import annotations

from typing import Any

from fuser.construct import creation, elementwise, views
from fuser.construct.common import Value
from fuser.dtypes import I64, promote
from fuser.graph import Builder, Node
from fuser.optable.adapt import arrays, function, inert
from fuser.optable.base import Table


def _linspace(
    b: Builder,
    start: Value,
    stop: Value,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    values = creation.linspace(b, start, stop, num, endpoint, dtype, axis)
    if not retstep:
        return values
    count = elementwise.apply(b, "subtract", num, 1 if endpoint else 0)
    return values, elementwise.apply(b, "divide", elementwise.apply(b, "subtract", stop, start), count)


def _meshgrid(b: Builder, *xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> tuple[Node, ...]:
    return creation.meshgrid(b, *(creation.array(b, x) for x in xi), indexing=indexing, sparse=sparse)


def _identity(b: Builder, n: Any, dtype: Any = None) -> Node:
    return creation.eye(b, n, dtype=dtype)


def _eye(b: Builder, n: Any, m: Any = None, k: Any = 0, dtype: Any = None, N: Any = None, M: Any = None) -> Node:
    return creation.eye(b, n if N is None else N, m if M is None else M, k, dtype)


def _tri(b: Builder, n: Any, m: Any = None, k: Any = 0, dtype: Any = None, N: Any = None, M: Any = None) -> Node:
    return creation.tri(b, n if N is None else N, m if M is None else M, k, dtype)


def _indices(b: Builder, dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    from fuser.construct.common import shape_of
    from fuser.construct.joining import stack

    shape = shape_of(b, dimensions)
    found = [creation.iota(b, shape, k) for k in range(len(shape))]
    if sparse:
        return tuple(views.atleast(b, creation.iota(b, (d,), 0), 1) for d in shape)
    made = stack(b, found)
    return made if dtype is None else elementwise.cast(b, made, dtype)


def _diagflat(b: Builder, x: Node, k: Any = 0) -> Node:
    return creation.diag(b, views.ravel(b, x), k)


def _vander(b: Builder, x: Node, N: Any = None, increasing: bool = False) -> Node:
    columns = creation.arange(b, x.shape[0] if N is None else N)
    powers = columns if increasing else views.flip(b, columns)
    wide = elementwise.cast(b, x, promote([x.dtype, I64]))
    return elementwise.node(b, "power", views.expand_dims(b, wide, 1), elementwise.cast(b, powers, wide.dtype))


ROWS = (
    function("zeros", inert(creation.zeros), numpy="zeros"),
    function("ones", inert(creation.ones), numpy="ones"),
    function("full", inert(creation.full), numpy="full", torch="full"),
    function("empty", inert(creation.zeros), "zeros: nothing here is ever undefined", numpy="empty"),
    function("zeros_like", arrays(1, creation.zeros_like), numpy="zeros_like", torch="zeros_like"),
    function("ones_like", arrays(1, creation.ones_like), numpy="ones_like", torch="ones_like"),
    function("full_like", arrays(1, creation.full_like), numpy="full_like", torch="full_like"),
    function("empty_like", arrays(1, creation.zeros_like), "zeros", numpy="empty_like", torch="empty_like"),
    function("arange", inert(creation.arange), numpy="arange", torch="arange"),
    function("linspace", inert(_linspace), numpy="linspace"),
    function("logspace", inert(creation.logspace), numpy="logspace"),
    function("meshgrid", _meshgrid, numpy="meshgrid"),
    function("indices", _indices, numpy="indices"),
    function("eye", inert(_eye), numpy="eye", torch="eye"),
    function("identity", inert(_identity), numpy="identity"),
    function("tri", inert(_tri), numpy="tri"),
    function("tril", arrays(1, creation.tril), numpy="tril", torch="tril"),
    function("triu", arrays(1, creation.triu), numpy="triu", torch="triu"),
    function("diag", arrays(1, creation.diag), numpy="diag", torch="diag"),
    function("diagflat", arrays(1, _diagflat), numpy="diagflat"),
    function("vander", arrays(1, _vander), numpy="vander"),
    function("array", inert(creation.array), numpy="array asarray asanyarray ascontiguousarray copy",
             torch="clone contiguous", dsl="asarray"),
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
