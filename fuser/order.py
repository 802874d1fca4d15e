"""The order in which a reduction adds: part of a program's meaning, not of its schedule.

In: reduced length, state bytes, axis kind, device kind. Out: an `Order`. For one device kind it depends on
nothing else, so fused equals unfused, a row alone equals the row in a batch, tuned equals untuned.

An order splits the reduced index range [0, n) into `segments` contiguous shares of `share(n)` elements
(the last may be short or empty). Within a share, element i joins lane (i - start) mod `lanes` in increasing i. Lanes
combine pairwise from the low bits up: lane l takes lane l+1, then l+2, l+4, ... The segments' partials
then combine by the same pairwise rule over the segment number. Absent lanes and segments hold the identity.
Lane counts and segment counts are powers of two and depend on `n` through its power-of-two bucket only, so one kernel
serves a whole size class.
"""

from __future__ import annotations

from typing import Literal

from fuser.hostexpr import Dim
from fuser.hostfunctions import ceil_pow2
from fuser.record import dataclass

AxisKind = Literal["inner", "outer"]  # inner: the reduced axes include the node's last axis
DeviceKind = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Order:
    """lanes: accumulators a share; segments: shares. Both powers of two."""

    lanes: int
    segments: int = 1

    def share(self, n: Dim) -> Dim:
        """Elements a segment: ceil(n / segments) rounded up to a whole number of lane rounds."""
        if self.segments == 1:
            return n
        step = self.lanes * self.segments
        rounds = (n + (step - 1)) // step
        return rounds * self.lanes


def bucket(n: int) -> int:
    """The size-class bucket of a length: the power of two at or above it."""
    return ceil_pow2(n)


def order(n_bucket: int, itemsize: int, kind: AxisKind, device: DeviceKind) -> Order:
    """The fixed order for a reduced length in the given bucket. `itemsize`: bytes of the operand's compute dtype."""
    return _CUDA[kind](n_bucket, itemsize) if device == "cuda" else _CPU[kind](n_bucket, itemsize)


# CUDA, rows. A thread holds about 64 bytes of a row (one H200: softmax bf16 runs at 95% of copy with 128-256 threads
# at 4K columns, 256 at 8K, 512 at 16K): four 16-byte vectors, so n / 4 lanes whatever the element type, a lane an
# element for short rows. Lanes beyond threads x vector are further accumulators of a thread. Rows beyond 16 Ki elements
# become contiguous shares of that size (one H200: 16,384 shares of a 2^28 sum read 4447 GB/s against 4315
# for a grid stride); one block folds them in turn, or many blocks together when there are few rows. No row of a million
# elements is held in registers: 1024 lanes (four a thread) keep several reductions of one read in registers instead,
# and fold them with a quarter of the shuffles.
def _cuda_inner(n: int, itemsize: int) -> Order:
    lanes = n if n <= 256 else min(max(n // 4, 256), 4096 if n < 1 << 20 else 1024)
    return Order(lanes, min(max(n // 16384, 1), 16384))


# CUDA, columns: 8 row lanes a block; columns of up to 1024 rows in segments of 512 (one H200, bf16), longer ones
# in up to 64 segments of at least 128 rows, so that 16 blocks that share a column have four segments each to fold at
# once; the longest in up to 128 of 4096 rows: a few hundred columns then fill the device.
def _cuda_outer(n: int, itemsize: int) -> Order:
    segments = max(n // 512, 1) if n <= 1024 else max(min(n // 128, 64), min(n // 4096, 128))
    return Order(min(8, n), segments)


# CPU, rows: 32 lanes of 4 bytes are four 8-lane accumulators, enough to hide add latency; shares of 4096 elements give
# pairwise error growth and are the grain for threads.
def _cpu_inner(n: int, itemsize: int) -> Order:
    return Order(128 // max(itemsize, 4), max(n // 4096, 1))


# CPU, columns: rows are added in order within shares of 256 rows, shares pairwise.
def _cpu_outer(n: int, itemsize: int) -> Order:
    return Order(1, max(n // 256, 1))


_CUDA = {"inner": _cuda_inner, "outer": _cuda_outer}
_CPU = {"inner": _cpu_inner, "outer": _cpu_outer}
