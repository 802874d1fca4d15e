"""Everything a GPU machine should run: the tests of this folder, then each tool of compute-sanitizer over `programs`.

    python tests/gpu/run_all.py [--no-sanitizer] [pytest arguments]

Works in a clone, with CuPy (and its NVRTC) installed; the sanitizer comes with the CUDA toolkit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FOUND = 9  # exit code when a tool reports something


def sanitizer() -> str | None:
    """Path of compute-sanitizer, from PATH or a toolkit."""
    homes = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    paths = [os.path.join(h, "bin") for h in homes if h] + [os.path.join(h, "compute-sanitizer") for h in homes if h]
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(paths))


def main(arguments: list[str]) -> int:
    """Exit status: 0 when all passed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p),
    }
    wanted = "--no-sanitizer" not in arguments
    rest = [a for a in arguments if a != "--no-sanitizer"]
    status = {"pytest": _run([sys.executable, "-m", "pytest", "tests/gpu", "-q", *rest], environment)}
    tool = sanitizer()
    if wanted and tool is None:
        print("compute-sanitizer was not found: on PATH, in CUDA_HOME or /usr/local/cuda", file=sys.stderr)
        status["compute-sanitizer"] = 1
    for name in TOOLS if wanted and tool else ():
        command = [str(tool), "--tool", name, "--error-exitcode", str(FOUND)]
        status[name] = _run([*command, sys.executable, "-m", "tests.gpu.programs"], environment)
    for name, code in status.items():
        print(f"{name}: {'passed' if code == 0 else f'FAILED ({code})'}")
    return max(status.values())


def _run(command: list[str], environment: dict[str, str]) -> int:
    print("==", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
