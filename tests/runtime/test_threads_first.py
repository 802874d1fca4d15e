"""The first calls of a process, from several threads at once: what all share is made once, and kept."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
import numpy as np
import fuser
from fuser.runtime import native_entry

wrong, made = [], []
threading.excepthook = lambda failure: wrong.append(failure.exc_value)
build = native_entry._made.__wrapped__

def slow():
    import time
    time.sleep(0.2)
    made.append(build())
    return made[-1]

native_entry._made = native_entry.cache(slow)
threads = [threading.Thread(target=native_entry.usable) for _ in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert len(made) == 1 and not wrong, (len(made), wrong)

fn = fuser.compile(lambda x, y: (x + y, x * 2.0))

def job(k):
    for size in range(1, 200):
        x = np.arange(size % 40 + 1.0) + k
        a, b = fn(x, x)
        if not (np.array_equal(a, x + x) and np.array_equal(b, x * 2.0)):
            wrong.append(size)

threads = [threading.Thread(target=job, args=(k,)) for k in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not wrong, wrong
"""


def test_the_native_road_is_made_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
