"""First calls of every row by every peer, in several processes at once: the run that follows finds all caches filled.

In: rows, peers, how many processes. Out: seconds of each first call, by row and peer. Its own file because it measures
hosts, with many at work, where the suite measures one device, alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import accuracy, inputs, peers
from benchmarks.machine import Host, open_machine
from benchmarks.timeline import wait
from benchmarks.workloads import Workload
from fuser import progress

Seconds = dict[str, dict[str, float]]


def in_processes(ids: Sequence[str], command: Sequence[str], count: int) -> Seconds:
    """Run `python -m benchmarks` with `command` on shares of the rows. A share that fails leaves its rows out: they
    are then compiled when they are measured."""
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for k in range(min(count, len(ids))):
            out = Path(folder) / f"{k}.json"
            share = ["--only", ",".join(_share(ids, k, count)), "--out", str(out)]
            environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            arguments = [sys.executable, "-m", "benchmarks", *command, *share]
            running.append((out, subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL)))
        found: Seconds = {}
        for out, child in progress.track(running, "first calls"):
            child.wait()
            if out.exists():
                found.update(json.loads(out.read_text(encoding="utf-8")))
    return found


def _share(ids: Sequence[str], k: int, count: int) -> list[str]:
    """The rows of process `k`. Each starts at another part of the list: neighbours in it are alike, and the largest
    together would not fit the device."""
    mine = list(ids[k::count])
    first = len(mine) * k // count
    return mine[first:] + mine[:first]


def measure(rows: Sequence[Workload], names: Sequence[str], device: str, out: Path) -> None:
    """This process's share; written after every row."""
    machine, found = open_machine(device), Seconds()
    for w in rows:
        args = inputs.on_device(w, machine.device, 0)
        found[w.id] = {name: s for name in names if (s := _first_call(w, args, name, machine)) is not None}
        out.write_text(json.dumps(found), encoding="utf-8")
        del args
        machine.empty_cache()


def _first_call(w: Workload, args: Sequence[Any], name: str, machine: Host) -> float | None:
    """Seconds; None where the peer cannot (the measuring run says why)."""
    own = [a.clone() if k in w.writes else a for k, a in enumerate(args)]
    machine.empty_cache()
    start = time.perf_counter()
    try:
        wait(accuracy.leaves(peers.PEERS[name](w, own).call()))
        machine.synchronize()
    except Exception:
        return None
    return time.perf_counter() - start


def put_into(row: Mapping[str, Any], found: Seconds) -> None:
    """Replace a row's first calls, which came from caches, by those of the processes."""
    for name, run in row["runs"].items():
        run.pop("first_call_s", None)
        if name in found.get(row["id"], {}):
            run["first_call_s"] = found[row["id"]][name]
