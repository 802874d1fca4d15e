"""What a program waits for before its first result: fresh processes, stage by stage.

In: how often. Out: a record of seconds by contender and stage. Every sample is a process of its own that checks its
result; contenders take turns. The stages of a contender add up to the time from the first statement to the result;
`process` is what the caller of `python` waits, the interpreter's own start and end included. A process that only makes
an array and fills another says what of it is the array library's. The first sample of each does not count: it leaves
the bytecode of all libraries, and what the contender caches. "Empty cache" is a new folder for each process. Contenders
that take long have fewer samples; how many is part of the record. A user's program does not import networkx or LLVM,
and fuser imports what it needs of them; where they are loaded before, the first call is what fuser itself takes.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import versions
from fuser import progress

PROGRAM = """
def f(x, w, b):
    v = x * w + b
    return 0.5 * v * (1.0 + {np}.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))
"""
ALONE = """
import numpy as np
x = np.ones((64, 64), np.float32)
mark("array library")
y = np.full((64, 64), 1.9545977, np.float32)
mark("first call")
"""
FUSER = f"""
import numpy as np
x = np.ones((64, 64), np.float32)
mark("array library")
import fuser
mark("import")
{PROGRAM.format(np="np")}
g = fuser.compile(f)
mark("compile()")
y = g(x, x, x)
mark("first call")
"""
JAX = f"""
import numpy as np
mark("array library")
import jax, jax.numpy as jnp
x = np.ones((64, 64), np.float32)
mark("import")
{PROGRAM.format(np="jnp")}
g = jax.jit(f)
mark("compile()")
y = g(x, x, x).block_until_ready()
mark("first call")
"""
TORCH = f"""
import torch
x = torch.ones(64, 64)
mark("array library")
{PROGRAM.format(np="torch")}
g = torch.compile(f)
mark("compile()")
y = g(x, x, x)
mark("first call")
"""
LOADED = 'import networkx, llvmlite.binding, llvmlite.ir\nmark("networkx, LLVM")\nimport fuser\n'
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
TAIL = """
_result = float(y.ravel()[0] if hasattr(y, "ravel") else y[0, 0])
assert abs(_result - 1.9545977) < 1e-5, _result
print(json.dumps(_stages))
"""
SLOW = 8.0  # seconds of a process beyond which a contender has a third of the samples


def _on_cupy(program: str) -> str:
    """A program over NumPy's arrays with CuPy's."""
    over = program.replace("import numpy as np\n", "import numpy as np, cupy\n", 1)
    return over.replace("x = np.ones(", "x = cupy.ones(").replace("y = np.full(", "y = cupy.full(")


def contenders(device: str, scratch: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """Name -> (program, environment). A folder named `new` is another one for every process."""
    on_cuda = device == "cuda"
    fuser, jax, torch = (_on_cupy(FUSER), JAX_CUDA, TORCH_CUDA) if on_cuda else (FUSER, JAX, TORCH)
    plain = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    jax_cache = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    loaded = fuser.replace("import fuser\n", LOADED)
    empty, filled = {"FUSER_CACHE_DIR": "new"}, {"FUSER_CACHE_DIR": str(scratch / "fuser")}
    return {
        "CuPy alone" if on_cuda else "NumPy alone": (_on_cupy(ALONE) if on_cuda else ALONE, {}),
        "fuser, empty cache": (fuser, empty),
        "fuser, from its cache": (fuser, filled),
        "fuser, networkx and LLVM loaded, empty cache": (loaded, empty),
        "fuser, networkx and LLVM loaded, from its cache": (loaded, filled),
        "JAX": (jax, plain),
        "JAX, from its cache": (jax, {**plain, **jax_cache, "JAX_COMPILATION_CACHE_DIR": str(scratch / "jax")}),
        "torch.compile, empty cache": (torch, {"TORCHINDUCTOR_CACHE_DIR": "new", "TRITON_CACHE_DIR": "new"}),
        "torch.compile, from its cache": (
            torch,
            {"TORCHINDUCTOR_CACHE_DIR": str(scratch / "torch"), "TRITON_CACHE_DIR": str(scratch / "triton")},
        ),
    }


def run(
    device: str, rounds: int, only: Sequence[str], save: Callable[[Any], None], say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure those whose names start with one of `only` (all where it is empty); medians over up to `rounds` processes
    of each."""
    record: dict[str, Any] = {
        "device": device,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "versions": versions(("fuser-compiler", "numpy", "networkx", "llvmlite", "cupy-cuda13x", "jax", "torch")),
        "seconds": {},
        "samples": {},
        "failed": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        chosen = contenders(device, Path(scratch))
        chosen = {n: c for n, c in chosen.items() if not only or n.startswith(tuple(only))}
        samples = _take_turns(chosen, rounds, record["failed"])
    for name, found in samples.items():
        stages = {stage: statistics.median(s[stage] for s in found) for stage in found[0]}
        record["seconds"][name] = stages
        record["samples"][name] = [s["process"] for s in found]
        shown = "  ".join(f"{stage} {seconds:.3f}" for stage, seconds in stages.items())
        say(f"{name:48s} {shown}  ({len(found)} processes)")
    for name, why in record["failed"].items():
        say(f"{name}: {why}")
    save(record)
    return record


def _take_turns(
    chosen: Mapping[str, tuple[str, dict[str, str]]], rounds: int, failed: dict[str, str]
) -> dict[str, list[dict[str, float]]]:
    """The samples of each that count; those that fail are noted and left out from then on."""
    samples: dict[str, list[dict[str, float]]] = {}
    wanted = dict.fromkeys(chosen, rounds)
    for k in progress.track(range(rounds + 1), "startup"):
        for name, (program, environment) in chosen.items():
            if name in failed or k > wanted[name]:
                continue
            found = sample(program, environment)
            if isinstance(found, str):
                failed[name] = found
            elif k:
                samples.setdefault(name, []).append(found)
            elif found["process"] > SLOW:
                wanted[name] = max(rounds // 3, 1)
    return samples


def sample(program: str, environment: Mapping[str, str]) -> dict[str, float] | str:
    """Seconds of each stage of one process, and of the process; or why there are none.

    Bytecode is written whatever the surroundings ask for: without it all sources would be compiled in every process,
    which is most of what is measured then, and nothing that a user waits for.
    """
    with tempfile.TemporaryDirectory() as new:
        own = {key: str(Path(new) / key) if value == "new" else value for key, value in environment.items()}
        command = [sys.executable, "-c", HEAD + program + TAIL]
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        start = time.perf_counter()
        done = subprocess.run(command, env={**kept, **own}, capture_output=True, text=True, check=False)
        whole = time.perf_counter() - start
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
    stages: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**stages, "process": whole}


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def joined(old: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """The file's contents with a record of one device in it; contenders measured on the same day stay beside it."""
    devices = dict(old.get("devices", {}))
    before = devices.get(record["device"], {})
    same = before.get("date", "")[:10] == record["date"][:10] and before.get("processor") == record["processor"]
    kept = {part: {**before[part], **record[part]} for part in ("seconds", "samples")} if same else {}
    return {"kind": "startup", "devices": {**devices, record["device"]: {**record, **kept}}}


def table(contents: Mapping[str, Any]) -> str:
    """Markdown: a row a contender and device; the last column is the whole process beside the best other's."""
    lines = []
    for device, record in contents["devices"].items():
        lines += [
            f"{device}: {record['processor']}, {record['cores']} cores, {record['date'][:10]}; "
            + ", ".join(f"{k} {v}" for k, v in record["versions"].items()),
            "",
            "| seconds | import | `compile()` and first call | whole process | processes |",
            "|---|--:|--:|--:|--:|",
        ]
        for name, stages in record["seconds"].items():
            first = stages.get("compile()", 0.0) + stages["first call"]
            imports = sum(s for stage, s in stages.items() if stage not in ("compile()", "first call", "process"))
            count = len(record["samples"][name])
            lines.append(f"| {name} | {imports:.3f} | {first:.3f} | {stages['process']:.3f} | {count} |")
        lines.append("")
    return "\n".join(lines).rstrip()
