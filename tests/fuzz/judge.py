"""Runs a random program every way there is and says what is wrong; makes a failing one smaller.

In: a `Program`. Out: `fault(program)`, None when all ways agree: fused and unfused bit for bit on each engine, each
with the reference within the program's bounds, the reference with NumPy itself. `shrink` keeps a program failing with
fewer statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fuser
from fuser import interpreter, trees
from tests import engines
from tests.engines import Array, Engine
from tests.fuzz.errors import beyond, bounds
from tests.fuzz.programs import Argument, Program, eager

SHRINKING = 80  # programs tried at most
Judge = Callable[[Program], "str | None"]


def fault(program: Program, on: Sequence[Engine] = engines.NO_GPU_NEEDED) -> str | None:
    """What is wrong with a program, in words."""
    return _reference_fault(program) or next((f for e in on if (f := _engine_fault(program, e))), None)


def caught(judge: Judge) -> Judge:
    """The judge, to whom an exception is a fault too."""

    def careful(program: Program) -> str | None:
        try:
            return judge(program)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:500]}"

    return careful


def _reference_fault(program: Program) -> str | None:
    """The reference against NumPy; halves apart, which NumPy rounds after every operator."""
    if any(v.dtype.name in ("float16", "bfloat16") for v in eager(program).values()):
        return None
    function, given = program.function(), program.arrays()
    with np.errstate(all="ignore"):
        want = [np.asarray(r) for r in function(*given)]
    found = _apart(program, *meaning(program), [*want], given)
    return found and f"the reference is not NumPy: {found}"


def meaning(program: Program) -> tuple[list[Array], list[Array]]:
    """(results, arguments afterwards) of the graph, node by node."""
    given = program.arrays()
    bound, traced = fuser.compile(program.function())._trace(tuple(given), {})
    outputs, effects = interpreter.evaluate(traced.graph, [a.copy() for a in given], dict(bound.env))
    for effect, value in zip(traced.graph.effects, effects, strict=True):
        given[effect.argument] = np.array(value)
    results = trees.flatten(trees.rebuild(traced.graph.output_tree, outputs, bound.env))[0]
    return [np.asarray(r) for r in results], given


def _engine_fault(program: Program, engine: Engine) -> str | None:
    ways = []
    for fused in (True, False):
        given = program.arrays()
        results = [np.asarray(r) for r in engine.compile(program.function(), fused=fused)(*given)]
        ways.append((results, given))
    (results, given), (plain_results, plain_given) = ways
    if wrong := engines.unlike((results, given), (plain_results, plain_given)):
        return f"{engine}: fused is not unfused: {wrong}"
    found = _apart(program, results, given, *meaning(program))
    return found and f"{engine}: not the reference: {found}"


def _apart(
    program: Program, got: Sequence[Array], after: Sequence[Array], want: Sequence[Array], want_after: Sequence[Array]
) -> str | None:
    bound = bounds(program)
    labels = [*program.outputs, *(a.name for a in program.arguments)]
    for name, a, b in zip(labels, [*got, *after], [*want, *want_after], strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{name} is {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        wrong = beyond(a, b, bound[name])
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            allowed = bound[name][at]
            return f"{name}{list(at)} is {a[at]!r} instead of {b[at]!r} (bound {allowed:.3g}, {int(wrong.sum())} wrong)"
    return None


# -- making it smaller -----------------------------------------------------------------------------
def shrink(program: Program, judge: Judge = fault) -> tuple[Program, str]:
    """The smallest failing program found, and its fault."""
    judge = caught(judge)
    found = judge(program)
    assert found is not None, "only a failing program can be shrunk"
    left, progress = SHRINKING, True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(program):
            left -= 1
            fault_of_it = judge(smaller) if left > 0 else None
            if fault_of_it is not None:
                program, found, progress = smaller, fault_of_it, True
                break
    return program, found


def _smaller(program: Program) -> list[Program]:
    """Programs with one thing less: an output, a store, or a value that becomes an argument."""
    arguments, statements, outputs, seed = program.arguments, program.statements, program.outputs, program.seed
    out = [Program(arguments, statements, (name,), seed).needed() for name in outputs if len(outputs) > 1]
    values: dict[str, Any] = eager(program)
    for k, s in reversed(list(enumerate(statements))):
        rest = (*statements[:k], *statements[k + 1 :])
        if s.store:
            out.append(Program(arguments, rest, outputs, seed).needed())
        elif s.target not in outputs:
            value = values[s.target]
            given = (*arguments, Argument(s.target, value.dtype.name, value.shape))
            out.append(Program(given, rest, outputs, seed).needed())
    return out
