"""The SIMT interpreter finds planted faults, each with the statement that commits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.loops import Kernel, Launch
from fuser.codegen.simt import SimtError, run
from fuser.dtypes import BOOL, F32, I32, I64
from fuser.errors import InternalError
from fuser.optable.base import S
from tests.codegen.handwritten import N, full_sum, saxpy

Arrays = dict[str, np.ndarray[Any, Any]]
THREADS = 64


def floats(n: int) -> np.ndarray[Any, Any]:
    return np.arange(n, dtype=np.float32)


def fault(kernel: Kernel, buffers: Arrays, env: Mapping[str, Any] | None = None) -> SimtError:
    with pytest.raises(SimtError) as caught:
        run(kernel, buffers, env or {})
    return caught.value


def start(block: int = THREADS) -> tuple[KernelBuilder, S]:
    b = KernelBuilder("k", "cuda")
    return b, b.handle(b.special("thread"))


def done(b: KernelBuilder, grid: int = 1) -> Kernel:
    return b.finish(Launch((grid, 1), THREADS))


# -- bounds ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("offset", [1, -1])
def test_global_reads_out_of_bounds(offset: int) -> None:
    b, thread = start()
    x, out = b.buffer("x", F32, "in", 0, THREADS), b.buffer("out", F32, "out", 1, THREADS)
    b.store(out, thread.value, b.load(x, (thread + offset).value))
    error = fault(done(b), {"x": floats(THREADS), "out": floats(THREADS)})
    assert error.slug == "simt-bounds"
    assert "x_1: f32 = x[add]" in str(error)


def test_a_buffer_ends_where_its_size_says() -> None:
    """The array given is longer than the kernel may touch."""
    b, thread = start()
    out = b.buffer("out", I32, "out", 1, N)
    b.store(out, thread.value, thread.value)
    assert fault(done(b), {"out": np.zeros(100, np.int32)}, {"n": 63}).slug == "simt-bounds"


@pytest.mark.parametrize("space", ["shared", "register"])
def test_local_arrays_out_of_bounds(space: Any) -> None:
    b, _ = start()
    array = b.alloc("a", F32, 4, space)
    b.store(array, 4, b.literal(1.0, F32))
    error = fault(done(b), {})
    assert error.slug == "simt-bounds"
    assert space in str(error)


def test_masked_off_threads_do_not_touch_memory() -> None:
    b, thread = start()
    out = b.buffer("out", I32, "out", 1, 10)
    b.store(out, thread.value, thread.value, (thread < 10).value)
    run(done(b), {"out": np.zeros(10, np.int32)}, {})


# -- alignment -------------------------------------------------------------------------------------
def test_vectors_at_odd_elements() -> None:
    b, thread = start()
    x, out = b.buffer("x", F32, "in", 0, 260), b.buffer("out", F32, "out", 1, 256)
    b.store_vec(out, (thread * 4).value, b.load_vec(x, (thread * 4 + 2).value, 4))
    assert fault(done(b), {"x": floats(260), "out": floats(256)}).slug == "simt-align"


def test_vectors_of_an_array_that_starts_between_them() -> None:
    raw = np.zeros(4 * 128 + 16, np.uint8)
    aligned = -raw.ctypes.data % 16
    x = raw[aligned + 4 : aligned + 4 + 4 * 64].view(np.float32)
    y = np.zeros(64, np.float32)
    assert fault(saxpy(vector=4), {"x": x, "y": y, "out": y.copy()}, {"n": 64, "=a": 1.0}).slug == "simt-align"


# -- unwritten memory ------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ["out", "workspace"])
def test_reads_of_what_nothing_wrote(role: Any) -> None:
    b, thread = start()
    out = b.buffer("out", F32, role, 0, THREADS)
    b.store(out, thread.value, b.load(out, thread.value))
    assert fault(done(b), {"out": floats(THREADS)}).slug == "simt-unwritten"


@pytest.mark.parametrize("space", ["shared", "register"])
def test_reads_of_local_arrays_that_nothing_wrote(space: Any) -> None:
    b, _ = start()
    array = b.alloc("a", F32, 4, space)
    with b.branch(b.literal(True, BOOL)):
        b.load(array, 3)
    assert fault(done(b), {}).slug == "simt-unwritten"


def test_outputs_hold_poison_where_the_kernel_stores_nothing() -> None:
    b, thread = start()
    out = b.buffer("out", F32, "out", 0, 8)
    b.store(out, 0, b.literal(1.0, F32), thread.eq(0).value)
    values = np.ones(8, np.float32)
    run(done(b), {"out": values}, {})
    assert values[0] == 1.0
    assert not (values[1:] == 1.0).any()


# -- races -----------------------------------------------------------------------------------------
def neighbours(barrier: bool, space: str) -> Kernel:
    """Each thread writes its element and reads its neighbour's."""
    b, thread = start()
    out = b.buffer("out", I32, "out", 0, THREADS)
    scratch = (
        b.alloc("scratch", I32, THREADS, "shared")
        if space == "shared"
        else b.buffer("scratch", I32, "workspace", None, THREADS)
    )
    b.store(scratch, thread.value, thread.value)
    if barrier:
        b.barrier()
    b.store(out, thread.value, b.load(scratch, (thread ^ 1).value))
    return done(b)


@pytest.mark.parametrize("space", ["shared", "global"])
def test_a_missing_barrier(space: str) -> None:
    buffers = {"out": np.zeros(THREADS, np.int32), "scratch": np.zeros(THREADS, np.int32)}
    error = fault(neighbours(False, space), dict(buffers))
    assert error.slug == "simt-race"
    assert "reads while another thread writes" in str(error)
    run(neighbours(True, space), buffers, {})
    assert buffers["out"].tolist() == [t ^ 1 for t in range(THREADS)]


def test_a_missing_barrier_before_memory_is_used_again() -> None:
    """Write, meet, read, write again: the second write races with the neighbour's read."""
    b, thread = start()
    scratch = b.alloc("scratch", I32, THREADS, "shared")
    with b.loop("round", 0, 2):
        b.store(scratch, thread.value, thread.value)
        b.barrier()
        b.load(scratch, (thread ^ 1).value)
    error = fault(done(b), {})
    assert error.slug == "simt-race"
    assert "writes while another thread reads" in str(error)


def test_two_threads_write_one_element() -> None:
    b, thread = start()
    out = b.buffer("out", I32, "out", 0, 32)
    b.store(out, (thread & 31).value, b.literal(7, I32))
    assert fault(done(b), {"out": np.zeros(32, np.int32)}).slug == "simt-race"


def test_two_blocks_write_one_element() -> None:
    b, thread = start()
    out = b.buffer("out", I32, "out", 0, THREADS)
    b.store(out, thread.value, thread.value)
    assert fault(done(b, grid=2), {"out": np.zeros(THREADS, np.int32)}).slug == "simt-race"


def test_one_block_reads_what_another_writes_in_place() -> None:
    """x[i] = x[i + 64]: right in block order, a race on a GPU."""
    b, thread = start()
    x = b.buffer("x", F32, "inout", 0, 3 * THREADS)
    i = b.handle(b.special("block")) * THREADS + thread
    b.store(x, i.value, b.load(x, (i + THREADS).value))
    assert fault(done(b, grid=2), {"x": floats(3 * THREADS)}).slug == "simt-race"


def test_in_place_by_the_same_thread_is_no_race() -> None:
    b, thread = start()
    x = b.buffer("x", F32, "inout", 0, 2 * THREADS)
    i = b.handle(b.special("block")) * THREADS + thread
    v = b.load(x, i.value)
    b.store(x, i.value, b.let("add", (v, v), F32))
    values = floats(2 * THREADS)
    run(done(b, grid=2), {"x": values}, {})
    np.testing.assert_array_equal(values, 2 * floats(2 * THREADS))


# -- last block done -------------------------------------------------------------------------------
def full_buffers() -> Arrays:
    return {
        "x": floats(1000),
        "out": np.zeros(1, np.float32),
        "partials": np.zeros(8, np.float32),
        "counter": np.zeros(1, np.int32),
    }


def test_tickets_that_only_number_blocks_hand_nothing_on() -> None:
    assert fault(full_sum(ordered=False), full_buffers(), {"n": 1000}).slug == "simt-race"


def test_a_ticket_hands_on_what_the_block_did_before_a_barrier() -> None:
    """Thread 1 writes what is read behind the ticket of thread 0."""

    def kernel(meet: bool) -> Kernel:
        b, thread = start()
        partials, out = b.buffer("partials", I32, "workspace", None, 4), b.buffer("out", I32, "out", 0, 1)
        counter, last = b.buffer("counter", I32, "counter", None, 1), b.alloc("last", I32, 1, "shared")
        with b.branch(thread.eq(1).value):
            b.store(partials, b.special("block"), b.special("block"))
        if meet:
            b.barrier()
        with b.branch(thread.eq(0).value):
            b.store(last, 0, b.ticket(counter, 0, 3))
        b.barrier()
        with b.branch((thread.eq(2) & b.handle(b.load(last, 0)).eq(3)).value):
            b.store(out, 0, b.load(partials, (b.handle(b.special("block")) ^ 1).value))
        return done(b, grid=4)

    def buffers() -> Arrays:
        return {"partials": np.zeros(4, np.int32), "out": np.zeros(1, np.int32), "counter": np.zeros(1, np.int32)}

    found = buffers()
    run(kernel(meet=True), found, {})
    assert sorted(found["partials"]) == [0, 1, 2, 3]
    assert fault(kernel(meet=False), buffers()).slug == "simt-race"


def test_a_ticket_number_read_without_a_barrier() -> None:
    error = fault(full_sum(meet=False), full_buffers(), {"n": 1000})
    assert error.slug == "simt-race"
    assert "shared `last`" in str(error)


def test_partials_read_without_a_ticket() -> None:
    b, thread = start()
    partials = b.buffer("partials", I32, "workspace", None, 4)
    out = b.buffer("out", I32, "out", 0, 4)
    block = b.special("block")
    with b.branch(thread.eq(0).value):
        b.store(partials, block, block)
        b.store(out, block, b.load(partials, (b.handle(block) ^ 1).value))
    buffers = {"partials": np.zeros(4, np.int32), "out": np.zeros(4, np.int32)}
    assert fault(done(b, grid=4), buffers).slug in ("simt-race", "simt-unwritten")


def test_counters_start_and_end_at_zero() -> None:
    buffers = full_buffers()
    buffers["counter"][0] = 1
    assert fault(full_sum(), buffers, {"n": 1000}).slug == "simt-counter"
    b, thread = start()
    counter = b.buffer("counter", I32, "counter", None, 1)
    with b.branch(thread.eq(0).value):
        b.ticket(counter, 0, 5)
    assert fault(done(b, grid=2), {"counter": np.zeros(1, np.int32)}).slug == "simt-counter"


@pytest.mark.parametrize(("awaits", "slug"), [(1, None), (0, "simt-counter"), (2, "simt-flag")])
def test_a_slot_is_awaited_once(awaits: int, slug: str | None) -> None:
    """By as many threads as `awaits` says, of the block that starts last."""
    b, thread = start()
    counter, slots = b.buffer("counter", I32, "counter", None, 1), b.buffer("slots", I64, "slots", None, 4)
    out, last = b.buffer("out", I32, "out", 0, 1), b.alloc("last", I32, 1, "shared")
    with b.branch(thread.eq(0).value):
        b.publish(slots, b.special("block"), b.special("block"))
        b.store(last, 0, b.ticket(counter, 0, 3, ordered=False))
    b.barrier()
    with b.branch((b.handle(b.load(last, 0)).eq(3) & (thread < 4 * awaits)).value):
        found = b.wait_for(slots, (thread & 3).value, I32)
        with b.branch(thread.eq(3).value):
            b.store(out, 0, found)
    buffers = {"out": np.zeros(1, np.int32), "slots": np.zeros(4, np.int64), "counter": np.zeros(1, np.int32)}
    if slug is None:
        run(done(b, grid=4), buffers, {})
        assert buffers["out"] == [3]
        assert not buffers["slots"].any()
    else:
        assert fault(done(b, grid=4), buffers).slug == slug


# -- divergence ------------------------------------------------------------------------------------
def test_a_branch_that_promises_too_much() -> None:
    b, thread = start()
    with b.branch((thread < 10).value, uniform=True):
        b.barrier()
    error = fault(done(b), {})
    assert error.slug == "simt-divergent"


def test_a_divergent_barrier_in_a_loop_whose_bound_is_loaded() -> None:
    """The bound is uniform by its index, but memory is not: caught when it runs, at the latest."""
    b, thread = start()
    x = b.buffer("x", I32, "in", 0, THREADS)
    count = b.load(x, thread.value)
    with b.loop("j", b.literal(0, I32), count):
        b.barrier()
    with pytest.raises(InternalError, match="malformed") as caught:
        run(done(b), {"x": np.arange(THREADS, dtype=np.int32)}, {})
    assert "diverged" in str(caught.value)


def test_a_collective_in_a_divergent_branch_is_refused() -> None:
    b, thread = start()
    acc = b.mutable("acc", b.literal(0.0, F32))
    with b.branch((thread < 32).value):
        b.collective("sum", F32, (acc,), 32)
    with pytest.raises(InternalError, match="malformed"):
        run(done(b), {}, {})


def test_scratch_of_a_collective_in_a_loop_is_safe() -> None:
    """The expanded collective uses its shared memory in every round."""
    b, thread = start()
    out = b.buffer("out", F32, "out", 0, 3)
    with b.loop("round", 0, 3) as r:
        acc = b.mutable("acc", b.let("cast", (thread.value,), F32))
        b.collective("sum", F32, (acc,), THREADS)
        b.store(out, r, acc, thread.eq(0).value)
    buffers = {"out": np.zeros(3, np.float32)}
    run(expand(done(b)), buffers, {})
    assert buffers["out"].tolist() == [2016.0] * 3


def test_buffers_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(InternalError, match="1-D array of f32"):
        run(saxpy(), {"x": np.zeros(4), "y": floats(4), "out": floats(4)}, {"n": 4, "=a": 1.0})


def test_grids_that_cuda_does_not_launch() -> None:
    b, _ = start()
    assert fault(b.finish(Launch((1, 65536), THREADS)), {}).slug == "simt-grid"
