"""What of a kernel's variables takes registers at all.

In: a kernel's statements. Out: `Values`, which says of an operand whose register it lives in (`root`), which
statements the compiler drops, and how wide a value is. A variable takes none of its own if it is a literal in the end,
a parameter (constant memory), a sum that an address or one instruction absorbs (`i + 3` beside `i`), or the new value
of a mutable variable that it is assigned to at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuser.codegen.cuda.addresses import thread_derived
from fuser.codegen.folding import fold
from fuser.codegen.loops import (
    Assign,
    Kernel,
    Let,
    Lit,
    Load,
    LoadVec,
    Operand,
    Special,
    Statement,
    StoreVec,
    Var,
    children,
    walk,
)
from fuser.codegen.uses import operands
from fuser.dtypes import BOOL, DType

Form = dict[tuple[str, ...], int]  # an integer as a sum of products of variables: sorted names -> factor
LONGEST, DEEPEST = 8, 4  # terms of a sum, factors of a product: beyond, the value is its own
_LOGICAL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "invert": "logical_not"}


def words(dtype: DType) -> float:
    """32-bit registers of one value."""
    return 2.0 if dtype.bytes == 8 else 1.0


class Values:
    """The variables of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.parameters = {p.name for p in kernel.scalars}
        self.derived = thread_derived(kernel.body)
        self.folded = _fold(kernel.body)
        self.uses, self.dead, self.packed = self._count(kernel.body)
        self.coalesced = dict(self._coalesce(kernel.body))
        self.alias: dict[str, str | None] = {}
        self.forms: dict[str, Form] = {}
        self.holders: dict[frozenset[tuple[tuple[str, ...], int]], tuple[str, tuple[int, ...]]] = {}

    def known(self, x: Operand) -> Operand:
        return self.folded.get(x.name, x) if isinstance(x, Var) else x

    def root(self, x: Operand) -> str | None:
        """The variable whose register an operand is in; None where it is in none."""
        x = self.known(x)
        name = x.name if isinstance(x, Var) else None
        while name is not None and name in self.alias:
            name = self.alias[name]
        return None if name in self.parameters else name

    def absorb(self, s: Let, loops: tuple[int, ...]) -> bool:
        """Notes where a value lives if it needs no register of its own; False if it does."""
        name, roots = s.var.name, {r for a in s.args if (r := self.root(a)) is not None}
        form = self._form_of(s)
        if form is not None:
            self.forms[name] = form
            return self._absorb_sum(name, form, loops)
        if len(roots) > 1 or (roots and not self._same_register(s)):
            return False
        self.alias[name] = roots.pop() if roots else None
        return True

    def _absorb_sum(self, name: str, form: Form, loops: tuple[int, ...]) -> bool:
        """Sums that differ by parameters and literals live in the register of the first; so does `3 * i` in i's."""
        varying = frozenset((k, c) for k, c in form.items() if not self.parameters.issuperset(k))
        if len(varying) > 1 or any(len(set(k) - self.parameters) > 1 for k, _ in varying):
            holder, scope = self.holders.setdefault(varying, (name, loops))
            if holder == name or scope != loops[: len(scope)]:
                return False
            self.alias[name] = holder
            return True
        self.alias[name] = next((n for k, _ in varying for n in k if n not in self.parameters), None)
        return True

    def _same_register(self, s: Let) -> bool:
        """Whether an operator of one varying operand leaves it where it is."""
        if s.op in ("logical_and", "logical_or"):
            return True
        source, target = s.args[0].dtype, s.var.dtype
        plain = all(t.is_integer and t != BOOL and words(t) == 1 for t in (source, target))
        return s.op == "cast" and plain

    # -- sums of products --------------------------------------------------------------------------
    def form(self, x: Operand) -> Form:
        x = self.known(x)
        if isinstance(x, Lit):
            return {(): int(x.value)}
        return self.forms.get(x.name, {(x.name,): 1})

    def _form_of(self, s: Let) -> Form | None:
        if not s.var.dtype.is_integer or s.var.name not in self.derived:
            return None
        if s.op == "cast" and s.args[0].dtype.is_integer:
            return self.form(s.args[0])
        if s.op == "multiply":
            return _product(*map(self.form, s.args))
        if s.op not in ("add", "subtract"):
            return None
        a, b = map(self.form, s.args)
        sign = 1 if s.op == "add" else -1
        out = {k: a.get(k, 0) + sign * b.get(k, 0) for k in {**a, **b}}
        out = {k: c for k, c in out.items() if c}
        return out if len(out) <= LONGEST else None

    # -- what is read ------------------------------------------------------------------------------
    def _count(self, body: tuple[Statement, ...]) -> tuple[dict[str, int], set[int], set[str]]:
        """(uses by name, ids of statements whose results nobody reads, values that only vector stores read)."""
        uses: dict[str, int] = {}
        stored: dict[str, int] = {}
        dead: set[int] = set()
        for s in reversed(list(walk(body))):
            if self._unread(s, uses):
                dead.add(id(s))
                continue
            for x in map(self.known, operands(s)):
                if isinstance(x, Var):
                    uses[x.name] = uses.get(x.name, 0) + 1
                    stored[x.name] = stored.get(x.name, 0) + isinstance(s, StoreVec)
        return uses, dead, {name for name, count in stored.items() if count == uses[name]}

    def _unread(self, s: Statement, uses: dict[str, int]) -> bool:
        if isinstance(s, LoadVec):
            return not any(v.name in uses for v in s.vars)
        if isinstance(s, Let) and s.var.name in self.folded:
            return True
        return isinstance(s, (Let, Load, Special)) and s.var.name not in uses

    def _coalesce(self, body: tuple[Statement, ...]) -> Iterator[tuple[str, Var]]:
        """`t = a + b; a = t` where nothing else reads t: (t, a)."""
        blocks = [body]
        while blocks:
            block = [s for s in blocks.pop() if id(s) not in self.dead]
            for before, s in zip([None, *block], block, strict=False):
                blocks.extend(children(s))
                if not (isinstance(s, Assign) and isinstance(before, Let) and isinstance(s.value, Var)):
                    continue
                if s.value.name == before.var.name and self.uses[before.var.name] == 1:
                    yield before.var.name, s.var


def _product(a: Form, b: Form) -> Form | None:
    out: Form = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n))
            out[key] = out.get(key, 0) + c * d
    out = {k: c for k, c in out.items() if c}
    return out if len(out) <= LONGEST and all(len(k) <= DEEPEST for k in out) else None


def _fold(body: Sequence[Statement]) -> dict[str, Operand]:
    """Variables that are literals or other variables in the end; the compiler finds them as well."""
    known: dict[str, Operand] = {}
    for s in walk(tuple(body)):
        if isinstance(s, Let):
            args = [known.get(a.name, a) if isinstance(a, Var) else a for a in s.args]
            found = _simpler(s, args)
            if found is not None:
                known[s.var.name] = found
    return known


def _simpler(s: Let, args: Sequence[Operand]) -> Operand | None:
    if s.op in ("less", "greater") and args[0] == args[1]:
        return Lit(False, BOOL)  # of floats too, NaN included
    if any(a.dtype.is_half for a in args) and s.op != "where":
        return None
    op = _LOGICAL.get(s.op, s.op) if args[0].dtype == BOOL else s.op
    return fold(op, args, s.var.dtype)
