"""Long rows and scans on CUDA: rows in shared memory and over clusters, scans over many blocks, in the interpreter.

The reference for bits is the plain schedule (one block a row, every stage reads it again): a schedule may change who
computes what and never a bit.
"""

from dataclasses import replace

import numpy as np
import pytest

from fuser.codegen import schedule, simt
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.loops import (
    Alloc,
    AsyncCopy,
    ClusterArrive,
    ClusterWait,
    Kernel,
    Launch,
    Mailbox,
    Prefetch,
    Receive,
    Shuffle,
    walk,
)
from fuser.codegen.schedule import cuda
from fuser.codegen.storage import dynamic_shared
from fuser.codegen.verify import verify
from fuser.construct import reduction
from fuser.device import find
from fuser.dtypes import BF16, BOOL, F32, F64, I32, DType
from fuser.graph import Builder, Node, ScanAttrs, ViewAttrs
from fuser.hostexpr import sym
from fuser.indexmap import IndexMap, axis
from fuser.schedule import CudaSchedule
from tests.codegen import corpus
from tests.codegen.corpus import Case, matrix

ROWS = ("softmax", "layer_norm", "residual_norm", "cross_entropy")
MANY = 140  # rows enough for the planner to give a row to a block (or a cluster)


def sizes(n: int, m: int) -> tuple[tuple[str, int], ...]:
    return (("n", n), ("m", m), ("k", 1))


def under(case: Case, chosen: CudaSchedule) -> list[bytes]:
    """The output bits of a case whose first group runs under another schedule."""
    other = replace(case)
    other.__dict__["groups"] = case.groups
    other.__dict__["schedules"] = (chosen, *case.schedules[1:])
    return [a.tobytes() for a in other.run()]


def chosen_for(case: Case, group: int = 0) -> CudaSchedule:
    """The CUDA schedule of one group."""
    found = case.schedules[group]
    assert isinstance(found, CudaSchedule)
    return found


def few_rows(name: str, dtype: DType, n: int, m: int) -> Case:
    """A case of few rows, planned and scheduled as if there were many."""
    case, many = Case(name, dtype, sizes(n, m)), Case(name, dtype, sizes(MANY, m))
    device = find("sm_90")
    case.__dict__["groups"] = many.groups
    chosen = [schedule.choose(many.graph, g, many.size_class, device) for g in many.groups]
    case.__dict__["graph"], case.__dict__["schedules"] = many.graph, tuple(chosen)
    return case


# -- rows ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("m", [8208, 16_384, 20_000, 32_768, 70_016])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_wait_between_stages_keep_their_bits(name: str, dtype: DType, m: int) -> None:
    case = few_rows(name, dtype, 2, m)
    chosen = chosen_for(case)
    assert chosen.resident
    assert [f for k in case.kernels for f in verify(k)] == []
    got = [a.tobytes() for a in case.run()]
    assert got == under(case, replace(chosen, parked=False, resident=False, cluster=1, unroll=2))


@pytest.mark.parametrize("cluster", [1, 2, 4, 8, 16])
def test_no_cluster_size_changes_a_bit(cluster: int) -> None:
    case = few_rows("softmax", F32, 2, 24_000)
    chosen = replace(chosen_for(case), cluster=cluster, threads=128, threads_per_row=128)
    assert under(case, chosen) == [a.tobytes() for a in case.run()]


@pytest.mark.parametrize("m", [32_768, 33_008, 65_536, 70_016])
@pytest.mark.parametrize("name", ROWS)
def test_rows_in_the_registers_of_a_cluster_keep_their_bits(name: str, m: int) -> None:
    case = few_rows(name, BF16, 3, m)
    chosen = chosen_for(case)
    cluster = chosen.capacity // 16_384
    held = replace(
        chosen, parked=False, copies=False, cluster=cluster, threads=256, threads_per_row=256, resident=True, ahead=2
    )
    assert under(case, held) == under(
        case, replace(chosen, parked=False, copies=False, resident=False, cluster=1, ahead=0)
    )


@pytest.mark.parametrize("parked", [False, True])
def test_a_prefetch_asks_for_all_of_a_later_row_and_no_more(parked: bool) -> None:
    case = few_rows("softmax", BF16, 3, 33_008)
    chosen = replace(
        chosen_for(case), parked=parked, copies=parked, cluster=4, threads=256, threads_per_row=256, ahead=2
    )
    other = replace(case)
    other.__dict__["groups"], other.__dict__["schedules"] = case.groups, (chosen,)
    asked = [s for s in walk(other.kernels[0].body) if isinstance(s, Prefetch)]
    assert len(asked) == 65_536 // 4 * 2 // (128 * 256)
    assert under(case, chosen) == [a.tobytes() for a in case.run()]  # the interpreter checks that no line is outside


def test_a_row_of_half_a_million_elements_over_sixteen_blocks() -> None:
    case = few_rows("softmax", BF16, 1, 300_000)
    chosen = chosen_for(case)
    assert (chosen.parked, chosen.resident, chosen.cluster) == (False, True, 16)
    plain = replace(chosen, resident=False, cluster=1)
    assert [a.tobytes() for a in case.run()] == under(case, plain)


def test_collectives_of_clusters_before_and_after_expand_agree() -> None:
    case = few_rows("layer_norm", F32, 2, 33_008)
    for lowered, whole in zip(case.run(lowered=True), case.run(lowered=False), strict=True):
        assert lowered.tobytes() == whole.tobytes()


def test_a_long_row_fused_equals_unfused() -> None:
    for name in ("softmax", "layer_norm"):
        fused, apart = few_rows(name, F32, 3, 17_008), Case(name, F32, sizes(3, 17_008), fused=False)
        assert chosen_for(fused).resident
        for a, b in zip(fused.run(), apart.run(), strict=True):
            assert a.tobytes() == b.tobytes()


def test_blocks_fit_their_device() -> None:
    for arch in ("sm_80", "sm_86", "sm_90", "sm_120"):
        device = find(arch)
        for m in (16_384, 32_768, 65_536, 262_144, 1 << 20):
            for name, dtype in (("softmax", BF16), ("layer_norm", F32), ("residual_norm", BF16)):
                case = Case(name, dtype, sizes(4096, m), arch=arch)
                for k, kernel in enumerate(case.kernels):
                    chosen = chosen_for(case, k)
                    used = sum(size for _, size in dynamic_shared(kernel.body).values())
                    assert used < device.shared_block
                    assert chosen.cluster <= device.cluster
                    assert kernel.launch.cluster == chosen.cluster


def test_retreats_from_parked_rows_keep_bits() -> None:
    case = few_rows("layer_norm", BF16, 1, 33_008)
    want, seen = [a.tobytes() for a in case.run()], [chosen_for(case)]
    while (weaker := cuda.retreat(seen[-1])) is not None:
        assert under(case, weaker) == want, weaker
        seen.append(weaker)
    assert 3 < len(seen) < 14


# -- clusters in the interpreter -------------------------------------------------------------------
def exchange(b: KernelBuilder, start: bool = True, meet: bool = True, size: int = 8) -> Kernel:
    """Each block of a cluster of two sends its number to the other, which stores it."""
    out = b.buffer("out", I32, "out", None, 4)
    b.emit(Mailbox("box", size))
    if start:
        b.emit(ClusterArrive())
        b.emit(ClusterWait())
    place = b.alloc("place", I32, 2, "shared")
    thread, block = b.special("thread"), b.special("block")
    rank = b.apply("bitwise_and", (block, b.literal(1, I32)), I32)
    b.send(place, rank, block, thread, "box", b.apply("less", (thread, b.literal(2, I32)), BOOL))
    if meet:
        b.emit(Receive("box"))
    other = b.apply("subtract", (b.literal(1, I32), rank), I32)
    first = b.apply("equal", (thread, b.literal(0, I32)), BOOL)
    b.store(out, block, b.load(place, other, first), first)
    return b.finish(Launch((4, 1), 32, cluster=2))


def test_blocks_of_a_cluster_exchange() -> None:
    out = np.zeros(4, np.int32)
    simt.run(exchange(KernelBuilder("swap", "cuda")), {"out": out}, {})
    assert out.tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("start", "meet", "size"), [(False, True, 8), (True, False, 8), (True, True, 12), (True, True, 4)]
)
def test_a_missing_meeting_of_a_cluster_is_found(start: bool, meet: bool, size: int) -> None:
    with pytest.raises(simt.SimtError):
        simt.run(exchange(KernelBuilder("swap", "cuda"), start, meet, size), {"out": np.zeros(4, np.int32)}, {})


def test_clusters_are_checked() -> None:
    kernel = exchange(KernelBuilder("swap", "cuda"))
    assert verify(kernel) == []
    assert verify(replace(kernel, launch=replace(kernel.launch, cluster=1)))
    assert verify(replace(kernel, launch=replace(kernel.launch, cluster=3)))
    assert verify(replace(kernel, body=tuple(s for s in kernel.body if not isinstance(s, Mailbox))))
    with pytest.raises(simt.SimtError, match="no multiple"):
        simt.run(replace(kernel, launch=replace(kernel.launch, grid=(3, 1))), {"out": np.zeros(4, np.int32)}, {})


# -- columns ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [(2049, 48), (5000, 16), (4096, 80), (9000, 32)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
def test_tall_columns_wait_in_shared_memory(dtype: DType, size: tuple[int, int]) -> None:
    case = Case("column_softmax", dtype, sizes(*size))
    (chosen,) = case.schedules
    assert chosen.parked
    assert chosen.cluster > 1
    want = [a.tobytes() for a in case.run()]
    assert chosen.copies
    assert under(case, replace(chosen, copies=False)) == want
    assert under(case, replace(chosen, parked=False, copies=False, cluster=1)) == want
    assert [a.tobytes() for a in replace(case, fused=False).run()] == want
    near = 2e-2 if dtype == BF16 else 1e-4
    for got, expected in zip(case.run(), case.reference(), strict=True):
        np.testing.assert_allclose(got.astype(float), np.asarray(expected).astype(float), rtol=near, atol=near)


@pytest.mark.parametrize("size", [(512, 96), (300, 80), (1000, 64), (64, 512), (130, 272)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
def test_short_columns_wait_in_shared_memory(dtype: DType, size: tuple[int, int]) -> None:
    """Few lanes of a column: more threads stand side by side, and take less of a row each."""
    case = Case("column_softmax", dtype, sizes(*size))
    chosen = chosen_for(case)
    assert chosen.parked
    assert chosen.copies
    assert chosen.threads >= 128
    (kernel,) = case.kernels
    copies = [s for s in walk(kernel.body) if isinstance(s, AsyncCopy)]
    assert {s.width * dtype.bytes for s in copies} == {16}  # also where a thread takes fewer bytes of a row
    want = [a.tobytes() for a in case.run()]
    assert under(case, replace(chosen, ahead=3)) == want
    plain = replace(chosen, parked=False, copies=False, cluster=1, ahead=0)
    assert under(case, plain) == want
    assert under(case, replace(plain, vector=1, threads=128)) == want


def test_members_of_a_warp_fold_by_shuffles_before_they_meet() -> None:
    """8 threads side by side in each of 16 blocks: four members in a warp, and scratch for a quarter of them."""
    case = Case("column_softmax", F32, sizes(5000, 16))
    chosen = chosen_for(case)
    assert (chosen.threads // chosen.threads_per_row, chosen.cluster) == (8, 16)
    (kernel,) = case.kernels
    scratch = [s for s in walk(kernel.body) if isinstance(s, Alloc) and s.name.startswith("exchange")]
    assert {s.size for s in scratch} == {chosen.threads * chosen.vector // 4}
    assert any(isinstance(s, Shuffle) for s in walk(kernel.body))


def test_columns_without_clusters_are_read_again() -> None:
    (chosen,) = Case("column_softmax", F32, sizes(8192, 64), arch="sm_80").schedules
    assert not chosen.parked


# -- scans -----------------------------------------------------------------------------------------
def variants(b: Builder, t: DType) -> list[Node]:
    x = matrix(b, t)
    y = b.make("add", (x, x), None, t, x.shape)
    return [b.make("cumsum", (y,), ScanAttrs(1, e, r), t, y.shape) for e in (False, True) for r in (False, True)]


def row_max(b: Builder, t: DType) -> list[Node]:
    return [reduction.scan(b, "cummax", matrix(b, t), axis=1)]


def share(b: Builder, t: DType) -> list[Node]:
    """What follows a running sum needs its operand again, and a value a column."""
    x, w = matrix(b, t), b.argument("w", t, (sym("m"),))
    squares = b.make("multiply", (x, x), None, t, x.shape)
    total = b.make("cumsum", (squares,), ScanAttrs(1, False, False), t, x.shape)
    spread = b.make("view", (w,), ViewAttrs(IndexMap((axis(1),))), t, x.shape)
    return [b.make("add", (b.make("multiply", (x, total), None, t, x.shape), spread), None, t, x.shape)]


LONG_SCANS = [("variants", F32), ("row_max", F32), ("variants", F64), ("variants", I32), ("share", F32), ("share", F64)]


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in (variants, row_max, share):
        monkeypatch.setitem(corpus.PROGRAMS, program.__name__, program)


@pytest.mark.parametrize("size", [(1, 400_000), (3, 32_769), (2, 65_536), (2, 70_001)], ids=str)
@pytest.mark.parametrize(("name", "dtype"), LONG_SCANS)
def test_long_scans_equal_the_reference(name: str, dtype: DType, size: tuple[int, int]) -> None:
    case = Case(name, dtype, sizes(*size))
    assert case.schedules[-1].kind == "scan"
    assert [f for k in case.kernels for f in verify(k)] == []
    for got, want in zip(case.run(), case.reference(), strict=True):
        if dtype == I32 or name == "row_max":
            np.testing.assert_array_equal(got, want)
        else:
            rtol, atol = {F32: (1e-3, 0.1), F64: (1e-9, 1e-7)}[dtype]
            atol = atol * 10 if name == "share" else atol  # products of sums
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def test_a_long_scan_alone_equals_the_row_in_a_batch() -> None:
    batch, alone = Case("running_sum", F32, sizes(4, 40_001)), Case("running_sum", F32, sizes(1, 40_001))
    alone.arrays[0][:] = batch.arrays[0][2:3]
    assert alone.run()[0].tobytes() == batch.run()[0][2:3].tobytes()


def test_the_order_of_blocks_changes_no_bit_of_a_scan() -> None:
    case = Case("running_sum", F32, sizes(2, 300_000))
    (kernel,) = case.kernels
    results = set()
    for seed in range(3):
        buffers = {p.name: np.zeros(int(p.size.evaluate(case.env)) if hasattr(p.size, "evaluate") else int(p.size),
                                    p.dtype.numpy) for p in kernel.buffers}  # fmt: skip
        buffers[kernel.buffers[0].name] = case.memory[0]
        simt.run(expand(kernel), buffers, case.env, seed=seed)
        results.add(buffers[kernel.buffers[1].name].tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("size", [(1, 300_000), (3, 33_001), (2, 70_016)], ids=str)
@pytest.mark.parametrize(("name", "dtype"), LONG_SCANS)
def test_tiles_taken_in_turn_keep_their_bits(name: str, dtype: DType, size: tuple[int, int]) -> None:
    """By one block, by several that share the tiles unevenly, and by more than there are tiles."""
    case = Case(name, dtype, sizes(*size))
    want = [a.tobytes() for a in case.run()]
    for workers in (1, 3, 100):
        other = replace(case)
        found = [chosen_for(case, k) for k in range(len(case.schedules))]
        chosen = tuple(replace(s, workers=workers) if s.kind == "scan" else s for s in found)
        assert all(s.parked == (s.kind == "scan") for s in chosen)
        other.__dict__["groups"], other.__dict__["schedules"] = case.groups, chosen
        assert [f for k in other.kernels for f in verify(k)] == []
        assert [a.tobytes() for a in other.run()] == want, workers


def test_tiles_are_taken_in_turn_where_there_are_many() -> None:
    few, many = (chosen_for(Case("running_sum", F32, sizes(1, n))) for n in (1 << 20, 1 << 28))
    assert (few.workers, many.workers) == (0, 3 * find("sm_90").sms)
    assert few.order == many.order


def test_a_long_scan_in_turns_fits_its_device() -> None:
    for arch in ("sm_80", "sm_86", "sm_90"):
        for dtype in (F32, F64):
            case = Case("running_sum", dtype, sizes(1, 1 << 28), arch=arch)
            (kernel,) = case.kernels
            used = sum(size for _, size in dynamic_shared(kernel.body).values())
            assert (used + 2048) * kernel.launch.min_blocks <= find(arch).shared_block


def test_layouts_of_long_scans_change_no_bit() -> None:
    outputs = [
        [a.tobytes() for a in Case("variants", F32, sizes(2, 33_333), **v).run()]
        for v in ({}, {"aligned": False}, {"strided": True}, {"index_bits": 64})
    ]
    assert all(o == outputs[0] for o in outputs)
