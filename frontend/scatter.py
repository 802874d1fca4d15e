"""Stores through index arrays that are known while tracing: `u[[0, -1]] = 0`, `x[rows, columns] = v`.

In: a store's key and value. Out: the same store as a few plain ones, one an index, in order, so that of repeated
indices the last wins as in NumPy. Index arrays known only at run time are left to `fuser.construct`, which
refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.construct import elementwise, indexing, views
from fuser.graph import Node

if TYPE_CHECKING:
    from fuser.frontend.tracer import TracedArray

LIMIT = 64  # stores that one statement may become


def parts(array: TracedArray, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """(key, value) of each plain store; the one given where there is nothing to take apart."""
    items = list(key) if isinstance(key, tuple) else [key]
    lists = {k: np.asarray(i) for k, i in enumerate(items) if isinstance(i, (list, np.ndarray))}
    block = _block(items, lists)
    if block is None:
        yield key, value
        return
    where, count = block
    b = array._ctx.b
    if not isinstance(value, Node) or value.rank:
        region = indexing.getitem(b, array.node, key)
        value = views.broadcast_to(b, elementwise.as_node(b, value, array.node.dtype), region.shape)
    for j in range(count):
        plain = tuple(int(lists[k][j]) if k in lists else item for k, item in enumerate(items))
        yield plain, indexing.getitem(b, value, (*(slice(None),) * where, j)) if value.rank else value


def _block(items: list[Any], lists: dict[int, Any]) -> tuple[int, int] | None:
    """(result axis of the indices, their number) for adjacent 1-d integer lists among slices; else None."""
    if not lists or any(a.ndim != 1 or a.dtype.kind not in "iu" for a in lists.values()):
        return None
    first, lengths = min(lists), {len(a) for a in lists.values()}
    if max(lists) - first + 1 != len(lists) or len(lengths) != 1 or max(lengths) > LIMIT:
        return None
    others = [i for k, i in enumerate(items) if k not in lists]
    if any(not (isinstance(i, slice) or i is None) for i in others):
        return None
    return first, lengths.pop()
