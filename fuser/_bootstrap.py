"""Check, before anything else of fuser is imported, that its parts are installed and belong together.

`fuser.frontend`, `fuser.passes` and `fuser.codegen` lie beside `fuser/` in a clone and inside it in an
installation.  A clone that nobody installed finds only half of itself; a clone imported under another
clone's environment would find the other's half.  Both must say so rather than fail somewhere deep inside.
Only the standard library is imported here, because in such an environment nothing else may exist.
"""

from importlib.util import find_spec
from pathlib import Path

PARTS = ("frontend", "passes", "codegen")


def check() -> None:
    """Raise ImportError unless every part of fuser is found, and found next to this very copy."""
    here = Path(__file__).resolve().parent
    for part in PARTS:
        spec = find_spec(f"fuser.{part}")
        if spec is None or spec.origin is None:
            raise ImportError(_missing(here.parent), name=f"fuser.{part}")
        found = Path(spec.origin).resolve().parent
        if found not in (here / part, here.parent / part):
            raise ImportError(_mixed(here, part, found), name=f"fuser.{part}", path=str(found))


def _missing(root: Path) -> str:
    if not (root / "pyproject.toml").is_file():
        return "this installation of fuser is incomplete; reinstall the distribution `fuser-compiler`"
    return (
        f"fuser is not installed: {root} is a source clone, whose parts are found only once installed.\n"
        f"  run `make setup` there and use its .venv/bin/python, or: pip install -e {root}"
    )


def _mixed(here: Path, part: str, found: Path) -> str:
    return (
        f"two copies of fuser are mixed: `fuser` is {here}, but `fuser.{part}` is {found}.\n"
        f"  run `make setup` in {here.parent} and use its .venv/bin/python, or start Python in another folder"
    )
