"""Where the project's sources are, for the tests that read them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Folder in the clone -> name that its package is installed under.
PACKAGES = {
    "fuser": "fuser",
    "frontend": "fuser.frontend",
    "passes": "fuser.passes",
    "codegen": "fuser.codegen",
}


def sources() -> Iterator[Path]:
    """Every module that is installed, as a path relative to the root."""
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT)


def module_name(path: Path) -> str:
    """The name that a source file is imported under."""
    parts = [PACKAGES[path.parts[0]], *path.with_suffix("").parts[1:]]
    return ".".join(parts).removesuffix(".__init__")


def tracked_files() -> list[Path]:
    """Files that git tracks or would add; empty outside a git checkout."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]
