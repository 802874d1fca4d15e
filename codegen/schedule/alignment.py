"""Which accesses may be whole vectors: the addresses that are provably multiples of the vector width.

In: element offsets, and what is known to divide dims. Out: yes or no, a proof either way, never a
hope: an unproven access is made lane by lane, which costs speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.hostexpr import HostExpr, lit, sym, terms
from fuser.indexmap import coefficient
from fuser.record import dataclass


@dataclass(frozen=True)
class Alignment:
    """`pointers`: every buffer starts 16-byte aligned. `factors`: (dim symbol, power of two that divides it)."""

    pointers: bool
    factors: tuple[tuple[str, int], ...] = ()

    def divides(self, width: int, e: HostExpr) -> bool:
        """Whether `e` is certainly a multiple of `width` (a power of two up to 16)."""
        known = {s: sym(s) * factor for s, factor in self.factors}
        return all(c % width == 0 for c in terms(e.substitute(known)).values())

    def whole(self, width: int, offset: HostExpr, variable: str) -> bool:
        """Whether `width` elements from a multiple of `width` of the variable on lie together and aligned."""
        if not self.pointers or width == 1 or width & (width - 1) or not contiguous(offset, variable):
            return False
        return self.divides(width, offset - sym(variable))

    def uniform(self, width: int, e: HostExpr, variable: str) -> bool:
        """Whether `e >= 0` is the same for `width` values of the variable from any multiple of `width` on."""
        step = coefficient(e, variable)
        if step == lit(0):
            return True
        if step == lit(1):
            return self.divides(width, e - sym(variable))
        return step == lit(-1) and self.divides(width, e + sym(variable) + 1)


def contiguous(offset: HostExpr, variable: str) -> bool:
    """Whether neighbouring values of the variable address neighbouring elements."""
    return coefficient(offset, variable) == lit(1)


def widest(offsets: Iterable[tuple[HostExpr, int]], variable: str) -> int:
    """Elements of a 16-byte vector of the widest element type that is accessed contiguously (1: there is none).

    offsets: (element offset, bytes an element).
    """
    sizes = [size for e, size in offsets if contiguous(e, variable)]
    return max(16 // max(sizes), 1) if sizes else 1
