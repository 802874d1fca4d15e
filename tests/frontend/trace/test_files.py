"""Programs and the graphs they trace to; programs that are refused and the words that refuse them.

A `.program` file is a Python module whose last function is traced; its `# call:` line gives the specs of the arguments
(`f32[n, d]`, `float`, or a literal). Beside it lies the golden text; FUSER_UPDATE_GOLDEN=1 writes it.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuser import specs
from fuser.errors import FuserError, InternalError
from fuser.frontend.trace import trace
from fuser.graph import Graph
from fuser.specs import Spec, StaticSpec
from fuser.text import print_graph
from fuser.textparse import parse_graph
from fuser.trees import LEAF, Tree

HERE = Path(__file__).parent


def programs(folder: str) -> list[Any]:
    return [pytest.param(p, id=p.stem) for p in sorted((HERE / folder).glob("*.program"))]


def load(path: Path, tmp_path: Path) -> tuple[Callable[..., Any], list[Spec]]:
    """The last function of a program (its file is `model.py`), and the specs of the call."""
    text = path.read_text(encoding="utf-8")
    module = tmp_path / "model.py"
    module.write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "model"}
    exec(compile(text, str(module), "exec"), namespace)
    called = re.search(r"^# call:(.*)$", text, re.MULTILINE)
    assert called is not None, "a program says how it is called: `# call: f32[n]`"
    parts = [p.strip() for p in re.split(r",(?![^\[]*\])", called[1]) if p.strip()]
    functions = [v for v in namespace.values() if inspect.isfunction(v) and v.__module__ == "model"]
    return functions[-1], [_spec(p) for p in parts]


def _spec(text: str) -> Spec:
    return specs.parse(text) if re.match(r"[a-z]", text) else StaticSpec(ast.literal_eval(text))


def graph_of(fn: Callable[..., Any], given: list[Spec]) -> Graph:
    names = list(inspect.signature(fn).parameters)[: len(given)]
    return trace(fn, names, given, Tree("dict", dict, tuple(names), (LEAF,) * len(names)))


def compare(path: Path, actual: str) -> None:
    if os.environ.get("FUSER_UPDATE_GOLDEN"):
        path.write_text(actual, encoding="utf-8")
    assert path.exists(), f"{path} is missing; run with FUSER_UPDATE_GOLDEN=1 and read it"
    assert actual == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", programs("graphs"))
def test_a_program_traces_to_this_graph(path: Path, tmp_path: Path) -> None:
    printed = print_graph(graph_of(*load(path, tmp_path)))
    assert print_graph(parse_graph(printed)) == printed
    compare(path.with_suffix(".graph"), printed)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns of instructions are known from Python 3.11 on")
@pytest.mark.parametrize("path", programs("errors"))
def test_a_program_is_refused_in_these_words(path: Path, tmp_path: Path) -> None:
    fn, given = load(path, tmp_path)
    with pytest.raises(FuserError) as caught:
        graph_of(fn, given)
    assert not isinstance(caught.value, InternalError)
    compare(path.with_suffix(".error"), f"{type(caught.value).__name__}: {caught.value}\n")
