"""The state of the thread pool: one block of memory, shared by Python and the pool's native functions.

In: nothing. Out: places in the block. Its own file because Python needs the places only, and what writes the native
functions is loaded only where their object code is not cached.

All fields but `next` are guarded by the mutex; `generation` and `active` are also looked at by threads that wait.
"""

from __future__ import annotations

LINE = 128  # bytes between parts of the state: more than a cache line, and than any platform's mutex or condition

# 8-byte fields. HOME: the CPU that the workers are kept off, -1 for none. WORKERS: those in HANDLES.
KERNEL, BUFFERS, SCALARS, TRIPS, CHUNK, GENERATION, ACTIVE, BUSY, STOP, THREADS, HOME, WORKERS = range(12)

# Byte offsets of parts. MASK: the CPUs that workers may use, a bit each. HANDLES: the workers' threads.
MUTEX, WORK, DONE, NEXT, MASK, HANDLES, SIZE = (k * LINE for k in range(1, 8))

CPUS = LINE * 8  # that MASK has bits for
PLACED = LINE // 8  # workers that HANDLES has room for
