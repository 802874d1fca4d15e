"""What the fixed reduction order costs: each family under its own order and under others, in one run.

In: workloads with reductions or running folds. Out: for each, microseconds under the order as it is and under every
variation that can be compiled and still gives the result, and the share that the best of them would save. Reductions
vary in the lanes and segments of `fuser.order`, running folds in the threads and elements that make a tile. The
variations change the bits of results, so no schedule may choose among them; here they stand for a schedule that is free
to add in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import accuracy, inputs
from benchmarks.machine import Cuda
from benchmarks.plans import planned_by
from benchmarks.workloads import Workload
from fuser import progress

FACTORS = (
    (0.5, 0.5), (0.5, 1), (0.5, 2), (1, 0.5), (1, 2), (2, 0.5), (2, 1), (2, 2), (0.25, 1), (4, 1), (1, 0.25), (1, 4),
)  # fmt: skip
ROUNDS = 3
SAME = 1e-2  # norm-wise: another order of the same sum is nearer, a wrong one is not


@dataclass(frozen=True)
class Variation:
    """name; lanes and segments: factors of a reduction's order; scan: factors of a running fold's threads and
    elements a tile."""

    name: str
    lanes: float = 1
    segments: float = 1
    scan: tuple[float, float] = (1, 1)


def variations(w: Workload) -> list[Variation]:
    """Those that apply to a workload."""
    if w.program == "cumsum":
        return [Variation(f"threads x{t:g}, tiles x{u:g}", scan=(t, u)) for t, u in FACTORS if 0.25 < t < 4 > u > 0.25]
    return [Variation(f"lanes x{x:g}, segments x{s:g}", x, s) for x, s in FACTORS]


def run(
    rows: Sequence[Workload], say: Callable[[str], None], save: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """One record a workload; `save` gets those so far."""
    machine = Cuda()
    found = []
    for w in progress.track(rows, "orders", lambda w: w.id):
        found.append(measure(w, machine))
        say(f"{w.id:10s} {w.name:24s} {summary(found[-1])}")
        save(found)
        machine.empty_cache()
    return found


def compile_only(rows: Sequence[Workload], say: Callable[[str], None]) -> None:
    """Fill the disk cache with every variation's kernels, so that `run` need not compile."""
    for w in rows:
        args = inputs.on_device(w, "cuda", 0)
        made = [v.name for v in variations(w) if _compiled(w, args, v) is not None]
        say(f"{w.id:10s} {len(made)} variations")
        del args


def summary(record: dict[str, Any]) -> str:
    if "error" in record:
        return str(record["error"])
    return (
        f"fixed {record['fixed_us']:.1f} us, best of {len(record['free_us'])} others {record['best_us']:.1f} us "
        f"{record['best']}: costs {record['cost']:+.1%}"
    )


def measure(w: Workload, machine: Cuda) -> dict[str, Any]:
    """Fixed and free times; the fixed order and the best other one take turns at the end."""
    args = inputs.on_device(w, machine.device, 0)
    fixed = _compiled(w, args, None)
    record: dict[str, Any] = {"id": w.id, "name": w.name}
    if fixed is None:
        return record | {"error": "does not run under its own order"}
    wanted = accuracy.leaves(fixed())
    others: dict[str, Callable[[], Any]] = {}
    times: dict[str, float] = {}
    for v in variations(w):
        call = _compiled(w, args, v)
        if call is None or not _same(accuracy.leaves(call()), wanted):
            continue
        others[v.name], times[v.name] = call, machine.time(call, 5)
    record["free_us"] = {k: t * 1e6 for k, t in times.items()}
    if not times:
        return record | {"error": "no other order can be compiled"}
    best = min(times, key=lambda k: times[k])
    pairs = [(machine.time(fixed), machine.time(others[best])) for _ in range(ROUNDS)]
    mine, other = (sorted(column)[ROUNDS // 2] for column in zip(*pairs, strict=True))
    return record | {"fixed_us": mine * 1e6, "best": best, "best_us": other * 1e6, "cost": mine / other - 1}


def _same(got: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether results are those of the same reduction, added in another order."""
    for g, w in zip(got, wanted, strict=True):
        g, w = (accuracy.as_torch(x).double().reshape(-1)[: accuracy.CHUNK] for x in (g, w))
        if not float((g - w).norm()) <= SAME * float(w.norm()):
            return False
    return True


def _compiled(w: Workload, args: Sequence[Any], v: Variation | None) -> Callable[[], Any] | None:
    """The program under a variation, None: its own order. None where no schedule realises that order."""
    from fuser.errors import FuserError

    compiled = planned_by(w)  # the variation is no part of the key that plans are kept by
    try:
        with nullcontext() if v is None else order_times(v.lanes, v.segments):
            if v is not None and v.scan != (1, 1):
                _rescan(compiled, args, v)
            compiled(*args)
    except (FuserError, AssertionError, ValueError, ArithmeticError, IndexError):
        return None
    return lambda: compiled(*args)


def _rescan(compiled: Any, args: Sequence[Any], v: Variation) -> None:
    """Give every running fold of the plan other threads a row (or column) and other tiles."""
    bound, traced = compiled._trace(tuple(args), {})
    plan = compiled.plan(*args)
    compiled._adopt(replace(plan, tuned=dict(_scans(plan.schedules, *v.scan))), bound, traced)


def _scans(schedules: Sequence[Any], threads: float, tiles: float) -> Iterator[tuple[int, Any]]:
    from fuser.order import Order

    for position, s in enumerate(schedules):
        if s is not None and s.kind == "scan":
            team, unroll = max(int(s.threads_per_row * threads), 1), max(int(s.unroll * tiles), 1)
            lanes = max(int(s.order.lanes * threads * tiles), 1)
            block = int(s.threads * threads) if s.threads == s.threads_per_row else s.threads
            yield position, replace(s, threads=block, threads_per_row=team, unroll=unroll, order=Order(lanes))


@contextmanager
def order_times(lanes: float, segments: float) -> Iterator[None]:
    """`fuser.order` for CUDA with other numbers of lanes and segments."""
    from fuser import order

    kept = dict(order._CUDA)

    def scaled(rule: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
        def other(n: int, itemsize: int) -> Any:
            plain = rule(n, itemsize)
            wanted_lanes = min(max(int(plain.lanes * lanes), 1), n)
            return order.Order(wanted_lanes, min(max(int(plain.segments * segments), 1), max(n // wanted_lanes, 1)))

        return other

    order._CUDA.update({axis: scaled(rule) for axis, rule in kept.items()})
    try:
        yield
    finally:
        order._CUDA.update(kept)
