"""Public fault kinds of comparable tools (cases.json), on the CPU and as CUDA kernels in the SIMT interpreter.

A case gives a program, inputs and assertions; `wrong_version` imitates the fault and must be caught by them.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import dtypes
from tests.simulate import Simulated

CASES = json.loads(Path(__file__).with_name("cases.json").read_text())
SEPARATE = {"A28": "process-level: tests/cases/test_disk_cache.py", "A29": "5 GB: tests/cases/test_large.py"}
TOO_BIG_FOR_SIMT = {"A13": "2**25 elements", "A24": "260k elements, ten runs", "A26": "threads"}
NOT_YET: dict[str, str] = {}  # case -> reason; strict
ENGINES: dict[str, Callable[..., Any]] = {"cpu": fuser.compile, "simt": Simulated}


def run_case(case: dict[str, str], engine: Callable[..., Any], faulty: str = "") -> None:
    """Executes a case's program, inputs and check with F, G, COMPILE and H bound; `faulty` redefines what F, G do."""
    scope: dict[str, Any] = {"np": np}
    exec(case["program"], scope)
    exec(case["inputs"], scope)
    original = dict(scope)
    scope["COMPILE"], scope["H"] = engine, np.asarray
    exec(faulty, scope)
    for name, function in (("F", "f"), ("G", "g")):
        if function in scope:
            scope[name] = engine(scope[function])
            scope[function] = original.get(function)
    exec(case["check"], scope)


def runnable() -> list[Any]:
    found = []
    for case in CASES:
        if case["id"] in SEPARATE or case["id"] == "A30":
            continue
        for engine in ENGINES:
            if engine == "simt" and case["id"] in TOO_BIG_FOR_SIMT:
                continue
            marks = [pytest.mark.xfail(reason=NOT_YET[case["id"]], strict=True)] if case["id"] in NOT_YET else []
            found.append(pytest.param(case, engine, id=f"{case['id']}-{engine}", marks=marks))
    return found


@pytest.mark.parametrize(("case", "engine"), runnable())
def test_case(case: dict[str, str], engine: str) -> None:
    run_case(case, ENGINES[engine])


@pytest.mark.parametrize("case", [c for c in CASES if c["wrong_version"]], ids=lambda c: c["id"])
def test_the_check_catches_the_fault(case: dict[str, str]) -> None:
    """Guards the harness: the imitation of the fault, run in place of fuser, must fail the check."""
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        run_case(case, lambda fn: fn, case["wrong_version"])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a17_a_rounded_value_keeps_the_dtype_it_is_returned_in(engine: str, half: str) -> None:
    """Values alone do not tell: a half type holds all of them."""
    narrow = dtypes.find(half)
    assert narrow is not None
    x = np.linspace(-3, 3, 33, dtype=np.float32)

    def program(x: Any) -> Any:
        y = x.astype(narrow.numpy).astype(np.float32)
        return y, y.reshape(3, 11), y + 1

    for got, wanted in zip(ENGINES[engine](program)(x), program(x), strict=True):
        assert got.dtype == wanted.dtype
        assert np.array_equal(got, wanted)


def test_a17_a_rounded_value_may_be_stored() -> None:
    x = np.linspace(-3, 3, 33, dtype=np.float32)
    wanted = x.astype(np.float16).astype(np.float32)

    def program(x: Any) -> None:
        x[...] = x.astype(np.float16).astype(np.float32)

    fuser.compile(program)(x)
    assert np.array_equal(x, wanted)


def test_a30_comments_do_not_change_the_tree() -> None:
    case = next(c for c in CASES if c["id"] == "A30")
    text = next(part for part in [case["program"]])
    x = np.array([1.0, 2.0, 3.0])
    for variant in (text, text.replace("\n", "\r\n"), text.replace("    ", "\t")):
        compiled = fuser.parse(variant[variant.index("def f") :])["f"]
        assert np.asarray(compiled(x)).tolist() == [3, 4, 5]
