"""Plans that the drawing tests share: one kernel, several with a library call, and a long program."""

from functools import cache
from typing import Any

import numpy as np

import fuser
from fuser.plan import Plan
from tests.meta.project import ROOT


@cache
def softmax() -> Plan:
    return _example("softmax", (64, 128))


@cache
def scores() -> Plan:
    """Four kernels or more, and a matrix product."""
    return _example("scores", (64, 32), (32, 16), (32,))


@cache
def long(operators: int) -> Plan:
    """Programs with a barrier now and then, so that there are several kernels and values between far layers."""

    def program(x: Any) -> Any:
        values = [x]
        for k in range(operators):
            a, b = values[-1], values[max(0, len(values) - 5)]
            values.append(np.tanh(a) if k % 3 == 0 else a * b if k % 3 == 1 else a + b)
            if k % 40 == 39:
                values[-1] = values[-1] - values[-1].max()
        return values[-1]

    return fuser.compile(program).plan(np.zeros((16, 32), np.float32), device="sm_90")


def _example(name: str, *shapes: tuple[int, ...]) -> Plan:
    program = fuser.load(str(ROOT / "examples" / f"{name}.fuse"))
    return program[name].plan(*(np.zeros(s, np.float32) for s in shapes), device="sm_90")
