"""Which code this is: a hash of fuser's own sources, so that what another version made is never met.

In: folders. Out: one text. Reading and hashing every file takes some 8 ms, so the outcome is kept in the disk cache
under what the file system says of the files: path, size, inode, times of change. A file that is written again has
another time, but clocks are coarse: an outcome is kept only once the files have been left alone for a while.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import cache

from fuser.runtime import cache as disk

SETTLED_SECONDS = 10.0  # a file changed later than this may change again and show the same time
Facts = tuple[str, int, int, int, int]


@cache
def fingerprint(*roots: str) -> str:
    """The hash of the Python files below some folders, as this process met them first."""
    facts = _look(roots)
    key = disk.key_of("sources", *roots, facts)
    entry = disk.store().load(key)
    if entry is not None:
        return str(entry.record["digest"])
    digest = disk.code_fingerprint(*roots)
    newest = max((max(changed, status) for *_, changed, status in facts), default=0) / 1e9
    if facts == _look(roots) and time.time() - newest > SETTLED_SECONDS:
        disk.store().save(key, {}, {"digest": digest})
    return digest


def _look(roots: Sequence[str]) -> list[Facts]:
    return sorted(fact for root in roots for fact in _facts(root))


def _facts(folder: str) -> Iterator[Facts]:
    """What the file system says of every Python file below a folder."""
    for found in os.scandir(folder):
        if found.name.endswith(".py"):
            status = found.stat()
            yield found.path, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        elif found.is_dir() and found.name != "__pycache__":
            yield from _facts(found.path)
