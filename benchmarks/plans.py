"""Whether the planner picks the fastest plan: the plan it chose beside others it could have, each measured.

In: workloads. Out: a record: for each program, each plan's kernels, registers, predicted and measured time, and
whether the chosen one is within 5% of the fastest. The others are: every operator alone; whatever is legal merged; and
plans in which one pair of operators that the chosen plan fuses must stay apart. All plans of a program give the same
bits, which is checked before anything is timed.
"""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks import accuracy, inputs
from benchmarks.gpu import Record, _short, versions
from benchmarks.machine import Host, open_machine
from benchmarks.plan_programs import PROGRAMS
from benchmarks.workloads import WORKLOADS, Workload, resized
from fuser import progress

# Public workloads of several operators that do not write into their arguments, and what their size is divided by so
# that a run of all plans fits in memory and in a minute or two.
PUBLIC = {
    "P02": 4, "P03": 1, "P06a": 2, "P07": 1, "P08": 2, "P09": 1, "P10": 1, "P11": 2, "P12": 2, "P13": 1, "P14a": 1,
    "P15": 2, "P16": 2, "P17": 1, "P18": 1, "P21a": 4, "P21b": 2, "P23a": 8, "P25": 16, "P27": 4, "P28": 4,
}  # fmt: skip
WITHIN = 1.05
SPLITS = 3  # plans with one pair kept apart
MOST_KERNELS = 400
ROUNDS = 3  # times that the plans of a program are measured in turn; the least median counts


@dataclass(frozen=True)
class Variant:
    """A plan to be measured: its name, and what is asked of the planner."""

    name: str
    wishes: dict[str, Any]


def workloads(only: Sequence[str] | None = None) -> list[Workload]:
    """The programs, those that hold most first."""
    public = {w.id: w for w in WORKLOADS}
    rows = [*PROGRAMS, *(resized(public[i], divisor) for i, divisor in PUBLIC.items())]
    return [w for w in rows if only is None or any(w.id.startswith(o) for o in only)]


def run(
    rows: Sequence[Workload], device: str, seconds: float, save: Callable[[Record], None], say: Callable[[str], None]
) -> Record:
    """Measure all programs that can be begun within `seconds`."""
    begun = time.perf_counter()
    machine = open_machine(device)
    record: Record = {
        "kind": "plans",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **machine.describe(),
        "versions": versions(("fuser-compiler", "torch", "cupy-cuda13x", "numpy")),
        "rows": [],
    }
    for w in progress.track(rows, "plans", lambda w: w.id):
        if time.perf_counter() - begun > seconds:
            record["not_run"] = [*record.get("not_run", []), w.id]
            continue
        try:
            row = measure(w, machine)
        except Exception as error:
            row = {"id": w.id, "name": w.name, "error": _short(error)}
        record["rows"].append(row)
        say(line(row))
        save(record)
        machine.empty_cache()
    record["seconds"] = time.perf_counter() - begun
    save(record)
    return record


def measure(w: Workload, machine: Host) -> Record:
    """One program: all its plans, checked and timed."""
    args = inputs.on_device(w, machine.device, seed=1)
    calls = dict(_plans(w, args))
    row: Record = {"id": w.id, "name": w.name, "specs": [str(s) for s in w.specs], "plans": {}}
    row["plans"] = {name: _facts(compiled, args) for name, compiled in calls.items()}
    wanted = None
    for name, compiled in list(calls.items()):
        got = [accuracy.as_torch(x) for x in accuracy.leaves(compiled(*args))]
        if wanted is None:
            wanted = [x.clone() for x in got]
        elif not all(_same(a, b) for a, b in zip(wanted, got, strict=True)):
            row["plans"][name]["error"] = "other bits than the chosen plan's"
        del got
    del wanted
    machine.empty_cache()
    times: dict[str, float] = {}
    for _, (name, compiled) in itertools.product(range(ROUNDS), calls.items()):
        times[name] = min(times.get(name, float("inf")), machine.time(lambda c=compiled: c(*args), 5))  # type: ignore[misc]
    for name, spent in times.items():
        row["plans"][name]["us"] = spent * 1e6
    best = min(times.values())
    row["fastest"] = min(times, key=times.__getitem__)
    row["ratio"] = times["chosen"] / best
    row["within"] = row["ratio"] <= WITHIN
    return row


def _same(a: Any, b: Any) -> bool:
    import torch

    return bool(torch.equal(a.nan_to_num(), b.nan_to_num()) if a.dtype.is_floating_point else torch.equal(a, b))


# -- plans ---------------------------------------------------------------------------------------------
def _plans(w: Workload, args: list[Any]) -> Iterator[tuple[str, Any]]:
    """(name, compiled function) of the chosen plan and of others that differ from it and from each other."""
    chosen = _forced(w, {})
    plan = chosen.plan(*args)
    variants = [Variant("one by one", {"merge": False}), Variant("all that is legal", {"always": True})]
    variants += [Variant(f"{plan.names[a]}, {plan.names[b]} apart", {"apart": ((a, b),)}) for a, b in _pairs(plan)]
    found = {_shape(plan): ("chosen", chosen)}
    for v in variants:
        compiled = _forced(w, v.wishes)
        other = compiled.plan(*args)
        if len(other.groups) <= MOST_KERNELS:
            found.setdefault(_shape(other), (v.name, compiled))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda c: c[1].plan(*args).built, found.values()))
    yield from found.values()


def planned_by(w: Workload, **changes: Any) -> Any:
    """The workload compiled by a toolchain with `changes`: other processes neither lend it their plans nor take its."""
    import fuser
    from fuser import wiring
    from fuser.compiled import Compiled

    tools = replace(wiring.toolchain(), **changes)
    plain = fuser.compile(w.fn, fast_math=w.fast_math)
    return Compiled(plain._source, plain._options, lambda: tools)


def _forced(w: Workload, wishes: dict[str, Any]) -> Any:
    """The workload compiled by a planner of whom something is asked."""
    from fuser import wiring

    return planned_by(w, plan_groups=partial(wiring._plan_groups, **wishes))


def _shape(plan: Any) -> tuple[Any, ...]:
    return tuple((g.members, g.outputs) for g in plan.groups)


def _pairs(plan: Any) -> list[tuple[int, int]]:
    """Pairs of neighbours in the largest kernel at which to cut it: early, in the middle, late."""
    group = max(plan.groups, key=lambda g: len(g.members))
    inside = set(group.members)
    edges = [
        (d.producer, d.consumer)
        for d in plan.decisions
        if d.kind == "vertical" and d.verdict == "fused" and {d.producer, d.consumer} <= inside
    ]
    if not edges:
        edges = [
            (d.producer, d.consumer)
            for d in plan.decisions
            if d.kind == "sibling" and d.verdict == "fused" and {d.producer, d.consumer} <= inside
        ]
    edges.sort(key=lambda e: (e[1], e[0]))
    places = [len(edges) * (2 * k + 1) // (2 * SPLITS) for k in range(SPLITS)]
    return list(dict.fromkeys(edges[p] for p in places if p < len(edges)))


def _facts(compiled: Any, args: list[Any]) -> Record:
    kernels = compiled.plan(*args).kernels
    return {
        "kernels": len(kernels),
        "predicted_us": sum(k.predicted.get("us", 0.0) for k in kernels),
        "bytes": compiled.plan(*args).bytes_moved,
        "registers": max(k.registers for k in kernels),
        "spills": max(k.spills for k in kernels),
        "each": [
            {
                "registers": k.registers, "predicted": {n: round(v, 3) for n, v in k.predicted.items()},
                "schedule": str(k.schedule)[:300],
            }
            for k in kernels[:8]
        ],
    }  # fmt: skip


# -- for people ----------------------------------------------------------------------------------------
def line(row: Record) -> str:
    """A program in one line."""
    if "error" in row:
        return f"{row['id']:5s} {row['name'][:34]:34s} FAILED {row['error']}"
    plans = []
    for name, p in row["plans"].items():
        wrong = " WRONG" if "error" in p else ""
        plans.append(f"{name}: k{p['kernels']} r{p['registers']} {p['predicted_us']:.0f}/{p['us']:.0f}us{wrong}")
    verdict = f"{row['ratio']:.3f} {'ok  ' if row['within'] else 'MISS'}"
    return f"{row['id']:5s} {row['name'][:34]:34s} {verdict} {'; '.join(plans)}"


def table(record: Record) -> str:
    """Markdown: a row a program; what was predicted of the chosen plan and the next best, beside what was measured."""
    rows = [r for r in record["rows"] if "error" not in r]
    good, plans = sum(r["within"] for r in rows), sum(len(r["plans"]) for r in rows)
    out = [
        f"Of {len(rows)} programs with {plans} plans, {good} chosen plans are within 5% of the fastest measured "
        f"({record['card']}, {record['date'][:10]}).",
        "",
        "| program | plans | chosen: kernels | predicted us | measured us | best other: kernels | predicted us "
        "| measured us | chosen / fastest |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in rows:
        mine = r["plans"]["chosen"]
        other = min((p for n, p in r["plans"].items() if n != "chosen"), key=lambda p: p["us"], default=mine)
        mark = " (1)" if r.get("earlier_model") else ""
        cells = [f"{p['kernels']} | {p['predicted_us']:.0f} | {p['us']:.0f}" for p in (mine, other)]
        out.append(f"| {r['name']}{mark} | {len(r['plans'])} | {' | '.join(cells)} | {r['ratio']:.2f} |")
    return "\n".join(out)
