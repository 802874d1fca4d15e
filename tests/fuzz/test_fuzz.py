"""Random typed DAGs on the CPU and on the CUDA kernels in the interpreter.

A failing program is shrunk and printed as a file to run. `--slow` runs five times as many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.plan import Plan
from fuser.runtime import pool
from tests import engines
from tests.engines import Engine
from tests.fuzz.generate import long_program, program, rowwise
from tests.fuzz.judge import caught, fault, shrink
from tests.fuzz.programs import Argument, Program, Statement

ALWAYS, ALL, AT_ONCE = 100, 500, 20


def seeds(always: int, all_: int) -> list[Any]:
    """Blocks of seeds as parameters; the later ones are slow."""
    blocks = [range(k, k + AT_ONCE) for k in range(0, all_, AT_ONCE)]
    marks = [() if b.start < always else (pytest.mark.slow,) for b in blocks]
    return [pytest.param(b, id=f"{b.start}-{b.stop - 1}", marks=m) for b, m in zip(blocks, marks, strict=True)]


def judged(p: Program, judge: Callable[[Program], str | None]) -> None:
    if caught(judge)(p) is not None:
        smaller, found = shrink(p, judge)
        pytest.fail(f"seed {p.seed}: {found}\n\n{smaller.text(found)}", pytrace=False)


@pytest.mark.parametrize("block", seeds(ALWAYS, ALL))
def test_fused_unfused_reference_and_numpy_agree(block: range) -> None:
    for seed in block:
        judged(program(seed), fault)


@pytest.mark.parametrize("block", seeds(20, 100))
def test_long_axes_agree(block: range) -> None:
    for seed in block:
        judged(long_program(seed), fault)


# -- groups ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("block", seeds(ALWAYS, ALL))
def test_groups_partition_the_graph_without_a_cycle(block: range) -> None:
    for seed in block:
        judged(program(seed, statements=30), partition_fault)


def partition_fault(p: Program) -> str | None:
    compiled = fuser.compile(p.function())
    for device in ("cpu", "sm_90"):
        if found := group_fault(compiled.plan(*p.arrays(), device=device)):
            return f"{device}: {found}"
    return None


def group_fault(plan: Plan) -> str | None:
    """Whether groups, in their order, make everything they and the results read."""
    graph = plan.graph
    made = {n.id for n in graph.inputs.values()}
    for k, group in enumerate(plan.groups):
        missing = set(group.inputs) - made
        if missing:
            return f"group {k} `{group.name}` reads {sorted(missing)} before a group makes it"
        outputs = set(group.outputs)
        if not outputs <= set(group.members):
            return f"group {k} stores what it does not compute"
        made |= outputs
    lost = {n.id for n in graph.results} - made
    return f"no group makes {sorted(lost)}" if lost else None


def test_a_wrong_order_of_groups_is_seen() -> None:
    plan = engines.apart(fuser.compile(lambda x: np.sum(np.exp(x)) * np.max(x))).plan("f32[100]", device="cpu")
    assert group_fault(plan) is None
    backwards = Plan(plan.graph, plan.groups[::-1], (), plan.size_class, plan.sizes, plan.device, plan.toolchain)
    assert "before a group makes it" in str(group_fault(backwards))


# -- a row alone -----------------------------------------------------------------------------------
@engines.each
@pytest.mark.parametrize("block", seeds(40, 200))
def test_rows_alone_are_the_rows_of_a_batch(engine: Engine, block: range) -> None:
    for seed in block:
        judged(rowwise(seed, rows=5), lambda p: row_fault(p, engine))


def row_fault(p: Program, engine: Engine) -> str | None:
    run = engine.compile(p.function())
    given = p.arrays()
    batch = [np.asarray(r) for r in run(*given)]
    for k in (0, 3):
        alone = [a[k : k + 1].copy() if len(a.shape) == 2 else a for a in p.arrays()]
        results = [np.asarray(r) for r in run(*alone)]
        if wrong := engines.unlike(results, [r[k : k + 1] for r in batch]):
            return f"{engine}: row {k} alone: {wrong}"
        rows = [a[k : k + 1] if len(a.shape) == 2 else a for a in given]
        if wrong := engines.unlike(alone, rows):
            return f"{engine}: arguments after row {k} alone: {wrong}"
    return None


# -- threads ---------------------------------------------------------------------------------------
BIG: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "pointwise": ((300, 1001), lambda x: np.tanh(x) * 2 + x),
    "rows": ((2000, 300), lambda x: x - np.mean(x, axis=1, keepdims=True)),
    "few-rows": ((3, 200_000), lambda x: (np.sum(x, axis=1), np.var(x, axis=1))),
    "columns": ((20_000, 33), lambda x: (np.sum(x, axis=0), np.max(x, axis=0))),
    "full": ((700_001,), lambda x: (np.sum(x * x), np.min(x), np.argmax(x))),
    "scan": ((4, 100_000), lambda x: np.cumsum(x, axis=1)),
    "softmax": ((500, 1000), lambda x: fuser.ops.softmax(x)),
}


@pytest.mark.parametrize("name", BIG)
def test_results_do_not_depend_on_the_number_of_threads(name: str) -> None:
    shape, function = BIG[name]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    before = pool.num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 7):
            pool.set_num_threads(threads)
            results.append(fuser.compile(function)(x))
    finally:
        pool.set_num_threads(before)
    for got in results[1:]:
        assert engines.unlike(got, results[0]) is None


# -- the fuzzer itself -----------------------------------------------------------------------------
def test_programs_are_the_same_each_time_and_cover_the_kinds() -> None:
    assert program(7) == program(7)
    assert program(7) != program(8)
    text = "\n".join(program(s).source for s in range(ALWAYS))
    for part in ("axis=None", "axis=0", "axis=(0", ".T", "::-1", "concatenate", "stack", "reshape", "broadcast_to",
                 "np.where", "cumsum", "astype", "copy()", "argmax", "bfloat16"):  # fmt: skip
        assert part in text, part
    assert any(s.store for k in range(ALWAYS) for s in program(k).statements)


def test_a_failing_program_is_shrunk_to_what_fails_and_printed_to_run() -> None:
    """The judge here dislikes np.exp2; all else must go."""
    p = next(p for p in map(program, range(ALL)) if "exp2" in p.source and len(p.statements) > 5)

    def dislikes(q: Program) -> str | None:
        return "exp2" if "exp2" in q.source else None

    smaller, found = shrink(p, dislikes)
    assert len(smaller.statements) == 1
    text = smaller.text(found)
    assert text.startswith("# exp2\n")
    compile(text, "<printed>", "exec")
    assert smaller.source in text


def test_the_judge_sees_a_wrong_engine() -> None:
    p = Program(
        (Argument("x", "float32", (9,)),), (Statement("y", ("y = np.tanh(x) + x",), ("x",), "libm"),), ("y",), 0
    )

    class Wrong:
        kind = name = "wrong"

        def compile(self, fn: Any, fused: bool = True) -> Any:
            return lambda x: (np.asarray(fn(x)[0] + (1e-3 if fused else 0), np.float32),)

    class Same(Wrong):
        def compile(self, fn: Any, fused: bool = True) -> Any:
            return lambda x: (np.asarray(fn(x)[0] + 1e-3, np.float32),)

    assert "fused is not unfused" in str(fault(p, [Wrong()]))  # type: ignore[list-item]
    assert "not the reference" in str(fault(p, [Same()]))  # type: ignore[list-item]
    assert fault(p) is None
