"""What a kernel takes of memory beside its arrays' elements: words of flags, and places in dynamic shared memory.

In: dtypes, a kernel's body. Out: sizes and offsets. Its own file because schedules, the printer, the interpreter and
the launch must all count alike.
"""

from __future__ import annotations

from fuser.codegen.loops import Alloc, Statement, walk
from fuser.dtypes import DType


def flag_words(dtype: DType) -> int:
    """Words (i64) of a flags buffer that one value takes: 32 bits of it a word."""
    return -(-dtype.bytes // 4)


def dynamic_shared(body: tuple[Statement, ...]) -> dict[str, tuple[int, int]]:
    """(offset, bytes) of every dynamic shared array, each a multiple of 16."""
    found, end = dict[str, tuple[int, int]](), 0
    for s in walk(body):
        if isinstance(s, Alloc) and s.dynamic:
            size = -(-s.size * s.dtype.bytes // 16) * 16
            found[s.name] = (end, size)
            end += size
    return found
