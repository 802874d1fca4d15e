"""Programs as data: what the fuzzer makes, runs, shrinks and prints.

In: arguments, statements in NumPy, outputs, a seed. Out: `function()` to compile, `arrays()` to call it with, and
`text()`, a file that shows the fault when run. A statement knows what it reads and how inexact it is; nothing else is
needed to bound its error (see `errors`) or to leave it out (see `shrink`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Rounding = Literal["exact", "libm", "sum", "var", "std", "prod"]
SCOPE: dict[str, Any] = {"np": np, "ml_dtypes": ml_dtypes}


@dataclass(frozen=True)
class Argument:
    """An array argument; its values follow from the program's seed and its place."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def source(self) -> str:
        """An expression over `rng` that makes the array."""
        scalar = spell(self.dtype)
        if self.dtype == "bool":
            return f"rng.random({self.shape}) < 0.5"
        if np.dtype(DTYPES[self.dtype]).kind in "iu":
            low = 0 if self.dtype.startswith("u") else -20
            return f"rng.integers({low}, 20, {self.shape}).astype({scalar})"
        return f"(rng.standard_normal({self.shape}) * 2).astype({scalar})"


DTYPES: dict[str, Any] = {
    "bool": np.bool_, "int8": np.int8, "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "uint32": np.uint32,
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64,
}  # fmt: skip


def spell(dtype: str) -> str:
    """A dtype as programs write it."""
    return "ml_dtypes.bfloat16" if dtype == "bfloat16" else "np.bool_" if dtype == "bool" else f"np.{dtype}"


@dataclass(frozen=True)
class Statement:
    """`lines` compute `target` (or, for a store, change it) from `operands`. rounding: how a result may be off."""

    target: str
    lines: tuple[str, ...]
    operands: tuple[str, ...]
    rounding: Rounding = "exact"
    store: bool = False

    @cached_property
    def code(self) -> Any:
        return compile("\n".join(self.lines), "<statement>", "exec")

    def run(self, values: Mapping[str, Any]) -> Any:
        """The target after the statement, on these values of the operands; the values themselves stay as they are."""
        scope = {**SCOPE, **{k: values[k] for k in self.operands}}
        if self.store:
            scope[self.target] = np.array(values[self.target])
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of empty axes
            exec(self.code, scope)
        return scope[self.target]


@dataclass(frozen=True)
class Program:
    """A function of arrays. stores change arguments; outputs are names of values."""

    arguments: tuple[Argument, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    seed: int

    @property
    def source(self) -> str:
        names = ", ".join(a.name for a in self.arguments)
        body = [line for s in self.statements for line in s.lines]
        results = ", ".join(self.outputs) + ("," if len(self.outputs) == 1 else "")
        return "\n".join([f"def f({names}):", *(f"    {line}" for line in body), f"    return ({results})"])

    def function(self) -> Callable[..., Any]:
        scope = dict(SCOPE)
        exec(compile(self.source, f"<fuzz {self.seed}>", "exec"), scope)
        found: Callable[..., Any] = scope["f"]
        return found

    def arrays(self) -> list[Array]:
        """Fresh arguments, the same each time."""
        return [
            np.asarray(eval(a.source, {**SCOPE, "rng": np.random.default_rng([self.seed, k])}))
            for k, a in enumerate(self.arguments)
        ]

    def text(self, fault: str) -> str:
        """A file that runs the program, fused and unfused, and shows the fault."""
        made = [f"rng = np.random.default_rng([{self.seed}, {k}])\n{a.name} = {a.source}"
                for k, a in enumerate(self.arguments)]  # fmt: skip
        names = ", ".join(f"{a.name}.copy()" for a in self.arguments)
        return "\n".join([
            *(f"# {line}" for line in fault.splitlines()), "# run in the clone: python this_file.py",
            "import ml_dtypes", "import numpy as np", "",
            "import fuser", "from tests import engines", "", "", self.source, "", "", *made,
            f"print('reference', fuser.reference(f)({names}))",
            "for engine in engines.NO_GPU_NEEDED:",
            "    for fused in (True, False):",
            f"        print(engine, 'fused' if fused else 'unfused', engine.compile(f, fused=fused)({names}))",
        ])  # fmt: skip

    def needed(self) -> Program:
        """Without statements and arguments that nothing reads. A store keeps what it changes."""
        live = set(self.outputs)
        kept = []
        for s in reversed(self.statements):
            if s.store or s.target in live:
                kept.append(s)
                live |= {*s.operands, s.target}
        return Program(
            tuple(a for a in self.arguments if a.name in live), tuple(reversed(kept)), self.outputs, self.seed
        )


def eager(program: Program) -> dict[str, Array]:
    """Every value by NumPy itself, one statement at a time."""
    values: dict[str, Array] = {a.name: x for a, x in zip(program.arguments, program.arrays(), strict=True)}
    for s in program.statements:
        values[s.target] = np.asarray(s.run(values))
    return values


def names_of(statements: Sequence[Statement]) -> set[str]:
    return {s.target for s in statements}
