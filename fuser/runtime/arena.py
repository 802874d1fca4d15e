"""Where a call's temporaries lie: one block of memory, shared by values whose lives do not meet.

In: sizes of temporaries with the first and the last step that touch them. Out: an offset for each and the size of the
block. Its own file because the binder lays out real calls with it and plans tell their peak by it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.record import dataclass

ALIGNMENT = 256  # of every temporary: what CUDA's allocator gives, and more than any vector needs


@dataclass(frozen=True)
class Life:
    """A temporary's bytes and the steps between which it must keep them, both included."""

    nbytes: int
    first: int
    last: int


def place(lives: Sequence[Life]) -> tuple[tuple[int, ...], int]:
    """(offset of each, bytes of the whole block): the largest first, each at the lowest gap among those it meets."""
    offsets = [0] * len(lives)
    placed: list[int] = []
    total = 0
    for k in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, i)):
        life = lives[k]
        if not life.nbytes:
            continue
        size = -(-life.nbytes // ALIGNMENT) * ALIGNMENT
        others = sorted(
            (offsets[i], offsets[i] + lives[i].nbytes)
            for i in placed
            if lives[i].first <= life.last and life.first <= lives[i].last
        )
        offsets[k] = _lowest_gap(others, size)
        placed.append(k)
        total = max(total, offsets[k] + size)
    return tuple(offsets), total


def _lowest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest aligned offset with `size` free bytes; `taken` are ranges sorted by their start."""
    at = 0
    for low, high in taken:
        if low - at >= size:
            break
        at = max(at, -(-high // ALIGNMENT) * ALIGNMENT)
    return at
