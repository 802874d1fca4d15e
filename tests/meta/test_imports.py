"""What `import fuser` loads, and what it says when fuser is imported in a way that cannot work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.project import PACKAGES, ROOT, sources

HEAVY = ("cupy", "torch", "jax", "networkx", "llvmlite", "lark", "scipy", "click", "rich", "ml_dtypes", "difflib")
FIRST_CALL = """
import sys, numpy as np
import fuser
fuser.compile(lambda x: np.tanh(x) + 1)(np.ones((8, 8), np.float32))
"""


def python(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_import_loads_nothing_heavy(tmp_path: Path) -> None:
    code = f"import sys, fuser; print(*(name for name in {HEAVY} if name in sys.modules))"
    result = python("-c", code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_records_are_made_by_the_quick_decorator() -> None:
    """`dataclasses.dataclass` compiles text for each record, which every import would wait for."""
    slow = re.compile(r"^from dataclasses import .*\bdataclass\b|^\s*@dataclasses\.dataclass", re.MULTILINE)
    others = [p.as_posix() for p in sources() if p.as_posix() != "fuser/record.py"]  # which makes the decorator
    assert [p for p in others if slow.search((ROOT / p).read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("cache", ["empty", "filled"])
def test_a_first_call_imports_only_what_it_needs(tmp_path: Path, cache: str) -> None:
    code = FIRST_CALL + f"print(*(name for name in {HEAVY} if name in sys.modules))"
    for _ in range(1 if cache == "empty" else 2):
        result = python("-c", code, cwd=tmp_path, FUSER_CACHE_DIR=str(tmp_path / "cache"))
        assert result.returncode == 0, result.stderr
        assert result.stdout.split() == ["llvmlite"]


@pytest.mark.parametrize("part", [folder for folder in PACKAGES if folder != "fuser"])
def test_bare_import_names_the_right_one(part: str) -> None:
    result = python("-c", f"import {part}", cwd=ROOT)
    assert result.returncode == 1
    assert f"import it as `fuser.{part}`" in result.stderr.splitlines()[-1]


def test_a_clone_that_is_not_installed_says_so() -> None:
    result = python("-S", "-c", "import fuser", cwd=ROOT)  # -S: as if nothing at all were installed
    assert result.returncode == 1
    assert "ImportError: fuser is not installed" in result.stderr
    assert "make setup" in result.stderr


def test_two_copies_do_not_mix(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fuser", tmp_path / "fuser", ignore=shutil.ignore_patterns("__pycache__"))
    result = python("-c", "import fuser", cwd=tmp_path)
    assert result.returncode == 1
    assert "ImportError: two copies of fuser are mixed" in result.stderr
