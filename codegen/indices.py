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
from fuser.hostexpr import HostExpr, Monomial, call, from_terms, is_scalar_symbol, lit, sym, terms
from fuser.indexmap import Index, coefficient, recombine
from fuser.ranges import join_digits, simplify
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.codegen.builder import KernelBuilder
    from fuser.codegen.loops import Operand

Divides = Callable[[int, HostExpr], bool]  # whether an expression is certainly a multiple of a power of two
GATHERED = "%"  # prefix of symbols that stand for a value read from memory
MAX_DEPTH = 24  # nesting of index atoms that proofs look into; deeper ones are "unknown", never wrong
Bounds = tuple["HostExpr | None", "HostExpr | None"]
UNKNOWN: Bounds = (None, None)


def gathered(step: int) -> HostExpr:
    """The symbol for the value of evaluation step `step`, used as an index."""
    return sym(f"{GATHERED}{step}")


def is_dim(name: str) -> bool:
    """Whether a symbol is a dim, which is at least 1 (0 is a class of its own): not a stride, scalar or value."""
    return not name.startswith(("#", GATHERED)) and not is_scalar_symbol(name)


class Ranges:
    """What is known of loop variables: each runs over [0, extent). Proofs hold for all dims >= 1."""

    def __init__(self, extents: Mapping[str, HostExpr]) -> None:
        self.extents = dict(extents)
        self._simplified: dict[HostExpr, HostExpr] = {}

    def is_variable(self, name: str) -> bool:
        """Whether a symbol has its value in the kernel (as against on the host)."""
        return name in self.extents or name.startswith(GATHERED)

    def is_host(self, e: HostExpr) -> bool:
        """Whether the host can evaluate the whole expression at launch."""
        return not any(self.is_variable(s) for s in e.symbols)

    # -- proofs ------------------------------------------------------------------------------------
    def nonnegative(self, e: HostExpr) -> bool:
        """Whether `e >= 0` is certain."""
        low, _ = self.bounds(e)
        return low is not None and _host_nonnegative(low)

    def negative(self, e: HostExpr) -> bool:
        """Whether `e < 0` is certain."""
        _, high = self.bounds(e)
        return high is not None and _host_nonnegative(-1 - high)

    def below(self, e: HostExpr, limit: HostExpr) -> bool:
        """Whether `0 <= e < limit` is certain, for a limit of the host's."""
        low, high = self.bounds(e)
        if low is None or high is None or not self.is_host(limit):
            return False
        return _host_nonnegative(low) and _host_nonnegative(limit - 1 - high)

    def bounds(self, e: HostExpr, depth: int = 0) -> Bounds:
        """Host expressions that bound `e` from below and above (None where nothing is known)."""
        low: HostExpr | None = lit(0)
        high: HostExpr | None = lit(0)
        for monomial, scale in terms(e).items():
            least, most = self._monomial(monomial, depth)
            if scale < 0:
                least, most = most, least
            low = None if low is None or least is None else low + scale * least
            high = None if high is None or most is None else high + scale * most
        return low, high

    def _monomial(self, monomial: Monomial, depth: int) -> Bounds:
        """Bounds of a product: exact for the host's factors, by intervals for factors that are never negative."""
        varying = [a for a in monomial if not self.is_host(a)]
        fixed = from_terms({tuple(a for a in monomial if self.is_host(a)): 1})
        if not varying:
            return fixed, fixed
        if depth > MAX_DEPTH or not _host_nonnegative(fixed):
            return UNKNOWN
        low, high = fixed, fixed
        top_known = True
        for atom in varying:
            least, most = self._atom(atom, depth)
            if least is None or not _host_nonnegative(least):
                return UNKNOWN
            low = low * least
            top_known = top_known and most is not None
            high = high if most is None else high * most
        return low, high if top_known else None

    def _atom(self, atom: HostExpr, depth: int) -> Bounds:
        if atom.op == "sym":
            extent = self.extents.get(atom.value)
            return UNKNOWN if extent is None else (lit(0), extent - 1)
        if atom.op in ("//", "%"):
            return self._division(atom, depth)
        if atom.op in ("min", "max"):
            return self._extremum(atom, depth)
        return self.bounds(atom, depth + 1) if atom.op in ("+", "*") and len(terms(atom)) > 1 else UNKNOWN

    def _division(self, atom: HostExpr, depth: int) -> Bounds:
        a, d = atom.args
        if not (self.is_host(d) and _host_nonnegative(d)):
            return UNKNOWN
        if atom.op == "%":
            return lit(0), d - 1
        low, high = self.bounds(a, depth + 1)
        if low is None or not _host_nonnegative(low):
            return UNKNOWN
        return lit(0), None if high is None else call("//", high, d)

    def _extremum(self, atom: HostExpr, depth: int) -> Bounds:
        """min has any known upper bound of its parts, max any lower one (a non-negative one if there is one)."""
        parts = [self.bounds(a, depth + 1) for a in atom.args]
        lows, highs = [p[0] for p in parts], [p[1] for p in parts]
        if atom.op == "max":
            proven = [x for x in lows if x is not None and _host_nonnegative(x)]
            return (proven[0] if proven else None), None
        if any(x is None or not _host_nonnegative(x) for x in lows):
            return None, next((h for h in highs if h is not None), None)
        return lit(0), next((h for h in highs if h is not None), None)

    # -- simplification ----------------------------------------------------------------------------
    def simplify(self, e: HostExpr) -> HostExpr:
        """`e` without the divisions, modulos and clamps that the extents make void."""
        known = self._simplified.get(e)
        if known is None:
            known = self._simplified[e] = self._simplify(e)
        return known

    def _simplify(self, e: HostExpr) -> HostExpr:
        if e.op in ("lit", "sym") or self.is_host(e):
            return e
        e = simplify(e, self.extents)
        out: dict[int, HostExpr] = {}
        for n in e.walk():
            args = tuple(out[id(a)] for a in n.args)
            same = all(a is b for a, b in zip(args, n.args, strict=True))
            new = n if same else call(n.op, *args)
            if new.op in ("//", "%"):
                new = self._divide(new)
            elif new.op in ("min", "max"):
                new = self._clamp(new)
            out[id(n)] = new
        return join_digits(recombine(out[id(e)]))

    def _divide(self, n: HostExpr) -> HostExpr:
        a, d = n.args
        if not self.is_host(d):
            return n
        quotient = lit(0)
        for name in sorted(a.symbols & self.extents.keys()):  # multiples of a divisor that is itself a sum
            if coefficient(a, name) == d:
                quotient, a = quotient + sym(name), a - sym(name) * d
        if n.op == "%":
            a = self._inside_modulo(a, d)
        if self.below(a, d):
            return quotient if n.op == "//" else a
        rest = call(n.op, a, d)
        return quotient + rest if n.op == "//" else rest

    def _inside_modulo(self, a: HostExpr, d: HostExpr) -> HostExpr:
        """`x % d` inside `... % d` is `x`: rolls of rolls stay flat."""
        inner = {m: m[0].args[0] for m in terms(a) if len(m) == 1 and m[0].op == "%" and m[0].args[1] == d}
        for monomial, x in inner.items():
            scale = terms(a)[monomial]
            a = a + scale * (x - monomial[0])
        return a

    def _clamp(self, n: HostExpr) -> HostExpr:
        if len(n.args) != 2:
            return n
        a, c = n.args
        for one, other in ((a, c), (c, a)):
            difference = one - other
            if self.nonnegative(difference):  # one >= other
                return one if n.op == "max" else other
        return n


def _host_nonnegative(e: HostExpr, depth: int = 0) -> bool:
    """Whether an expression of the host's is certainly >= 0, given that every dim is at least 1."""
    if depth > MAX_DEPTH:
        return False
    shifted = e.substitute({s: sym(s) + 1 for s in e.symbols if is_dim(s)})
    return all(c >= 0 and all(_atom_nonnegative(a, depth) for a in monomial) for monomial, c in terms(shifted).items())


def _atom_nonnegative(a: HostExpr, depth: int) -> bool:
    """Atoms of a sum in which dims were already shifted to start at 0."""
    if a.op == "sym":
        return is_dim(a.value)
    if a.op == "//":
        return all(_shifted_nonnegative(x, depth + 1) for x in a.args)
    if a.op == "%":
        return _shifted_nonnegative(a.args[1], depth + 1)
    if a.op == "ceil_pow2":
        return True
    if a.op == "max":
        return any(_shifted_nonnegative(x, depth + 1) for x in a.args)
    return a.op in ("min", "+", "*") and all(_shifted_nonnegative(x, depth + 1) for x in a.args)


def _shifted_nonnegative(e: HostExpr, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    return all(c >= 0 and all(_atom_nonnegative(a, depth) for a in m) for m, c in terms(e).items())


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
    ) -> None:
        self.builder, self.bindings, self.ranges, self.dtype = builder, dict(bindings), ranges, dtype
        self.divides, self.lanes = divides, dict(lanes or {})

    def bound(self, **bindings: Operand) -> IndexEmitter:
        """The same emitter with more variables bound, or bound anew."""
        lanes = {name: lane for name, lane in self.lanes.items() if name not in bindings}
        merged = {**self.bindings, **bindings}
        return IndexEmitter(self.builder, merged, self.ranges, self.dtype, self.divides, lanes)

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

    def _by_multiplication(self, n: HostExpr, dividend: Operand, divisor: Operand) -> Operand:
        """`x // d` or `x % d` for 0 <= x < 2^31 and a host's d: with 2^s the power of two at or above d and
        m = floor(2^(31 + s) / d) + 1, the quotient is (x * m) >> (31 + s), which an upper product gives exactly.
        """
        b, d = self.builder, n.args[1]
        magic = call("//", call("ceil_pow2", d) * (1 << 31), call("max", d, 1)) + 1
        twice = b.apply("shl", (b.apply("cast", (dividend,), U32), b.literal(1, U32)), U32)
        upper = b.apply("mulhi", (twice, b.scalar(magic, U32)), U32)
        shift = b.scalar(call("bit_length", d - 1), U32)
        quotient = b.apply("cast", (b.apply("shr", (upper, shift), U32),), self.dtype)
        if n.op == "//":
            return quotient
        product = b.apply("multiply", (quotient, divisor), self.dtype)
        return b.apply("subtract", (dividend, product), self.dtype)

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
        if plain and self.dtype == I32 and self.ranges.is_host(n.args[1]) and not n.args[1].is_literal:
            return self._by_multiplication(n, args[0], args[1])
        names = ("trunc_div", "trunc_rem") if plain else ("floor_divide", "remainder")
        return self.builder.apply(names[n.op == "%"], args, self.dtype)
