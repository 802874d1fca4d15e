"""NVRTC's version from a note in the disk cache: right for as long as the same file would be loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuser.codegen.cuda import nvrtc, toolkit
from fuser.runtime import cache
from fuser.runtime.cache import Store


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library that says 12.1, in a process that has not loaded it, in surroundings of its own."""
    own = Store((tmp_path / "cache",), 1 << 20)
    monkeypatch.setattr(cache, "store", lambda: own)
    wheels = tmp_path / "site" / "nvidia" / "cu12" / "lib"
    wheels.mkdir(parents=True)
    path = wheels / "libnvrtc.so"
    path.write_text("a compiler")
    monkeypatch.setattr(toolkit.sys, "path", [str(tmp_path / "site")])
    monkeypatch.setattr(toolkit, "_loaded_from", lambda: str(path))
    monkeypatch.setattr(nvrtc, "is_loaded", lambda: False)
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 1))
    toolkit._noted.cache_clear()
    yield path
    toolkit._noted.cache_clear()


def other_process(monkeypatch: pytest.MonkeyPatch, says: tuple[int, int]) -> tuple[int, int]:
    """What the next process takes for the version, where the library says this."""
    toolkit._noted.cache_clear()
    monkeypatch.setattr(nvrtc, "version", lambda: says)
    return toolkit.version()


def test_the_second_process_does_not_load_the_library(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolkit.version() == (12, 1)
    monkeypatch.setattr(nvrtc, "version", lambda: 1 / 0)
    toolkit._noted.cache_clear()
    assert toolkit.version() == (12, 1)


def test_a_loaded_library_is_asked_itself(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolkit.version() == (12, 1)
    monkeypatch.setattr(nvrtc, "is_loaded", lambda: True)
    assert other_process(monkeypatch, (12, 2)) == (12, 2)


@pytest.mark.parametrize("change", ["updated", "a wheel more", "a wheel beside it", "a variable", "removed"])
def test_whatever_may_change_the_library_makes_the_note_void(
    library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    assert toolkit.version() == (12, 1)
    if change == "updated":
        fresh = library.with_name("fresh")
        fresh.write_text("a compiler")
        os.replace(fresh, library)
    elif change == "a wheel more":
        (library.parent.parent.parent / "cu13").mkdir()
    elif change == "a wheel beside it":
        (library.parent / "libnvrtc.so.13").write_text("another")
    elif change == "a variable":
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    else:
        library.unlink()
    assert other_process(monkeypatch, (13, 0)) == (13, 0)


def test_a_cupy_that_does_not_say_where_it_looked_leaves_no_note(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolkit, "_loaded_from", lambda: "")
    assert toolkit.version() == (12, 1)
    assert list(cache.store().entries()) == []
    assert other_process(monkeypatch, (12, 2)) == (12, 2)
