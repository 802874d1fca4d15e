"""The hash of fuser's sources: no edit goes unnoticed, and what is settled is not read again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fuser.runtime import cache, sources
from fuser.runtime.cache import Store


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sources, and a cache beside it."""
    own = Store((tmp_path / "cache",), 1 << 20)
    monkeypatch.setattr(cache, "store", lambda: own)
    (tmp_path / "code" / "part").mkdir(parents=True)
    for name in ("one.py", "part/two.py"):
        (tmp_path / "code" / name).write_text("x = 1\n")
    (tmp_path / "code" / "notes.txt").write_text("no source\n")
    return tmp_path / "code"


def fingerprint(root: Path) -> str:
    """As another process takes it."""
    sources.fingerprint.cache_clear()
    cache.code_fingerprint.cache_clear()
    return sources.fingerprint(str(root))


def entries() -> int:
    return len(list(cache.store().entries()))


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour passes."""
    now = time.time() + 3600
    monkeypatch.setattr(sources.time, "time", lambda: now)


def test_settled_files_are_not_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    first = fingerprint(root)
    assert entries() == 1
    monkeypatch.setattr(cache, "code_fingerprint", lambda *roots: 1 / 0)
    sources.fingerprint.cache_clear()
    assert sources.fingerprint(str(root)) == first


def test_files_of_a_moment_ago_are_read_again(root: Path) -> None:
    first = fingerprint(root)
    assert entries() == 0
    (root / "one.py").write_text("x = 2\n")
    assert fingerprint(root) != first


@pytest.mark.parametrize("edit", ["one letter", "the same time", "a new file", "a file less", "replaced"])
def test_every_edit_is_noticed(root: Path, monkeypatch: pytest.MonkeyPatch, edit: str) -> None:
    settle(monkeypatch)
    first, path = fingerprint(root), root / "part" / "two.py"
    before = path.stat()
    time.sleep(0.02)  # a tick of the clock that files are dated by
    if edit == "a new file":
        (root / "three.py").write_text("")
    elif edit == "a file less":
        path.unlink()
    elif edit == "replaced":
        other = root / "other"
        other.write_text("x = 3\n")
        os.replace(other, path)
    else:
        path.write_text("x = 2\n")
    if edit in ("the same time", "replaced"):
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fingerprint(root) != first


def test_what_is_no_source_does_not_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    first = fingerprint(root)
    (root / "notes.txt").write_text("changed\n")
    assert fingerprint(root) == first
