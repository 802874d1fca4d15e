"""Planning grows about as the graph does: work is counted, not timed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import planning
from fuser import device as devices
from fuser.graph import Graph
from fuser.passes import fuse
from fuser.passes.pipeline import prepare


def calls(work: Callable[[], Any]) -> int:
    """Python functions entered."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def planned(graph: Graph) -> None:
    fuse.plan_groups(prepare(graph), planning.SIZES, devices.find("sm_90"))


@pytest.mark.parametrize("name", list(planning.GRAPHS))
def test_eight_times_the_graph_is_at_most_twelve_times_the_work(name: str) -> None:
    make, operators = planning.GRAPHS[name]
    small, large = make(operators // 40), make(operators // 5)
    assert calls(lambda: planned(large)) <= 12 * calls(lambda: planned(small))


def test_the_collector_rests_while_planning_and_runs_again() -> None:
    assert gc.isenabled()
    before = sum(s["collections"] for s in gc.get_stats())
    planned(planning.chain(400))
    assert sum(s["collections"] for s in gc.get_stats()) - before <= 4
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        planned(planning.chain(20))
        assert not gc.isenabled()
    finally:
        gc.enable()
