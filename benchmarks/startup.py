"""What a program waits for before its first result: fresh processes, stage by stage.

In: how often. Out: a record of seconds by contender and stage. Every sample is a process of its own; contenders take
turns. The stages of a contender add up to the time from the first statement to the result; `process` is what the caller
of `python` waits. Bytecode of all libraries is there before the first sample that counts.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu import versions
from fuser import progress

PROGRAM = """
def f(x, w, b):
    v = x * w + b
    return 0.5 * v * (1.0 + {np}.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))
"""
FUSER = f"""
import numpy as np
mark("array library")
import networkx, llvmlite.binding, llvmlite.ir
mark("networkx, LLVM")
import fuser
mark("import")
{PROGRAM.format(np="np")}
x = np.ones((64, 64), np.float32)
g = fuser.compile(f)
mark("compile()")
g(x, x, x)
mark("first call")
"""
JAX = f"""
import numpy as np
mark("array library")
import jax, jax.numpy as jnp
mark("import")
{PROGRAM.format(np="jnp")}
x = np.ones((64, 64), np.float32)
g = jax.jit(f)
mark("compile()")
g(x, x, x).block_until_ready()
mark("first call")
"""
TORCH = f"""
import torch
mark("array library")
{PROGRAM.format(np="torch")}
x = torch.ones(64, 64)
g = torch.compile(f)
mark("compile()")
g(x, x, x)
mark("first call")
"""
CUPY = FUSER.replace("import numpy as np\n", "import numpy as np\nimport cupy\ncupy.cuda.runtime.free(0)\n", 1).replace(
    "x = np.ones((64, 64), np.float32)", "x = cupy.ones((64, 64), np.float32)"
) + "cupy.cuda.runtime.deviceSynchronize()\n"  # fmt: skip
JAX_CUDA = JAX.replace("x = np.ones((64, 64), np.float32)", "x = jnp.ones((64, 64), np.float32).block_until_ready()")
TORCH_CUDA = TORCH.replace("torch.ones(64, 64)", 'torch.ones(64, 64, device="cuda")') + "torch.cuda.synchronize()\n"
HEAD = """
import json, time
_stages, _last = {}, time.perf_counter()
def mark(name):
    global _last
    now = time.perf_counter()
    _stages[name] = now - _last
    _last = now
"""
TAIL = "\nprint(json.dumps(_stages))\n"


def contenders(device: str, scratch: Path) -> dict[str, tuple[str, Mapping[str, str]]]:
    """Name -> (program, environment). Caches: fuser's in a folder of its own, empty or not; the others' as they are,
    which is filled after the first sample; torch's also empty."""
    fuser, jax, torch = (CUPY, JAX_CUDA, TORCH_CUDA) if device == "cuda" else (FUSER, JAX, TORCH)
    return {
        "fuser, empty cache": (fuser, {"FUSER_CACHE": "off"}),
        "fuser, from its cache": (fuser, {"FUSER_CACHE_DIR": str(scratch / "fuser")}),
        "JAX": (jax, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        "torch.compile, empty cache": (torch, {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}),
        "torch.compile, from its cache": (torch, {"TORCHINDUCTOR_CACHE_DIR": str(scratch / "torch")}),
    }


def run(device: str, rounds: int, save: Callable[[Any], None], say: Callable[[str], None]) -> dict[str, Any]:
    """Measure; medians over `rounds` processes of each contender, after one that does not count."""
    record: dict[str, Any] = {
        "kind": "startup",
        "device": device,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "versions": versions(("fuser-compiler", "numpy", "networkx", "llvmlite", "cupy-cuda13x", "jax", "torch")),
        "rounds": rounds,
        "seconds": {},
        "failed": {},
    }
    samples: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for k in progress.track(range(rounds + 1), "startup"):
            for name, (program, environment) in contenders(device, Path(scratch)).items():
                if name in record["failed"]:
                    continue
                found = sample(program, environment)
                if isinstance(found, str):
                    record["failed"][name] = found
                elif k:
                    samples.setdefault(name, []).append(found)
    for name, found in samples.items():
        stages = {stage: statistics.median(s[stage] for s in found) for stage in found[0]}
        record["seconds"][name] = stages
        shown = "  ".join(f"{stage} {seconds:.3f}" for stage, seconds in stages.items())
        say(f"{name:30s} {shown}")
    for name, why in record["failed"].items():
        say(f"{name}: {why}")
    save(record)
    return record


def sample(program: str, environment: Mapping[str, str]) -> dict[str, float] | str:
    """Seconds of each stage of one process, and of the process; or why there are none."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program + TAIL], env={**os.environ, **environment}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    whole = time.perf_counter() - start
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
    stages: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**stages, "process": whole}
