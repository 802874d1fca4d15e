"""Ten thousand calls of changing shapes leave nothing behind: no memory, no thread, no open file."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser

CALLS, WARM = 10_000, 2_000
ALLOWED = 24 << 20  # bytes; keeping even one small array a call would take 40 MB
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="/proc is Linux's")

PROGRAM = """
from tests.runtime import test_growth
test_growth.run("{kind}")
"""


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _in_threads(call: Any) -> Any:
    """The same call, by four threads in turn that live on. (A pool of four starts them whenever it finds none idle.)"""
    turns = cycle([ThreadPoolExecutor(1) for _ in range(4)])
    return lambda x: next(turns).submit(call, x).result()


def _makers() -> dict[str, tuple[Any, Any]]:
    """Kind -> (an array in kind of a NumPy array, the call that is made of the compiled function)."""

    def torch_tensor(x: Any) -> Any:
        import torch

        return torch.from_numpy(x)

    def jax_array(x: Any) -> Any:
        import jax

        return jax.numpy.from_dlpack(x.copy())  # `asarray` has JAX compile and keep something for every shape

    def same(value: Any) -> Any:
        return value

    return {
        "numpy": (same, same), "threads": (same, _in_threads), "torch": (torch_tensor, same), "jax": (jax_array, same),
    }  # fmt: skip


def run(kind: str) -> None:
    """Softmax over rows and columns from 1 to 64, the shapes in an order that repeats none soon."""
    in_kind, calling = _makers()[kind]

    @fuser.compile
    def softmax(x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)

    call = calling(softmax)
    data = np.random.default_rng(3).standard_normal(64 * 64, dtype=np.float32)
    before = None
    for k in range(CALLS):
        rows, columns = 1 + k * 29 % 64, 1 + k * 37 // 64 % 64
        x = data[: rows * columns].reshape(rows, columns)
        assert abs(np.asarray(call(in_kind(x))).sum() - rows) < 1e-3
        if k == WARM:
            before = resident(), threading.active_count(), files()
    assert before is not None
    grown = resident() - before[0]
    assert grown < ALLOWED, f"{grown >> 20} MB more after {CALLS - WARM} calls"
    assert threading.active_count() <= before[1]
    assert files() <= before[2]


@pytest.mark.parametrize("kind", ["numpy", "threads", "torch", "jax"])
def test_ten_thousand_calls_leave_nothing_behind(kind: str) -> None:
    if kind in ("torch", "jax"):
        pytest.importorskip(kind)
    program = PROGRAM.format(kind=kind)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
