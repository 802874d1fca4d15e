"""A loop of the graph as statements of the kernel language: mutable states, one serial loop, its early exit.

In: a `LoopAttrs` and the operands of one element. Out: the state it asks for; the other states of the same loop are
found again, so that a loop of several results runs once.

    mutable z = z0; mutable going = true
    for i in range(count) while going:
        stop = ...                      # what the body and the test share is computed once
        z := where(stop, z, ...)        # cuda: `if not stop:`, which its compiler turns into the exit
        going := not stop
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuser.codegen.loops import Lit, Operand, Var
from fuser.dtypes import BOOL, I32, I64
from fuser.graph import RoundAttrs, ScalarAttrs
from fuser.loopbody import BodyStep, LoopAttrs, evaluate_steps

if TYPE_CHECKING:
    from fuser.codegen.builder import KernelBuilder

MOST_ROUNDS = (1 << 63) - 1  # of a loop whose elements have a count each: they stop by themselves
NARROW = 1 << 31  # literal counts up to here are counted in 32 bits


def write_loop(b: KernelBuilder, attrs: LoopAttrs, args: Sequence[Operand]) -> Operand:
    """The value that state `attrs.k` ends with."""
    key = (attrs.whole, tuple(args))
    found = next((notes[key] for notes in b.scopes if key in notes), None)
    if found is None:
        found = _Writer(b, attrs, args).write()
        if not any(map(b.is_mutable, args)):
            b.scopes[-1][key] = found
    return found[attrs.k]


class _Writer:
    def __init__(self, b: KernelBuilder, attrs: LoopAttrs, args: Sequence[Operand]) -> None:
        self.b, self.attrs = b, attrs
        self.count, self.captured = args[0], list(args[1 + attrs.states :])
        self.states = [b.mutable("state", x) for x in args[1 : 1 + attrs.states]]

    def write(self) -> tuple[Operand, ...]:
        b, attrs = self.b, self.attrs
        early = attrs.stop is not None or not attrs.uniform
        going = b.mutable("going", b.literal(True, BOOL)) if early else None
        count: Operand = self.count if attrs.uniform else b.literal(MOST_ROUNDS, I64)
        if isinstance(count, Lit) and attrs.uniform and int(count.value) < NARROW:
            count = b.literal(max(int(count.value), 0), I32)
        with b.loop("round", b.literal(0, count.dtype), count, going=going) as number:
            self._round(number, going)
        b.settle(self.states)
        return tuple(self.states)

    def _round(self, number: Var, going: Var | None) -> None:
        b, attrs = self.b, self.attrs
        index = b.apply("cast", (number,), I64) if number.dtype != I64 else number
        values = evaluate_steps(attrs, [index, *self.states, *self.captured], self._step)
        new = [self._kept(values[r], k) for k, r in enumerate(attrs.results)]
        done = None if attrs.stop is None else self._kept(values[attrs.stop])
        if not attrs.uniform:
            over = b.apply("greater_equal", (index, self.count), BOOL)
            done = over if done is None else b.apply("logical_or", (done, over), BOOL)
        if going is None or done is None:
            for state, value in zip(self.states, new, strict=True):
                b.assign(state, value)
            return
        more = b.apply("logical_not", (done,), BOOL)
        if b.target == "cuda":
            with b.branch(more):
                for state, value in zip(self.states, new, strict=True):
                    b.assign(state, value)
        else:  # lanes run together: a select is cheaper than asking whether any of them takes a branch
            for state, value in zip(self.states, new, strict=True):
                if value != state:
                    b.assign(state, b.apply("where", (done, state, value), state.dtype))
        b.assign(going, more)

    def _kept(self, value: Operand, k: int = -1) -> Operand:
        """A value that is the old one of another state than `k`: copied before that one changes."""
        changes = any(value == s for j, s in enumerate(self.states) if j != k)
        return self.b.mutable("before", value) if changes else value

    def _step(self, step: BodyStep, args: Sequence[Operand]) -> Operand:
        b = self.b
        if isinstance(step.attrs, ScalarAttrs):
            return b.literal(step.attrs.expr.value, step.dtype)
        if isinstance(step.attrs, LoopAttrs):
            return write_loop(b, step.attrs, args)
        if isinstance(step.attrs, RoundAttrs):
            narrow = b.apply("cast", args, step.attrs.to)
            return b.apply("cast", (narrow,), step.dtype)
        return b.apply(step.op, args, step.dtype)
