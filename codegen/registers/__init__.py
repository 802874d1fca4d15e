"""How many registers ptxas will give a kernel, from the kernel's own statements.

In: a CUDA kernel in primitives (after `expand`). Out: registers a thread. Every CUDA schedule ends in the same
language, so one model serves all of them:

    registers = FIXED + BUFFER * arrays + IN_ORDER * peak in program order + SCHEDULED * peak as ptxas schedules

A peak is the most 32-bit registers of values alive at once (`pressure`). ptxas lies between two orders: the one that
is written, and the one of a list scheduler that starts every load as early as it can and hides latencies by other
lanes' work; if the second does not fit the registers that the launch bounds leave, it keeps to the first.

The planner's `passes.registers` guesses from operators, before there is a kernel; this is what a plan prints.
"""

from __future__ import annotations

from fuser.codegen.loops import Kernel
from fuser.codegen.registers.instructions import flatten
from fuser.codegen.registers.pressure import in_order, scheduled

# Fitted to NVRTC 13.5 over half of 360 kernels for each of sm_80 and sm_90 (examples, public workloads, random groups),
# 30 November 2026: median error 9%, 90th percentile 27% above. On the other half: 9%, 30%, at most 23% below.
FIXED = 4.7  # the thread's place, the stack pointer, what ptxas keeps for itself
BUFFER = 1.0  # an array's pointer: in constant memory, but half of a 64-bit address is built from it
IN_ORDER, SCHEDULED = 0.35, 0.62
FILE = 65536  # registers of an SM
MOST, GRANULE = 255, 8  # of a thread; granted in eights


def estimate(kernel: Kernel) -> int:
    """Registers a thread."""
    code = flatten(kernel)
    written, hidden, limit = in_order(code), scheduled(code), allowed(kernel)
    hidden = max(hidden, written)
    if hidden + FIXED > limit:
        hidden = written
    return min(round(FIXED + BUFFER * len(kernel.buffers) + IN_ORDER * written + SCHEDULED * hidden), limit)


def allowed(kernel: Kernel) -> int:
    """Most registers a thread that the kernel's launch bounds leave."""
    threads = kernel.launch.block * kernel.launch.min_blocks
    return min(FILE // threads // GRANULE * GRANULE, MOST)
