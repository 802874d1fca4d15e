"""CPU schedules on the corpus: right at awkward sizes, and in exactly the order that `fuser.order` fixes."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser.codegen.llvm import host as machine
from fuser.codegen.llvm import jit
from fuser.codegen.llvm.host import cache_bytes, host
from fuser.codegen.loops import Let, Store, walk
from fuser.codegen.schedule import lower
from fuser.codegen.schedule.cpu import BLOCK_ROWS
from fuser.construct import elementwise as ew
from fuser.construct import reduction
from fuser.device import find
from fuser.dtypes import BF16, F32, F64, I32, DType
from fuser.graph import Builder, Node
from fuser.order import bucket, order
from fuser.runtime import cpu, pool
from fuser.schedule import CpuSchedule
from tests.codegen.corpus import COLUMNS, PROGRAMS, ROWS, Case, K, M, N, applies
from tests.codegen.native import backwards, in_order, run_case, same_bits

Array = np.ndarray[Any, Any]
SHAPES = ((1, 1), (2, 31), (33, 32), (3, 127), (1000, 2), (3, 4097))
DTYPES = (F32, F64, I32, BF16)
CPU = find("cpu")


def case(name: str, t: DType = F32, n: int = 5, m: int = 100, k: int = 3, **options: Any) -> Case:
    return Case(name, t, (("n", n), ("m", m), ("k", k)), arch="cpu", **options)


def close(got: Sequence[Array], wanted: Sequence[Array], rtol: float) -> None:
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype.kind in "iub":
            assert (a == b).all()
        else:
            x, y = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * max(1.0, float(np.abs(y).max(initial=0))))


@pytest.mark.parametrize(("name", "t"), [(p, t) for p in PROGRAMS for t in DTYPES if applies(p, t)], ids=str)
def test_the_corpus_equals_the_reference(name: str, t: DType) -> None:
    rtol = {"f64": 1e-12, "bf16": 2**-7}.get(t.name, 1e-5)
    sizes = SHAPES if t == F32 else SHAPES[2:4]
    for n, m in sizes:
        c = case(name, t, n, m)
        close(run_case(c), c.reference(), rtol)


@pytest.mark.parametrize("name", PROGRAMS)
def test_fused_equals_unfused_bit_for_bit(name: str) -> None:
    for n, m in ((3, 1000), (700, 9)):
        fused, apart = case(name, n=n, m=m), case(name, n=n, m=m, fused=False)
        for a, b in zip(run_case(fused), run_case(apart), strict=True):
            assert same_bits(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_iterations_are_independent(name: str) -> None:
    """The last first, one at a time, and on several threads: the same bits."""
    c = case(name, n=37, m=300)
    kernels, usual = c.kernels, run_case(c)
    threads = pool.num_threads()
    pool.set_num_threads(3)
    try:
        spread = [replace(k, launch=replace(k.launch, grain=1)) for k in kernels]
        for other in (run_case(c, launch=backwards), run_case(c, spread, cpu.launch)):
            assert all(same_bits(a, b) for a, b in zip(usual, other, strict=True))
    finally:
        pool.set_num_threads(threads)


@pytest.mark.parametrize("name", PROGRAMS)
def test_strided_arguments_give_the_same_bits(name: str) -> None:
    a, b = case(name, n=33, m=70), case(name, n=33, m=70, strided=True)
    assert all(same_bits(x, y) for x, y in zip(run_case(a), run_case(b), strict=True))


@pytest.mark.parametrize(
    "name", ["polynomial", "joined", "softmax", "row_statistics", "column_normalise", "middle_sum"]
)
def test_the_width_of_vectors_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    c = case(name, n=35, m=300)
    usual = run_case(c)
    for size in (16, 32):
        monkeypatch.setattr(jit, "host", lambda size=size: replace(host(), vector_bytes=size))
        assert all(same_bits(a, b) for a, b in zip(usual, run_case(c), strict=True)), size


# -- order -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("t", [F32, F64], ids=str)
def test_rows_add_in_the_fixed_order(t: DType) -> None:
    for m in (1, 31, 32, 33, 127, 1000, 4097, 20000):
        c = case("row_sum", t, 3, m)
        x = c.arrays[0]
        fixed = order(bucket(m), t.bytes, "inner", "cpu")
        wanted = [in_order(row * row + 1, fixed, np.add, 0) for row in x]
        assert same_bits(run_case(c)[0], np.array(wanted, t.numpy)), m


def test_columns_add_in_the_fixed_order() -> None:
    for n in (1, 33, 300, 2100):
        c = case("column_sum", F32, n, 17)
        fixed = order(bucket(n), 4, "outer", "cpu")
        wanted = [in_order(column, fixed, np.add, 0) for column in np.ascontiguousarray(c.arrays[0].T) * 2]
        assert same_bits(run_case(c)[0], np.array(wanted, np.float32)), n


def test_several_axes_add_in_the_fixed_order_of_their_linear_index() -> None:
    for n, m, k in ((2, 33, 3), (3, 100, 5), (2, 1000, 7), (2, 49, 100), (3, 3, 40)):
        c = case("middle_sum", F32, n, m, k)
        fixed = order(bucket(k * m), 4, "inner", "cpu")
        wanted = [in_order(np.ascontiguousarray(c.arrays[0][:, j]).ravel(), fixed, np.add, 0) for j in range(n)]
        for strided in (False, True):
            got = run_case(case("middle_sum", F32, n, m, k, strided=strided))[1]
            assert same_bits(got, np.array(wanted, np.float32)), (n, m, k, strided)


@pytest.mark.parametrize("program", [*ROWS, *COLUMNS], ids=lambda p: p.__name__)
def test_splitting_shares_changes_nothing(program: Any) -> None:
    """Every reduction run as kernels over blocks of shares, however many: the bits of the plain schedule."""
    wide = program in ROWS
    c = case(program.__name__, n=2 if wide else 2100, m=20000 if wide else 9, k=2)
    usual = run_case(c)
    for blocks in (1, 2, 4):
        kernels = []
        for group, chosen in zip(c.groups, c.schedules, strict=True):
            assert isinstance(chosen, CpuSchedule)
            splits = group.space.reduced and chosen.order.segments >= blocks
            s = replace(chosen, kind="split", blocks=blocks, tile=16) if splits else chosen
            kernels += lower(c.graph, group, s, CPU, c.size_class.layouts)
        for a, b in zip(usual, run_case(c, kernels), strict=True):
            assert same_bits(a, b), blocks


def middle_normalise(b: Builder, t: DType) -> Sequence[Node]:
    """Two passes over the axes around a parallel one, and a result a row."""
    x = b.argument("x", t, (K, N, M))
    total = reduction.reduce(b, "sum", x, axis=(0, 2), keepdims=True)
    results = [ew.apply(b, "subtract", x, total), ew.apply(b, "multiply", total, 3.0)]
    return [n for n in results if isinstance(n, Node)]


@pytest.mark.parametrize("name", ["middle_sum", "middle_normalise"])
@pytest.mark.parametrize(("n", "m", "k"), [(37, 33, 5), (7, 500, 20), (4, 3, 9)])
def test_rows_in_bands_add_as_rows_alone(name: str, n: int, m: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run by run through several rows, in one kernel or with the shares spread: the bits of one row at a time."""
    monkeypatch.setitem(PROGRAMS, "middle_normalise", middle_normalise)
    c = case(name, n=n, m=m, k=k)
    usual: list[Array] = []
    for height, blocks in ((1, 1), (4, 1), (4, 2), (16, 1)):
        kernels = []
        for group, chosen in zip(c.groups, c.schedules, strict=True):
            assert isinstance(chosen, CpuSchedule)
            spread = blocks > 1 and chosen.order.segments >= blocks
            s = replace(chosen, kind="split" if spread else "rows", block_rows=height, blocks=blocks)
            kernels += lower(c.graph, group, s if group.space.inner else chosen, CPU, c.size_class.layouts)
        got = run_case(c, kernels)
        usual = got if height == 1 else usual
        assert all(same_bits(a, b) for a, b in zip(usual, got, strict=True)), (height, blocks)


@pytest.mark.parametrize("name", ["row_sum", "softmax", "layer_norm"])
def test_a_row_alone_equals_the_row_in_a_batch(name: str) -> None:
    batch = case(name, n=300, m=9000)
    alone = case(name, n=1, m=9000)
    for row in (0, 150, 299):
        for position, given in enumerate(batch.arrays):
            alone.arrays[position] = given[row : row + 1] if given.shape[0] == 300 else given
        alone.__dict__.pop("memory", None)
        assert same_bits(run_case(alone)[0][0], run_case(batch)[0][row])


def test_a_row_keeps_what_is_costly_to_compute_again() -> None:
    """The exponentials of a softmax are computed in one stage, those of rows too long to keep in two."""

    def exponentials(m: int) -> int:
        (kernel,) = case("softmax", n=1000, m=m).kernels
        return sum(isinstance(s, Let) and s.op == "exp" for s in walk(kernel.body))

    assert exponentials(1000) == 2  # whole rounds, and the last one under a mask
    assert exponentials(1 << 17) == 3


def test_what_is_chosen() -> None:
    """Kinds by size: rows enough for the cores, or shares of few rows spread out; tiles where rows are crossed."""

    def chosen(name: str, n: int, m: int) -> CpuSchedule:
        s = case(name, n=n, m=m).schedules[0]
        assert isinstance(s, CpuSchedule)
        return s

    assert chosen("row_sum", 1000, 1000).kind == "rows"
    assert chosen("row_sum", 2, 1 << 20).kind == "split"
    assert chosen("abs_sum", 3, 100).kind == "rows"
    assert chosen("column_sum", 100, 1 << 16).kind == "columns"
    assert chosen("column_sum", 1 << 14, 64).kind == "split"
    assert chosen("transposed", 100, 100).block_rows == BLOCK_ROWS
    assert chosen("polynomial", 100, 100).block_rows == 1
    assert chosen("running_sum", 10, 10).kind == "scan"


def test_short_runs_of_neighbouring_rows_are_read_together() -> None:
    around = [case("middle_sum", n=n, m=m, k=256).schedules[1] for n, m in ((512, 256), (512, 1 << 18), (2, 256))]
    assert [s.block_rows > 1 for s in around if isinstance(s, CpuSchedule)] == [True, False, False]


def test_only_results_beyond_the_caches_are_streamed() -> None:
    def stores(name: str, n: int, m: int) -> list[Store]:
        kernels = case(name, n=n, m=m).kernels
        return [s for k in kernels for s in walk(k.body) if isinstance(s, Store) and s.stream is not None]

    elements = cache_bytes() // 4
    assert stores("polynomial", elements // 1024, 1024)
    assert stores("softmax", elements // 1024, 1024)
    assert not stores("polynomial", elements // 4096, 1024)
    assert not stores("polynomial", elements, 16)
    assert not stores("row_sum", elements // 1024, 1024)


@pytest.mark.parametrize(
    ("size", "shared", "mine", "wanted"),
    [("32768K", "0-1", 2, 32 << 20), ("32768K", "0-7", 2, 8 << 20), ("1000", "0,4-5", 9, 1000)],
)
def test_the_cache_is_shared_by_its_cores(
    size: str, shared: str, mine: int, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index3").mkdir()
    (tmp_path / "index3" / "size").write_text(size + "\n")
    (tmp_path / "index3" / "shared_cpu_list").write_text(shared + "\n")
    monkeypatch.setattr(machine, "_CACHES", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(mine)), raising=False)
    assert machine.cache_bytes.__wrapped__() == wanted


def test_kernels_of_one_group_share_their_workspaces() -> None:
    """Through the whole runtime: partial sums of one kernel are what the next one combines."""
    import fuser

    x = np.random.default_rng(0).standard_normal(1 << 20)
    compiled = fuser.compile(lambda x: np.abs(x).sum())
    assert compiled.plan(x).schedules[0].kind == "split"
    np.testing.assert_allclose(compiled(x), np.abs(x).sum(), rtol=1e-12)
