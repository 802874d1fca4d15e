"""What is certain of an index: bounds of integer host expressions over loop variables, for every size of the dims.

In: expressions over loop variables (`p0`, `r0`, ...), gathered values (`%k`, in plans `@k`) and host symbols (dims,
strides), and the extent of every loop variable. Out: proofs (never negative, below a limit) and simpler expressions
(divisions that the extents make void are gone). Its own file because the planner asks for what will be emitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fuser.hostexpr import HostExpr, Monomial, call, from_terms, is_scalar_symbol, lit, sym, terms
from fuser.indexmap import coefficient, recombine
from fuser.ranges import join_digits, simplify

GATHERED = "%"  # prefix of symbols that stand for a value read from memory; in plans, `@`
MAX_DEPTH = 24  # nesting of index atoms that proofs look into; deeper ones are "unknown", never wrong
Bounds = tuple["HostExpr | None", "HostExpr | None"]
UNKNOWN: Bounds = (None, None)


def gathered(step: int) -> HostExpr:
    """The symbol for the value of evaluation step `step`, used as an index."""
    return sym(f"{GATHERED}{step}")


def is_dim(name: str) -> bool:
    """Whether a symbol is a dim, which is at least 1 (0 is a class of its own): not a stride, scalar or value."""
    return not name.startswith(("#", "@", GATHERED)) and not is_scalar_symbol(name)


class Ranges:
    """What is known of loop variables: each runs over [0, extent). Proofs hold for all dims >= 1."""

    def __init__(self, extents: Mapping[str, HostExpr]) -> None:
        self.extents = dict(extents)
        self._simplified: dict[HostExpr, HostExpr] = {}

    def is_variable(self, name: str) -> bool:
        """Whether a symbol has its value in the kernel (as against on the host)."""
        return name in self.extents or name.startswith(("@", GATHERED))

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

    def most(self, e: HostExpr, dims: Mapping[str, int]) -> int | None:
        """The largest that `e` can be while dims stay between 1 and what they are at most; None where that is not
        known."""
        _, high = self.bounds(e)
        found = None if high is None else _interval(high, dims)
        return None if found is None else found[1]

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


def _interval(e: HostExpr, dims: Mapping[str, int]) -> tuple[int, int] | None:
    """(least, most) of an expression of the host's, by interval arithmetic over dims from 1 to `dims`."""
    found: dict[int, tuple[int, int]] = {}
    for n in e.walk():
        parts = [found[id(a)] for a in n.args if id(a) in found]
        if n.is_literal:
            found[id(n)] = (n.value, n.value)
        elif n.op == "sym" and n.value in dims:
            found[id(n)] = (1, dims[n.value])
        elif n.op == "+" and len(parts) == len(n.args):
            found[id(n)] = (sum(low for low, _ in parts), sum(high for _, high in parts))
        elif n.op in ("*", "//") and len(parts) == len(n.args) and all(low >= 0 for low, _ in parts):
            if n.op == "*":
                found[id(n)] = (math.prod(low for low, _ in parts), math.prod(high for _, high in parts))
            elif parts[1][0] > 0:
                found[id(n)] = (parts[0][0] // parts[1][1], parts[0][1] // parts[1][0])
        elif n.op == "*" and len(parts) == len(n.args) == 2:
            products = [x * y for x in parts[0] for y in parts[1]]
            found[id(n)] = (min(products), max(products))
    return found.get(id(e))


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
