"""Programs that touch every kind of kernel once: what runs under compute-sanitizer, and against the reference.

`python -m tests.gpu.programs` runs them all on the GPU and compares; `run_all.py` puts each sanitizer around that.
Memory comes straight from the driver here, because in a pool one array's end is the next one's beginning.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fuser
from benchmarks.workloads import WORKLOADS
from fuser import specs, trees
from fuser.dtypes import BF16
from tests import engines
from tests.fuzz.generate import program
from tests.ops.matrix_folds import ONE_AXIS, fold_program, scan_program

AXIS = 60  # no array axis is longer: a sanitizer runs hundreds of times slower (some workloads split an axis by 2 or 4)
RANDOM = 40


def _array(spec: specs.ArraySpec, rng: np.random.Generator) -> Any:
    shape = tuple(min(int(str(d)), AXIS) for d in spec.shape)
    if spec.dtype.is_integer:
        return rng.integers(0, 5, shape).astype(spec.dtype.numpy)
    if not spec.dtype.is_float:
        return rng.random(shape) < 0.5
    return (np.abs(rng.standard_normal(shape)) + 0.5).astype(spec.dtype.numpy)


def _arguments(texts: tuple[Any, ...], rng: np.random.Generator) -> list[Any]:
    """Inputs of a workload, small; bf16 as f32, which CuPy can hold."""
    found = []
    for t in texts:
        spec = specs.parse(t) if isinstance(t, str) else t
        value = _array(spec, rng) if isinstance(spec, specs.ArraySpec) else spec
        found.append(value.astype(np.float32) if getattr(value, "dtype", None) == BF16.numpy else value)
    return found


def programs() -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """(name, function, arrays): the workloads, folds and scans over every axis, random programs."""
    rng = np.random.default_rng(0)
    for w in WORKLOADS:
        yield w.name, w.fn, _arguments(w.specs, rng)
    for axes in ONE_AXIS:
        for n in (1, 33, 1000, 20_011):
            x = rng.standard_normal(axes.shape(n)).astype(np.float32)
            yield f"folds {axes} {n}", fold_program(("sum", "var", "max", "argmin"), axes.axis), [x]
            yield f"scans {axes} {n}", scan_program(axes.axis), [np.clip(x, -1, 1)]
    for seed in range(RANDOM):
        p = program(seed)
        given = p.arrays()
        if all(a.dtype != BF16.numpy for a in given):
            yield f"random {seed}", p.function(), given


def main() -> int:
    """Runs everything; the number of programs that differ from the reference."""
    import cupy

    cupy.cuda.set_allocator(None)
    faults = 0
    for name, function, given in programs():
        want = fuser.reference(function)(*copy.deepcopy(given))
        got = engines.CUDA.compile(function)(*given)
        pairs = zip(trees.flatten(got)[0], trees.flatten(want)[0], strict=True)
        close = all(a is b is None or np.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in pairs)
        faults += not close
        print("ok  " if close else "WRONG", name, flush=True)
    return faults


if __name__ == "__main__":
    sys.exit(main())
