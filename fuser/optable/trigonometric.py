"""Rows of circular and hyperbolic functions and their inverses.

In: nothing. Out: rows as NumPy's ufuncs, primitive on CUDA, expanded through `mathlib` on CPUs. Error bounds are the
larger of CUDA's documented ones and this project's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuser.optable import complexes
from fuser.optable.base import Cost, Expand, Names, ScalarOp, SignRule, Table, Variant, Vjp
from fuser.optable.complexes import Z, pairs
from fuser.optable.mathlib import circular, hyperbolic, inverse_circular
from fuser.optable.references import in_double
from fuser.optable.rules import numpy_rule
from fuser.optable.spell import c_call, fast, libm


def _function(
    name: str, short: str, ufunc: np.ufunc, domain: tuple[float, float], cost: Cost, ulp: tuple[float, float], vjp: Vjp,
    notes: str, expand: Expand, cheaper: Variant | None = None,
    form: Callable[[Z], Z] | None = None, *, growth: tuple[float, ...] | None = None, sign: SignRule | None = None,
    called: bool = False, host: str = "",
) -> ScalarOp:  # fmt: skip
    """A unary function; `short` is its C, torch and array-API name, and a second DSL name where it differs."""
    other = () if short == name else (short,)
    return ScalarOp(
        name=name, arity=1, rule=numpy_rule(ufunc), reference=in_double(ufunc), cuda=c_call(short), expand=expand,
        names=Names(numpy=(name, *other), torch=(short, *((name,) if other else ())), dsl=other, methods=(short,)),
        cost=cost, domain=domain, ulp={"f32": ulp[0], "f64": ulp[1]}, vjp=vjp, notes=notes,
        variants={} if cheaper is None else {"fast": cheaper}, pairs=None if form is None else pairs(ufunc, form),
        growth=growth, sign=sign, called=called, host=host,
    )  # fmt: skip


# Costs: the f32 function's instructions in SASS (NVRTC 13, sm_90), slow paths apart, and registers beyond its operands.
CIRCULAR = (
    _function(
        "sin", "sin", np.sin, (-100, 100), Cost(28, registers=13, wide=16), (2, 2),
        lambda g, y, x: (g * x.op("cos"),), "keeps -0.0; inf gives NaN", circular.sin, form=complexes.sin,
        called=True, host="sin",
    ),
    _function(
        "cos", "cos", np.cos, (-100, 100), Cost(28, registers=13, wide=16), (2, 2),
        lambda g, y, x: (-(g * x.op("sin")),), "inf gives NaN", circular.cos, form=complexes.cos,
        called=True, host="cos",
    ),
    _function(
        "tan", "tan", np.tan, (-1.5, 1.5), Cost(36, sfu=1, registers=12, wide=14), (4, 2),
        lambda g, y, x: (g * (y * y + 1.0),), "keeps -0.0", circular.tan, form=complexes.tan,
        called=True,
    ),
    _function(
        "arcsin", "asin", np.arcsin, (-0.99, 0.99), Cost(25, sfu=1, registers=4, wide=8), (4, 2),
        lambda g, y, x: (g / (1.0 - x * x).op("sqrt"),), "NaN outside [-1, 1]", inverse_circular.arcsin,
    ),
    _function(
        "arccos", "acos", np.arccos, (-0.99, 0.99), Cost(26, sfu=1, registers=5, wide=10), (4, 2),
        lambda g, y, x: (-(g / (1.0 - x * x).op("sqrt")),), "NaN outside [-1, 1]", inverse_circular.arccos,
    ),
    _function(
        "arctan", "atan", np.arctan, (-50, 50), Cost(19, sfu=1, registers=6, wide=6), (3, 2),
        lambda g, y, x: (g / (x * x + 1.0),), "keeps -0.0", inverse_circular.arctan, growth=(1,), sign="operand",
    ),
    ScalarOp(
        name="arctan2", arity=2, rule=numpy_rule(np.arctan2), reference=in_double(np.arctan2), cuda=c_call("atan2"),
        expand=inverse_circular.arctan2, cost=Cost(40, sfu=2, registers=10, wide=16),
        ulp={"f32": 3, "f64": 2}, domain=(-50, 50),
        names=Names(numpy=("arctan2", "atan2"), torch=("atan2", "arctan2"), dsl=("atan2",), methods=("atan2",)),
        vjp=lambda g, y, a, b: (g * b / (a * a + b * b), -(g * a) / (a * a + b * b)),
        notes="signs of zeros choose the quadrant, as in C",
    ),
)  # fmt: skip


def _library(short: str, ufunc: np.ufunc) -> ScalarOp:
    """The C library's function, for the arguments that `mathlib.circular` does not reduce itself."""
    return ScalarOp(
        name=f"libm_{short}", arity=1, hidden=True, rule=numpy_rule(ufunc), reference=in_double(ufunc),
        cuda=c_call(short), llvm=libm(short), cost=Cost(40, registers=14), ulp={"f32": 4, "f64": 2}, domain=(-100, 100),
        no_vjp="only inside another row's expansion", notes="a call an element: for the rare element only",
    )  # fmt: skip


LIBRARY = tuple(_library(short, ufunc) for short, ufunc in (("sin", np.sin), ("cos", np.cos), ("tan", np.tan)))

HYPERBOLIC = (
    _function(
        "sinh", "sinh", np.sinh, (-80, 80), Cost(25, sfu=2, registers=6, wide=20), (3, 2),
        lambda g, y, x: (g * x.op("cosh"),), "keeps -0.0", hyperbolic.sinh, form=complexes.sinh, sign="operand",
    ),
    _function(
        "cosh", "cosh", np.cosh, (-80, 80), Cost(16, sfu=2, registers=3, wide=6), (2, 2),
        lambda g, y, x: (g * x.op("sinh"),), "at least 1", hyperbolic.cosh, form=complexes.cosh, sign="never-below",
    ),
    _function(
        "tanh", "tanh", np.tanh, (-10, 10), Cost(17, sfu=2, registers=6, wide=8), (2, 2),
        lambda g, y, x: (g * (1.0 - y * y),), "keeps -0.0", hyperbolic.tanh,
        Variant(cuda=fast("tanh"), error=2.0**-18, cost=Cost(11, sfu=2, registers=3)), complexes.tanh,
        growth=(1,), sign="operand", host="tanh",
    ),
    _function(
        "arcsinh", "asinh", np.arcsinh, (-1e6, 1e6), Cost(41, sfu=2, registers=5, wide=16), (3, 3),
        lambda g, y, x: (g / (x * x + 1.0).op("sqrt"),), "keeps -0.0", hyperbolic.arcsinh,
        growth=(1,), sign="operand",
    ),
    _function(
        "arccosh", "acosh", np.arccosh, (1.01, 1e6), Cost(42, sfu=1, registers=5, wide=16), (4, 3),
        lambda g, y, x: (g / (x * x - 1.0).op("sqrt"),), "NaN below 1", hyperbolic.arccosh,
    ),
    _function(
        "arctanh", "atanh", np.arctanh, (-0.99, 0.99), Cost(38, sfu=1, registers=5, wide=18), (3, 2),
        lambda g, y, x: (g / (1.0 - x * x),), "infinities at -1 and 1, NaN beyond", hyperbolic.arctanh,
    ),
)  # fmt: skip

ROWS = (*CIRCULAR, *LIBRARY, *HYPERBOLIC)


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
