"""CUDA schedules in the SIMT interpreter, against the reference, against themselves, and against `fuser.order`."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fuser.codegen import simt
from fuser.codegen.expand import expand
from fuser.codegen.loops import For, Let, Load, LoadVec, walk
from fuser.codegen.schedule import cuda, cuda_pointwise
from fuser.codegen.verify import verify
from fuser.device import find
from fuser.dtypes import BF16, BOOL, F32, F64, I32, DType
from fuser.graph import Builder, Effect
from fuser.group import Group, Space, Stage, Store
from fuser.hostexpr import sym
from fuser.keys import SizeClass
from fuser.order import Order, bucket, order
from fuser.schedule import CudaSchedule
from tests.codegen.corpus import PROGRAMS, Case, applies

AWKWARD = ((1, 1, 1), (2, 31, 2), (33, 32, 1), (5, 127, 3), (31, 1000, 2))
LONG = ((2, 4097, 1), (4097, 33, 1), (1000, 48, 2))
DTYPES = (F32, F64, I32, BOOL, BF16)


def sizes(n: int, m: int, k: int) -> tuple[tuple[str, int], ...]:
    return (("n", n), ("m", m), ("k", k))


def close(got: np.ndarray, want: np.ndarray, dtype: DType) -> None:
    """Exact for integers; floats within what a sum of a thousand terms may lose."""
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    rtol = {BF16: 2e-2, F32: 1e-4, F64: 1e-11}[dtype]
    scale = max(float(np.max(np.abs(want.astype(np.float64)), initial=1.0)), 1.0)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, t) for n, t in product(PROGRAMS, DTYPES) if applies(n, t)], ids=lambda x: str(x)
)
def test_fused_equals_reference_and_unfused(name: str, dtype: DType) -> None:
    for size in AWKWARD:
        fused, apart = Case(name, dtype, sizes(*size)), Case(name, dtype, sizes(*size), fused=False)
        for got, alone, want in zip(fused.run(), apart.run(), fused.reference(), strict=True):
            close(got, np.asarray(want), dtype)
            assert got.tobytes() == alone.tobytes(), f"fusion changed {name} at {size}"


@pytest.mark.parametrize("size", LONG, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_layout_and_alignment_change_no_bit(name: str, size: tuple[int, int, int]) -> None:
    variants = [{}, {"aligned": False}, {"strided": True}, {"index_bits": 64}, {"fused": False}]
    outputs = [[a.tobytes() for a in Case(name, F32, sizes(*size), **v).run()] for v in variants]
    for variant, got in zip(variants[1:], outputs[1:], strict=True):
        assert got == outputs[0], f"{name} at {size} depends on {variant}"


@pytest.mark.parametrize("name", ["softmax", "row_statistics", "column_normalise", "abs_sum", "column_sum"])
def test_collectives_before_and_after_expand_agree(name: str) -> None:
    case = Case(name, F32, sizes(70, 300, 1))
    for lowered, whole in zip(case.run(lowered=True), case.run(lowered=False), strict=True):
        assert lowered.tobytes() == whole.tobytes()


@pytest.mark.parametrize("size", [(0, 5, 1), (5, 0, 1), (0, 0, 1)], ids=str)
@pytest.mark.parametrize("name", ["polynomial", "broadcast", "row_sum", "column_sum", "abs_sum", "running_sum"])
def test_empty_extents(name: str, size: tuple[int, int, int]) -> None:
    case = Case(name, F32, sizes(*size))
    for got, want in zip(case.run(), case.reference(), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 127, 1000, 4097, 20_000, 70_001])
def test_a_row_alone_equals_the_row_in_a_batch(n: int) -> None:
    for name in ("row_sum", "softmax"):
        batch = Case(name, F32, sizes(5, n, 1))
        alone = Case(name, F32, sizes(1, n, 1))
        alone.arrays[0][:] = batch.arrays[0][3:4]
        assert alone.run()[0].tobytes() == batch.run()[0][3:4].tobytes()


# -- the order itself ------------------------------------------------------------------------------
def pairwise(values: np.ndarray) -> np.ndarray:
    """Axis 0 (a power of two) added pairwise from the low bits."""
    while len(values) > 1:
        values = values[0::2] + values[1::2]
    return values[0]


def ordered_sum(x: np.ndarray, fixed: Order) -> np.ndarray:
    """Axis 0 of `x` added in the order that `fuser.order` describes, written independently of any schedule."""
    n, share = len(x), fixed.share(len(x))
    partials = []
    for segment in range(fixed.segments):
        part = x[min(segment * share, n) : min((segment + 1) * share, n)]
        lanes = np.zeros((fixed.lanes, *x.shape[1:]), x.dtype)
        for i in range(0, len(part), fixed.lanes):
            group = part[i : i + fixed.lanes]
            lanes[: len(group)] += group
        partials.append(pairwise(lanes))
    return pairwise(np.array(partials))


@pytest.mark.parametrize("n", [1, 2, 31, 33, 127, 128, 1000, 4097, 16_384, 40_000, 300_000])
@pytest.mark.parametrize("rows", [1, 3])
def test_row_sums_follow_the_order(rows: int, n: int) -> None:
    case = Case("row_sum", F32, sizes(rows, n, 1))
    x = case.arrays[0]
    fixed = order(bucket(n), 4, "inner", "cuda")
    want = ordered_sum((x * x + np.float32(1)).T, fixed)
    assert case.run()[0].tobytes() == want.tobytes()


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 127, 1000, 4097, 40_000])
def test_column_sums_follow_the_order(n: int) -> None:
    case = Case("column_sum", F32, sizes(n, 20, 1))
    want = ordered_sum(case.arrays[0] * np.float32(2), order(bucket(n), 4, "outer", "cuda"))
    assert case.run()[0].tobytes() == want.tobytes()


# -- schedules -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_well_formed(name: str) -> None:
    for size in ((8192, 8192, 16), (1000, 33, 3)):
        for kernel in Case(name, F32, sizes(*size)).kernels:
            assert verify(kernel) == []


def test_vectors_need_proof() -> None:
    aligned = Case("broadcast", F32, sizes(4096, 4096, 1)).schedules[0]
    ragged = Case("broadcast", F32, sizes(4096, 4097, 1)).schedules[0]
    misaligned = Case("broadcast", F32, sizes(4096, 4096, 1), aligned=False).schedules[0]
    assert (aligned.vector, ragged.vector, misaligned.vector) == (4, 1, 1)
    assert Case("broadcast", BF16, sizes(4096, 4096, 1)).schedules[0].vector == 8


def test_a_flat_program_keeps_vectors_at_any_length() -> None:
    case = Case("polynomial", F32, sizes(1000, 1023, 1))
    assert case.schedules[0].vector == 4
    for got, want in zip(case.run(), case.reference(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_long_reductions_are_split_when_rows_are_few() -> None:
    assert Case("abs_sum", F32, sizes(4096, 4096, 1)).schedules[0].kind == "split"
    assert Case("row_sum", F32, sizes(65_536, 32_768, 1)).schedules[0].kind == "rows"
    assert Case("column_sum", F32, sizes(65_536, 64, 1)).schedules[0].kind == "split"


def test_few_blocks_have_more_on_the_way() -> None:
    """Where most of the device is idle, a thread loads up to 256 bytes together; else half of that."""
    for n, kind, unroll in ((1 << 13, "rows", 4), (1 << 18, "split", 4), (1 << 21, "split", 16), (1 << 28, "split", 8)):
        (chosen,) = Case("abs_sum", F32, sizes(1, n, 1)).schedules
        assert (chosen.kind, chosen.unroll) == (kind, unroll), n


def test_rows_that_would_make_part_of_a_wave_are_split() -> None:
    assert [Case("row_sum", F32, sizes(n, 1 << 19, 1)).schedules[0].kind for n in (512, 768, 4096, 8192)] == [
        "rows", "split", "split", "rows",
    ]  # fmt: skip


def test_short_rows_that_all_run_at_once_have_more_threads() -> None:
    found = [Case("softmax", BF16, sizes(n, 1024, 1)).schedules[0] for n in (512, 1024, 4096, 65536)]
    assert [(s.threads_per_row, s.vector) for s in found] == [(128, 2), (64, 4), (64, 4), (32, 8)]


@pytest.mark.parametrize(("name", "n", "m"), [("row_sum", 1, 15 * 16384), ("column_sum", 1000, 48)])
def test_the_last_rounds_of_a_share_are_loaded_together(name: str, n: int, m: int) -> None:
    """A loop of a round a time would wait for memory once a round."""
    case = Case(name, F32, sizes(n, m, 1))
    loops = [s for k in case.kernels for s in walk(k.body) if isinstance(s, For) and s.var.name.startswith("base")]
    assert len(loops) == 1
    assert under(case, replace(case.schedules[0], unroll=1)) == [a.tobytes() for a in case.run()]


def test_retreats_end_and_keep_the_order() -> None:
    chosen = Case("softmax", BF16, sizes(8192, 8192, 1)).schedules[0]
    seen = [chosen]
    while (weaker := cuda.retreat(seen[-1])) is not None:
        seen.append(weaker)
    assert 1 < len(seen) < 12
    assert {s.order for s in seen} == {chosen.order}


def under(case: Case, schedule: CudaSchedule) -> list[bytes]:
    """The output bits of a one-group case under another schedule."""
    other = replace(case)
    other.__dict__["schedules"] = (schedule, *case.schedules[1:])
    return [a.tobytes() for a in other.run()]


@pytest.mark.parametrize("size", [(70, 130, 1), (64, 64, 1), (100, 48, 1), (1, 200, 1), (128, 256, 1)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=str)
def test_transposed_operands_cross_in_squares(dtype: DType, size: tuple[int, int, int]) -> None:
    case = Case("transposed", dtype, sizes(*size))
    (plain,) = case.schedules
    assert plain.tile == 0
    vector = 16 // dtype.bytes if size[1] % 16 == 0 else 1
    for side in (s for s in (32, 64) if s * s >= 256 * 16 // dtype.bytes):  # every thread has a vector of the square
        squares = replace(plain, tile=side, vector=vector, unroll=1, threads=256)
        assert under(case, squares) == [a.tobytes() for a in case.run()]


def test_squares_are_for_large_transposed_operands() -> None:
    assert Case("transposed", F32, sizes(8192, 8192, 1)).schedules[0].tile == 64
    assert Case("broadcast", F32, sizes(8192, 8192, 1)).schedules[0].tile == 0


@pytest.mark.parametrize("size", [(5, 48, 7), (9, 64, 16), (16, 16, 3), (3, 33, 5), (40, 130, 2)], ids=str)
@pytest.mark.parametrize("name", ["stencil", "edged_stencil", "wide_stencil"])
def test_tiles_of_a_stencil_change_no_bit(name: str, size: tuple[int, int, int]) -> None:
    for dtype, variant in product((F32, BF16, F64), ({}, {"aligned": False}, {"strided": True})):
        case = Case(name, dtype, sizes(*size), **variant)
        (chosen,) = case.schedules
        assert chosen.threads_per_row > 1
        want = [a.tobytes() for a in replace(case, fused=False).run()]
        vectors = {1, 16 // dtype.bytes if "aligned" not in variant and size[1] % 16 == size[0] % 16 == 0 else 1}
        for vector, (unroll, across) in product(vectors, ((1, 16), (2, 4), (4, 16))):
            other = replace(chosen, vector=vector, unroll=unroll, threads_per_row=across, threads=64)
            assert under(case, other) == want, other


def test_a_stencil_loads_what_its_vectors_share_once() -> None:
    (chosen,) = Case("edged_stencil", F32, sizes(512, 512, 512)).schedules
    assert (chosen.vector, chosen.threads_per_row, chosen.unroll) == (4, 32, cuda_pointwise.MARCH)
    (kernel,) = Case("edged_stencil", F32, sizes(512, 512, 512)).kernels
    loads = [s for s in walk(kernel.body) if isinstance(s, (Load, LoadVec))]
    march = cuda_pointwise.MARCH
    assert len(loads) == (march + 2) + 2 * march + 2 * march  # centres, rows above and below, sides


@pytest.mark.parametrize("size", [(12, 12, 5), (28, 28, 9), (56, 10, 2), (14, 24, 40)], ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_images_whose_lines_are_no_multiple_of_16_have_vectors(dtype: DType, size: tuple[int, int, int]) -> None:
    case = Case("image_norm", dtype, sizes(*size))
    assert all(s.vector >= 8 // dtype.bytes for s in case.schedules)  # few rows are spread over twice the threads
    single = replace(case)
    single.__dict__["size_class"] = replace(case.size_class, factors=())
    assert {s.vector for s in single.schedules} == {1}
    for got, alone, want in zip(case.run(), single.run(), case.reference(), strict=True):
        close(got, np.asarray(want), dtype)
        assert got.tobytes() == alone.tobytes()


def test_columns_with_steps_in_common_are_one_threads() -> None:
    case = Case("unit_sum", F32, sizes(600, 1, 1))
    (chosen,) = case.schedules
    assert chosen.vector == 3
    (kernel,) = case.kernels
    roots = sum(isinstance(s, Let) and s.op == "sqrt" for s in walk(kernel.body))
    assert roots == 2 * chosen.unroll  # of whole rounds, and of the last ones
    apart = under(case, replace(chosen, vector=1, threads=4 * chosen.threads))
    assert apart == [a.tobytes() for a in case.run()]


@pytest.mark.parametrize("name", ["abs_sum", "row_statistics"])
def test_turns_of_a_split_change_no_bit(name: str) -> None:
    case = Case(name, F32, sizes(2, 150_000, 1))
    (chosen,) = case.schedules
    assert (chosen.kind, chosen.turns) == ("split", 1)
    want = [a.tobytes() for a in case.run()]
    for turns in (2, 4, chosen.order.segments):
        assert under(case, replace(chosen, turns=turns)) == want


def test_argmax_of_rows_without_a_winner() -> None:
    """Values no better than the identity still have an index: the first."""
    case = Case("row_statistics", F32, sizes(4, 5000, 1))
    x = case.arrays[0]
    x[0], x[1, 7:], x[2, 4000], x[3] = -np.inf, -np.inf, np.nan, 3.0
    np.testing.assert_array_equal(case.run()[3], case.reference()[3])


def test_a_chain_of_ten_thousand_operators() -> None:
    b = Builder("chain")
    x = y = b.argument("x", F32, (sym("n"),))
    for k in range(10_000):
        y = b.make(("add", "multiply")[k % 2], (y, x), None, F32, x.shape)
    graph = b.close([y])
    space = Space(x.shape)
    stage = Stage(stores=(Store(y.id, space.parallel_index),))
    group = Group("chain", tuple(range(1, 10_001)), (x.id,), (space,), ((stage,),))
    size_class = SizeClass((("n", 1024),), (), ("c",), True, 32, (("n", 16),))
    chosen = cuda.choose(graph, group, size_class, find("sm_90"))
    (kernel,) = cuda.lower(graph, group, chosen, ("c",))
    assert (chosen.vector, chosen.unroll) == (1, 1)
    assert 10_000 <= sum(1 for _ in walk(kernel.body)) < 10_100


def test_an_argument_stored_in_place_is_one_buffer() -> None:
    b = Builder("double")
    x = b.argument("x", F32, (sym("n"),))
    y = b.make("add", (x, x), None, F32, x.shape)
    graph = b.close([], [Effect(0, y)])
    space = Space(x.shape)
    stage = Stage(stores=(Store(y.id, space.parallel_index),))
    group = Group("double", (y.id,), (x.id,), (space,), ((stage,),), in_place=((y.id, 0),))
    size_class = SizeClass((("n", 1024),), (), ("c",), True, 32)
    (kernel,) = cuda.lower(graph, group, cuda.choose(graph, group, size_class, find("sm_90")), ("c",))
    assert [(p.role, p.node) for p in kernel.buffers] == [("inout", x.id)]
    memory = np.arange(1001, dtype=np.float32)
    simt.run(expand(kernel), {kernel.buffers[0].name: memory}, {"n": 1001})
    np.testing.assert_array_equal(memory, 2 * np.arange(1001, dtype=np.float32))


def test_every_retreat_gives_the_same_bits() -> None:
    for name in ("softmax", "column_normalise"):
        case = Case(name, F32, sizes(300, 2048, 1))
        want = [a.tobytes() for a in case.run()]
        schedule = case.schedules[0]
        while (schedule := cuda.retreat(schedule)) is not None:
            assert under(case, schedule) == want, schedule
