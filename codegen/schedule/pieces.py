"""Loop axes cut into pieces in which no index divides.

In: an axis, the index expressions of a loop over it. Out: `Pieces`: an outer and an inner axis, and the expressions
over them, free of divisions by the inner one; None where there is nothing to gain. A group norm's weights, say, are
read at `r // s` along its rows: piece by piece that is one number, element by element a division and a gather.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fuser.codegen.schedule.axes import Axis
from fuser.codegen.schedule.body import Body, StageBody, map_stage
from fuser.hostexpr import HostExpr, lit, split_multiple
from fuser.proofs import Ranges
from fuser.ranges import digit_of
from fuser.record import dataclass

SHORT = 16  # elements: a loop over fewer costs more than their divisions


@dataclass(frozen=True)
class Pieces:
    """`axis` is `piece * within.extent + within`."""

    axis: Axis
    piece: Axis
    within: Axis
    ranges: Ranges

    def change(self, e: HostExpr) -> HostExpr:
        """The expression over the two axes."""
        return self.ranges.simplify(e.substitute({self.axis.name: self.joined}))

    @property
    def joined(self) -> HostExpr:
        return self.piece.variable * self.within.extent + self.within.variable

    def stage(self, stage: StageBody) -> StageBody:
        return map_stage(stage, self.change)


def cut(axis: Axis, stages: Iterable[StageBody], ranges: Ranges) -> Pieces | None:
    """The pieces of an axis that rid the loops of some stages of divisions; None where none do."""
    found = list(dict.fromkeys(e for s in stages for e in _expressions(s) if axis.name in e.symbols))
    for length in dict.fromkeys(n for e in found for n in _divisors(e, axis.name)):
        pieces = _pieces(axis, length, ranges)
        if pieces is not None and not any(_divides(pieces.change(e), pieces.within.name) for e in found):
            return pieces
    return None


def cut_body(body: Body) -> Body:
    """The body with its innermost parallel axis cut, where that helps."""
    if not body.parallel:
        return body
    pieces = cut(body.parallel[-1], body.stages, body.ranges)
    if pieces is None:
        return body
    parallel = (*body.parallel[:-1], pieces.piece, pieces.within)
    return replace(body, parallel=parallel, stages=tuple(map(pieces.stage, body.stages)))


def _pieces(axis: Axis, length: HostExpr, ranges: Ranges) -> Pieces | None:
    count, rest = split_multiple(axis.extent, length)
    if rest != lit(0) or count == lit(0) or not ranges.is_host(length):
        return None
    if length.is_literal and length.value < SHORT:
        return None
    piece, within = Axis(f"{axis.name}_piece", count), Axis(f"{axis.name}_within", length)
    extents = {**ranges.extents, piece.name: piece.extent, within.name: within.extent}
    return Pieces(axis, piece, within, Ranges(extents))


def _expressions(stage: StageBody) -> Iterator[HostExpr]:
    yield from stage.loop.expressions()
    yield from (e for k in stage.loop.fetches for e in stage.loop.fetch(k).index)
    yield from (s.offset for s in stage.stores)


def _divisors(e: HostExpr, name: str) -> Iterator[HostExpr]:
    """The lengths after which a digit of the variable changes."""
    for n in e.walk():
        if n.op in ("//", "%") and name in n.symbols and (digit := digit_of(n)) is not None:
            _, low, high = digit
            yield from (x for x in (low, high) if x is not None and x != lit(1))


def _divides(e: HostExpr, name: str) -> bool:
    return any(n.op in ("//", "%") and name in n.symbols for n in e.walk())
