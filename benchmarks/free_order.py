"""What the fixed reduction order costs: each family under its own order and under others, in one run.

In: workloads with reductions. Out: for each, microseconds under `fuser.order` as it is and under every variation of its
lanes and segments that can be compiled, and the share that the best of them would save. The variations change the
bits of results, so no schedule may choose among them; here they stand for a schedule that is free to add in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks import inputs
from benchmarks.machine import Cuda
from benchmarks.workloads import Workload
from fuser import progress

FACTORS = (0.25, 0.5, 1, 2, 4)  # of the lanes, and of the segments
ROUNDS = 3


def run(rows: Sequence[Workload], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """One record a workload."""
    machine = Cuda()
    found = []
    for w in progress.track(rows, "orders", lambda w: w.id):
        found.append(measure(w, machine))
        say(f"{w.id:10s} {w.name:24s} {summary(found[-1])}")
        machine.empty_cache()
    return found


def summary(record: dict[str, Any]) -> str:
    return (
        f"fixed {record['fixed_us']:.1f} us, best of {len(record['free_us'])} others {record['best_us']:.1f} us "
        f"{record['best']}: costs {record['cost']:+.1%}"
    )


def measure(w: Workload, machine: Cuda) -> dict[str, Any]:
    """Fixed and free times; the fixed order and the best other one take turns at the end."""
    args = inputs.on_device(w, machine.device, 0)
    fixed = _compiled(w, args)
    others: dict[str, Callable[[], Any]] = {}
    times: dict[str, float] = {}
    for lanes, segments in itertools.product(FACTORS, FACTORS):
        if (lanes, segments) == (1, 1):
            continue
        with order_times(lanes, segments):
            try:
                call = _compiled(w, args)
                times[name := f"lanes x{lanes:g}, segments x{segments:g}"] = machine.time(call, 5)
                others[name] = call
            except Exception:  # no schedule realises that order for this family
                continue
    record: dict[str, Any] = {"id": w.id, "name": w.name, "free_us": {k: v * 1e6 for k, v in times.items()}}
    best = min(times, key=lambda k: times[k])
    pairs = [(machine.time(fixed), machine.time(others[best])) for _ in range(ROUNDS)]
    mine, other = (sorted(column)[ROUNDS // 2] for column in zip(*pairs, strict=True))
    return record | {"fixed_us": mine * 1e6, "best": best, "best_us": other * 1e6, "cost": mine / other - 1}


def _compiled(w: Workload, args: Sequence[Any]) -> Callable[[], Any]:
    import fuser

    compiled = fuser.compile(w.fn, fast_math=w.fast_math)
    compiled(*args)
    return lambda: compiled(*args)


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
