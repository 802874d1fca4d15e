"""Plans replayed as CUDA graphs, with a driver that only takes notes: the right words at every replay."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import InternalError
from fuser.runtime import cuda, native_entry, native_plan
from fuser.runtime.launch_steps import Clear, KernelLaunch
from fuser.runtime.native_plan import LaunchPlan
from tests.runtime.fake_driver import FakeDriver

pytestmark = pytest.mark.skipif(not native_entry.usable(), reason="this interpreter has no native road")
ADD, SCALE = 0x1000, 0x2000


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(cuda, "launch_failed", lambda code: InternalError(f"code {code}", "launch"))
    return FakeDriver({ADD: 3, SCALE: 2})


def plan(driver: FakeDriver, clear: Clear | None = None) -> LaunchPlan:
    """x, y, z -> ADD(x, y, 7), then SCALE(y, z)."""
    kernels = [
        KernelLaunch(ADD, (5, 6), 128, 0, ((0, 0), (1, 0), (None, 7))),
        KernelLaunch(SCALE, (3, 1), 64, 99, ((1, 0), (2, 0))),
    ]
    return LaunchPlan(kernels, 3, native_plan.Driver(driver), clear)


def launches(stream: int, x: int, y: int, z: int) -> list[Any]:
    return [(ADD, (5, 6, 1, 128, 1, 1, 0), stream, [x, y, 7]), (SCALE, (3, 1, 1, 64, 1, 1, 99), stream, [y, z])]


def test_a_replay_does_what_the_launches_did(driver: FakeDriver) -> None:
    made = plan(driver)
    assert made.launch(1, 10, 20, 30) == 0
    assert driver.seen == launches(1, 10, 20, 30)
    made.record([10, 20, 30])
    assert made.recorded
    driver.seen.clear()
    assert made.launch(2, 10, 20, 30) == 0
    assert driver.seen == launches(2, 10, 20, 30)
    assert (driver.replays, driver.patches) == (1, [])


@pytest.mark.parametrize(("words", "patched"), [((11, 20, 30), 1), ((10, 21, 30), 2), ((10, 20, 2**63 + 1), 1)])
def test_only_nodes_whose_words_changed_are_patched(driver: FakeDriver, words: Any, patched: int) -> None:
    made = plan(driver)
    made.record([10, 20, 30])
    for _ in range(2):
        driver.seen.clear()
        assert made.launch(3, *words) == 0
        assert driver.seen == launches(3, *words)
    assert len(driver.patches) == patched
    driver.seen.clear()
    made.launch(3, 10, 20, 30)
    assert driver.seen == launches(3, 10, 20, 30)


def test_counters_are_cleared_where_they_are_now(driver: FakeDriver) -> None:
    made = plan(driver, Clear(1, 512))
    made.launch(1, 10, 20, 30)
    assert driver.seen == [("clear", 20, 512, 1), *launches(1, 10, 20, 30)]
    made.record([10, 20, 30])
    for y in (20, 77):
        driver.seen.clear()
        made.launch(4, 10, y, 30)
        assert driver.seen == [("clear", y, 512, 4), *launches(4, 10, y, 30)]


def test_a_graph_clears_its_own_counters(driver: FakeDriver) -> None:
    """It may be replayed on any stream."""
    made = plan(driver, Clear(1, 512, ((1, 0x900),)))
    made.launch(0, 10, 20, 30)
    assert driver.seen == launches(None, 10, 0x900, 30)  # type: ignore[arg-type]
    made.record([10, 20, 30])
    for stream in (None, 4):
        driver.seen.clear()
        made.launch(stream or 0, 10, 20, 30)
        assert driver.seen == [("clear", 20, 512, stream), *launches(stream, 10, 20, 30)]  # type: ignore[arg-type]


def test_a_patch_that_failed_is_made_again(driver: FakeDriver) -> None:
    made = plan(driver)
    made.record([10, 20, 30])
    driver.patch_codes = [0, 719]
    assert made.launch(1, 10, 21, 30) == 719
    assert driver.seen == []
    assert made.launch(1, 10, 20, 30) == 0
    assert driver.seen == launches(1, 10, 20, 30)


class SlowDriver(FakeDriver):
    """Patches when it is told to."""

    def __init__(self, counts: dict[int, int]) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        super().__init__(counts)

    def _cuGraphExecKernelNodeSetParams(self, *arguments: int) -> int:
        self.inside.set()
        assert self.go.wait(10)
        return super()._cuGraphExecKernelNodeSetParams(*arguments)


def test_while_a_thread_replays_others_launch(driver: FakeDriver) -> None:
    """Two threads must not patch one graph: the second finds it taken."""
    slow = SlowDriver({ADD: 3, SCALE: 2})
    made = plan(slow)
    made.record([10, 20, 30])
    other = threading.Thread(target=made.launch, args=(5, 11, 20, 30))
    other.start()
    assert slow.inside.wait(10)
    made.launch(6, 12, 22, 32)
    assert slow.seen == launches(6, 12, 22, 32)
    assert slow.replays == 0
    slow.go.set()
    other.join()
    assert slow.seen[2:] == launches(5, 11, 20, 30)
    assert slow.replays == 1


def test_the_graph_goes_with_its_plan(driver: FakeDriver) -> None:
    made = plan(driver)
    made.record([10, 20, 30])
    assert not any(g.dead for g in driver.graphs.values())
    del made
    gc.collect()
    assert all(g.dead for g in driver.graphs.values())


class FullDriver(FakeDriver):
    """Has no room for a graph."""

    def _cuGraphInstantiateWithFlags(self, made: int, graph: int, flags: int) -> int:
        return 2


def test_a_refused_graph_is_an_error_and_leaves_nothing(driver: FakeDriver) -> None:
    full = FullDriver({ADD: 3, SCALE: 2})
    made = plan(full)
    with pytest.raises(InternalError, match="code 2"):
        made.record([10, 20, 30])
    assert all(g.dead for g in full.graphs.values())
    assert not made.recorded
    assert made.launch(1, 10, 20, 30) == 0


@pytest.mark.parametrize(
    ("program", "device", "line"),
    [
        ("lambda x: x * 2 + 1", "sm_90", "as one CUDA graph, from the second call on"),
        ("lambda x: (x @ x) * 2", "sm_90", "as one CUDA graph, for arrays that matrix products saw before"),
        ("lambda x: i32(x) @ i32(x)", "sm_90", "one by one, not as a CUDA graph: L1 is no product of floats"),
        ("lambda x: (x, x * 2)", "sm_90", "one by one, not as a CUDA graph: an argument is returned as it is"),
        ("lambda x: x * 2 + 1", "cpu", "one by one, not as a CUDA graph: it runs on the CPU"),
    ],
)
def test_a_plan_says_whether_it_is_replayed(program: str, device: str, line: str) -> None:
    plan = fuser.compile(program, cuda_graph=True).plan("f32[512, 512]", device=device)
    assert f"  launches  {line}\n" in plan.explain()
    assert plan.to_json()["cuda_graph"] == line
    plain = fuser.compile(program).plan("f32[512, 512]", device=device)
    assert "launches  one" not in plain.explain()
    assert plain.to_json()["cuda_graph"] is None


def test_a_report_says_whether_it_was_replayed() -> None:
    x = np.ones((64, 64), np.float32)
    found = fuser.compile("lambda x: x * 2 + 1", cuda_graph=True).report(x, samples=2)
    assert "launches  one by one, not as a CUDA graph: it runs on the CPU" in str(found)
    assert "launches" not in str(fuser.compile("lambda x: x * 2 + 1").report(x, samples=2))
