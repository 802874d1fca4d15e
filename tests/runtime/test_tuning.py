"""Tuning with a stopwatch made of rules: what it keeps, what it remembers, and that results keep their bits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import tuning
from fuser.plan import Plan
from fuser.runtime import cache
from fuser.schedule import CpuSchedule


def program(x: Any, w: Any) -> Any:
    return np.exp(x) * w


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cache.Store:
    kept = cache.Store((tmp_path / "kernels",), 1 << 30)
    monkeypatch.setattr(cache, "store", lambda: kept)
    return kept


@pytest.fixture
def args() -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(s, dtype=np.float32) for s in ((700, 1024), (1024,))]


def likes(grain: int) -> tuning.Timer:
    """A stopwatch for which a task of `grain` is best, and each doubling away from it costs a tenth."""

    def time(plans: Sequence[Plan], position: int) -> list[float]:
        found = []
        for p in plans:
            schedule = p.schedules[position]
            assert isinstance(schedule, CpuSchedule)
            found.append(1e-3 * 1.1 ** abs(np.log2(schedule.grain / grain)))
        return found

    return time


def plan_of(args: Sequence[Any]) -> Plan:
    return fuser.compile(program).plan(*args)


def test_climbs_to_the_fastest_schedule(store: cache.Store, args: list[Any]) -> None:
    seen: list[tuning.Trial] = []
    tuned = tuning.search(plan_of(args), likes(128), seen.append)
    assert tuned.after[0] == replace(tuned.before[0], grain=128)
    assert "grain 16 -> 128" in str(tuned)
    assert tuple(seen) == tuned.trials
    assert sum(t.kept for t in seen) == 3


def test_a_difference_within_the_noise_changes_nothing(store: cache.Store, args: list[Any]) -> None:
    tuned = tuning.search(plan_of(args), lambda plans, k: [0.99e-3, 1e-3], lambda t: None)
    assert tuned.after == tuned.before
    assert "the formula's schedule stays" in str(tuned)


def test_the_outcome_is_remembered_for_the_machine(
    store: cache.Store, args: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuning.recall(plan_of(args)) is None
    tuned = tuning.search(plan_of(args), likes(64), lambda t: None)
    found = tuning.recall(plan_of(args))
    assert found is not None
    assert found.after == tuned.after
    assert found.found
    other = plan_of(args)
    elsewhere = replace(other, toolchain=replace(other.toolchain, machine=lambda device: "another model"))
    assert tuning.recall(elsewhere) is None


def test_a_record_of_another_order_is_a_miss(store: cache.Store, args: list[Any]) -> None:
    plan = fuser.compile(lambda x: x.sum()).plan(args[0])
    (schedule,) = plan.schedules
    foreign = replace(schedule, order=replace(schedule.order, lanes=schedule.order.lanes * 2))
    tuning._remember(plan.schedules, replace(plan, tuned={0: foreign}))
    assert tuning.recall(plan) is None


def test_tuned_results_keep_their_bits(store: cache.Store, args: list[Any]) -> None:
    compiled = fuser.compile(program)
    before = compiled(*args)
    tuned = compiled.tune(*args)
    assert compiled.plan(*args).schedules == tuned.after
    assert compiled(*args).tobytes() == before.tobytes()


def test_tune_option_measures_once_a_size_class(
    store: cache.Store, args: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[Plan] = []

    def search(plan: Plan, time: Any, say: Any) -> tuning.Tuned:
        searches.append(plan)
        better = tuning.rescheduled(plan, 0, replace(plan.schedules[0], grain=64))
        tuning._remember(plan.schedules, better)
        return tuning.Tuned(better, plan.schedules, better.schedules, ())

    monkeypatch.setattr(tuning, "search", search)
    compiled = fuser.compile(program, tune=True)
    wanted = fuser.compile(program)(*args)
    for _ in range(3):
        assert compiled(*args).tobytes() == wanted.tobytes()
    assert len(searches) == 1
    assert compiled.plan(*args).schedules[0].grain == 64
    again = fuser.compile(program, tune=True)  # takes it from the disk cache
    again(*args)
    assert len(searches) == 1
    assert again.plan(*args).schedules[0].grain == 64
    assert fuser.compile(program).plan(*args).schedules[0].grain != 64  # never by default


def batched(p: Any, q: Any) -> Any:
    return p - 1, q * 2


@pytest.mark.parametrize(
    ("function", "specs"),
    [(batched, ("f32[1000]", "f32[70]")), (lambda x: x.sum(axis=(2, 3)), ("f32[4, 8, 56, 56]",))],
    ids=["several parts", "lines proved to be vectors"],
)
@pytest.mark.parametrize("device", ["cpu", "sm_90"])
def test_schedules_with_parts_come_back_as_they_were(
    store: cache.Store, function: Any, specs: tuple[str, ...], device: str
) -> None:
    plan = fuser.compile(function).plan(*specs, device=device)
    plan = replace(plan, toolchain=replace(plan.toolchain, machine=lambda device: "a model"))
    tuned = tuning.search(plan, lambda plans, k: [2.0, 1.0], lambda t: None)
    found = tuning.recall(plan)
    assert found is not None
    assert found.after == tuned.after == plan.schedules


def test_tuning_keeps_the_other_options(store: cache.Store, args: list[Any]) -> None:
    compiled = fuser.compile(program, cuda_graph=True)
    before = vars(compiled._roads)["_graphs"]
    compiled.tune(*args)
    assert vars(compiled._roads)["_graphs"] is before is True


def test_arguments_that_a_program_stores_into_are_left_alone(store: cache.Store) -> None:
    @fuser.compile
    def step(x):
        x += 1
        return x.sum()

    x = np.zeros(5000, np.float32)
    step.tune(x)
    assert not x.any()
