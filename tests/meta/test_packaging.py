"""pyproject.toml lists every package, and the installed metadata is that of the sources."""

import re
from importlib.metadata import version

import fuser
from tests.meta.project import ROOT, module_name, sources

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_package_is_listed() -> None:
    # tomllib is newer than the oldest Python supported; the list is plain enough without it.
    block = re.search(r"^packages = \[(.*?)^\]", PYPROJECT, re.MULTILINE | re.DOTALL)
    assert block
    listed = set(re.findall(r'"([\w.]+)"', block[1]))
    found = {module_name(path) for path in sources() if path.name == "__init__.py"}
    assert listed == found


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in sources()}
    assert [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").is_file()] == []


def test_version_is_the_same_everywhere() -> None:
    assert f'version = "{fuser.__version__}"' in PYPROJECT
    assert fuser.__version__ == version("fuser-compiler")
