"""Index arithmetic: integer host expressions over loop variables, simplified and turned into operands.

In: expressions over loop variables (`p0`, `r0`, ...), gathered values (`%k`) and host symbols (dims, strides),
and the extent of every loop variable. Out: simpler expressions (divisions that the extents make void are gone),
and kernel operands, in which everything the host can compute is one scalar parameter or a literal. Its own file
because every schedule of both targets addresses memory through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fuser.dtypes import BOOL, I32, U32, DType
from fuser.errors import InternalError
from fuser.hostexpr import HostExpr, Monomial, call, from_terms, lit, sym, terms
from fuser.indexmap import Index, coefficient
from fuser.proofs import Ranges
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.codegen.builder import KernelBuilder
    from fuser.codegen.loops import Operand

Divides = Callable[[int, HostExpr], bool]  # whether an expression is certainly a multiple of a power of two


@dataclass(frozen=True)
class TileLane:
    """Lane `number` of a tile of `width` (a power of two) neighbours; lane 0 is at `first`, a multiple of the width."""

    first: Operand
    number: int
    width: int


class IndexEmitter:
    """Turns index expressions into operands of one integer dtype.

    `bindings` gives the operand of every loop variable and gathered value in scope. Nothing is remembered
    here: the builder finds equal values that are visible in the current block.
    """

    def __init__(
        self,
        builder: KernelBuilder,
        bindings: Mapping[str, Operand],
        ranges: Ranges,
        dtype: DType,
        divides: Divides | None = None,
        lanes: Mapping[str, TileLane] | None = None,
        most: Mapping[str, int] | None = None,
    ) -> None:
        self.builder, self.bindings, self.ranges, self.dtype = builder, dict(bindings), ranges, dtype
        self.divides, self.lanes, self.most = divides, dict(lanes or {}), most or {}

    def bound(self, **bindings: Operand) -> IndexEmitter:
        """The same emitter with more variables bound, or bound anew."""
        lanes = {name: lane for name, lane in self.lanes.items() if name not in bindings}
        merged = {**self.bindings, **bindings}
        return IndexEmitter(self.builder, merged, self.ranges, self.dtype, self.divides, lanes, self.most)

    def in_lane(self, name: str, lane: TileLane) -> IndexEmitter:
        """The same emitter with a variable bound in one lane of a tile along it."""
        at = self.builder.apply("add", (lane.first, self.builder.literal(lane.number, self.dtype)), self.dtype)
        found = self.bound(**{name: at})
        found.lanes[name] = lane
        return found

    def bind(self, name: str, value: Operand) -> None:
        """Bind one more symbol: a gathered value, converted to the index dtype."""
        if value.dtype != self.dtype:
            value = self.builder.apply("cast", (value,), self.dtype)
        self.bindings[name] = value

    def value(self, e: HostExpr) -> Operand:
        """The operand for an integer expression; iterative over its structure."""
        atoms: dict[HostExpr, Operand] = {}
        for n in e.walk():
            if n.op in ("+", "*") or self.ranges.is_host(n):
                continue
            atoms[n] = self.bindings[n.value] if n.op == "sym" else self._call(n, atoms)
        return self._sum(e, atoms)

    def condition(self, domain: Index) -> Operand:
        """Whether every expression of a domain is >= 0."""
        out: Operand = self.builder.literal(True, BOOL)
        for e in domain:
            zero = self.builder.literal(0, self.dtype)
            holds = self.builder.apply("greater_equal", (self.value(e), zero), BOOL)
            out = self.builder.apply("logical_and", (out, holds), BOOL)
        return out

    def _sum(self, e: HostExpr, atoms: Mapping[HostExpr, Operand]) -> Operand:
        """A canonical sum: one host coefficient a product of kernel values."""
        groups: dict[Monomial, dict[Monomial, int]] = {}
        for monomial, c in terms(e).items():
            varying = tuple(a for a in monomial if not self.ranges.is_host(a))
            fixed = tuple(a for a in monomial if self.ranges.is_host(a))
            groups.setdefault(varying, {})[fixed] = c
        b, dtype = self.builder, self.dtype
        constant = from_terms(groups.pop((), {}))
        total: Operand = b.literal(0, dtype)
        for varying, host in groups.items():
            factors = [atoms[a] if a in atoms else self._sum(a, atoms) for a in varying]
            product = factors[0]
            for f in factors[1:]:
                product = b.apply("multiply", (product, f), dtype)
            scale = from_terms(host)
            if scale == lit(-1):
                total = b.apply("subtract", (total, product), dtype)
                continue
            product = b.apply("multiply", (product, b.scalar(scale, dtype)), dtype)
            total = b.apply("add", (total, product), dtype)
        return b.apply("add", (total, b.scalar(constant, dtype)), dtype)

    def _narrow(self, n: HostExpr) -> bool:
        """Whether dividend and divisor, neither of them negative, are below 2^31 at every call."""
        if self.dtype == I32:
            return True
        most = [self.ranges.most(a, self.most) for a in n.args]
        return all(m is not None and m < 1 << 31 for m in most)

    def _by_multiplication(self, n: HostExpr, dividend: Operand) -> Operand:
        """`x // d` or `x % d` for 0 <= x < 2^31 and a host's d: with 2^s the power of two at or above d and
        m = floor(2^(31 + s) / d) + 1, the quotient is (x * m) >> (31 + s), which an upper product gives exactly.
        """
        b, d = self.builder, n.args[1]
        magic = call("//", call("ceil_pow2", d) * (1 << 31), call("max", d, 1)) + 1
        twice = b.apply("shl", (b.apply("cast", (dividend,), U32), b.literal(1, U32)), U32)
        upper = b.apply("mulhi", (twice, b.scalar(magic, U32)), U32)
        shift = b.scalar(call("bit_length", d - 1), U32)
        quotient = b.apply("cast", (b.apply("shr", (upper, shift), U32),), I32)
        if n.op == "//":
            return b.apply("cast", (quotient,), self.dtype)
        product = b.apply("multiply", (quotient, b.scalar(d, I32)), I32)
        rest = b.apply("subtract", (b.apply("cast", (dividend,), I32), product), I32)
        return b.apply("cast", (rest,), self.dtype)

    def _in_tile(self, n: HostExpr) -> Operand | None:
        """`x // q` or `x % q` from lane 0's, where all that depends on the lane is its number: neighbours then share
        one operand, and all that is computed from it. None where that is not proved."""
        divisor = n.args[1]
        if n.op not in ("//", "%") or not divisor.is_literal or self.divides is None:
            return None
        q = divisor.value
        for name, lane in self.lanes.items():
            run = min(q, lane.width)
            if run < 1 or max(q, lane.width) % run or coefficient(n.args[0], name) != lit(1):
                continue
            if not self.divides(run, n.args[0] - sym(name)):
                continue
            offset = lane.number // q if n.op == "//" else lane.number % q
            if n.op == "%" and q == run:
                return self.builder.literal(offset, self.dtype)
            base = self.bound(**{name: lane.first}).value(n)
            return self.builder.apply("add", (base, self.builder.literal(offset, self.dtype)), self.dtype)
        return None

    def _call(self, n: HostExpr, atoms: Mapping[HostExpr, Operand]) -> Operand:
        if (found := self._in_tile(n)) is not None:
            return found
        args = [self._sum(a, atoms) for a in n.args]
        if n.op in ("min", "max"):
            out = args[0]
            for a in args[1:]:
                out = self.builder.apply(f"{n.op}_num", (out, a), self.dtype)
            return out
        if n.op not in ("//", "%"):
            raise InternalError(f"`{n.op}` in an index expression has no kernel form", "index-expression")
        plain = all(self.ranges.nonnegative(a) for a in n.args)
        if plain and self.ranges.is_host(n.args[1]) and not n.args[1].is_literal and self._narrow(n):
            return self._by_multiplication(n, args[0])
        names = ("trunc_div", "trunc_rem") if plain else ("floor_divide", "remainder")
        return self.builder.apply(names[n.op == "%"], args, self.dtype)
