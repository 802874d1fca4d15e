"""When the device began and ended each operation of a call: one clock for all who are measured, whatever their stream.

In: contenders. Out: a `Span` each. The clock is CUPTI's, read through PyTorch's profiler, which sees every kernel, copy
and fill of the process: so CuPy, JAX (whose streams no event of ours can reach) and fuser are measured alike. A call
takes from the beginning of its first operation to the end of its last; what the host and the launch cost before that
is left to `benchmarks calls`.

Before each call, on the stream it will run on, a buffer of eight times the largest L2 is *read*. That leaves the L2
full of lines that nobody has to write back: a flush that writes charges about 50 MB of write-back to whoever comes
next. What a call itself leaves in the L2 unwritten is charged to no one, the copy that all are compared with included.
While the device waits and reads, the host launches the whole call, so no gap between its kernels is the host's.
The contenders take turns, so a drift of the clocks meets them all; a span is the median of its rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]
FLUSH_BYTES = 512 << 20
LONG_FLUSH_BYTES = 2 << 30  # 0.45 ms: what the host needs to launch a jitted program on a stream we cannot hold up
WAIT_CYCLES = 2_000_000  # 1 ms at 1.98 GHz: what the host needs to launch the longest eager program
SECONDS = 0.3  # a contender's share of a row; slow ones get fewer rounds


@dataclass(frozen=True)
class Contender:
    """call: launches the work. own_stream: on JAX's stream instead of the default one. rounds: at most so many."""

    call: Call
    own_stream: bool = False
    rounds: int = 15


@dataclass(frozen=True)
class Span:
    """Seconds from the first operation's begin to the last one's end, the sum of the operations' own times, and their
    names in the order of a call."""

    seconds: float
    busy: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Operation:
    """A kernel, copy or fill; seconds on the device's clock."""

    name: str
    begin: float
    end: float


class Timeline:
    """Measures on the current device."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self._buffer = torch.zeros(LONG_FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")
        self._short = self._buffer[: FLUSH_BYTES // 4]
        self._jax_flush: Call | None = None

    def flush(self) -> None:
        """Read a buffer on the default stream."""
        self.torch.sum(self._short)

    def spans(self, contenders: Sequence[Contender]) -> list[Span | None]:
        """Medians over the rounds; None for one that launched nothing. All have been called before."""
        counts = [self._rounds(c) for c in contenders]
        turns = [k for r in range(max(counts, default=0)) for k, n in enumerate(counts) if r < n]
        own = any(c.own_stream for c in contenders)
        segments = self._trace([*([None] if own else []), *(contenders[k] for k in turns)])
        skipped = len(segments.pop(0)) if own else 0  # operations of JAX's flush alone
        found: list[list[list[Operation]]] = [[] for _ in contenders]
        for k, part in zip(turns, segments, strict=True):
            found[k].append(part[skipped:] if contenders[k].own_stream else part)
        return [median(parts) for parts in found]

    def _rounds(self, contender: Contender) -> int:
        """As many as its time allows, at least 3."""
        start = time.perf_counter()
        wait(contender.call())
        self.torch.cuda.synchronize()
        return max(min(3, contender.rounds), min(contender.rounds, int(SECONDS / (time.perf_counter() - start))))

    def _trace(self, turns: Sequence[Contender | None]) -> list[list[Operation]]:
        """The operations of each turn, in order; None is JAX's flush and nothing after it. A spinning kernel marks
        where the operations of a turn begin."""
        from torch.profiler import ProfilerActivity, profile

        self._on_own_stream(None)
        self.torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
            for turn in turns:
                if turn is None or turn.own_stream:
                    self.torch.cuda._sleep(100)
                    self.torch.cuda.synchronize()
                    self._on_own_stream(turn)
                else:
                    self.torch.cuda._sleep(WAIT_CYCLES)
                    self.flush()
                    self.torch.cuda._sleep(0)
                    turn.call()
                self.torch.cuda.synchronize()
        return split(_operations(session), [t is None or t.own_stream for t in turns])

    def _on_own_stream(self, turn: Contender | None) -> None:
        """JAX's flush, then the call, on JAX's stream; both are there when it returns."""
        if self._jax_flush is None:
            self._jax_flush = _jax_reader(self._buffer)
        last = self._jax_flush()
        wait(last if turn is None else turn.call())


def _jax_reader(buffer: Any) -> Call:
    import jax
    import jax.numpy as jnp
    import torch

    with torch.cuda.device(buffer.device):
        jax.devices()  # leaves the last of several devices current
    array, reader = jax.dlpack.from_dlpack(buffer), jax.jit(jnp.sum)
    return lambda: reader(array)


def _operations(session: Any) -> list[Operation]:
    events = [e for e in session.events() if "CUDA" in str(e.device_type)]
    found = [Operation(e.name, e.time_range.start * 1e-6, e.time_range.end * 1e-6) for e in events]
    return sorted(found, key=lambda o: o.begin)


def split(operations: Sequence[Operation], single: Sequence[bool]) -> list[list[Operation]]:
    """The operations after each turn's last marker; a turn on the default stream has two (`single` is false)."""
    parts: list[list[Operation]] = []
    for operation in operations:
        if "spin" in operation.name:
            parts.append([])
        elif parts:
            parts[-1].append(operation)
    wanted = sum(1 if one else 2 for one in single)
    if len(parts) != wanted:
        raise RuntimeError(f"the profiler saw {len(parts)} markers, not {wanted}")
    out, at = [], 0
    for one in single:
        at += 1 if one else 2
        out.append(parts[at - 1])
    return out


def median(rounds: Sequence[Sequence[Operation]]) -> Span | None:
    if not all(rounds):
        return None
    seconds = statistics.median(max(o.end for o in part) - part[0].begin for part in rounds)
    busy = statistics.median(sum(o.end - o.begin for o in part) for part in rounds)
    return Span(seconds, busy, tuple(o.name[:80] for o in rounds[-1]))


def wait(result: Any) -> None:
    """Until a JAX result is there (others are waited for by the device)."""
    for part in result if isinstance(result, (tuple, list)) else [result]:
        if hasattr(part, "block_until_ready"):
            part.block_until_ready()
