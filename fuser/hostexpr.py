"""Host expressions: arithmetic on dims and Python scalars, done per call on the host.

In: Python numbers, symbols, operators. Out: immutable, hashable trees that evaluate with Python's
own semantics. One class serves four readers: dims of shapes, run-time Python scalars, launch
formulas, and index expressions (whose symbols are axis variables `$0, $1, ...`).

Integer `+ - *` is kept in one canonical form, a sorted sum of monomials, so that equal dims compare
equal (`n - 1 + 1` is `n`). Float arithmetic is never rearranged: `2.0 * h` must round as Python does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Literal

from fuser.hostfunctions import BOOL_RESULT, FLOAT_RESULT, FUNCTIONS, INT_RESULT, literal_text
from fuser.record import dataclass

ExprKind = Literal["int", "float", "bool"]
Number = int | float | bool
Monomial = tuple["HostExpr", ...]
Env = Mapping[str, Any]

MAX_TERMS = 64  # a product of sums that would have more terms stays an unexpanded `*` atom


@dataclass(frozen=True)
class HostExpr:
    """A node of a host expression: a literal (`op="lit"`), a symbol (`op="sym"`) or a function of others.

    Build with `lit`, `sym`, `call` and Python operators, which simplify; the constructor does not.
    """

    op: str
    args: tuple[HostExpr, ...]
    value: Any
    kind: ExprKind
    _hash: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.kind, literal_text(self.value))))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Structural equality without recursion deeper than one differing spine; literals by text (-0.0, -nan)."""
        return self is other or (isinstance(other, HostExpr) and self._hash == other._hash and _same(self, other))

    @cached_property
    def key(self) -> str:
        """A printable canonical key; also the sort key of sums and products."""
        return f"{self.kind}:{self}"

    # -- structure ---------------------------------------------------------------------------------
    @property
    def is_literal(self) -> bool:
        return self.op == "lit"

    def walk(self) -> Iterator[HostExpr]:
        """Every distinct node, arguments before their users; iterative."""
        done: set[int] = set()
        stack: list[tuple[HostExpr, bool]] = [(self, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            if ready or not node.args:
                done.add(id(node))
                yield node
            else:
                stack.append((node, True))
                stack.extend((a, False) for a in node.args if id(a) not in done)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols in the expression. Kept on every part, so that a growing chain costs one step a link."""
        stack = [self]
        while True:
            node = stack[-1]
            waiting = [a for a in node.args if "symbols" not in a.__dict__]
            if waiting:
                stack += waiting
                continue
            found = frozenset((node.value,)) if node.op == "sym" else frozenset().union(*(a.symbols for a in node.args))
            stack.pop()
            if not stack:
                return found
            node.__dict__["symbols"] = found

    def evaluate(self, env: Env) -> Any:
        """The value in Python semantics; KeyError names a symbol that `env` lacks."""
        if self.op == "lit":
            return self.value
        if self.op == "sym":
            return env[self.value]
        values: dict[int, Any] = {}
        for n in self.walk():
            if n.op == "lit":
                values[id(n)] = n.value
            elif n.op == "sym":
                values[id(n)] = env[n.value]
            elif n.op == "+" and len(n.args) > 2:
                values[id(n)] = sum(values[id(a)] for a in n.args)
            elif n.op == "*" and len(n.args) > 2:
                values[id(n)] = math.prod(values[id(a)] for a in n.args)
            else:
                values[id(n)] = FUNCTIONS[n.op](*(values[id(a)] for a in n.args))
        return values[id(self)]

    def substitute(self, mapping: Mapping[str, HostExpr]) -> HostExpr:
        """Symbols replaced (and the result simplified again); the same object when nothing changes."""
        if not mapping or mapping.keys().isdisjoint(self.symbols):
            return self
        out: dict[int, HostExpr] = {}
        for n in self.walk():
            if n.op == "sym":
                out[id(n)] = mapping.get(n.value, n)
            elif n.args:
                new = tuple(out[id(a)] for a in n.args)
                same = all(a is b for a, b in zip(new, n.args, strict=True))
                out[id(n)] = n if same else call(n.op, *new)
            else:
                out[id(n)] = n
        return out[id(self)]

    # -- operators ---------------------------------------------------------------------------------
    # fmt: off
    def __add__(self, o: Operand) -> HostExpr: return call("+", self, o)
    def __radd__(self, o: Operand) -> HostExpr: return call("+", o, self)
    def __sub__(self, o: Operand) -> HostExpr: return call("-", self, o)
    def __rsub__(self, o: Operand) -> HostExpr: return call("-", o, self)
    def __mul__(self, o: Operand) -> HostExpr: return call("*", self, o)
    def __rmul__(self, o: Operand) -> HostExpr: return call("*", o, self)
    def __floordiv__(self, o: Operand) -> HostExpr: return call("//", self, o)
    def __rfloordiv__(self, o: Operand) -> HostExpr: return call("//", o, self)
    def __mod__(self, o: Operand) -> HostExpr: return call("%", self, o)
    def __rmod__(self, o: Operand) -> HostExpr: return call("%", o, self)
    def __truediv__(self, o: Operand) -> HostExpr: return call("/", self, o)
    def __rtruediv__(self, o: Operand) -> HostExpr: return call("/", o, self)
    def __neg__(self) -> HostExpr: return call("neg", self)
    # fmt: on

    def __bool__(self) -> bool:
        raise TypeError(f"host expression `{self}` has no truth value before a call")

    def __str__(self) -> str:
        return _render(self)

    def __repr__(self) -> str:
        return f"HostExpr({self})"


Operand = HostExpr | int | float | bool
Dim = int | HostExpr


def _same(a: HostExpr, b: HostExpr) -> bool:
    """Structural equality; iterative, each pair of shared parts looked at once."""
    stack, seen = [(a, b)], set()
    while stack:
        x, y = stack.pop()
        if x is y or (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        if (x._hash, x.op, x.kind, len(x.args)) != (y._hash, y.op, y.kind, len(y.args)):
            return False
        if literal_text(x.value) != literal_text(y.value):
            return False
        stack.extend(zip(x.args, y.args, strict=True))
    return True


def _kind_of(value: Number) -> ExprKind:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"


def lit(value: Number) -> HostExpr:
    """A literal; the Python type of `value` is its kind."""
    return HostExpr("lit", (), value, _kind_of(value))


def sym(name: str, kind: ExprKind = "int") -> HostExpr:
    """A symbol bound at call time: a dim (`"n"`), a scalar argument, or an axis variable (`"$0"`)."""
    return HostExpr("sym", (), name, kind)


def scalar_symbol(name: str, kind: ExprKind) -> HostExpr:
    """The symbol of a run-time Python scalar argument: `=name`, so that it never meets a dim's name."""
    return sym(f"={name}", kind)


def is_scalar_symbol(name: str) -> bool:
    """Whether a symbol name is a run-time scalar's (as against a dim, a stride or an axis variable)."""
    return name.startswith("=")


def wrap(value: Operand) -> HostExpr:
    """`value` as a HostExpr."""
    return value if isinstance(value, HostExpr) else lit(value)


def as_dim(expr: Operand) -> Dim:
    """A literal integer expression as `int`, anything else unchanged: the normal form of a dim."""
    if isinstance(expr, HostExpr):
        return int(expr.value) if expr.is_literal else expr
    return int(expr)


def _result_kind(op: str, args: tuple[HostExpr, ...]) -> ExprKind:
    if op in BOOL_RESULT:
        return "bool"
    if op in FLOAT_RESULT:
        return "float"
    if op in INT_RESULT:
        return "int"
    kinds = [a.kind for a in (args[1:] if op == "where" else args)]
    if "float" in kinds:
        return "float"
    if op in ("&", "|", "^") and all(k == "bool" for k in kinds):
        return "bool"
    return "int"


def call(op: str, *operands: Operand) -> HostExpr:
    """Apply a function of `FUNCTIONS`, folding literals and keeping integers canonical.

    A fold that raises (division by zero) is left in the tree, so that it raises at the call, as Python would.
    """
    args = tuple(wrap(a) for a in operands)
    if all(a.is_literal for a in args):
        try:
            return lit(FUNCTIONS[op](*(a.value for a in args)) if len(args) <= 3 else _fold_many(op, args))
        except (ArithmeticError, ValueError, TypeError):
            pass
    kind = _result_kind(op, args)
    if kind == "int":
        if op in ("+", "-", "*", "neg") and all(a.kind == "int" for a in args):
            return _from_terms(_combine(op, [_terms(a) for a in args], args))
        if op in ("//", "%"):
            return _divide(op, args[0], args[1])
        if op in ("min", "max") and args[0] == args[1]:
            return args[0]
    return HostExpr(op, args, None, kind)


def _fold_many(op: str, args: tuple[HostExpr, ...]) -> Any:
    values = [a.value for a in args]
    return sum(values) if op == "+" else math.prod(values)


# -- canonical integer sums ------------------------------------------------------------------------
Terms = dict[Monomial, int]


def _terms(e: HostExpr) -> Terms:
    """An integer expression as monomial -> coefficient; a monomial is a sorted tuple of atoms."""
    if e.op == "lit":
        return {(): int(e.value)} if e.value else {}
    if e.op == "+":
        return {m: c for a in e.args for m, c in _terms_of_product(a).items()}
    return _terms_of_product(e)


def _terms_of_product(e: HostExpr) -> Terms:
    if e.op == "lit":
        return {(): int(e.value)}
    if e.op == "*" and e.args[0].is_literal:
        return {e.args[1:]: int(e.args[0].value)}
    if e.op == "*":
        return {e.args: 1}
    return {(e,): 1}


def terms(e: Operand) -> Terms:
    """Public view of the canonical sum: used by index maps to read off affine coefficients."""
    return _terms(wrap(e))


def from_terms(t: Terms) -> HostExpr:
    """The inverse of `terms`."""
    return _from_terms(t)


def _combine(op: str, parts: list[Terms], args: tuple[HostExpr, ...]) -> Terms:
    if op == "neg":
        return {m: -c for m, c in parts[0].items()}
    out = dict(parts[0])
    for part, arg in zip(parts[1:], args[1:], strict=True):
        if op == "*":
            if len(out) * len(part) > MAX_TERMS:
                out = {tuple(sorted((_from_terms(out), arg), key=_key)): 1}
                continue
            product: Terms = {}
            for m1, c1 in out.items():
                for m2, c2 in part.items():
                    m = tuple(sorted(m1 + m2, key=_key))
                    product[m] = product.get(m, 0) + c1 * c2
            out = product
        else:
            sign = 1 if op == "+" else -1
            for m, c in part.items():
                out[m] = out.get(m, 0) + sign * c
    return out


def _key(e: HostExpr) -> str:
    return e.key


def _from_terms(t: Terms) -> HostExpr:
    parts = []
    for m in sorted((m for m, c in t.items() if c), key=lambda m: (not m, [a.key for a in m])):
        c = t[m]
        factors = m if c == 1 and m else (lit(c), *m)
        parts.append(factors[0] if len(factors) == 1 else HostExpr("*", factors, None, "int"))
    if not parts:
        return lit(0)
    return parts[0] if len(parts) == 1 else HostExpr("+", tuple(parts), None, "int")


def _divide(op: str, a: HostExpr, b: HostExpr) -> HostExpr:
    """`a // b` or `a % b` with the multiples of `b` inside `a` split off: (q*b + r) // b = q + r // b.

    Only for a divisor known not to be zero: a literal, or dims (whose class 0 is static); a run-time
    scalar may be zero, and must then raise as Python does.
    """
    safe = bool(b.value) if b.is_literal else not any(is_scalar_symbol(s) for s in b.symbols)
    if a.kind == "int" and b.kind == "int" and safe:
        quotient, rest = split_multiple(a, b)
        tail = _divide_rest(op, rest, b)
        return quotient + tail if op == "//" else tail
    return HostExpr(op, (a, b), None, "int")


def _divide_rest(op: str, rest: HostExpr, b: HostExpr) -> HostExpr:
    if rest.is_literal and b.is_literal:
        return lit(FUNCTIONS[op](rest.value, b.value))
    return rest if rest.is_literal and rest.value == 0 else HostExpr(op, (rest, b), None, "int")


def split_multiple(a: HostExpr, b: HostExpr) -> tuple[HostExpr, HostExpr]:
    """`(q, r)` with `a == q*b + r`, `q` holding every monomial of `a` that `b` (a monomial) divides."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return (lit(1), lit(0)) if a == b else (lit(0), a)
    ((atoms, scale),) = divisor.items()
    q: Terms = {}
    r: Terms = {}
    for m, c in _terms(a).items():
        left = _remove(m, atoms)
        if left is None or c % scale:
            r[m] = c
        else:
            q[left] = q.get(left, 0) + c // scale
    return _from_terms(q), _from_terms(r)


def _remove(m: Monomial, atoms: Monomial) -> Monomial | None:
    rest = list(m)
    for a in atoms:
        if a not in rest:
            return None
        rest.remove(a)
    return tuple(rest)


# -- text ------------------------------------------------------------------------------------------
_INFIX = {"/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^", "<<", ">>", "-", "+", "*"}


def _render(e: HostExpr) -> str:
    text: dict[int, str] = {}
    for n in e.walk():
        if n.op == "lit":
            text[id(n)] = literal_text(n.value)
        elif n.op == "sym":
            text[id(n)] = str(n.value).lstrip("=")
        else:
            text[id(n)] = _render_call(n, [text[id(a)] for a in n.args])
    return text[id(e)]


def _render_call(n: HostExpr, args: list[str]) -> str:
    if n.op == "+" and n.kind == "int":
        return " + ".join(args).replace("+ -", "- ")
    if n.op == "*" and n.kind == "int":
        shown = [_paren(a, s) for a, s in zip(n.args, args, strict=True)]
        return "-" + "*".join(shown[1:]) if shown[0] == "-1" else "*".join(shown)
    if n.op in _INFIX and len(args) == 2:
        return f"{_paren(n.args[0], args[0])} {n.op} {_paren(n.args[1], args[1])}"
    return f"{n.op}({', '.join(args)})"


def _paren(e: HostExpr, text: str) -> str:
    return text if e.op in ("lit", "sym") or (e.op not in _INFIX) else f"({text})"
