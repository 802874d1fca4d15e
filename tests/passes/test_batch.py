"""Which kernels may share a launch: independent ones, where nothing is lost by it, whatever order they were made in."""

from dataclasses import replace

import pytest

from fuser import device
from fuser.decision import Decision
from fuser.dtypes import F32, F64, I64
from fuser.graph import Builder, Effect, Graph, OpaqueAttrs
from fuser.group import Group
from fuser.hostexpr import lit, sym
from fuser.indexmap import IndexMap, axis
from fuser.passes.batch import Batching
from fuser.passes.fuse import Options, plan_groups
from tests.passes.graphs import fold, op, shuffled, spread, view

H200, CPU = device.find("sm_90"), device.find("cpu")
SMALL = 1000


def updates(count: int, dtype: object = F32) -> Graph:
    """`p - g` of arrays of their own lengths."""
    b = Builder("updates")
    pairs = [[b.argument(f"{name}{k}", F32, (sym(f"n{k}"),)) for name in "pg"] for k in range(count)]
    return b.close([op(b, "subtract", p, g) for p, g in pairs])


def planned(graph: Graph, on: device.Device = H200, size: int = SMALL, **options: bool) -> tuple[Group, ...]:
    return plan_groups(graph, dict.fromkeys(graph.symbols, size), on, Options(**options))[0]


def decided(graph: Graph, on: device.Device = H200, size: int = SMALL) -> list[Decision]:
    found = plan_groups(graph, dict.fromkeys(graph.symbols, size), on)[1]
    return [d for d in found if d.kind == "batch"]


@pytest.mark.parametrize("on", [H200, CPU], ids=str)
def test_independent_kernels_share_a_launch(on: device.Device) -> None:
    (group,) = planned(updates(3), on)
    assert group.kind == "batch"
    assert [s.parallel for s in group.spaces] == [p.space.parallel for p in group.parts]
    assert len(group.stages) == len(group.spaces) == 3
    assert group.name == "updates_batch_pointwise"


def test_each_pair_of_neighbours_has_a_decision() -> None:
    found = decided(updates(3))
    assert [(d.verdict, d.reason) for d in found] == [("fused", "batched")] * 2
    assert found[0].numbers["us_together"] < found[0].numbers["us_apart"]


def test_empty_kernels_stay_out_for_they_are_not_launched() -> None:
    b = Builder("updates")
    pairs = [[b.argument(f"{name}{k}", F32, (length,)) for name in "pg"] for k, length in enumerate((4, 0, sym("n")))]
    groups = planned(b.close([op(b, "subtract", p, g) for p, g in pairs]))
    assert sorted(g.kind for g in groups) == ["batch", "pointwise"]
    (empty,) = (g for g in groups if g.kind == "pointwise")
    assert empty.space.parallel == (0,)


def test_unmerged_plans_keep_a_kernel_an_operator() -> None:
    assert len(planned(updates(3), merge=False)) == 3


def test_what_waits_for_another_is_in_a_later_launch() -> None:
    b = Builder("chain")
    x, y = b.argument("x", F32, (sym("n"), sym("m"))), b.argument("y", F32, (sym("k"),))
    total = fold(b, "sum", x, [0, 1], keep=False)
    late = op(b, "exp", op(b, "multiply", y, spread(b, total, y.shape)))
    early = op(b, "sin", b.argument("z", F32, (sym("j"),)))
    groups = planned(b.close([early, late]), size=1 << 12)
    homes = {m: k for k, g in enumerate(groups) for m in g.outputs}
    assert homes[total.id] < homes[late.id]
    assert all(not set(g.inputs) & set(g.outputs) for g in groups)


def test_a_reader_of_the_old_value_is_in_an_earlier_launch() -> None:
    b = Builder("step")
    p, q, g = (b.argument(name, F64, (sym(name), sym("m"))) for name in "pqg")
    new = op(b, "negative", p)
    tops = view(b, p, IndexMap((lit(0), axis(0))), (sym("m"),))
    old = op(b, "add", q, spread(b, tops, q.shape))
    graph = b.close([old, op(b, "sin", g)], [Effect(0, new)])
    groups = planned(graph, in_place=True)
    homes = {m: k for k, found in enumerate(groups) for m in found.outputs}
    assert len(groups) == 2
    assert homes[old.id] < homes[new.id]
    assert [pair for found in groups for pair in found.in_place] == [(new.id, 0)]


def test_each_part_updates_its_own_argument_in_place() -> None:
    b = Builder("step")
    pairs = [[b.argument(f"{name}{k}", F32, (sym(f"n{k}"),)) for name in "pg"] for k in range(3)]
    effects = [Effect(2 * k, op(b, "subtract", p, g)) for k, (p, g) in enumerate(pairs)]
    (group,) = planned(b.close([], effects), in_place=True)
    assert sorted(a for _, a in group.in_place) == [0, 2, 4]
    assert sorted(pair for part in group.parts for pair in part.in_place) == sorted(group.in_place)


def test_parameters_fit_the_launch() -> None:
    few, many = replace(H200, argument_bytes=4096), replace(H200, argument_bytes=32 << 10)
    graph = updates(200)
    assert len(planned(graph, many)) < len(planned(graph, few)) < 10
    for on in (few, many):
        for g in planned(graph, on):
            assert 8 * (len(g.inputs) + len(g.outputs) + 4 * len(g.parts)) <= on.argument_bytes
    assert {d.reason for d in decided(graph, few) if d.verdict == "apart"} == {"arguments"}


def test_a_large_kernel_keeps_its_occupancy() -> None:
    b = Builder("uneven")
    x, y = b.argument("x", F32, (sym("n"),)), b.argument("y", F64, (sym("m"),))
    light = op(b, "negative", x)
    made = [op(b, "exp", y)]
    for k in range(60):
        made.append(op(b, ("sin", "exp")[k % 2], op(b, "add", made[-1], y)))
    total = made[0]
    for value in made[1:]:
        total = op(b, "add", value, total)
    graph = b.close([light, total])
    assert len(planned(graph, size=1 << 26)) == 2
    assert {d.reason for d in decided(graph, size=1 << 26)} == {"registers"}
    assert len(planned(graph, size=SMALL)) == 1  # where neither fills the device, nothing is lost


def test_rows_share_a_launch_while_one_block_holds_each() -> None:
    def graph() -> Graph:
        b = Builder("rows")
        x, y = b.argument("x", F32, (sym("n"), sym("m"))), b.argument("y", F32, (sym("k"), sym("j")))
        return b.close([fold(b, "sum", x, [1]), fold(b, "max", y, [1])])

    assert [g.kind for g in planned(graph(), size=1024)] == ["batch"]
    assert [g.kind for g in planned(graph(), size=1 << 14)] == ["rows", "rows"]


def test_the_plan_does_not_depend_on_insertion() -> None:
    graph = updates(70)
    want = sorted(len(g.parts) for g in planned(graph))
    for seed in range(5):
        other = shuffled(graph, seed)
        assert sorted(len(g.parts) for g in planned(other)) == want


def test_work_is_near_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel is tried in the launch being filled, and begins the next where it does not fit."""
    tried = 0
    add = Batching._add

    def counted(self: Batching, *args: object) -> object:
        nonlocal tried
        tried += 1
        return add(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Batching, "_add", counted)
    planned(updates(400))
    assert 400 <= tried <= 800


def test_library_calls_keep_their_own() -> None:
    b = Builder("product")
    x, w, y = (b.argument(name, F32, (sym("n"), sym("n"))) for name in "xwy")
    product = b.make("matmul", (x, w), OpaqueAttrs(), F32, x.shape)
    assert sorted(g.kind for g in planned(b.close([product, op(b, "sin", y)]))) == ["library", "pointwise"]


def test_a_number_that_many_parts_use_is_no_kernel() -> None:
    b = Builder("shifted")
    one = b.make("cast", (b.scalar(lit(1), I64),), None, F32, ())
    arrays = [b.argument(f"x{k}", F32, (sym(f"n{k}"),)) for k in range(12)]
    graph = b.close([op(b, "add", x, spread(b, one, x.shape)) for x in arrays])
    assert [len(g.parts) for g in planned(graph)] == [12]
