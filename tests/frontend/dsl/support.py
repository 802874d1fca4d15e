"""What the tests of the language share: case files, specs in headers, running a graph by the reference.

A case is a `.fuse` file. Its header says how it is built, one `# build:` line with the specs of the parameters:
`f32[n, d]`, `float`, or a literal (`'tanh'`, `3`, `None`) for a static value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fuser import dtypes, specs
from fuser.frontend.program import Program
from fuser.graph import Graph
from fuser.hostexpr import HostExpr
from fuser.interpreter import evaluate
from fuser.specs import ArraySpec, ScalarSpec, Spec, StaticSpec
from fuser.trees import rebuild

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
STATIC = {"None": None, "True": True, "False": False}


def case_files(folder: str) -> list[Path]:
    """The `.fuse` files of a folder of cases."""
    return sorted((HERE / folder).glob("*.fuse"))


def build_line(text: str) -> list[Spec] | None:
    """The specs of the `# build:` line; None without one."""
    found = re.search(r"^# build:(.*)$", text, re.MULTILINE)
    if found is None:
        return None
    parts = [p.strip() for p in re.split(r",(?![^\[]*\])", found[1]) if p.strip()]
    return [spec(p) for p in parts]


def spec(text: str) -> Spec:
    """`f32[n]`, `float`, `'tanh'`, `3`, `None`."""
    if text in STATIC:
        return StaticSpec(STATIC[text])
    if text.lstrip("-").isdigit():
        return StaticSpec(int(text))
    return StaticSpec(text[1:-1]) if text[0] in "'\"" else specs.parse(text)


def compare(path: Path, actual: str) -> None:
    """Hold text against a golden file; FUSER_UPDATE_GOLDEN=1 writes it."""
    if os.environ.get("FUSER_UPDATE_GOLDEN"):
        path.write_text(actual, encoding="utf-8")
    assert path.exists(), f"{path} is missing; run with FUSER_UPDATE_GOLDEN=1 and read it"
    assert actual == path.read_text(encoding="utf-8")


def build(text: str, *given: str | Spec, function: str = "") -> Graph:
    """The graph of a program's only (or named) function."""
    program = Program(text, "t.fuse")
    name = function or program.entry
    return program.build(name, [spec(g) if isinstance(g, str) else g for g in given])


def run(text: str, *values: Any, function: str = "", symbolic: bool = True) -> tuple[Any, list[Any]]:
    """(result, arguments after the call) by the reference. Arrays are copied; floats and ints are run-time scalars."""
    program = Program(text, "t.fuse")
    name = function or program.entry
    signature = program.signature(name)
    given: list[Spec] = []
    env: dict[str, Any] = {}
    taken: set[str] = set()
    arrays = []
    for p, v in zip(signature.parameters, values, strict=False):
        if isinstance(v, np.ndarray | np.generic):
            dtype = dtypes.find(v.dtype)
            assert dtype is not None
            shape = specs.symbolic_shape(v.shape, p.axis_names(v.ndim), p.name, taken) if symbolic else v.shape
            env |= {d.value: n for d, n in zip(shape, v.shape, strict=True) if isinstance(d, HostExpr)}
            given.append(ArraySpec(dtype, shape))
            arrays.append(np.array(v))
        elif isinstance(v, bool) or not isinstance(v, int | float):
            given.append(StaticSpec(v))
        else:
            given.append(ScalarSpec("int" if isinstance(v, int) else "float"))
            env[f"={p.name}"] = v
    graph = program.build(name, given)
    assert all(g.holds(env) for g in graph.guards), [str(g) for g in graph.guards]
    outputs, effects = evaluate(graph, arrays, env)
    for effect, value in zip(graph.effects, effects, strict=True):
        arrays[effect.argument] = value
    return rebuild(graph.output_tree, [o[()] for o in outputs], env), arrays


def corpus() -> list[Path]:
    """Every valid `.fuse` file of the project."""
    return [*case_files("cases"), *sorted((ROOT / "examples").glob("*.fuse"))]


def flat(value: Any) -> Sequence[Any]:
    """Results as a flat list."""
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple | list) else [value]
