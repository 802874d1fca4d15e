"""`expand`: collectives mean the same as their shuffles, operators the same as the rows they are written with."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.expand_collectives import commutes
from fuser.codegen.loops import Barrier, Collective, Kernel, Launch, Let, Shuffle, Special, Var, walk
from fuser.codegen.simt import run
from fuser.codegen.verify import verify
from fuser.dtypes import BOOL, F32, F64, I32, I64, DType
from fuser.errors import InternalError
from fuser.optable import table
from fuser.optable.base import S, Table
from fuser.optable.evaluate import NumPyEmit

Array = np.ndarray[Any, Any]
TEAMS = [(2, 1), (8, 1), (32, 1), (64, 1), (256, 1), (2, 16), (4, 8), (8, 32), (4, 12), (16, 3), (64, 4), (128, 2)]


def rounds(b: KernelBuilder, repeat: bool) -> AbstractContextManager[object]:
    """Around a kernel's body: a loop that runs it twice, or nothing."""
    return b.loop("round", 0, 2) if repeat else nullcontext()


def exchange(reduction: str, dtype: DType, width: int, stride: int, threads: int, repeat: bool) -> Kernel:
    """Every thread lifts its element (index: its number), takes part in a collective, and stores its state."""
    row = table().reduction(reduction)
    b = KernelBuilder("exchange", "cuda")
    x = b.buffer("x", dtype, "in", 0, 2 * threads)
    types = row.state(dtype)
    outs = [b.buffer(f"out{k}", t, "out", k + 1, 2 * threads) for k, t in enumerate(types)]
    thread = b.handle(b.special("thread"))
    i = b.handle(b.special("block")) * threads + thread

    with rounds(b, repeat):
        lifted = row.lift(b.handle(b.load(x, i.value)), thread.cast(I64))
        state = [b.mutable("state", s.value) for s in lifted]
        b.collective(reduction, dtype, state, width, stride)
        for out, s in zip(outs, state, strict=True):
            b.store(out, i.value, s)
    return b.finish(Launch((2, 1), threads))


def pairwise(reduction: str, x: Array, dtype: DType, width: int, stride: int) -> list[Array]:
    """The order that `fuser.order` fixes, written independently: lane l takes lane l+1, then l+2, ..."""
    row = table().reduction(reduction)
    emit = NumPyEmit(table())
    threads = x.size
    states = [row.lift(emit.handle(x[t : t + 1]), emit.handle(np.array([t], np.int64))) for t in range(threads)]
    for t in range(threads):
        member = t // stride % width
        if member:
            continue
        lanes = [states[t + m * stride] for m in range(width)]
        step = 1
        while step < width:
            for m in range(0, width, 2 * step):
                lanes[m] = row.combine(lanes[m], lanes[m + step])
            step *= 2
        for m in range(width):
            states[t + m * stride] = lanes[0]
    return [np.concatenate([np.atleast_1d(s[k].value) for s in states]) for k in range(len(states[0]))]


@pytest.mark.parametrize(("width", "stride"), TEAMS)
@pytest.mark.parametrize("reduction", ["sum", "max", "argmax", "moments"])
def test_collectives_keep_the_fixed_order_and_every_lane_ends_alike(reduction: str, width: int, stride: int) -> None:
    threads = max(96 if 96 % (width * stride) == 0 else 0, width * stride)
    threads = threads * 32 // np.gcd(threads, 32) if threads % 32 else threads
    x = np.random.default_rng(width).standard_normal(2 * threads).astype(np.float32)
    x[::7] = x[0]  # ties
    expected = [pairwise(reduction, part, F32, width, stride) for part in np.split(x, 2)]
    kernel = exchange(reduction, F32, width, stride, threads, repeat=False)
    for k in (kernel, expand(kernel)):
        states = table().reduction(reduction).state(F32)
        outs = {f"out{n}": np.zeros(2 * threads, t.numpy) for n, t in enumerate(states)}
        run(k, {"x": x, **outs}, {})
        for n, t in enumerate(states):
            want = np.concatenate([e[n] for e in expected]).astype(t.numpy)
            np.testing.assert_array_equal(outs[f"out{n}"], want, err_msg=f"component {n}")


@pytest.mark.parametrize(("width", "stride"), [(64, 1), (8, 32), (64, 4)])
def test_expanded_collectives_in_a_loop_do_not_race(width: int, stride: int) -> None:
    threads = max(width * stride, 64)
    kernel = expand(exchange("sum", F64, width, stride, threads, repeat=True))
    run(kernel, {"x": np.ones(2 * threads), "out0": np.zeros(2 * threads)}, {})


def grouped(reduction: str, width: int, groups: int, threads: int, repeat: bool) -> Kernel:
    """Every thread lifts an element of each group (index: its number) and takes part in one collective of all."""
    row = table().reduction(reduction)
    b = KernelBuilder("grouped", "cuda")
    x = b.buffer("x", F32, "in", 0, groups * threads)
    outs = [b.buffer(f"out{k}", t, "out", k + 1, threads) for k, t in enumerate(row.state(F32))]
    thread = b.handle(b.special("thread"))

    with rounds(b, repeat):
        places = [thread + g * threads for g in range(groups)]
        numbers = [(p.op("trunc_rem", width) + g * width).cast(I64) for g, p in enumerate(places)]
        lifted = [row.lift(b.handle(b.load(x, p.value)), n) for p, n in zip(places, numbers, strict=True)]
        state = [b.mutable("state", s.value) for one in lifted for s in one]
        b.collective(reduction, F32, state, width)
        for out, s in zip(outs, state, strict=False):
            b.store(out, thread.value, s)
    return b.finish(Launch((1, 1), threads))


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize(("width", "groups"), [(64, 2), (64, 16), (128, 4), (128, 8), (256, 4)])
@pytest.mark.parametrize("reduction", ["sum", "max", "argmax", "moments"])
def test_groups_of_a_team_are_folded_after_its_threads(reduction: str, width: int, groups: int, repeat: bool) -> None:
    threads = max(width, 128)
    x = np.random.default_rng(groups).standard_normal(groups * threads).astype(np.float32)
    x[::7] = x[0]  # ties
    teams = x.reshape(groups, threads // width, width).transpose(1, 0, 2).reshape(-1, groups * width)
    wanted = [[part[:1] for part in pairwise(reduction, team, F32, groups * width, 1)] for team in teams]
    kernel = grouped(reduction, width, groups, threads, repeat)
    assert verify(kernel) == []
    for k in (kernel, expand(kernel)):
        states = table().reduction(reduction).state(F32)
        outs = {f"out{n}": np.zeros(threads, t.numpy) for n, t in enumerate(states)}
        run(k, {"x": x, **outs}, {})
        for n in range(len(states)):
            want = np.repeat(np.concatenate([team[n] for team in wanted]), width).astype(outs[f"out{n}"].dtype)
            np.testing.assert_array_equal(outs[f"out{n}"], want, err_msg=f"component {n}")


def test_groups_share_their_shuffles() -> None:
    statements = list(walk(expand(grouped("sum", 256, 4, 256, repeat=False)).body))
    assert (
        sum(isinstance(s, Shuffle) for s in statements) == (2 + 1 + 3) + 5
    )  # four groups of 32 lanes, then 4 x 8 parts
    assert sum(isinstance(s, Barrier) for s in statements) == 1


@pytest.mark.parametrize("dtype", [BOOL, I32, I64, F64])
def test_collectives_of_other_dtypes(dtype: DType) -> None:
    x = (np.random.default_rng(1).integers(0, 2, 128)).astype(dtype.numpy)
    kernel = exchange("max", dtype, 64, 1, 64, repeat=False)
    results = []
    for k in (kernel, expand(kernel)):
        out = np.zeros(128, dtype.numpy)
        run(k, {"x": x, "out0": out}, {})
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])


def test_partials_are_combined_by_shuffles_not_by_a_loop_in_each_thread() -> None:
    statements = list(walk(expand(exchange("sum", F32, 256, 1, 256, repeat=False)).body))
    assert sum(isinstance(s, Shuffle) for s in statements) == 5 + 3  # 32 lanes, then 8 warps
    assert sum(isinstance(s, Barrier) for s in statements) == 1
    assert not any(isinstance(s, Collective) for s in statements)


def test_only_symmetric_combiners_skip_the_choice_of_sides() -> None:
    x = [Var("x", F32)]
    assert commutes(table().reduction("sum"), list(x))
    assert commutes(table().reduction("max"), [Var("x", I32)])
    assert commutes(table().reduction("max"), list(x))  # 0.0 is above -0.0, whichever comes first
    assert not commutes(table().reduction("max_sumexp"), [Var("m", F32), Var("s", F32)])
    assert commutes(table().reduction("argmax"), [Var("x", F32), Var("i", I64)])  # decided by the index
    assert not commutes(table().reduction("moments"), [Var("n", F32), Var("mean", F32), Var("spread", F32)])


# -- operators -------------------------------------------------------------------------------------
def chain(op: str, length: int) -> Kernel:
    b = KernelBuilder("chain", "cuda")
    x, out = b.buffer("x", F32, "in", 0, 32), b.buffer("out", F32, "out", 1, 32)
    i = b.special("thread")
    v = b.load(x, i, name="v")
    for _ in range(length):
        v = b.let(op, (v,), F32, "v")
    b.store(out, i, v)
    return b.finish(Launch((1, 1), 32))


def test_a_long_chain_expands_without_recursion() -> None:
    kernel = expand(chain("sign", 5000))
    assert verify(kernel, expanded=True) == []
    buffers = {"x": np.linspace(-1, 1, 32, dtype=np.float32), "out": np.zeros(32, np.float32)}
    run(kernel, buffers, {})
    np.testing.assert_array_equal(buffers["out"], np.sign(buffers["x"]))


def test_results_keep_the_users_names() -> None:
    names = [s.var.name for s in walk(expand(chain("sign", 1)).body) if isinstance(s, Let)]
    assert names[-1] == "v_1"
    assert all(n.startswith("v_1") for n in names)


def test_an_expansion_that_is_its_operand_leaves_no_statement() -> None:
    kernel = expand(chain("positive", 3))
    assert not any(isinstance(s, Let) for s in kernel.body)
    buffers = {"x": np.arange(32, dtype=np.float32), "out": np.zeros(32, np.float32)}
    run(kernel, buffers, {})
    np.testing.assert_array_equal(buffers["out"], buffers["x"])


def test_an_expansion_equals_the_reference() -> None:
    b = KernelBuilder("k", "cuda")
    x, y = b.buffer("x", I32, "in", 0, 64), b.buffer("y", I32, "in", 1, 64)
    out = b.buffer("out", I32, "out", 2, 64)
    i = b.special("thread")
    b.store(out, i, b.let("floor_divide", (b.load(x, i), b.load(y, i)), I32))
    kernel = b.finish(Launch((1, 1), 64))
    rng = np.random.default_rng(0)
    buffers = {"x": rng.integers(-9, 9, 64, dtype=np.int32), "y": rng.integers(-2, 3, 64, dtype=np.int32)}
    buffers["x"][0], buffers["y"][0] = -(2**31), -1
    results = []
    for k in (kernel, expand(kernel)):
        got = np.zeros(64, np.int32)
        run(k, {**buffers, "out": got}, {})
        results.append(got)
    np.testing.assert_array_equal(*results)


def test_the_thread_number_is_read_once_a_scope() -> None:
    kernel = expand(exchange("sum", F32, 64, 1, 64, repeat=False))
    assert sum(isinstance(s, Special) and s.name == "thread" for s in kernel.body) == 1


def test_operators_without_spelling_or_expansion_are_named() -> None:
    rows = Table()
    for row in table().rows.values():
        if row.name in ("add", "sign"):
            rows.register(replace(row, cuda={}, expand=None))  # type: ignore[arg-type,type-var]
    with pytest.raises(InternalError, match="`sign` on f32 has no spelling on cuda"):
        expand(chain("sign", 1), rows)


def test_a_cycle_in_the_table_is_found() -> None:
    rows = Table()

    def again(x: S) -> S:
        return x.op("sign")

    rows.register(replace(table().scalar("sign"), cuda={}, expand=again))
    with pytest.raises(InternalError, match="does not end"):
        expand(chain("sign", 1), rows)


def neighbours(widths: tuple[int, ...], repeat: bool, threads: int = 128) -> Kernel:
    """Collectives of several reductions, one right after another."""
    b = KernelBuilder("neighbours", "cuda")
    x = b.buffer("x", F32, "in", 0, threads)
    outs = [b.buffer(f"out{k}", F32, "out", k + 1, threads) for k in range(len(widths))]
    thread = b.special("thread")

    with rounds(b, repeat):
        states = [b.mutable("state", b.load(x, thread)) for _ in widths]
        for k, (state, width) in enumerate(zip(states, widths, strict=True)):
            b.collective(("sum", "max", "min")[k % 3], F32, [state], width)
        for out, state in zip(outs, states, strict=True):
            b.store(out, thread, state)
    return b.finish(Launch((1, 1), threads))


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize(
    ("widths", "barriers"), [((128, 128, 128), 1), ((64, 64), 1), ((128, 64), 2), ((128, 16, 128), 2), ((32, 32), 0)]
)
def test_neighbouring_collectives_share_a_barrier(widths: tuple[int, ...], barriers: int, repeat: bool) -> None:
    kernel = neighbours(widths, repeat)
    x = np.random.default_rng(3).standard_normal(128).astype(np.float32)
    results = []
    for k in (kernel, expand(kernel)):
        outs = {f"out{j}": np.zeros(128, np.float32) for j in range(len(widths))}
        run(k, {"x": x, **outs}, {})
        results.append({name: out.tobytes() for name, out in outs.items()})
    assert results[0] == results[1]
    met = sum(isinstance(s, Barrier) for s in walk(expand(kernel).body))
    assert met == barriers * (2 if repeat else 1)


def test_collectives_of_one_variable_stay_apart() -> None:
    b = KernelBuilder("twice", "cuda")
    out = b.buffer("out", F32, "out", 0, 64)
    state = b.mutable("state", b.literal(1.0, F32))
    for _ in range(2):
        b.collective("sum", F32, [state], 64)
    b.store(out, b.special("thread"), state)
    kernel = b.finish(Launch((1, 1), 64))
    result = np.zeros(64, np.float32)
    run(expand(kernel), {"out": result}, {})
    assert result.tolist() == [64.0 * 64.0] * 64
