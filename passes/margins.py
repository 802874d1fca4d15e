"""Row and column results from one read: when reductions down the columns may join a group of row reductions.

In: the reductions of a would-be group, its space, what the walk found. Out: the space that they share, and whether one
kernel can hold it: what a thread keeps of a row and of its columns, how many strips of rows there are.

The kernel (`codegen/schedule/lower_margins.py`) gives each thread the same columns of every row that it sees, and adds
them up in registers as rows go by. The order of a column's additions is fixed by `fuser.order`: element i of a share
joins lane i mod 8, lanes and shares combine pairwise. So a *strip*, what one team of threads may add up by itself, is
one lane of one share; there are lanes x shares of them, whatever the device is, and their partial sums combine by one
pairwise tree in a second launch that reads no rows. Two things follow. Rows must be short enough that a block holds one
of them beside its columns' sums. And where columns are short there are few strips: too few to keep the memory busy, as
the cost model finds by `share`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.device import Device
from fuser.dtypes import compute_dtype
from fuser.graph import Node, ReduceAttrs
from fuser.group import Group, Space
from fuser.hostexpr import lit
from fuser.indexmap import Index
from fuser.order import bucket, order
from fuser.passes.facts import Facts
from fuser.passes.place import own_space, space_of
from fuser.passes.registers import state_width
from fuser.passes.walk import Walk
from fuser.record import dataclass

WIDEST = 1024  # threads that may share a row
MOST_HELD = 24  # registers that one of them may hold, of the 64 it has
BESIDE = 3 << 10  # bytes of shared memory that exchanges and the system take of a block's
ON_THE_WAY = 8  # rows that a strip has on the way together, at most


@dataclass(frozen=True)
class Margins:
    """The space of the reductions along rows, and the ids of those across the same rows."""

    space: Space
    across: frozenset[int]


def margins_of(nodes: Sequence[Node]) -> Margins | None:
    """What reductions of two kinds share, if they do: those across rows fold what the others keep, and keep what they
    fold."""
    down = [n for n in nodes if not own_space(n).inner]
    space = space_of([n for n in nodes if n not in down]) if len(down) < len(nodes) else None
    if not down or space is None or space.rows == lit(1) or space.length == lit(1):
        return None
    spaces = [own_space(n) for n in down]
    if any(s.rows != space.length or s.length != space.rows for s in spaces):
        return None
    return Margins(space, frozenset(n.id for n in down))


def depends_on(facts: Facts, cores: Iterable[Node], across: frozenset[int]) -> frozenset[int]:
    """Of cores in program order, the reductions across rows and what needs them to be finished."""
    found = set(across)
    for n in cores:
        if any(r.source in found for r in facts.reads[n.id]):
            found.add(n.id)
    return frozenset(found)


def per_column(facts: Facts, group: Group) -> frozenset[int]:
    """The operators of a group that its second launch computes, once a column."""
    cores = [facts.nodes[k] for k in group.members if k in facts.core_set]
    return depends_on(facts, cores, frozenset(group.across)) - frozenset(group.across)


def capacity(device: Device) -> int | None:
    """Bytes of rows that can wait in a block's shared memory; None where kernels cannot reduce across rows."""
    if device.kind != "cuda":
        return None
    return device.shared_block - BESIDE if device.copies else 0


def held(facts: Facts, walk: Walk, space: Space, across: Iterable[int]) -> int:
    """Registers that each of the most threads that may share a row holds: the states of its columns, and its part of
    the row itself where two rows do not fit shared memory."""
    columns, rows = ({f"{v}{k}" for k in range(len(s))} for v, s in (("r", space.reduced), ("p", space.parallel)))
    own = [k for k, at in walk.memory.items() if _along(at, columns) and _along(at, rows)]
    loaded = sum(facts.nodes[k].storage.bytes for k in own)
    states = 4 * sum(state_width(facts, k) for k in across)
    length = bucket(facts.count(space.reduced))
    row = 0 if 2 * length * loaded <= (facts.across or 0) else loaded
    return -(-length // WIDEST) * (row + states) // 4


def _along(indices: Iterable[Index], columns: set[str]) -> bool:
    return any(not columns.isdisjoint(e.symbols) for index in indices for e in index)


def strips(facts: Facts, group: Group) -> int:
    """Into how many strips the order of the reductions across rows cuts the rows."""
    rows, found = facts.count(group.space.parallel), []
    for k in group.across:
        assert isinstance(facts.nodes[k].attrs, ReduceAttrs)
        itemsize = compute_dtype(facts.nodes[k].inputs[0].dtype).bytes
        fixed = order(bucket(max(rows, 1)), itemsize, "outer", "cuda")
        found.append(min(fixed.lanes * fixed.segments, max(rows, 1)))
    return min(found)


def partial_bytes(facts: Facts, group: Group) -> int:
    """Bytes of the partial states that strips leave for the second launch."""
    states = 4 * sum(state_width(facts, k) for k in group.across)
    return strips(facts, group) * facts.count(group.space.reduced) * states


def share(facts: Facts, group: Group, row_bytes: float, device: Device) -> float:
    """The part of the bandwidth that all strips together draw, each with a few rows on the way: a strip is a block's
    work at most."""
    count = strips(facts, group)
    flying = count * max(row_bytes, 1.0) * ON_THE_WAY
    return min(1.0, count / device.sms, flying / (device.inflight * device.sms))
