"""The example programs against Python and NumPy running the same text (bf16 read as f32: NumPy has no bf16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontend.dsl.support import ROOT
from tests.frontend.dsl.test_meaning import check

DIMS = {"n": 6, "d": 8, "classes": 10, "b": 4, "c": 3, "h": 5, "w": 2, "k": 4}
RNG = np.random.default_rng(7)
EXAMPLES = sorted((ROOT / "examples").glob("*.fuse"))


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


INPUTS: dict[str, tuple[Any, ...]] = {
    "sum_abs": (normal(6, 8),),
    "softmax": (normal(6, 8),),
    "layer_norm": (normal(6, 8), normal(8), normal(8), 1e-5),
    "rms_norm_residual": (normal(6, 8), normal(6, 8), normal(8), 1e-6),
    "gelu": (normal(6, 8), normal(8), "tanh"),
    "scores": (normal(6, 8), normal(8, 4), normal(8)),
    "swiglu": (normal(6, 16),),
    "cross_entropy": (normal(6, 10), np.array([3, -100, 0, 9, 9, -100], np.int64), -100),
    "cube_root": (RNG.standard_normal(6), 5),
    "batch_norm": (normal(4, 3, 5, 2), normal(3), normal(3), normal(3), abs(normal(3)), 0.1, 1e-5),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_means_what_python_means(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("bf16", "f32")
    check(text, *INPUTS[path.stem], **DIMS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_says_what_it_is_and_how_it_is_run(path: Path) -> None:
    from fuser.frontend.program import Program

    program = Program.load(path)
    assert f"fuserc run examples/{path.name}" in program.doc
    assert all(s.doc for s in program.signatures.values())
