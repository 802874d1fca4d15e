"""Which code this is: a hash of fuser's own sources, so that what another version made is never met.

In: folders. Out: one text. Reading and hashing every file takes some 8 ms, so the outcome is kept in the disk cache
under what the file system says of the files: path, size, inode, times of change. A file that is written again has
another time, but clocks are coarse: an outcome is kept only once the files have been left alone for a while.

Where nothing is looked up under the hash, but something will be stored, a thread of its own takes it while a compiler
has the interpreter's lock free.
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
        self._roots = tuple(roots)
        self.known: str | None = None
        self._taker, self._lock, self._begun = threading.Thread(target=self._find, daemon=True), threading.Lock(), False

    def begin(self) -> None:
        """Have a thread find the hash, unless that was done."""
        with self._lock:
            begun, self._begun = self._begun or self.known is not None, True
        if not begun:
            self._taker.start()

    def wait(self) -> str:
        """The hash. (A forked child has no thread that finds it.)"""
        if self.known is None and self._taker.is_alive():
            self._taker.join()
        return self.known or self._find()

    def _find(self) -> str:
        facts = self._look()
        key = disk.key_of("sources", *self._roots, facts)
        entry = disk.store().load(key)
        self.known = self._take(facts, key) if entry is None else str(entry.record["digest"])
        return self.known

    def _take(self, facts: list[Facts], key: str) -> str:
        digest = disk.code_fingerprint(*self._roots)
        newest = max((max(changed, status) for *_, changed, status in facts), default=0) / 1e9
        if facts == self._look() and time.time() - newest > SETTLED_SECONDS:
            disk.store().save(key, {}, {"digest": digest})
        return digest

    def _look(self) -> list[Facts]:
        return sorted(fact for root in self._roots for fact in _facts(root))


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
