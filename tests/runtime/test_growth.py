"""Ten thousand calls of changing shapes leave nothing behind: no memory, no thread, no open file."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fuser

CALLS, WARM = 10_000, 2_000
ALLOWED = 24 << 20  # bytes; keeping even one small array a call would take 40 MB
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="/proc is Linux's")

PROGRAM = """
from tests.runtime import test_growth
test_growth.run()
"""


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def run() -> None:
    """Softmax over rows and columns from 1 to 64, the shapes in an order that repeats none soon."""

    @fuser.compile
    def softmax(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    data = np.random.default_rng(3).standard_normal(64 * 64, dtype=np.float32)
    before = None
    for k in range(CALLS):
        rows, columns = 1 + k * 29 % 64, 1 + k * 37 // 64 % 64
        x = data[: rows * columns].reshape(rows, columns)
        assert abs(softmax(x).sum() - rows) < 1e-3
        if k == WARM:
            before = resident(), threading.active_count(), files()
    assert before is not None
    grown = resident() - before[0]
    assert grown < ALLOWED, f"{grown >> 20} MB more after {CALLS - WARM} calls"
    assert threading.active_count() <= before[1]
    assert files() <= before[2]


def test_ten_thousand_calls_leave_nothing_behind() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
