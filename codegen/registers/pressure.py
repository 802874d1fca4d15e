"""The most registers alive at once, in program order and in the order of a list scheduler.

In: `Code`. Out: 32-bit registers. The scheduler takes one block at a time: of the instructions whose operands are there
it issues loads first, then the one with the longest way to the block's end, which is how ptxas hides latencies and why
it needs more registers than program order does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from fuser.codegen.registers.instructions import Code, Instruction

PREDICATES = 6  # predicate registers; further ones take registers
LOAD_FIRST = 1e6  # more than any way through a block

Edges = list[dict[int, bool]]  # for each instruction, those it waits for; True: for their result


def in_order(code: Code) -> float:
    """Peak in program order."""
    live = _Live(code)
    for number, block in enumerate(code.blocks):
        live.enter(number, block)
        for i in block:
            live.issue(i, i.scratch)
        live.leave()
    return live.peak


def scheduled(code: Code) -> float:
    """Peak in the scheduler's order."""
    live = _Live(code)
    for number, block in enumerate(code.blocks):
        live.enter(number, block)
        for i, scratch in _schedule(block, _edges(block, code)):
            live.issue(i, scratch)
        live.leave()
    return live.peak


class _Live:
    """Values alive while instructions are issued."""

    def __init__(self, code: Code) -> None:
        self.code, self.peak = code, 0.0
        self.alive: set[str] = set()
        self.registers, self.predicates = 0.0, 0
        self.number, self.left = 0, dict[str, int]()

    def enter(self, number: int, block: list[Instruction]) -> None:
        self.number, self.left = number, {}
        for i in block:
            for u in i.uses:
                self.left[u] = self.left.get(u, 0) + 1

    def issue(self, i: Instruction, scratch: float) -> None:
        self._note(scratch)
        for u in i.uses:
            self.left[u] -= 1
            if not self.left[u] and self.code.last[u] <= self.number:
                self._end(u)
        for d in i.defs:
            if d not in self.alive and (self.code.last[d] > self.number or self.left.get(d)):
                self.alive.add(d)
                self._count(d, 1)
        self._note(0)

    def leave(self) -> None:
        for name in [n for n in self.alive if self.code.last[n] <= self.number]:
            self._end(name)

    def _end(self, name: str) -> None:
        if name in self.alive:
            self.alive.remove(name)
            self._count(name, -1)

    def _count(self, name: str, sign: int) -> None:
        if name in self.code.predicates:
            self.predicates += sign
        else:
            self.registers += sign * self.code.words[name]

    def _note(self, scratch: float) -> None:
        self.peak = max(self.peak, self.registers + scratch + max(self.predicates - PREDICATES, 0))


def _edges(block: list[Instruction], code: Code) -> Edges:
    """What each instruction waits for: operands, the readers of what it overwrites, memory that may be the same."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    stored: dict[str, int] = {}
    loaded: dict[str, list[int]] = {}
    shuffled = -1
    out: Edges = []
    for k, i in enumerate(block):
        waits = {writer[u]: True for u in i.uses if u in writer}
        for d in i.defs:
            for r in [*readers.pop(d, ()), *([writer[d]] if d in writer else ())]:
                waits.setdefault(r, False)
        for u in i.uses:
            readers.setdefault(u, []).append(k)
        writer.update(dict.fromkeys(i.defs, k))
        where = "" if i.buffer in code.memory else i.buffer  # a store may change any array of the kernel
        if i.kind == "store" or (i.kind == "load" and i.buffer not in code.constant):
            before = [stored[where]] if where in stored else []
            before += loaded.pop(where, []) if i.kind == "store" else []
            waits.update((b, False) for b in before if b not in waits)
            if i.kind == "store":
                stored[where] = k
            else:
                loaded.setdefault(where, []).append(k)
        elif i.kind == "shuffle":
            if shuffled >= 0:
                waits.setdefault(shuffled, False)
            shuffled = k
        waits.pop(k, None)
        out.append(waits)
    return out


def _schedule(block: list[Instruction], edges: Edges) -> Iterator[tuple[Instruction, float]]:
    """Instructions as issued, each with the scratch registers then in use."""
    followers: list[list[tuple[int, bool]]] = [[] for _ in block]
    for k, waits in enumerate(edges):
        for w, result in waits.items():
            followers[w].append((k, result))
    urgency = [0.0] * len(block)
    for k in range(len(block) - 1, -1, -1):
        way = max((urgency[j] for j, _ in followers[k]), default=0.0)
        urgency[k] = way + block[k].latency + (LOAD_FIRST if block[k].kind == "load" else 0)
    blocked = [len(waits) for waits in edges]
    start = [0.0] * len(block)
    ready = [(-urgency[k], k) for k, b in enumerate(blocked) if not b]
    heapq.heapify(ready)
    waiting: list[tuple[float, int]] = []  # those whose operands are on their way
    running: list[tuple[float, float]] = []  # (end, scratch)
    clock = held = 0.0
    while ready or waiting:
        if not ready:
            clock = max(clock, waiting[0][0])
        while waiting and waiting[0][0] <= clock:
            k = heapq.heappop(waiting)[1]
            heapq.heappush(ready, (-urgency[k], k))
        k = heapq.heappop(ready)[1]
        i = block[k]
        while running and running[0][0] <= clock:
            held -= heapq.heappop(running)[1]
        held += i.scratch
        if i.scratch:
            heapq.heappush(running, (clock + i.latency, i.scratch))
        yield i, held
        done, clock = clock + i.latency, clock + i.slots
        for j, result in followers[k]:
            start[j] = max(start[j], done if result else clock)
            blocked[j] -= 1
            if not blocked[j]:
                heapq.heappush(waiting, (start[j], j))
