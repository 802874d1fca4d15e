"""Stores into arguments: in place only where no thread can see the new value too early."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import device
from fuser.dtypes import F64
from fuser.graph import Builder, Effect, Graph
from fuser.hostexpr import sym, wrap
from fuser.indexmap import IndexMap, axis
from fuser.passes.fuse import Options, plan_groups
from fuser.passes.pipeline import prepare
from tests.engines import Array, Engine, each
from tests.passes.graphs import fold, literal, op, spread, transpose, view

N, M = sym("n"), sym("m")
SIZES = {"n": 8192, "m": 4096}
H200 = device.find("sm_90")


def in_place(graph: Graph) -> list[tuple[int, int]]:
    """(position of the group, argument) of every store that goes straight into an argument."""
    groups, _ = plan_groups(prepare(graph), SIZES, H200, Options(in_place=True))
    return [(k, a) for k, g in enumerate(groups) for _, a in g.in_place]


def test_an_update_at_the_same_index_is_in_place() -> None:
    b = Builder("step")
    x, g = b.argument("x", F64, (N, M)), b.argument("g", F64, (N, M))
    new = op(b, "subtract", x, g)
    assert in_place(b.close([], [Effect(0, new)])) == [(0, 0)]


def test_it_is_off_unless_the_runtime_asks() -> None:
    b = Builder("step")
    x = b.argument("x", F64, (N, M))
    groups, _ = plan_groups(b.close([], [Effect(0, op(b, "negative", x))]), SIZES, H200)
    assert groups[0].in_place == ()


def test_a_shifted_read_is_not() -> None:
    b = Builder("shift")
    x = b.argument("x", F64, (N, M))
    flipped = view(b, x, IndexMap((wrap(N) - 1 - axis(0), axis(1))), x.shape)
    assert in_place(b.close([], [Effect(0, op(b, "negative", flipped))])) == []


def test_a_transposed_reader_in_the_same_kernel_is_not() -> None:
    b = Builder("square")
    x = b.argument("x", F64, (N, N))
    assert in_place(b.close([], [Effect(0, op(b, "add", x, transpose(b, x, (1, 0))))])) == []


def test_a_value_that_is_also_returned_is_not() -> None:
    b = Builder("both")
    new = op(b, "negative", b.argument("x", F64, (N, M)))
    assert in_place(b.close([new], [Effect(0, new)])) == []


def test_another_dtype_or_shape_is_not() -> None:
    from fuser.dtypes import F32

    b = Builder("narrow")
    x = b.argument("x", F64, (N, M))
    assert in_place(b.close([], [Effect(0, op(b, "cast", x, dtype=F32))])) == []


def test_a_later_stage_that_reads_the_old_value_forbids_it() -> None:
    """x[...] = 2*x is known in the first stage; x - sum(x) reads the old x in the second."""
    b = Builder("stages")
    x = b.argument("x", F64, (N, M))
    doubled = op(b, "multiply", x, literal(b, 2.0, x))
    rest = op(b, "subtract", x, spread(b, fold(b, "sum", x, [1]), x.shape))
    graph = b.close([rest], [Effect(0, doubled)])
    groups, _ = plan_groups(prepare(graph), SIZES, H200, Options(in_place=True))
    assert len(groups) == 1
    assert groups[0].in_place == ()


def test_the_last_stage_may_overwrite() -> None:
    b = Builder("normalise")
    x = b.argument("x", F64, (N, M))
    rest = op(b, "subtract", x, spread(b, fold(b, "sum", x, [1]), x.shape))
    assert in_place(b.close([], [Effect(0, rest)])) == [(0, 0)]


def test_readers_of_the_old_value_run_first() -> None:
    """The update would come first in program order; the sum of everything still reads the old array."""
    b = Builder("order")
    x = b.argument("x", F64, (N, M))
    total = fold(b, "sum", x, [1])
    new = op(b, "subtract", x, spread(b, total, x.shape))
    everything = fold(b, "sum", x, [0, 1], False)
    graph = prepare(b.close([everything], [Effect(0, new)]))
    groups, _ = plan_groups(graph, SIZES, H200, Options(in_place=True))
    assert [g.kind for g in groups] == ["full", "rows"]
    assert [bool(g.in_place) for g in groups] == [False, True]


def test_a_later_kernel_that_reads_the_old_value_keeps_the_copy() -> None:
    """x * (column sums of the new x): the last kernel reads the old x after the new one is computed."""
    b = Builder("late")
    x = b.argument("x", F64, (N, M))
    new = op(b, "subtract", x, spread(b, fold(b, "sum", x, [1]), x.shape))
    late = op(b, "multiply", x, spread(b, fold(b, "sum", new, [0]), x.shape))
    graph = prepare(b.close([late], [Effect(0, new)]))
    groups, _ = plan_groups(graph, {"n": 1 << 20, "m": 4}, H200, Options(in_place=True))
    home = next(k for k, g in enumerate(groups) if graph.effects[0].node.id in g.outputs)
    assert any(0 in g.inputs for g in groups[home + 1 :])
    assert all(g.in_place == () for g in groups)


def test_the_element_that_is_overwritten_may_be_read_by_its_own_thread() -> None:
    """A column sum of x * new reads each old element where it stores the new one."""
    b = Builder("columns")
    x = b.argument("x", F64, (N, M))
    new = op(b, "subtract", x, spread(b, fold(b, "sum", x, [1]), x.shape))
    late = fold(b, "sum", op(b, "multiply", x, new), [0], False)
    assert in_place(b.close([late], [Effect(0, new)])) == [(0, 0)]


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "plain": lambda room: room[:60].reshape(12, 5),
    "every other column": lambda room: room[:120].reshape(12, 10)[:, ::2],
    "upside down": lambda room: room[:60].reshape(12, 5)[::-1, ::-1],
    "transposed": lambda room: room[:60].reshape(5, 12).T,
    "some columns": lambda room: room[:96].reshape(12, 8)[:, 2:7],
}


@each
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_argument_that_is_only_written_is_written_where_it_lies(engine: Engine, layout: str) -> None:
    def program(x: Any, y: Any, z: Any) -> None:
        x[...] = y * 2
        z[...] = np.sum(y, axis=0)

    rng = np.random.default_rng(0)
    y = rng.random((12, 5))
    rooms = [rng.random(128), rng.random(128)]
    wanted = [r.copy() for r in rooms]
    LAYOUTS[layout](wanted[0])[...] = y * 2
    LAYOUTS[layout](wanted[1])[0][...] = y.sum(axis=0)
    engine.compile(program)(LAYOUTS[layout](rooms[0]), y, LAYOUTS[layout](rooms[1])[0])
    for room, want in zip(rooms, wanted, strict=True):
        np.testing.assert_allclose(room, want, rtol=1e-12)


def test_a_stage_that_reduces_the_old_value_down_columns_forbids_it() -> None:
    """x[...] = 2*x is known in the first stage; the columns of x - sum(x) read the old x in the second."""
    b = Builder("across")
    x = b.argument("x", F64, (N, M))
    doubled = op(b, "multiply", x, literal(b, 2.0, x))
    rest = op(b, "subtract", x, spread(b, fold(b, "sum", x, [1]), x.shape))
    graph = prepare(b.close([fold(b, "sum", rest, [0], False)], [Effect(0, doubled)]))
    groups, _ = plan_groups(graph, SIZES, H200, Options(in_place=True))
    assert [g.kind for g in groups] == ["mixed"]
    assert groups[0].in_place == ()
