"""Index maps: where an element of a view comes from.

In: slices, permutations, reshapes, broadcasts. Out: `IndexMap`s, one host expression a *source* axis
over the *result's* axis variables `$0, $1, ...` (affine, plus floordiv/mod), over dims, and over
`@k`, the value of the k-th index operand at the result's index (gather). `Piece` adds a domain: a
conjunction of expressions that must be >= 0. Composition is substitution, so views of views cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuser.hostexpr import Dim, HostExpr, call, from_terms, lit, sym, terms, wrap
from fuser.record import dataclass
from fuser.shapes import Shape

Index = tuple[HostExpr, ...]


def axis(k: int) -> HostExpr:
    """The variable of result axis `k`."""
    return sym(f"${k}")


def operand(k: int) -> HostExpr:
    """The value of index operand `k` (gather)."""
    return sym(f"@{k}")


def axes(rank: int) -> Index:
    """Every axis at itself: `($0, $1, ...)`."""
    return tuple(axis(k) for k in range(rank))


@dataclass(frozen=True)
class IndexMap:
    """Result index -> source index: `exprs[a]` gives source axis `a`."""

    exprs: Index

    def apply(self, index: Index, operands: Mapping[str, HostExpr] | None = None) -> Index:
        """The source index for a result index (any expressions), `@k` bound by `operands`."""
        binding = {f"${k}": e for k, e in enumerate(index)}
        if operands:
            binding.update(operands)
        return tuple(e.substitute(binding) for e in self.exprs)

    @property
    def is_identity(self) -> bool:
        return self.exprs == axes(len(self.exprs))

    def __str__(self) -> str:
        return "(" + ", ".join(str(e) for e in self.exprs) + ")"


@dataclass(frozen=True)
class Piece:
    """One case of a piecewise value: taken where every expression of `domain` is >= 0."""

    domain: Index
    map: IndexMap


def identity(rank: int) -> IndexMap:
    """The map of a view that shows its source as it is."""
    return IndexMap(axes(rank))


def transpose(perm: Sequence[int]) -> IndexMap:
    """Result axis `k` is source axis `perm[k]`."""
    exprs = [lit(0)] * len(perm)
    for k, source in enumerate(perm):
        exprs[source] = axis(k)
    return IndexMap(tuple(exprs))


def broadcast(source: Shape, result: Shape) -> IndexMap:
    """Trailing axes aligned; a source axis of size 1 is read at 0."""
    shift = len(result) - len(source)
    return IndexMap(
        tuple(lit(0) if d == 1 and result[a + shift] != 1 else axis(a + shift) for a, d in enumerate(source))
    )


def linear(index: Index, shape: Shape) -> HostExpr:
    """Row-major linear index of `index` in `shape`."""
    total = lit(0)
    for e, d in zip(index, shape, strict=True):
        total = total * d + e
    return total


def unravel(position: HostExpr, shape: Shape) -> Index:
    """Row-major index of a linear position; the outermost axis needs no modulo (positions are in range)."""
    out: list[HostExpr] = []
    for k in range(len(shape) - 1, -1, -1):
        d = shape[k]
        outermost = all(outer == 1 for outer in shape[:k])
        out.append(lit(0) if d == 1 else position if outermost else call("%", position, d))
        position = position if d == 1 else call("//", position, d)
    return tuple(reversed(out))


def reshape(source: Shape, result: Shape) -> IndexMap:
    """C-order reshape. Blocks of axes with equal products are mapped apart, which keeps most maps affine."""
    exprs: list[HostExpr] = []
    for (s0, s1), (r0, r1) in _blocks(source, result):
        position = linear(axes(len(result))[r0:r1], result[r0:r1])
        exprs += unravel(position, source[s0:s1]) if s1 - s0 > 1 else [position] * (s1 - s0)
    return IndexMap(tuple(exprs))


def _blocks(source: Shape, result: Shape) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Minimal aligned runs of axes whose products are equal as polynomials."""
    blocks = []
    s0 = r0 = 0
    while s0 < len(source) or r0 < len(result):
        s1, r1 = _run(source, result, s0, r0)
        blocks.append(((s0, s1), (r0, r1)))
        s0, r0 = s1, r1
    return blocks


def _run(source: Shape, result: Shape, s0: int, r0: int) -> tuple[int, int]:
    best = (len(source), len(result))
    left = {_product(source[s0:s]): s for s in range(len(source), s0, -1)}
    for r in range(r0 + 1, len(result) + 1):
        s = left.get(_product(result[r0:r]))
        if s is not None:
            best = (s, r)
            break
    return best


def _product(dims: Shape) -> HostExpr:
    total = lit(1)
    for d in dims:
        total = total * d
    return total


def coefficient(e: HostExpr, variable: str) -> HostExpr | None:
    """The factor of `variable` in `e` if `e` is affine in it (None otherwise; 0 when absent)."""
    out = lit(0)
    for m, c in terms(e).items():
        hits = [a for a in m if variable in a.symbols]
        if not hits:
            continue
        if len(hits) > 1 or hits[0].op != "sym":
            return None
        rest = list(m)
        rest.remove(hits[0])
        out = out + from_terms({tuple(rest): c})
    return out


def bounds(e: HostExpr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Interval [low, high] of an integer expression for symbols in the given closed ranges; None if unknown."""
    values: dict[int, tuple[int, int]] = {}
    for n in e.walk():
        got = _node_bounds(n, values, ranges)
        if got is None:
            return None
        values[id(n)] = got
    return values[id(e)]


def _node_bounds(
    n: HostExpr, values: Mapping[int, tuple[int, int]], ranges: Mapping[str, tuple[int, int]]
) -> tuple[int, int] | None:
    if n.op == "lit":
        return (int(n.value), int(n.value))
    if n.op == "sym":
        return ranges.get(n.value)
    parts = [values[id(a)] for a in n.args]
    if n.op == "+":
        return (sum(p[0] for p in parts), sum(p[1] for p in parts))
    if n.op == "*":
        low, high = parts[0]
        for a, b in parts[1:]:
            corners = (low * a, low * b, high * a, high * b)
            low, high = min(corners), max(corners)
        return (low, high)
    if n.op == "//" and parts[1][0] > 0:
        quotients = [x // y for x in parts[0] for y in parts[1]]
        return (min(quotients), max(quotients))
    if n.op == "%" and parts[1][0] > 0:
        (low, high), (divisor, _), top = parts[0], parts[1], parts[1][1] - 1
        if low >= 0:
            return (low, high) if high < divisor else (0, min(high, top))
        return (0, top)
    if n.op in ("min", "max"):
        pick = min if n.op == "min" else max
        return (pick(p[0] for p in parts), pick(p[1] for p in parts))
    return None


def recombine(e: HostExpr) -> HostExpr:
    """Undo splits: `(p // m)*m*k + (p % m)*k` becomes `p*k` (what a reshape of a contiguous array folds to)."""
    current = e
    for atom in [n for n in e.walk() if n.op == "//"]:
        p, m = atom.args
        factor = coefficient_of_atom(current, atom)
        modulo = HostExpr("%", (p, m), None, "int")
        other = coefficient_of_atom(current, modulo)
        if factor is not None and other is not None and factor == other * m and other != lit(0):
            current = current - factor * atom - other * modulo + other * p
    return current


def coefficient_of_atom(e: HostExpr, atom: HostExpr) -> HostExpr | None:
    """The factor of an atom (such as `p // m`) in the canonical sum `e`; None if it appears squared."""
    out = lit(0)
    for m, c in terms(e).items():
        count = sum(a == atom for a in m)
        if count > 1:
            return None
        if count:
            rest = list(m)
            rest.remove(atom)
            out = out + from_terms({tuple(rest): c})
    return out


def contiguous_strides(shape: Shape) -> tuple[Dim, ...]:
    """C-order strides in elements; an axis of length 0 counts as one of 1, so that no index is lost from an offset."""
    strides: list[Dim] = []
    step = lit(1)
    for d in reversed(shape):
        strides.append(step)
        step = step * d if wrap(d) != lit(0) else step
    return tuple(int(s.value) if isinstance(s, HostExpr) and s.is_literal else s for s in reversed(strides))


def offset(index: Index, strides: Sequence[Dim]) -> HostExpr:
    """Element offset of `index` for given strides, with split axes recombined."""
    total = lit(0)
    for e, s in zip(index, strides, strict=True):
        total = total + wrap(e) * s
    return recombine(total)
