"""`FUSER_DEBUG=2`: every stage of a program as a numbered file in the folder of the user's choosing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fuser
from fuser import dumps
from fuser.codegen.cuda import nvrtc
from fuser.errors import ArgumentError, DeviceError
from fuser.settings import settings
from fuser.textparse import parse_graph
from tests.meta.project import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FUSER_DEBUG", "2")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "look"))
    settings.cache_clear()
    yield tmp_path / "look"
    settings.cache_clear()


def listing(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir())


def test_the_files_that_the_page_lists(folder: Path) -> None:
    try:
        nvrtc.version()
    except DeviceError as missing:
        pytest.skip(str(missing.message))
    softmax = fuser.load(ROOT / "examples" / "softmax.fuse").softmax
    softmax.plan("f32[1024, 1024]", device="sm_90").explain()
    shown = re.search(r"ls look\n\n((?:    \S+\n)+)", PAGE)
    assert shown is not None
    assert listing(folder) == shown[1].split()
    for name in ("001-softmax-traced.txt", "002-softmax-fold.txt"):
        assert parse_graph((folder / name).read_text()).name == "softmax"
    assert "1 kernel, was 5" in (folder / "003-softmax-plan.txt").read_text()
    loops, source, resources = (next(folder.glob(f"00{k}-*")).read_text() for k in (4, 5, 6))
    assert loops.startswith("kernel softmax_rows_max_sum_store(")
    assert "__global__" in source
    assert re.match(r"registers \d+\nspills 0\n", resources)


def test_a_call_on_the_cpu_dumps_ir_and_assembly_whether_it_compiles_or_not(folder: Path) -> None:
    for _ in range(2):  # the second takes its kernel from the cache
        fuser.compile(lambda x: np.exp(x) / np.sum(np.exp(x)))(np.ones(5))
    names = listing(folder)
    assert [n[:3] for n in names] == [f"{k:03}" for k in range(1, len(names) + 1)]
    half = len(names) // 2
    assert [n[4:] for n in names[:half]] == [n[4:] for n in names[half:]]
    assert names[0] == "001-lambda-traced.txt"
    assert {"ll", "s"} <= {n.rpartition(".")[2] for n in names}
    (ir, _), (assembly, _) = (list(folder.glob(f"*.{end}")) for end in ("ll", "s"))
    assert "define" in ir.read_text()
    assert ".size" in assembly.read_text()


def test_nothing_is_written_below_level_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEBUG", "1")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "look"))
    settings.cache_clear()
    try:
        fuser.compile(lambda x: x + 1)(np.ones(5))
    finally:
        settings.cache_clear()
    assert not (tmp_path / "look").exists()


def test_numbers_go_on_and_nothing_is_overwritten(folder: Path) -> None:
    folder.mkdir()
    (folder / "041-other-plan.txt").write_text("mine")
    (folder / "notes.txt").write_text("mine too")
    dumps.write("f", "a", "one")
    (folder / "043-f-b.txt").write_text("of another process")
    dumps.write("f", "b", "two\n")
    dumps.write("<a b>/../c", "a/b", "three")
    assert listing(folder) == [
        "041-other-plan.txt", "042-f-a.txt", "043-f-b.txt", "044-f-b.txt", "045-a_b_.._c-a_b.txt", "notes.txt",
    ]  # fmt: skip
    assert (folder / "042-f-a.txt").read_text() == "one\n"
    assert (folder / "043-f-b.txt").read_text() == "of another process"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSER_DEBUG", "2")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "file"))
    settings.cache_clear()
    try:
        with pytest.raises(ArgumentError, match="FUSER_DUMP_DIR"):
            dumps.write("f", "a", "text")
    finally:
        settings.cache_clear()
