"""Index expressions simplified with what is known of their variables: each runs from 0 to its extent.

In: an integer expression and the extent (a dim) of every variable in it. Out: an equal expression with fewer
floor divisions and modulos. `(p0*h + p1) // h` is `p0` because p1 < h; `pos // m * m + pos % m` is `pos`.
Dims are symbols too: a proof holds for every size of at least 1 (a loop over an empty axis runs nothing).
Its own file because fusion (are two indices equal?) and code generation (the cheapest index) both ask.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.hostexpr import Dim, HostExpr, call, lit, split_multiple, sym, terms, wrap
from fuser.indexmap import Index, coefficient_of_atom

Extents = Mapping[str, Dim]
ZERO, ONE = lit(0), lit(1)


def _is_one(d: Dim | None) -> bool:
    return d == 1 if isinstance(d, int) else d is not None and d.is_literal and d.value == 1


def simplify(e: HostExpr, extents: Extents) -> HostExpr:
    """`e` with variables of extent 1 gone and divisions that the extents decide removed, innermost first."""
    if e.op in ("lit", "sym") and not (e.op == "sym" and _is_one(extents.get(e.value))):
        return e
    e = e.substitute({v: ZERO for v in e.symbols if _is_one(extents.get(v))})
    if not any(n.op in ("//", "%") for n in e.walk()):
        return e
    out: dict[int, HostExpr] = {}
    for n in e.walk():
        if not n.args:
            out[id(n)] = n
            continue
        args = tuple(out[id(a)] for a in n.args)
        new = call(n.op, *args) if any(a is not b for a, b in zip(args, n.args, strict=True)) else n
        out[id(n)] = _decide(join_digits(new), extents)
    return out[id(e)]


def simplify_index(index: Index, extents: Extents) -> Index:
    """Every component simplified; the same tuple when nothing changes."""
    new = tuple(simplify(e, extents) for e in index)
    return index if all(a is b for a, b in zip(new, index, strict=True)) else new


def _decide(e: HostExpr, extents: Extents) -> HostExpr:
    """The divisions of a sum or the division itself, replaced where the numerator's range decides them."""
    if e.op in ("//", "%"):
        return _divided(e, extents)
    if e.op not in ("+", "*"):
        return e
    out = e
    for atom in {a for m in terms(e) for a in m if a.op in ("//", "%")}:
        new = _divided(atom, extents)
        factor = coefficient_of_atom(out, atom)
        if new is not atom and factor is not None:
            out = out - factor * atom + factor * new
    return out if out is e else join_digits(out)


def _divided(e: HostExpr, extents: Extents) -> HostExpr:
    """A digit with what the extents say about its number: 0, no modulo, no division, or as it was."""
    digit = digit_of(e)
    if digit is None:
        return e
    x, low, high = digit
    if in_range(x, low, extents):
        return ZERO
    if high is not None and in_range(x, high, extents):
        high = None
    if high is not None:
        multiple, rest = split_multiple(x, high)
        if multiple != ZERO and in_range(rest, high, extents):
            x, high = rest, None
    if low != ONE:
        quotient, rest = split_multiple(x, low)
        if quotient != ZERO and in_range(rest, low, extents):  # floor((q*low + rest) / low) is q
            x, low, high = quotient, ONE, None if high is None else _quotient(high, low)
    new = _digit(x, low, high)
    return e if new == e else new


Digit = tuple[HostExpr, HostExpr, "HostExpr | None"]


def digit_of(e: HostExpr) -> Digit | None:
    """`e` as a digit `x // low % (high // low)` of a mixed-radix number: (x, low, high), high None when there
    is no `%`.

    `x`, `x // a`, `x % a`, `(x // a) % b` and `(x % (a*b)) // a` are digits; None for anything else or unsure divisors.
    """
    if e.op not in ("//", "%") or not positive(e.args[1]):
        return (e, ONE, None) if e.op not in ("//", "%") else None
    inner = digit_of(e.args[0])
    if inner is None:
        return None
    (x, low, high), b = inner, e.args[1]
    if e.op == "//":
        if high is None:
            return (x, low * b, None)
        return (x, low * b, high) if split_multiple(high, low * b)[1] == ZERO else None
    if high is None or split_multiple(high, low * b)[1] == ZERO:
        return (x, low, low * b)
    return None


def _digit(x: HostExpr, low: HostExpr, high: HostExpr | None) -> HostExpr:
    shifted = x if low == ONE else call("//", x, low)
    return shifted if high is None else call("%", shifted, _quotient(high, low))


def _quotient(high: HostExpr, low: HostExpr) -> HostExpr:
    """`high // low`, which leaves no rest; a division at launch where the two are sums, as `3*n + 6` by `n + 2`."""
    if low == ONE:
        return high
    quotient, rest = split_multiple(high, low)
    if rest == ZERO:
        return quotient
    factor = next(iter(terms(high).values())) // next(iter(terms(low).values()))
    return lit(factor) if low * factor == high else call("//", high, low)


def join_digits(e: HostExpr) -> HostExpr:
    """Neighbouring digits of one number put together: `x // m * m*k + x % m * k` is `x*k`."""
    if e.op != "+":
        return e
    digits = {a: d for m in terms(e) for a in m if a.op in ("//", "%") and (d := digit_of(a)) is not None}
    for one, (x, low, middle) in digits.items():
        for other, (y, start, high) in digits.items():
            if one is other or middle is None or start != middle or x != y:
                continue
            small, big = coefficient_of_atom(e, one), coefficient_of_atom(e, other)
            if small is None or big is None or small == ZERO or big * low != small * start:
                continue
            return join_digits(e - small * one - big * other + small * _digit(x, low, high))
    return e


def positive(e: HostExpr) -> bool:
    """Whether a dim expression is at least 1 for every size: literals and products of plain dims."""
    if e.is_literal:
        return int(e.value) >= 1
    return all(c > 0 and all(a.op == "sym" and not a.value.startswith("=") for a in m) for m, c in terms(e).items())


def in_range(a: HostExpr, b: HostExpr, extents: Extents) -> bool:
    """Whether 0 <= a < b is certain: `a` a sum of variables with non-negative factors whose maximum stays below `b`."""
    top = maximum(a, extents)
    return top is not None and non_negative(b - 1 - top)


def maximum(a: HostExpr, extents: Extents) -> HostExpr | None:
    """Largest value of an expression that is never negative, as a polynomial in dims; None if not provable."""
    total = ZERO
    for m, c in terms(a).items():
        if c < 0:
            return None
        part = lit(c)
        for factor in m:
            top = _factor_maximum(factor, extents)
            if top is None:
                return None
            part = part * top
        total = total + part
    return total


def _factor_maximum(factor: HostExpr, extents: Extents) -> HostExpr | None:
    if factor.op == "sym":
        if factor.value in extents:
            return wrap(extents[factor.value]) - 1
        return None if factor.value.startswith(("=", "@", "$")) else factor
    if factor.op == "%" and positive(factor.args[1]):
        return factor.args[1] - 1
    if factor.op == "//" and positive(factor.args[1]):
        top = maximum(factor.args[0], extents)
        if top is None:
            return None
        # floor((q*b + b - 1) / b) = q when the top is one less than a multiple.
        quotient, rest = split_multiple(top + 1, factor.args[1])
        return quotient - 1 if rest == ZERO else call("//", top, factor.args[1])
    return None


def non_negative(e: HostExpr) -> bool:
    """Whether a polynomial in dims is >= 0 whenever every dim is >= 1: write d = 1 + d' and look at the signs."""
    if e.is_literal:
        return int(e.value) >= 0
    atoms = {a for m in terms(e) for a in m}
    if any(a.op != "sym" or a.value.startswith(("=", "@", "$")) for a in atoms):
        return all(c >= 0 for c in terms(e).values()) and all(_factor_maximum(a, {}) is not None for a in atoms)
    shifted = e.substitute({a.value: sym(a.value) + 1 for a in atoms})
    return all(c >= 0 for c in terms(shifted).values())
