"""The disk cache: compiled kernels by content.

In: a key (a hash over all that a binary depends on) and parts of bytes with a small record. Out: the same again, in a
later process, or None. Nothing that goes wrong here is an error to a program: an unreadable, truncated or altered
entry is a miss and is replaced; a folder that cannot be written means that this process remembers for itself only.

`FUSER_CACHE_DIR` names folders, separated as in PATH: the first is written, all are read. An entry is one file: a magic
line, a JSON record with the lengths of the parts, the parts, and a SHA-256 of all before it. Entries are written beside
their place and renamed, so that other processes see all of one or nothing. No pickle, and folders are private: what is
loaded from here is run.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from fuser.record import dataclass
from fuser.settings import settings

MAGIC = b"fuser cache 1\n"
DIGEST = hashlib.sha256().digest_size
SUFFIX, TEMPORARY = ".kernel", ".tmp"
STALE_SECONDS = 3600.0  # a temporary file this old was left by a process that was killed
USED_SECONDS = 86400.0  # how exactly the time of the last use is kept
TRIM_EVERY = 64  # writes between two looks at the size
TRIM_TO = 0.8  # of the bound, once it is passed


@dataclass(frozen=True)
class Entry:
    """What was stored: named parts, and a record of JSON values."""

    parts: Mapping[str, bytes]
    record: Mapping[str, Any]


@dataclass
class Store:
    """Folders of entries; the first may be written to. problem: why it is not, in words."""

    folders: tuple[Path, ...]
    limit: int
    problem: str = ""
    hits: int = 0
    misses: int = 0
    _writes: int = field(default=0, repr=False)
    _trust: dict[int, bool] = field(default_factory=dict, repr=False)

    def load(self, key: str) -> Entry | None:
        """The entry of a key, from the first folder that has a sound one."""
        for position, folder in enumerate(self.folders):
            path = _path(folder, key)
            if not self._is_trusted(position):
                continue
            try:
                content = path.read_bytes()
            except OSError:
                continue
            entry = _decode(content, key)
            if entry is not None:
                self.hits += 1
                if position == 0:
                    _mark_used(path)
                return entry
            if position == 0:
                with suppress(OSError):
                    path.unlink()
        self.misses += 1
        return None

    def _is_trusted(self, position: int) -> bool:
        known = self._trust.get(position)
        if not known:  # a folder may come into being while the process runs
            known = self._trust[position] = _trusted(self.folders[position], own=position == 0)
        return known

    def save(self, key: str, parts: Mapping[str, bytes], record: Mapping[str, Any]) -> bool:
        """Store an entry in the first folder; False where that cannot be."""
        if not self.folders or self.problem:
            return False
        path = _path(self.folders[0], key)
        try:
            _make_private(self.folders[0])
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write(path, _encode(key, parts, record))
        except OSError as error:
            self.problem = f"{self.folders[0]}: {error.strerror or error}"
            return False
        if self._writes % TRIM_EVERY == 0:
            self.trim()
        self._writes += 1
        return True

    def is_empty(self) -> bool:
        """Whether nothing was ever stored in any folder."""
        for folder in self.folders:
            with suppress(OSError), os.scandir(folder) as found:
                if next(found, None) is not None:
                    return False
        return True

    def entries(self, number: int = 0) -> Iterator[tuple[Path, os.stat_result]]:
        """All entries of a folder (the first is the one written to)."""
        for folder in self.folders[number : number + 1]:
            for path in folder.glob(f"??/*{SUFFIX}"):
                with suppress(OSError):
                    yield path, path.stat()

    def trim(self) -> None:
        """Delete what was used longest ago while the size bound is passed, and what killed processes left."""
        for folder in self.folders[:1]:
            for path in folder.glob(f"??/*{TEMPORARY}"):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > STALE_SECONDS:
                        path.unlink()
        found = sorted(self.entries(), key=lambda e: e[1].st_mtime)
        total = sum(s.st_size for _, s in found)
        goal = self.limit * TRIM_TO if total > self.limit else total
        for path, status in found:
            if total <= goal:
                break
            with suppress(OSError):
                path.unlink()
            total -= status.st_size

    def clear(self) -> int:
        """Delete all entries of the first folder; how many there were."""
        count = 0
        for folder in self.folders[:1]:
            for path in [*folder.glob(f"??/*{SUFFIX}"), *folder.glob(f"??/*{TEMPORARY}")]:
                with suppress(OSError):
                    path.unlink()
                    count += path.suffix == SUFFIX
        return count


@cache
def store() -> Store:
    """The process's store; without folders where it is switched off or there is no home."""
    chosen = settings()
    if chosen.cache.lower() in ("off", "0", "no", "false"):
        return Store((), 0, "switched off by FUSER_CACHE")
    if chosen.cache_dir:
        folders = tuple(Path(part).expanduser() for part in chosen.cache_dir.split(os.pathsep) if part)
        return Store(folders, chosen.cache_bytes)
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "fuser"
    except RuntimeError:
        return Store((), 0, "there is no home directory; set FUSER_CACHE_DIR")
    return Store((folder,), chosen.cache_bytes)


def key_of(*facts: object) -> str:
    """The key for facts with a unique text each."""
    digest = hashlib.sha256()
    for fact in facts:
        text = fact if isinstance(fact, bytes) else str(fact).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.hexdigest()


@cache
def code_fingerprint(*roots: str) -> str:
    """A hash of the sources below some folders: those of fuser's own that turn a kernel into code, so that another
    version never meets these entries."""
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted(_sources(root)):
            digest.update(path[len(root) :].replace(os.sep, "/").encode())
            with open(path, "rb") as file:
                digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[str]:
    """Paths of the Python files below a folder. (Asking pathlib takes three times as long, in every first call.)"""
    for found in os.scandir(folder):
        if found.name.endswith(".py"):
            yield found.path
        elif found.is_dir() and found.name != "__pycache__":
            yield from _sources(found.path)


def _trusted(folder: Path, own: bool) -> bool:
    """Whether what lies in a folder may be run: nobody else can write to it, and the first one is the user's own."""
    try:
        status = folder.stat()
    except OSError:
        return False
    if os.name != "posix":
        return True
    mine = status.st_uid == os.geteuid() or not own
    return mine and not stat.S_IMODE(status.st_mode) & (0o022 if own else 0o002)


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / (key[2:] + SUFFIX)


def _encode(key: str, parts: Mapping[str, bytes], record: Mapping[str, Any]) -> bytes:
    lengths = [[name, len(data)] for name, data in parts.items()]
    head = json.dumps({"key": key, "parts": lengths, "record": dict(record)}).encode()
    content = b"".join((MAGIC, len(head).to_bytes(8, "little"), head, *parts.values()))
    return content + hashlib.sha256(content).digest()


def _decode(content: bytes, key: str) -> Entry | None:
    """The entry in a file's content; None unless every byte is as it was written, for this key."""
    body, digest = content[:-DIGEST], content[-DIGEST:]
    start = len(MAGIC) + 8
    if len(body) < start or body[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != digest:
        return None
    end = start + int.from_bytes(body[len(MAGIC) : start], "little")
    head = json.loads(body[start:end])  # sound, since the digest is
    if head["key"] != key:
        return None
    parts = {}
    for name, length in head["parts"]:
        parts[name] = body[end : end + length]
        end += length
    return Entry(parts, head["record"])


def _write(path: Path, content: bytes) -> None:
    """The file as a whole or not at all."""
    temporary = path.with_name(f"{os.getpid()}-{os.urandom(8).hex()}{TEMPORARY}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _make_private(folder: Path) -> None:
    """The folder, readable by its owner only; OSError where it belongs to someone else or anyone may write to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name != "posix":
        return
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(1, "the folder belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise PermissionError(1, "others may write to the folder")


def _mark_used(path: Path) -> None:
    """Keep the time of use, roughly: it is what trimming goes by."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > USED_SECONDS:
            os.utime(path)
