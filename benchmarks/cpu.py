"""The CPU suite: interleaved rounds, so that a noisy machine disturbs all alike, and ratios of paired rounds.

In: workloads, peers. Out: a record that `report` and `plot` read, saved after each row. A call that takes well under a
millisecond is timed in batches.
"""

from __future__ import annotations

import datetime
import gc
import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import accuracy, cpu_forms, inputs, libraries, torch_forms
from benchmarks.gpu import _short, versions
from benchmarks.workloads import Workload, array_specs
from fuser import progress

Record = dict[str, Any]
Call = Callable[[], Any]
PACKAGES = ("fuser-compiler", "numpy", "scipy", "numexpr", "numba", "torch", "jax", "llvmlite")
TOLERANCE = {"f32": 2e-5, "f64": 1e-11, "bf16": 1e-2}
LOOSE = 5e-3  # for others, whose sums of many terms may be plain loops; the record has each one's error


@dataclass(frozen=True)
class Options:
    """peers: names, or None for all that are installed. quick: three rounds. seconds: no new row is begun later."""

    peers: Sequence[str] | None
    quick: bool = False
    seconds: float = float("inf")
    seed: int = 0


@dataclass
class Entry:
    """A prepared peer and its samples."""

    call: Call
    first: float
    batch: int = 1
    samples: list[float] = field(default_factory=list)


class Skip(Exception):
    """This peer has no way to run the workload."""


def _fuser(w: Workload, args: list[Any]) -> Call:
    import fuser

    compiled = fuser.compile(w.fn, fast_math=w.fast_math)
    return lambda: compiled(*args)


def _fuser_out(w: Workload, args: list[Any]) -> Call:
    import fuser

    if w.writes:
        raise Skip("writes into its arguments")
    compiled = fuser.compile(w.fn, fast_math=w.fast_math)
    out = compiled(*args)
    if not all(isinstance(x, np.ndarray) for x in accuracy.leaves(out)):
        raise Skip("its results are scalars")
    return lambda: compiled(*args, out=out)


def _numpy(w: Workload, args: list[Any]) -> Call:
    program = w.bound(libraries.programs(libraries.numpy()))

    def call() -> Any:
        with np.errstate(all="ignore"):
            return program(*args)

    return call


def _numexpr(w: Workload, args: list[Any]) -> Call:
    program = cpu_forms.numexpr_program(w.program, _float_of(w))
    if program is None:
        raise Skip("not an expression")
    return lambda: program(*args)


def _numba(w: Workload, args: list[Any]) -> Call:
    program = cpu_forms.numba_program(w.program)
    if program is None:
        raise Skip("nothing written for it")
    return lambda: program(*args)


def _torch_args(args: list[Any]) -> list[Any]:
    import torch

    def tensor(a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        if str(a.dtype) != "bfloat16":
            return torch.from_numpy(a)
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)

    return [tensor(a) for a in args]


def _torch(w: Workload, args: list[Any]) -> Call:
    import torch

    held = _torch_args(args)
    program = torch_forms.forms().get(w.program) or w.bound(libraries.programs(libraries.torch()))

    def call() -> Any:
        with torch.no_grad():
            return program(*held)

    return call


def _torch_compile(w: Workload, args: list[Any]) -> Call:
    import torch

    torch._dynamo.reset()
    held = _torch_args(args)
    form = torch_forms.forms().get(w.program) or w.bound(libraries.programs(libraries.torch()))
    program = torch.compile(form, dynamic=False)

    def call() -> Any:
        with torch.no_grad():
            return program(*held)

    return call


def _jax(w: Workload, args: list[Any]) -> Call:
    import jax
    import jax.numpy as jnp

    if w.writes:
        raise Skip("JAX stores nothing in place")
    jax.config.update("jax_enable_x64", True)
    program = jax.jit(w.bound(libraries.programs(libraries.jax())))
    held = [jnp.asarray(a) if hasattr(a, "dtype") else a for a in args]
    return lambda: jax.block_until_ready(program(*held))


PEERS: dict[str, tuple[str, Callable[[Workload, list[Any]], Call]]] = {  # name -> (module it needs, preparation)
    "fuser": ("fuser", _fuser),
    "fuser out=": ("fuser", _fuser_out),
    "numpy": ("numpy", _numpy),
    "numexpr": ("numexpr", _numexpr),
    "numba": ("numba", _numba),
    "torch": ("torch", _torch),
    "torch.compile": ("torch", _torch_compile),
    "jax": ("jax", _jax),
}


def _float_of(w: Workload) -> str:
    return next((s[0] for s in array_specs(w) if s is not None and s[0] in TOLERANCE), "f64")


def run(
    rows: Sequence[Workload], options: Options, save: Callable[[Record], None], say: Callable[[str], None]
) -> Record:
    """Measure; `save` gets the record so far after each row, `say` a line for people."""
    begun = time.perf_counter()
    wanted = list(options.peers or PEERS)
    if unknown := [n for n in wanted if n not in PEERS]:
        raise SystemExit(f"no peer is called {unknown[0]}; there are {', '.join(PEERS)}")
    names = [n for n in wanted if importlib.util.find_spec(PEERS[n][0]) is not None]
    record: Record = {
        "kind": "cpu",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "card": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "versions": versions(PACKAGES),
        "seed": options.seed,
        "rows": [],
    }
    for w in progress.track(rows, "cpu", lambda w: w.id):
        if time.perf_counter() - begun > options.seconds:
            record["not_run"] = [*record.get("not_run", []), w.id]
            continue
        row = measure(w, names, options)
        record["rows"].append(row)
        say(line(row))
        save(record)
        gc.collect()
    save(record)
    return record


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            found = next((text.split(":")[1].strip() for text in f if text.startswith("model name")), "")
    except OSError:
        found = ""
    return found or platform.processor() or platform.machine()


def measure(w: Workload, names: Sequence[str], options: Options) -> Record:
    """One workload by all peers."""
    args = inputs.on_host(w, options.seed)
    row: Record = {"id": w.id, "name": w.name, "specs": [str(s) for s in w.specs], "runs": {}}
    wanted = _truth(w, args)
    entries: dict[str, Entry] = {}
    for name in names:
        own = [a.copy() if k in w.writes else a for k, a in enumerate(args)]
        start = time.perf_counter()
        try:
            call = PEERS[name][1](w, own)
            results = [*accuracy.leaves(call()), *(own[k] for k in w.writes)]
            entries[name] = Entry(call, time.perf_counter() - start)
            row["runs"][name] = {"first_call_s": entries[name].first}
            if name == "fuser":
                row["minimum"] = sum(inputs.minimum_bytes(w, own, results))
            if not w.random or name.startswith("fuser"):
                limit = TOLERANCE[_float_of(w)]
                limit = limit if name.startswith("fuser") else max(limit, LOOSE)
                row["runs"][name]["relative_error"] = _compare(results, wanted, limit)
        except Skip as reason:
            row["runs"][name] = {"skipped": str(reason)}
        except Exception as error:
            row["runs"][name] = {"error": _short(error)}
            entries.pop(name, None)
    if "fuser" in entries:
        _rounds(entries, options)
        row["copy_us"] = _copy_time(row["minimum"]) * 1e6
        _summarise(entries, row)
    return row


def _truth(w: Workload, args: list[Any]) -> list[Any] | None:
    """Results in float64; None for programs that draw numbers."""
    if w.random:
        return None
    wide = [a.astype(np.float64) if hasattr(a, "dtype") and a.dtype.kind not in "iub" else a for a in args]
    with np.errstate(all="ignore"):
        out = w.bound(libraries.programs(libraries.numpy()))(*wide)
    return [*accuracy.leaves(out), *(wide[k] for k in w.writes)]


def _compare(got: list[Any], wanted: list[Any] | None, tolerance: float) -> float:
    worst = 0.0
    for k, (g, exact) in enumerate(zip(got, wanted or [], strict=False)):
        a = g.float().numpy() if "bfloat16" in str(getattr(g, "dtype", "")) and hasattr(g, "numpy") else np.asarray(g)
        if a.shape != np.shape(exact):
            raise accuracy.WrongResult(f"result {k} has shape {a.shape}, not {np.shape(exact)}")
        wide = a.astype(np.float64)
        norm = float(np.linalg.norm(np.ravel(exact)))
        error = float(np.linalg.norm(np.ravel(wide - exact))) / (norm or 1.0)
        if not error <= tolerance:
            raise accuracy.WrongResult(f"result {k}: relative error {error:.3g}, allowed {tolerance:.0e}")
        worst = max(worst, error)
    return worst


def _rounds(entries: dict[str, Entry], options: Options) -> None:
    """Time all peers in turn, again and again, each round from another one on: no peer always follows the same one."""
    slowest = 0.0
    for entry in entries.values():
        once = _settled(entry.call)
        entry.batch = max(1, min(1000, int(2e-3 / max(once, 1e-7))))
        slowest += max(once, 2e-3)
    rounds = 3 if options.quick else max(5, min(25, int(6.0 / slowest)))
    turns = list(entries.values())
    for k in range(rounds):
        for entry in turns[k % len(turns) :] + turns[: k % len(turns)]:
            time.sleep(0.004)  # the last peer's OpenMP threads spin for a while after their work
            start = time.perf_counter()
            for _ in range(entry.batch):
                entry.call()
            entry.samples.append((time.perf_counter() - start) / entry.batch)


def _settled(call: Call) -> float:
    """Seconds of a call once whatever learns from calls has learnt: a batch of calls sized by an early one would be so
    short that its first, with caches cold from the other peers, is all of it."""
    best, begun, calls = float("inf"), time.perf_counter(), 0
    while calls < 2 or (calls < 50 and time.perf_counter() - begun < 0.05):
        start = time.perf_counter()
        call()
        best, calls = min(best, time.perf_counter() - start), calls + 1
    return best


def _copy_time(nbytes: int) -> float:
    """Median seconds of a copy between used buffers that reads and writes `nbytes` in all."""
    a = np.ones(max(nbytes // 8, 1), np.float32)
    b = np.ones_like(a)
    samples = []
    for _ in range(7):
        start = time.perf_counter()
        np.copyto(b, a)
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def _summarise(entries: dict[str, Entry], row: Record) -> None:
    ours = entries["fuser"].samples
    for name, entry in entries.items():
        seconds = statistics.median(entry.samples)
        run = row["runs"][name]
        run["us"], run["gbs"] = seconds * 1e6, row["minimum"] / seconds * 1e-9
        run["share_of_copy"] = row["copy_us"] / run["us"]
        run["rounds"] = len(entry.samples)
        run["ratio"] = statistics.median(theirs / own for theirs, own in zip(entry.samples, ours, strict=True))


def line(row: Record) -> str:
    """A row in one line."""
    parts = [f"{row['id']:6s} {row['name'][:30]:30s}"]
    for name, run in row["runs"].items():
        if "error" in run:
            parts.append(f"{name} ERROR {run['error'][:110]}")
        elif "us" in run:
            shown = f"{run['us'] / 1e3:.3g}ms"
            parts.append(f"{name} {shown}" + ("" if name == "fuser" else f" {run['ratio']:.2f}x"))
    return " | ".join(parts)
