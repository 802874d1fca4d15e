"""A real SIGINT in the middle of a long first call: nothing half done is kept, and everything works afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fuser.codegen.cuda import nvrtc
from fuser.errors import DeviceError
from fuser.runtime.cache import Store

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")

CHILD = """
import json, sys
import numpy as np
import fuser
if sys.argv[1] != "cpu":
    import cupy  # an import that is cut short is CuPy's own affair

def slow(x):
    for k in range(60):
        x = np.tanh(x * (1.0 + k * 0.001)) if k % 2 else np.sqrt(np.abs(x) + k)
    return x, np.sum(x)

f, x = fuser.compile(slow), np.ones((64, 64), np.float32)

def work():
    return f(x) if sys.argv[1] == "cpu" else f.warm("f32[64, 64]", device=sys.argv[1])

print("ready", flush=True)
try:
    work()
    print(json.dumps({"interrupted": False}))
except KeyboardInterrupt:
    other = fuser.compile(lambda x: x * 2)(x)
    work()
    right = bool((other == 2).all()) and (sys.argv[1] != "cpu" or bool(np.isfinite(f(x)[1])))
    print(json.dumps({"interrupted": True, "right": right}))
"""


def interrupted(folder: Path, device: str, delay: float) -> dict[str, object]:
    """What a process says that gets SIGINT so long after its first call began."""
    environment = {**os.environ, "FUSER_CACHE_DIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, device], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        assert process.wait(120) == 0
    found: dict[str, object] = json.loads(out)
    return found


@pytest.mark.parametrize("device", ["cpu", "sm_90"])
def test_a_first_call_that_is_interrupted_can_be_made_again(tmp_path: Path, device: str) -> None:
    if device != "cpu":
        try:
            nvrtc.version()
        except DeviceError as missing:
            pytest.skip(str(missing.message))
    caught = 0
    for k, delay in enumerate((0.1, 0.5)):  # while tracing, planning, compiling: how far depends on the machine
        folder = tmp_path / str(k)
        found = interrupted(folder, device, delay)
        if found["interrupted"]:
            caught += 1
            assert found["right"]
        files = [f for f in folder.rglob("*") if f.is_file()]
        entries = list(Store([folder], 1 << 30).entries(0))
        assert len(entries) == len(files), "nothing but whole entries"
    assert caught
