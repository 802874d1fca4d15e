"""Tuning: a small measured search where the formulas are close, on this very machine; asked for, never by default.

In: a plan, and a way to time its kernels on real arrays. Out: the plan with the schedules that ran fastest, a `Trial`
for each one tried, and a record in the disk cache from which the next process takes them up without measuring.

Only schedules of the same reduction order compete (`codegen.schedule.nearby`), so tuning never changes a bit of a
result. From the formula's schedule the search steps to the neighbour that is faster by more than the noise, until none
is. Incumbent and challenger run in turn, since clocks drift; a challenger that spills is not run. A record is keyed by
what the formula's kernels are (their whole text) and the machine's model, so a change of either is a miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from fuser import measure, progress
from fuser.draw import units
from fuser.record import dataclass
from fuser.runtime import cache
from fuser.schedule import Schedule
from fuser.toolchain import Built

if TYPE_CHECKING:
    from fuser.compiled import Compiled
    from fuser.plan import Plan

LEAST_GAIN = 0.02  # of the time: below it a difference is taken for noise
MOST_TRIALS = 24  # schedules measured a kernel
SAMPLES = 15  # runs a schedule

Timer = Callable[[Sequence["Plan"], int], Sequence[float]]  # seconds of kernel number k under each of several plans


@dataclass(frozen=True)
class Trial:
    """One schedule measured against the best so far. seconds: its own and the best's, in the same rounds."""

    kernel: str
    schedule: Schedule
    seconds: float
    against: float
    kept: bool

    @property
    def gain(self) -> float:
        """Share of the best's time that it saves (negative: it is slower)."""
        return 1 - self.seconds / self.against


@dataclass(frozen=True)
class Tuned:
    """The outcome. before and after: the schedule of every kernel, None for a library call. found: taken from the
    disk cache, so that nothing was measured."""

    plan: Plan
    before: tuple[Schedule | None, ...]
    after: tuple[Schedule | None, ...]
    trials: tuple[Trial, ...]
    found: bool = False

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """A line a kernel: what changed, and what it gained."""
        for k, (old, new) in enumerate(zip(self.before, self.after, strict=True)):
            label = self.plan.outline[k].label
            if old is None or new is None:
                yield f"{label}  library call, nothing to tune"
            elif old == new:
                tried = sum(t.kernel == label for t in self.trials)
                why = "as tuned before" if self.found else f"{units.count(tried, 'other schedule')} tried"
                yield f"{label}  the formula's schedule stays: {why}"
            else:
                yield f"{label}  {difference(old, new)}{self._gain(label)}"

    def _gain(self, label: str) -> str:
        kept = [t for t in self.trials if t.kernel == label and t.kept]
        if not kept:
            return "  from the cache"
        whole = 1.0
        for t in kept:
            whole *= t.seconds / t.against
        return f"  {units.time(kept[0].against * 1e6)} -> {units.time(kept[0].against * whole * 1e6)}"


def difference(old: Schedule, new: Schedule) -> str:
    """The numbers in which two schedules differ: `unroll 4 -> 8`."""
    pairs = [(f.name, getattr(old, f.name), getattr(new, f.name)) for f in fields(old)]
    return ", ".join(f"{name} {a} -> {b}" for name, a, b in pairs if a != b)


def search(plan: Plan, time: Timer, say: Callable[[Trial], None]) -> Tuned:
    """Tune every kernel of a plan and remember the outcome. `say` is told of each schedule measured."""
    before, trials = plan.schedules, list[Trial]()
    tunable = [position for position, schedule in enumerate(before) if schedule is not None]
    with progress.task("tune", MOST_TRIALS * len(tunable)) as work:

        def note(trial: Trial) -> None:
            trials.append(trial)
            work.advance(1, f"{trial.kernel}  {trial.gain:+.1%}")
            say(trial)

        for number, position in enumerate(tunable, 1):
            work.advance(0, plan.outline[position].label)
            plan = _climb(plan, position, time, note)
            work.expect(len(trials) + MOST_TRIALS * (len(tunable) - number))  # a search may end early
    _remember(before, plan)
    return Tuned(plan, before, plan.schedules, tuple(trials))


def tune(
    compiled: Compiled, args: tuple[Any, ...], kwargs: Mapping[str, Any], say: Callable[[Trial], None] | None
) -> Tuned:
    """Search for the plan that `compiled(*args, **kwargs)` runs, on these arguments."""
    call = measure.call_of(compiled, args, kwargs)
    plan = compiled.plan(*call.args, **call.kwargs)

    def seconds(plans: Sequence[Plan], position: int) -> Sequence[float]:
        steps = call.step_seconds([call.program(p) for p in plans], SAMPLES)
        return [measure.by_kernel(p, s)[position] for p, s in zip(plans, steps, strict=True)]

    return search(replace(plan, tuned={}), seconds, say or (lambda trial: None))


def _climb(plan: Plan, position: int, time: Timer, say: Callable[[Trial], Any]) -> Plan:
    """The plan with kernel `position` under the best schedule found."""
    label, seen, left = plan.outline[position].label, {plan.schedules[position]}, MOST_TRIALS
    while True:
        faster: dict[Schedule, float] = {}
        for schedule in plan.toolchain.neighbours(_standing(plan, position)):
            if schedule in seen or not left:
                continue
            seen.add(schedule)
            other = rescheduled(plan, position, schedule)
            if _kept(other, position) != schedule or _spills(other, position):
                continue
            left -= 1
            mine, best = time((other, plan), position)
            if mine < best * (1 - LEAST_GAIN):
                faster[schedule] = mine / best
            say(Trial(label, schedule, mine, best, False))
        if not faster:
            return plan
        schedule = min(faster, key=lambda s: faster[s])
        challenger = rescheduled(plan, position, schedule)
        mine, best = time((challenger, plan), position)  # once more: the best of many is partly luck
        kept = mine < best * (1 - LEAST_GAIN)
        say(Trial(label, schedule, mine, best, kept))
        if not kept:
            return plan
        plan = challenger


def rescheduled(plan: Plan, position: int, schedule: Schedule) -> Plan:
    """The plan with another schedule for one of its kernels."""
    return replace(plan, tuned={**plan.tuned, position: schedule})


def _standing(plan: Plan, position: int) -> Schedule:
    kept = _kept(plan, position)
    assert kept is not None
    return kept


def _kept(plan: Plan, position: int) -> Schedule | None:
    compiled = plan.compiled[position]
    return None if compiled is None else compiled.schedule


def _spills(plan: Plan, position: int) -> bool:
    return any(b.resources.spills > 0 for b in plan.built[position])


# -- the record ----------------------------------------------------------------------------------------
def recall(plan: Plan) -> Tuned | None:
    """The outcome of an earlier search for these kernels on this kind of machine; None where a kernel has none."""
    tuned: dict[int, Schedule] = {}
    for position, schedule in enumerate(plan.schedules):
        if schedule is None:
            continue
        entry = cache.store().load(_key(plan, position))
        known = _decode(schedule, entry.record) if entry is not None else None
        if known is None:
            return None
        if known != schedule:
            tuned[position] = known
    after = replace(plan, tuned=tuned)
    return Tuned(after, plan.schedules, after.schedules, (), found=True)


def _remember(before: Sequence[Schedule | None], plan: Plan) -> None:
    """Store what differs from the formula's schedule of every kernel; nothing does where that stays, which is stored
    too, so that it is not measured again."""
    untuned = replace(plan, tuned={})
    for position, (old, new) in enumerate(zip(before, plan.schedules, strict=True)):
        if old is not None and new is not None:
            mine, formula = asdict(new), asdict(old)
            changes = {name: mine[name] for name in mine if mine[name] != formula[name]}
            cache.store().save(_key(untuned, position), {}, {"changes": changes})


def _key(plan: Plan, position: int) -> str:
    """Of a kernel under the formula's schedule: its text in the kernel language says all about it but its sizes."""
    built: tuple[Built, ...] = plan.built[position]
    text = "\n".join(repr(b.kernel) for b in built)
    return cache.key_of("tuned", plan.toolchain.machine(plan.device), repr(plan.size_class), text)


def _decode(formula: Schedule, record: Mapping[str, Any]) -> Schedule | None:
    """The formula's schedule with the stored changes; None where they are not plain numbers of it (a record of another
    version, or of another order)."""
    changes = record.get("changes")
    if not isinstance(changes, dict):
        return None
    if not all(isinstance(v, int) and isinstance(getattr(formula, k, None), int) for k, v in changes.items()):
        return None
    found: Schedule = replace(formula, **changes)
    return found if found.index_bits == formula.index_bits else None
