"""The disk cache: what was stored comes back whole or not at all, whatever happens to its files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fuser.runtime import cache
from fuser.runtime.cache import Store

KEY = cache.key_of("kernel", 1)
PARTS = {"code": bytes(range(256)) * 8, "ir": b""}
RECORD = {"registers": 40}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "cache",), 1 << 20)


def only_file(store: Store) -> Path:
    (path,) = [p for p, _ in store.entries()]
    return path


def test_round_trip(store: Store) -> None:
    assert store.load(KEY) is None
    assert store.save(KEY, PARTS, RECORD)
    found = store.load(KEY)
    assert found is not None
    assert (dict(found.parts), dict(found.record)) == (PARTS, RECORD)
    assert store.load(cache.key_of("kernel", 2)) is None


def test_keys_tell_facts_apart() -> None:
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")
    assert cache.key_of("a") != cache.key_of("a", "")


@pytest.mark.parametrize("damage", ["empty", "half", "one bit", "noise", "no digest", "longer"])
def test_a_damaged_entry_is_a_miss_and_is_replaced(store: Store, damage: str) -> None:
    store.save(KEY, PARTS, RECORD)
    path = only_file(store)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "half": whole[: len(whole) // 2],
            "one bit": whole[:300] + bytes([whole[300] ^ 4]) + whole[301:],
            "noise": bytes(reversed(whole)),
            "no digest": whole[:-32],
            "longer": whole + b"x",
        }[damage]
    )
    assert store.load(KEY) is None
    assert store.save(KEY, PARTS, RECORD)
    assert path.read_bytes() == whole
    assert store.load(KEY) is not None


def test_every_truncation_is_a_miss(store: Store) -> None:
    store.save(KEY, {"code": b"12345"}, {})
    path = only_file(store)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert store.load(KEY) is None, length


def test_an_entry_under_another_name_is_a_miss(store: Store) -> None:
    store.save(KEY, PARTS, RECORD)
    other = cache.key_of("other")
    target = store.folders[0] / other[:2] / (other[2:] + cache.SUFFIX)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(only_file(store).read_bytes())
    assert store.load(other) is None


def test_files_are_private(store: Store) -> None:
    store.save(KEY, PARTS, RECORD)
    path = only_file(store)
    assert path.stat().st_mode & 0o077 == 0
    assert store.folders[0].stat().st_mode & 0o077 == 0
    assert not list(store.folders[0].glob(f"??/*{cache.TEMPORARY}"))


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_that_others_can_write_to_is_not_trusted(store: Store) -> None:
    store.save(KEY, PARTS, RECORD)
    store.folders[0].chmod(0o777)
    fresh = Store(store.folders, store.limit)
    assert fresh.load(KEY) is None
    assert not fresh.save(KEY, PARTS, RECORD)
    assert "others may write" in fresh.problem


def test_a_place_that_cannot_be_a_folder_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    store = Store((file / "cache",), 1 << 20)
    assert not store.save(KEY, PARTS, RECORD)
    assert store.problem
    assert store.load(KEY) is None


def test_a_full_disk_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store.save(cache.key_of("first"), PARTS, RECORD)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert not store.save(KEY, PARTS, RECORD)
    assert "No space left" in store.problem
    assert store.load(KEY) is None
    assert not list(store.folders[0].glob(f"??/*{cache.TEMPORARY}"))


def test_later_folders_are_read_and_never_written(tmp_path: Path) -> None:
    layer = Store((tmp_path / "layer",), 1 << 20)
    layer.save(KEY, PARTS, RECORD)
    before = only_file(layer).stat().st_mtime_ns
    store = Store((tmp_path / "own", tmp_path / "layer"), 1 << 20)
    assert store.load(KEY) is not None
    other = cache.key_of("other")
    store.save(other, PARTS, RECORD)
    assert [p.name for p, _ in store.entries()] == [other[2:] + cache.SUFFIX]
    assert only_file(layer).stat().st_mtime_ns == before


def test_the_size_is_bounded_and_the_oldest_go_first(store: Store) -> None:
    keys = [cache.key_of(k) for k in range(8)]
    for age, key in enumerate(keys):
        store.save(key, {"code": bytes(1000)}, {})
        path = store.folders[0] / key[:2] / (key[2:] + cache.SUFFIX)
        os.utime(path, (time.time() - 1000 + age, time.time() - 1000 + age))
    store.limit = 4000
    store.trim()
    kept = [key for key in keys if store.load(key) is not None]
    assert kept == keys[-len(kept) :]
    assert 0 < sum(s.st_size for _, s in store.entries()) <= 4000


def test_what_killed_processes_left_is_swept(store: Store) -> None:
    store.save(KEY, PARTS, RECORD)
    old, young = (only_file(store).with_name(name + cache.TEMPORARY) for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"half an entry")
    os.utime(old, (1, 1))
    store.trim()
    assert not old.exists()
    assert young.exists()


def test_clear(store: Store) -> None:
    store.save(KEY, PARTS, RECORD)
    assert store.clear() == 1
    assert store.load(KEY) is None


def test_settings_choose_the_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fuser import settings as module

    def chosen(**values: str) -> Store:
        for name in ("FUSER_CACHE", "FUSER_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(cache, "settings", lambda: module.read(os.environ))
        return cache.store.__wrapped__()

    assert chosen(FUSER_CACHE="off").folders == ()
    assert chosen(FUSER_CACHE_DIR=f"/a{os.pathsep}/b").folders == (Path("/a"), Path("/b"))
    assert chosen(XDG_CACHE_HOME=str(tmp_path)).folders == (tmp_path / "fuser",)
