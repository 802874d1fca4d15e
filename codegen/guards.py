"""Exact divisions and roots of one kernel, many behind one test (CUDA).

    before:  q = divide(a, b); r = divide(c, d)
    after:   near, near_1 = divide.near(a, b), divide.near(c, d); holds = divide.holds(a, b, near) and ...
             mutable q = near; mutable r = near_1; if not holds: q := divide(a, b); r := divide(c, d)

In: a kernel of primitives (after `expand`). Out: one that means the same, bit for bit. ptxas puts a test and a branch
around each exact division: nothing is scheduled across, so the lanes of a thread wait for each other, and each keeps
its own reciprocal even where all divide by the same. Here what does not depend on a division moves before it, within a
window, so that the divisions of all lanes meet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.loops import Assign, For, If, Kernel, Let, Mutable, Operand, Statement, Var
from fuser.codegen.primitives import spelling
from fuser.dtypes import BOOL
from fuser.optable import table as default_table
from fuser.optable.base import ScalarOp, Table
from fuser.record import dataclass

TOGETHER = 16  # divisions behind one test at most: all their operands and results are in registers at once
# Statements that may wait for a test while those after them move before it. Where a division finds no company (a chain
# of them) the window shrinks, or looking for it would take quadratic time.
WINDOW, LEAST_WINDOW = 512, 8


def guard(kernel: Kernel, table: Table | None = None) -> Kernel:
    """The kernel with neighbouring divisions and roots behind common tests."""
    return _Guard(kernel, table or default_table()).run() if kernel.guarded else kernel


@dataclass
class _Waiting:
    """Statements held back until a test: they need a division's result. names: what they and the divisions define;
    read: what they read, which no statement after them may change before they run."""

    divisions: list[Let] = field(default_factory=list)
    others: list[Statement] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)

    def must(self, s: Let | Assign | Mutable) -> bool:
        """Whether a statement has to wait too."""
        changes = s.var.name in self.read or s.var.name in self.names
        return changes or not self.names.isdisjoint(_names(_operands(s)))

    def add(self, s: Let | Assign | Mutable) -> None:
        self.others.append(s)
        self.names.add(s.var.name)
        self.read.update(_names(_operands(s)))


class _Guard:
    def __init__(self, kernel: Kernel, table: Table) -> None:
        self.kernel, self.table = kernel, table
        self.names = KernelBuilder(kernel.name, kernel.target)
        self.names.adopt(kernel)

    def run(self) -> Kernel:
        return replace(self.kernel, body=self.block(self.kernel.body))

    def block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        out: list[Statement] = []
        run: list[Let | Assign | Mutable] = []
        for s in body:
            if isinstance(s, (Let, Assign, Mutable)):
                run.append(s)
                continue
            out += self.straight(run)
            run = []
            out.append(self.nested(s))
        return (*out, *self.straight(run))

    def nested(self, s: Statement) -> Statement:
        if isinstance(s, For):
            return replace(s, body=self.block(s.body))
        return replace(s, then=self.block(s.then), orelse=self.block(s.orelse)) if isinstance(s, If) else s

    def straight(self, run: Sequence[Let | Assign | Mutable]) -> list[Statement]:
        """Statements that only compute and assign, regrouped."""
        if sum(map(self.guarded, run)) < 2:
            return list(run)
        out: list[Statement] = []
        queue, waiting, window = deque(run), _Waiting(), WINDOW
        while queue:
            s = queue.popleft()
            if waiting.must(s):
                waiting.add(s)
            elif isinstance(s, Let) and self.guarded(s):
                waiting.divisions.append(s)
                waiting.names.add(s.var.name)
                waiting.read.update(_names(s.args))
            else:
                out.append(s)
            full = len(waiting.divisions) == TOGETHER or len(waiting.others) == window
            if waiting.divisions and (full or not queue):
                window = WINDOW if len(waiting.divisions) > 1 else max(window // 2, LEAST_WINDOW)
                out += self.together(waiting.divisions)
                queue.extendleft(reversed(waiting.others))  # type: ignore[arg-type]
                waiting = _Waiting()
        return out

    def guarded(self, s: Statement) -> bool:
        """Whether a statement is a division or root that the target has without a slow path."""
        if not isinstance(s, Let):
            return False
        row = self.table.scalar(s.op)
        return row.near and spelling(self._row(s, "near"), self.kernel.target, s.args, s.var.dtype) is not None

    def _row(self, s: Let, part: str) -> ScalarOp:
        return self.table.scalar(f"{s.op}.{part}")

    def together(self, divisions: Sequence[Let]) -> Iterable[Statement]:
        """Divisions that do not depend on each other, behind one test."""
        if len(divisions) == 1:
            return divisions
        near = [Var(self.names.fresh(f"{s.var.name}_near"), s.var.dtype) for s in divisions]
        out: list[Statement] = [Let(n, f"{s.op}.near", s.args) for n, s in zip(near, divisions, strict=True)]
        holds: Operand | None = None
        for n, s in zip(near, divisions, strict=True):
            one = Var(self.names.fresh("holds"), BOOL)
            out.append(Let(one, f"{s.op}.holds", (*s.args, n)))
            if holds is not None:
                both = Var(self.names.fresh("holds"), BOOL)
                out.append(Let(both, "bitwise_and", (holds, one)))
                one = both
            holds = one
        assert holds is not None
        fails = Var(self.names.fresh("fails"), BOOL)
        out.append(Let(fails, "invert", (holds,)))
        out += [Mutable(s.var, n) for n, s in zip(near, divisions, strict=True)]
        slow: list[Statement] = []
        for s in divisions:
            exact = Var(self.names.fresh(s.var.name), s.var.dtype)
            slow += [Let(exact, s.op, s.args), Assign(s.var, exact)]
        return [*out, If(fails, tuple(slow))]


def _operands(s: Let | Assign | Mutable) -> tuple[Operand, ...]:
    return s.args if isinstance(s, Let) else (s.value,) if isinstance(s, Assign) else (s.init,)


def _names(operands: Iterable[Operand]) -> list[str]:
    return [x.name for x in operands if isinstance(x, Var)]
