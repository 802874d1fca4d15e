"""Which code this is: a hash of fuser's own sources, so that what another version made is never met.

In: folders. Out: one text. Reading and hashing every file takes some 8 ms, so the outcome is kept in the disk cache
under what the file system says of the files: path, size, inode, times of change. A file that is written again has
another time, but clocks are coarse: an outcome is kept only once the files have been left alone for a while.

The hash is taken by a thread of its own, beside other work: where the cache is empty there is nothing to look up under
it, and it is waited for only when something is to be stored.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache

from fuser.runtime import cache as disk

SETTLED_SECONDS = 10.0  # a file changed later than this may change again and show the same time
Facts = tuple[str, int, int, int, int]


class Fingerprint:
    """The hash of the Python files below some folders. known: None until it was found or taken."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots, self._taker = tuple(roots), threading.Thread(target=self._take, daemon=True)
        self._facts = sorted(fact for root in roots for fact in _facts(root))
        self._key = disk.key_of("sources", *roots, self._facts)
        entry = disk.store().load(self._key)
        self.known: str | None = None if entry is None else str(entry.record["digest"])
        if self.known is None:
            self._taker.start()

    def wait(self) -> str:
        """The hash. (A forked child has no thread that takes it.)"""
        if self.known is None:
            self._taker.join()
        if self.known is None:
            self._take()
        assert self.known is not None
        return self.known

    def _take(self) -> None:
        digest = disk.code_fingerprint(*self._roots)
        newest = max((max(changed, status) for *_, changed, status in self._facts), default=0) / 1e9
        left_alone = self._facts == sorted(fact for root in self._roots for fact in _facts(root))
        if left_alone and time.time() - newest > SETTLED_SECONDS:
            disk.store().save(self._key, {}, {"digest": digest})
        self.known = digest


@cache
def fingerprint(*roots: str) -> Fingerprint:
    """Of these folders, as this process met them first."""
    return Fingerprint(roots)


def _facts(folder: str) -> Iterator[Facts]:
    """What the file system says of every Python file below a folder."""
    for found in os.scandir(folder):
        if found.name.endswith(".py"):
            status = found.stat()
            yield found.path, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        elif found.is_dir() and found.name != "__pycache__":
            yield from _facts(found.path)
