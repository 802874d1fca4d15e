"""Bytes that really crossed the memory bus, by the GPU's own counters, beside what the plan says.

In: workload ids and peers. Out: for each, the bytes read and written of every kernel of one call, from Nsight Compute
(`ncu`, which must be on the PATH and allowed to read counters). Each call runs in a process of its own, profiled only
around the call itself, after one that compiled.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from fuser import progress

METRICS = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def run(ids: Sequence[str], peers: Sequence[str]) -> list[dict[str, Any]]:
    """One record a workload and peer."""
    pairs = [(name, peer) for name in ids for peer in peers]
    return [measure(*pair) for pair in progress.track(pairs, "counters", " ".join)]


def measure(workload: str, peer: str) -> dict[str, Any]:
    """Kernels of a call, and their bytes."""
    metrics = ",".join(METRICS.values())
    command = ["ncu", "--csv", "--profile-from-start", "off", "--clock-control", "none", "--metrics", metrics]
    child = [sys.executable, "-m", "benchmarks.counters", workload, peer]
    done = subprocess.run([*command, *child], capture_output=True, text=True, check=False)
    record: dict[str, Any] = {"id": workload, "peer": peer, "kernels": []}
    if done.returncode:
        record["error"] = (done.stdout + done.stderr)[-500:]
        return record
    record["kernels"] = parse(done.stdout)
    record["planned_bytes"] = next(
        (int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("planned ")), None
    )
    for what in METRICS:
        record[what] = sum(k.get(what, 0) for k in record["kernels"])
    return record


def parse(output: str) -> list[dict[str, Any]]:
    """Kernels in launch order from ncu's CSV, which follows lines of its own and of the program."""
    lines = output.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels: dict[str, dict[str, Any]] = {}
    names = {metric: what for what, metric in METRICS.items()}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        kernel = kernels.setdefault(row["ID"], {"name": row["Kernel Name"]})
        what = names.get(row["Metric Name"])
        if what is not None:
            kernel[what] = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
    return list(kernels.values())


def _child(workload: str, peer: str) -> None:
    """One call of a workload, profiled."""
    import torch

    from benchmarks import inputs, peers, workloads

    (w,) = workloads.select(workloads.GPU, workload)
    ready = peers.PEERS[peer](w, inputs.on_device(w, "cuda", 0))
    ready.call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    ready.call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    planned = ready.facts().get("planned_bytes")
    if planned is not None:
        print(f"planned {planned}")


if __name__ == "__main__":
    _child(*sys.argv[1:3])
