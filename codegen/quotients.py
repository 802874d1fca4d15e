"""Divisions by one divisor, made of its reciprocal: the same bits for less than half of the instructions.

    before:  y1 = x1 / d; ... y2 = x2 / d; ...       (for the elements of a row)
    after:   r = 1 / d if that is of a middling size else NaN                                   (once)
             q1 = x1 * r; y1 = fma(fma(q1, d, -x1), -r, q1); q2 = x2 * r; y2 = ...
             if not all of |y1|, |y2| ... are >= 2^-64: y1 = x1 / d; y2 = x2 / d; ...   (in a loop)

In: a CUDA kernel of primitives. Out: the same kernel, where at least four f32 quotients share a divisor that was there
before them. Only kernels that write half types: a card that moves four bytes an element has about 31 instructions for
each (H200), of which a division takes ten; with eight bytes it waits for memory, and registers count for more. Its own
file because no schedule and no printer knows who else divides by the same number.

Why the bits are those of `x / d`: r is 1/d correctly rounded and the remainder of q is exact, so that the last step
rounds x/d + e with e below 3 * 2^-48 of it. Only a quotient so near to a midpoint between two floats could fail, and
`tests/codegen/test_quotients.py` tries all of those. (Markstein, "Computation of elementary functions on the IBM RISC
System/6000 processor", 1990, proves it for a q nearer than a product with r is.) Exponents have to stay far from
the ends: |r| between 2^-40 and 2^36, |y| >= 2^-64 and y finite leave no subnormal on the way. Zeros, infinities and
NaNs fail the comparison, so they take the division itself, whose code is there but hardly ever runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Assign, For, If, Kernel, Let, Lit, Mutable, Operand, Statement, Var, children, walk
from fuser.codegen.uses import declared
from fuser.dtypes import BOOL, F32, I32

LEAST_SHARED = 4  # divisions by one number: its reciprocal and bound cost about as much as two of them
TOGETHER = 4  # quotients behind one branch (8: no faster, and 8 more registers)
LEAST, MOST = 2.0**-40, 2.0**36  # of the reciprocal's size
_TRUTHS = frozenset({"greater_equal", "less_equal", "bitwise_and"})
SAFE = 2.0**-64  # least size of a quotient: what it is of has at least 2^-100, so the remainder is exact


def share(kernel: Kernel) -> Kernel:
    """The kernel with shared divisors; the same object where there are none."""
    if kernel.target != "cuda" or not any(b.dtype.is_half and b.role != "in" for b in kernel.buffers):
        return kernel
    divisors = _divisors(kernel)
    return replace(kernel, body=_Writer(kernel, divisors).run()) if divisors else kernel


def _divisor(s: Statement) -> Var | None:
    """What an f32 division divides by, where that and the dividend are variables."""
    if not isinstance(s, Let) or s.op != "divide" or s.var.dtype != F32:
        return None
    dividend, divisor = s.args
    return divisor if isinstance(dividend, Var) and isinstance(divisor, Var) else None


# -- which divisors ------------------------------------------------------------------------------------
def _divisors(kernel: Kernel) -> frozenset[Var]:
    """Those of many quotients: many statements, or a statement in a loop that the divisor comes from outside of."""
    counts: Counter[Var] = Counter()
    loops: dict[str, int] = {}  # of every variable, how many enclose its declaration
    stack: list[tuple[tuple[Statement, ...], int]] = [(kernel.body, 0)]
    while stack:
        block, depth = stack.pop()
        for s in block:
            loops.update((v.name, depth) for v in declared(s))
            d = _divisor(s)
            if d is not None:
                counts[d] += LEAST_SHARED if depth > loops.get(d.name, depth) else 1
        stack += [(inner, depth + isinstance(s, For)) for s in block for inner in children(s)]
    given = {p.var for p in kernel.scalars}  # what the host gives has no place of its own; such kernels wait for memory
    many = {d for d, n in counts.items() if n >= LEAST_SHARED} - given
    return frozenset(many - _changing(kernel) if many else ())


def _changing(kernel: Kernel) -> set[Var]:
    """Variables that are assigned where, or after, one of their quotients may have been computed."""
    late, blocks = set[Var](), [kernel.body]
    while blocks:
        seen = set[Var]()
        for s in blocks.pop():
            blocks += children(s)
            inside = tuple(walk((s,)))
            seen |= {d for t in inside if (d := _divisor(t)) is not None}
            late |= {t.var for t in inside if isinstance(t, Assign) and t.var in seen}
    return late


# -- rewriting -----------------------------------------------------------------------------------------
class _Writer:
    """Rewrites statements in order; `reciprocals`: of the divisors that are there."""

    def __init__(self, kernel: Kernel, divisors: frozenset[Var]) -> None:
        self.kernel, self.divisors = kernel, divisors
        names = KernelBuilder(kernel.name, kernel.target)
        names.adopt(kernel)
        self.fresh = names.fresh
        self.reciprocals: dict[Var, Var] = {}
        self.out: list[Statement] = []

    def run(self) -> tuple[Statement, ...]:
        return self.block(self.kernel.body)

    def block(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        outer, self.out = self.out, []
        changing = {s.var for s in body if isinstance(s, Mutable)} & self.divisors
        values: list[Let] = []  # a run of them, which may be put into another order
        for s in body:
            if changing and (due := {d for t in walk((s,)) if (d := _divisor(t)) in changing and d is not None}):
                self.values(values)
                self.prepare(sorted(due, key=lambda d: d.name))
                changing -= due
            if isinstance(s, Let) and s.var not in self.divisors:
                values.append(s)
                continue
            self.values(values)
            self.statement(s)
        self.values(values)
        inner, self.out = tuple(self.out), outer
        return inner

    def statement(self, s: Statement) -> None:
        if isinstance(s, For):
            s = replace(s, body=self.block(s.body))
        elif isinstance(s, If):
            s = replace(s, then=self.block(s.then), orelse=self.block(s.orelse))
        self.out.append(s)
        if not isinstance(s, Mutable):
            self.prepare(declared(s))

    def let(self, hint: str, op: str, *args: Operand) -> Var:
        var = Var(self.fresh(hint), BOOL if op in _TRUTHS else F32)
        self.out.append(Let(var, op, args))
        return var

    def prepare(self, among: Iterable[Var]) -> None:
        """The reciprocals of divisors."""
        for d in among:
            if d in self.divisors:
                r = self.let(f"{d.name}_reciprocal", "divide", Lit(1.0, F32), d)
                size = self.let(f"{d.name}_size", "absolute", r)
                above = self.let(f"{d.name}_above", "greater_equal", size, Lit(LEAST, F32))
                below = self.let(f"{d.name}_below", "less_equal", size, Lit(MOST, F32))
                within = self.let(f"{d.name}_within", "bitwise_and", above, below)
                self.reciprocals[d] = self.let(f"{d.name}_usable", "where", within, r, Lit(float("nan"), F32))

    def values(self, run: list[Let]) -> None:
        """A run of values, `TOGETHER` quotients at a time behind what these are of."""
        waiting = dict[str, Let]((s.var.name, s) for s in run)
        batches = [*_batches(run, self.reciprocals), []]
        for batch, following in pairwise(batches):
            self.out += _needed([x for s in batch for x in s.args], waiting)
            self.quotients(batch)
            for s in batch:
                del waiting[s.var.name]
            last = following[0].var.name if following else ""
            for name in _before(waiting, last):
                self.out.append(waiting.pop(name))
        self.out += waiting.values()
        run.clear()

    def quotients(self, batch: Sequence[Let]) -> None:
        """By reciprocals, and by division if that was not safe for all of them."""
        safe: Var | None = None
        found: list[Mutable] = []
        for s in batch:
            name, (x, d) = s.var.name, s.args
            assert isinstance(d, Var)
            r = self.reciprocals[d]
            near = self.let(f"{name}_near", "multiply", x, r)
            rest = self.let(f"{name}_rest", "fma", near, d, self.let(f"{name}_minus", "negative", x))
            quotient = self.let(f"{name}_found", "fma", rest, self.let(f"{d.name}_minus", "negative", r), near)
            holds = self.let("safe", "greater_equal", self.let(f"{name}_size", "absolute", quotient), Lit(SAFE, F32))
            safe = holds if safe is None else self.let("safe", "bitwise_and", safe, holds)
            found.append(Mutable(s.var, quotient))
        assert safe is not None
        self.out += found
        self.out.append(If(safe, (), self.divided(batch)))

    def divided(self, batch: Sequence[Let]) -> tuple[Statement, ...]:
        """A batch by the division itself. By one divisor in a loop, through which the variables rotate: code that
        hardly ever runs lies between code that does (one H200: dropout before a layer norm 112.3 -> 111.0 us, layer
        norm of 65536 bf16 columns 297 -> 293)."""
        exact = [Var(self.fresh(f"{s.var.name}_exact"), F32) for s in batch]
        if len({s.args[1] for s in batch}) > 1:
            return tuple(t for e, s in zip(exact, batch, strict=True) for t in (Let(e, s.op, s.args), Assign(s.var, e)))
        places = [s.var for s in batch]
        turn: list[Statement] = [Assign(to, of) for to, of in zip(places, (*places[1:], exact[0]), strict=True)]
        body: tuple[Statement, ...] = (Let(exact[0], "divide", (places[0], batch[0].args[1])), *turn)
        bounds = (Lit(0, I32), Lit(len(batch), I32), Lit(1, I32))
        return (*(Assign(s.var, s.args[0]) for s in batch), For(Var(self.fresh("turn"), I32), *bounds, body))


def _batches(run: Sequence[Let], shared: Container[Var | None]) -> Iterator[list[Let]]:
    """The quotients of a run by shared divisors, in order, none of a batch made of another one of it."""
    batch: list[Let] = []
    made_of = set[str]()  # values made of the batch's quotients
    for s in run:
        depends = any(isinstance(x, Var) and x.name in made_of for x in s.args)
        if _divisor(s) in shared:
            if batch and (depends or len(batch) == TOGETHER):
                yield batch
                batch, depends = [], False
                made_of.clear()
            batch.append(s)
            made_of.add(s.var.name)
        elif depends:
            made_of.add(s.var.name)
    if batch:
        yield batch


def _needed(wanted: Iterable[Operand], waiting: dict[str, Let]) -> list[Let]:
    """The waiting values that others are made of, taken out, each behind its own operands."""
    out: list[Let] = []
    stack = [(x, False) for x in wanted]
    while stack:
        x, ready = stack.pop()
        s = waiting.get(x.name) if isinstance(x, Var) else None
        if s is None:
            continue
        if ready:
            out.append(waiting.pop(s.var.name))
        else:
            stack.append((x, True))
            stack += [(a, False) for a in s.args]
    return out


def _before(waiting: dict[str, Let], last: str) -> list[str]:
    """Names of the values that come before the one called `last`; all where there is none."""
    names: list[str] = []
    for name in waiting:
        if name == last:
            break
        names.append(name)
    return names
