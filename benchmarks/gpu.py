"""The GPU suite: every workload by every peer, in one process and run.

In: workloads, peers, options. Out: a record that `report` and `plot` read, saved after each row. A peer that fails or
gives a wrong answer is recorded with its error and the run goes on.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import accuracy, first_calls, handwritten, inputs, peers
from benchmarks.machine import Host, open_machine
from benchmarks.timeline import Contender, Span
from benchmarks.workloads import Workload
from fuser import progress

PACKAGES = (
    "fuser-compiler",
    "torch",
    "triton",
    "jax",
    "cupy-cuda13x",
    "numpy",
    "llvmlite",
    "quack-kernels",
    "liger-kernel",
    "cuda-cccl",
)
Record = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """device: `cuda`, or `cpu` for a trial. quick: fewer repeats, no host time. seconds: no new row is begun later.
    processes: how many made the first calls beforehand (0: they are made here, one by one); first: what these
    took."""

    peers: Sequence[str]
    device: str = "cuda"
    quick: bool = False
    seconds: float = float("inf")
    seed: int = 0
    processes: int = 0
    first: first_calls.Seconds = field(default_factory=dict)


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The installed ones' versions."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def run(
    rows: Sequence[Workload], options: Options, save: Callable[[Record], None], say: Callable[[str], None]
) -> Record:
    """Measure; `save` gets the record so far after each row, `say` a line for people."""
    begun = time.perf_counter()
    machine = open_machine(options.device)
    record: Record = {
        "kind": "gpu",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **machine.describe(),
        "versions": versions(PACKAGES),
        "seed": options.seed,
        "first_calls": f"of {options.processes} processes at once" if options.processes else "one by one",
        "rows": [],
    }
    record["read_gbs"] = _read_ceiling(machine)
    say(f"{record['card']}, driver {record['driver']}; read {record['read_gbs']:.0f} GB/s")
    for w in progress.track(rows, "gpu", lambda w: w.id):
        if time.perf_counter() - begun > options.seconds:
            record["not_run"] = [*record.get("not_run", []), w.id]
            continue
        try:
            row = measure(w, machine, options, say)
        except Exception as error:
            row = {"id": w.id, "name": w.name, "error": _short(error), "runs": {}}
            say(f"{w.id:10s} FAILED {row['error']}")
        record["rows"].append(row)
        save(record)
        machine.empty_cache()
    record["seconds"] = time.perf_counter() - begun
    save(record)
    return record


def _read_ceiling(machine: Host) -> float:
    """GB/s of the hand-written read of 1 GiB; 0 in a trial."""
    if machine.device == "cpu":
        return 0.0
    import torch

    x = torch.randn(1 << 28, device="cuda")
    try:
        (span,) = machine.spans([Contender(handwritten.one_kernel(x))])
    except Exception:
        return 0.0
    return x.numel() * 4 / span.seconds * 1e-9 if span is not None else 0.0


def measure(w: Workload, machine: Host, options: Options, say: Callable[[str], None]) -> Record:
    """One workload by all peers."""
    args = inputs.on_device(w, machine.device, options.seed)
    wanted = accuracy.truth(w, args)
    row: Record = {
        "id": w.id,
        "name": w.name,
        "specs": [str(s) for s in w.specs],
        "wanted_kernels": w.kernels,
        "results": [(tuple(x.shape), str(x.dtype)) for x in wanted],
        "runs": {},
    }
    ready: dict[str, peers.Ready] = {}
    for name in options.peers:
        machine.empty_cache()  # other libraries have allocators of their own
        started = time.perf_counter()
        try:
            ready[name], row["runs"][name] = _prepare(name, w, args, wanted, machine, row)
        except (peers.Skip, ImportError) as reason:
            row["runs"][name] = {"skipped": str(reason)}
        except Exception as error:
            row["runs"][name] = {"error": _short(error), "first_call_s": time.perf_counter() - started}
            machine.empty_cache()
    del wanted
    machine.empty_cache()
    row.setdefault("minimum", w.minimum)
    _clock(ready, row, machine, options.quick)
    if not options.quick:
        for name, prepared in ready.items():
            _guarded(row["runs"][name], lambda p=prepared, n=name: _also(p, row["runs"][n], machine), "note")  # type: ignore[misc]
    if options.processes:
        first_calls.put_into(row, options.first)
    say(line(row))
    return row


def _prepare(
    name: str, w: Workload, args: list[Any], wanted: list[Any], machine: Host, row: Record
) -> tuple[peers.Ready, Record]:
    """First call and check against float64."""
    own = [a.clone() if k in w.writes else a for k, a in enumerate(args)]
    machine.synchronize()
    start = time.perf_counter()
    prepared = peers.PEERS[name](w, own)
    out = accuracy.leaves(prepared.call())
    if out and hasattr(out[0], "block_until_ready"):
        out[0].block_until_ready()
    machine.synchronize()
    run: Record = {"first_call_s": time.perf_counter() - start}
    results = [*out, *prepared.written]
    del out
    if not w.writes:
        results = _again_over_poison(prepared, results, machine)
    if name == "fuser":
        read, written = inputs.minimum_bytes(w, args, [accuracy.as_torch(r) for r in results])
        row["minimum"], row["written"] = read + written, written
        if w.minimum and w.specs and read + written != w.minimum:
            row["published_minimum"] = w.minimum
    if not (w.random and name != "fuser"):
        run["relative_error"] = accuracy.compare(results, wanted, 1e-3 if w.fast_math else None)
    run.update(prepared.facts())
    return prepared, run


def _again_over_poison(prepared: peers.Ready, results: list[Any], machine: Host) -> list[Any]:
    """The results of a second call into memory that holds NaNs, so that an element nobody writes is seen."""
    import torch

    for r in results:
        if isinstance(r, torch.Tensor):
            r.fill_(float("nan") if r.dtype.is_floating_point else 1)
    results.clear()
    out = accuracy.leaves(prepared.call())
    machine.synchronize()
    return out


def _clock(ready: dict[str, peers.Ready], row: Record, machine: Host, quick: bool) -> None:
    """Time all peers and a copy of as many bytes, in turns."""
    rounds = 7 if quick else 15
    copies = [Contender(c, rounds=rounds) for c in machine.copies(row["minimum"])]
    spans = machine.spans([*copies, *(Contender(p.call, p.own_stream, rounds) for p in ready.values())])
    row["copy_us"] = min(s.seconds for s in spans[: len(copies)] if s is not None) * 1e6
    for name, span in zip(ready, spans[len(copies) :], strict=True):
        _note(span, row, row["runs"][name])


def _note(span: Span | None, row: Record, run: Record) -> None:
    if span is None:
        run["error"] = "the profiler saw nothing of it on the device"
        return
    run["us"], run["busy_us"] = span.seconds * 1e6, span.busy * 1e6
    run["gbs"] = row["minimum"] / span.seconds * 1e-9
    run["share_of_copy"] = row["copy_us"] / run["us"]
    if span.names:
        run["launches"], run["device_ops"] = len(span.names), list(span.names[:8])


def _also(prepared: peers.Ready, run: Record, machine: Host) -> None:
    """Peak memory, and the host's time where the device's is short."""
    if "us" not in run:
        return
    if "peak_bytes" not in run:
        run["peak_bytes"] = machine.peak(prepared.call)
    if run["us"] < 100:
        run["host_us"] = _host_time(prepared.call, machine) * 1e6


def _host_time(call: Callable[[], Any], machine: Host) -> float:
    """Seconds of the host for one call, of a hundred in a row."""
    machine.synchronize()
    start = time.perf_counter()
    for _ in range(100):
        call()
    spent = time.perf_counter() - start
    machine.synchronize()
    return spent / 100


def _guarded(run: Record, step: Callable[[], None], key: str = "error") -> None:
    """Do a step; what goes wrong is recorded under `key`."""
    try:
        step()
    except Exception as error:
        run[key] = _short(error)


def _short(error: Exception) -> str:
    """The first line of the message, with the names of files but not the folders of this machine."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({f.filename.rsplit('/', 1)[-1]}:{f.lineno})" for f in where)
    message = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", str(error).partition("\n")[0])
    return f"{type(error).__name__}: {message[:300]}{place}"


def line(row: Record) -> str:
    """A row in one line."""
    parts = [f"{row['id']:10s} {row['name'][:28]:28s} {row['minimum'] / 1e6:8.1f} MB"]
    for name, run in row["runs"].items():
        if "error" in run:
            parts.append(f"{name} ERROR {run['error'][:110]}")
        elif "us" in run:
            text = f"{name} {run['us']:.0f}us {100 * run['share_of_copy']:.1f}%"
            if name == "fuser":
                kernels = run.get("launches", run.get("planned_kernels"))
                text += f" k{kernels} s{run.get('spills', 0)}"
                text += f" first {run['first_call_s']:.1f}s" if "first_call_s" in run else ""
                text += f" [{'; '.join(run.get('schedules', []))}]"
            parts.append(text)
    return " | ".join(parts)
