"""Programs in the forms that numexpr and Numba take.

In: a workload's program name. Out: a numexpr expression, or a Numba function of explicit parallel loops with
`fastmath`, as their users would write them. Programs missing here are not run by those peers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_GELU = "0.5 * ({v}) * (1 + tanh(0.7978845608028654 * (({v}) + 0.044715 * ({v}) * ({v}) * ({v}))))"

# program -> (argument names, expression); constants are typed by numexpr's truediv and optimization settings
NUMEXPR: dict[str, tuple[tuple[str, ...], str]] = {
    "abs_sum": (("x",), "sum(abs(x))"),
    "polynomial": (("x", "y"), "2 * x + 3 * y**2 - x * y"),
    "gelu_tanh": (("v",), _GELU.format(v="v")),
    "scale_bias_gelu": (("x", "w", "b"), _GELU.format(v="x * w + b")),
    "bias_gelu": (("x", "b"), _GELU.format(v="x + b")),
    "relu_add_transposed": (("x", "y"), "where(x + y > 0, x + y, 0)"),
    "transposed_add": (("x", "y", "c"), "where(x + y > 0, x + y, 0) * c"),
}


def numexpr_program(name: str, float_name: str) -> Callable[..., Any] | None:
    """A callable over the workload's arrays, with constants of the arrays' float type."""
    if name not in NUMEXPR:
        return None
    import re

    import numexpr

    names, text = NUMEXPR[name]
    kind = np.float32 if float_name == "f32" else np.float64
    numbers: dict[str, Any] = {}

    def named(match: re.Match[str]) -> str:
        key = f"c{len(numbers)}"
        numbers[key] = kind(match.group())
        return key

    if float_name == "f32":  # a bare 0.5 would make the whole expression double
        text = re.sub(r"(?<![\w.*])\d+\.\d+", named, text)
    transposed = 1 if name in ("relu_add_transposed", "transposed_add") else None

    def run(*arrays: Any) -> Any:
        given = [a.T if k == transposed else a for k, a in enumerate(arrays)]
        return numexpr.evaluate(text, local_dict={**dict(zip(names, given, strict=True)), **numbers})

    return run


def numba_program(name: str) -> Callable[..., Any] | None:
    """A compiled function; None where none is written."""
    written = {
        "abs_sum": _abs_sum,
        "polynomial": _polynomial,
        "gelu_tanh": _gelu,
        "softmax": _softmax,
        "black_scholes": _black_scholes,
        "scale_bias_gelu": _scale_bias_gelu,
    }.get(name)
    return None if written is None else written()


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    compiled: Callable[..., Any] = numba.njit(parallel=True, fastmath=True)(function)
    return compiled


def _abs_sum() -> Callable[..., Any]:
    from numba import prange

    def abs_sum(x: Any) -> Any:
        total = x.dtype.type(0)
        for i in prange(x.size):
            total += abs(x[i])
        return total

    return _jit(abs_sum)


def _polynomial() -> Callable[..., Any]:
    def polynomial(x: Any, y: Any) -> Any:
        return 2 * x + 3 * y**2 - x * y

    return _jit(polynomial)


def _gelu() -> Callable[..., Any]:
    from numba import prange

    def gelu(v: Any) -> Any:
        out = np.empty_like(v)
        t = v.dtype.type
        for i in prange(v.size):
            e = v[i]
            out[i] = t(0.5) * e * (t(1) + np.tanh(t(0.7978845608028654) * (e + t(0.044715) * e * e * e)))
        return out

    return _jit(gelu)


def _scale_bias_gelu() -> Callable[..., Any]:
    from numba import prange

    def gelu(x: Any, w: Any, b: Any) -> Any:
        out = np.empty_like(x)
        t = x.dtype.type
        for r in prange(x.shape[0]):
            for c in range(x.shape[1]):
                e = x[r, c] * w[c] + b[c]
                out[r, c] = t(0.5) * e * (t(1) + np.tanh(t(0.7978845608028654) * (e + t(0.044715) * e * e * e)))
        return out

    return _jit(gelu)


def _softmax() -> Callable[..., Any]:
    from numba import prange

    def softmax(x: Any) -> Any:
        out = np.empty_like(x)
        for r in prange(x.shape[0]):
            top = x[r, 0]
            for c in range(x.shape[1]):
                top = max(top, x[r, c])
            total = x.dtype.type(0)
            for c in range(x.shape[1]):
                e = np.exp(x[r, c] - top)
                out[r, c] = e
                total += e
            for c in range(x.shape[1]):
                out[r, c] /= total
        return out

    return _jit(softmax)


def _black_scholes() -> Callable[..., Any]:
    from numba import prange

    root, rate, volatility = 1 / math.sqrt(2.0), 0.03, 0.25

    def black_scholes(spot: Any, strike: Any, years: Any) -> Any:
        call, put = np.empty_like(spot), np.empty_like(spot)
        t = spot.dtype.type
        for i in prange(spot.size):
            spread = t(volatility) * np.sqrt(years[i])
            d1 = (np.log(spot[i] / strike[i]) + t(rate + 0.5 * volatility**2) * years[i]) / spread
            d2 = d1 - spread
            discounted = strike[i] * np.exp(t(-rate) * years[i])
            n1 = t(0.5) * (t(1) + t(math.erf(d1 * t(root))))
            n2 = t(0.5) * (t(1) + t(math.erf(d2 * t(root))))
            call[i] = spot[i] * n1 - discounted * n2
            put[i] = call[i] - spot[i] + discounted
        return call, put

    return _jit(black_scholes)
