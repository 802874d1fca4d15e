"""The public workloads P01-P28: programs, sizes, minimum traffic, kernels to reach.

In: nothing. Out: `WORKLOADS`. Each program is plain NumPy (with `fuser.ops` where NumPy has no name), so that fuser, its
reference and its peers can all be given the same function. Sizes are those of a GPU run; a CPU run uses 1/16
(`scale`). `minimum` counts each input read once and each result written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fuser


@dataclass(frozen=True)
class Workload:
    """specs: argument specs as text (arrays) or values (scalars). kernels: the plan to reach."""

    id: str
    name: str
    fn: Callable[..., Any]
    specs: tuple[Any, ...]
    minimum: int
    kernels: int


def abs_sum(x):
    return np.sum(np.abs(x))


def bcast_chain(x, g, b, m):
    return np.tanh(x * g + b) * fuser.ops.sigmoid(x - m)


def _cdf(x):
    return 0.5 * (1.0 + fuser.ops.erf(x * (1 / math.sqrt(2.0))))


def black_scholes(spot, strike, years, rate=0.03, volatility=0.25):
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * _cdf(d1) - discounted * _cdf(d2)
    return call, call - spot + discounted


def _square_sum(axis: Any, keepdims: bool = False) -> Callable[..., Any]:
    def sum_axis(x):
        return np.sum(x * x + 1, axis=axis, keepdims=keepdims)

    return sum_axis


def argmax_last(x):
    return np.argmax(x, axis=-1), np.max(x, axis=-1)


def argmax_first(x):
    return np.argmax(x, axis=0), np.max(x, axis=0)


def mean_var_rows(x):
    return np.mean(x, axis=1), np.var(x, axis=1, ddof=1)


def mean_var_columns(x):
    return np.mean(x, axis=0), np.var(x, axis=0)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def log_softmax_first(x):
    shifted = x - np.max(x, axis=0, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=0, keepdims=True))


def layernorm(x, w, b, eps=1e-5):
    mean = np.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    var = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(var + eps) * w + b


def rmsnorm(x, w, eps=1e-6):
    h = x.astype(np.float32)
    return (h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + eps) * w).astype(x.dtype)


def add_rmsnorm(x, res, w, eps=1e-6):
    r = x + res
    return r, r / np.sqrt(np.mean(r * r, axis=-1, keepdims=True) + eps) * w


def groupnorm(x, w, b, eps=1e-5):
    n, c, s = x.shape
    g = x.reshape(n, c // 4, 4 * s)
    mean = np.mean(g, axis=-1, keepdims=True)
    centred = g - mean
    var = np.mean(centred * centred, axis=-1, keepdims=True)
    y = (centred / np.sqrt(var + eps)).reshape(n, c, s)
    return y * w[None, :, None] + b[None, :, None]


def cross_entropy(logits, target):
    return fuser.ops.cross_entropy(logits, target)


def bias_gelu(x, b):
    v = x + b
    return 0.5 * v * (1 + np.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))


def bias_gelu_erf(x, b):
    v = x + b
    return v * _cdf(v)


def swiglu(ab):
    half = ab.shape[-1] // 2
    a, b = ab[..., :half], ab[..., half:]
    return a * fuser.ops.sigmoid(a) * b


def geglu(a, b):
    return fuser.ops.gelu(a, approximate="tanh") * b


def rope(q, k, cos, sin):
    def rotate(x):
        half = x.shape[-1] // 2
        return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)

    return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin


def dropout_add_layernorm(x, res, w, b, seed, eps=1e-5):
    h = res + fuser.ops.dropout(x, 0.1, seed)
    return layernorm(h, w, b, eps)


def adamw(p, g, m, v, step, rate=1e-3):
    m[:] = 0.9 * m + 0.1 * g
    v[:] = 0.999 * v + 0.001 * g * g
    unbiased_m = m / (1 - 0.9**step)
    unbiased_v = v / (1 - 0.999**step)
    p[:] = p - rate * (unbiased_m / (np.sqrt(unbiased_v) + 1e-8) + 0.01 * p)


def nbody(position):
    gap = position[None, :, :] - position[:, None, :]
    squared = np.sum(gap * gap, axis=-1) + 1e-3
    return np.sum(gap / (squared * np.sqrt(squared))[:, :, None], axis=1)


def jacobi(u):
    new = u.copy()
    new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return new


def heat(u, k=0.1):
    c = u[1:-1, 1:-1, 1:-1]
    around = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
    around = around + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
    new = u.copy()
    new[1:-1, 1:-1, 1:-1] = c + k * (around - 6 * c)
    return new


def cumsum_last(x):
    return np.cumsum(x, axis=-1)


def cumsum_first(x):
    return np.cumsum(x, axis=0)


def transposed_add(a, b, c):
    return np.maximum(a + b.T, 0) * c


def permuted_add(a, b, c):
    return np.maximum(a + np.transpose(b, (2, 0, 1)), 0) * c


def embedding(table, indices, position):
    return table[indices] * math.sqrt(table.shape[-1]) + position


def huber_and_mse(a, b):
    d = a - b
    size = np.abs(d)
    return np.mean(d * d), np.mean(np.where(size < 1, 0.5 * d * d, size - 0.5))


def batchnorm(x, w, b, running_mean, running_var, eps=1e-5, momentum=0.1):
    mean = np.mean(x, axis=(0, 2, 3))
    var = np.var(x, axis=(0, 2, 3))
    running_mean[:] = (1 - momentum) * running_mean + momentum * mean
    running_var[:] = (1 - momentum) * running_var + momentum * var
    shape = (1, -1, 1, 1)
    scale = w / np.sqrt(var + eps)
    return (x - mean.reshape(shape)) * scale.reshape(shape) + b.reshape(shape)


def multi_stat(x, t=0.5):
    return np.sum(x), np.sum(x * x), np.min(x), np.max(x), np.count_nonzero(x > t)


def mask_logic(x, y, m, a=0.25, b=0.5):
    mask = ((x > a) & (y < b)) | ~m
    return np.where(mask, x, -y), np.count_nonzero(mask)


WORKLOADS: tuple[Workload, ...] = (
    Workload("P01", "abs_sum", abs_sum, ("f32[268435456]",), 1073741828, 1),
    Workload("P02", "bcast_chain", bcast_chain, ("f32[32768, 8192]", "f32[8192]", "f32[8192]", "f32[32768, 1]"), 2147680256, 1),
    Workload("P03", "black_scholes", black_scholes, ("f32[33554432]",) * 3, 671088640, 1),
    Workload("P04a", "sum_axis_0", _square_sum(0), ("f32[512, 768, 640]",), 1008599040, 1),
    Workload("P04b", "sum_axis_1", _square_sum(1), ("f32[512, 768, 640]",), 1007943680, 1),
    Workload("P04c", "sum_axis_2", _square_sum(2), ("f32[512, 768, 640]",), 1008205824, 1),
    Workload("P04d", "sum_axes_01", _square_sum((0, 1)), ("f32[512, 768, 640]",), 1006635520, 1),
    Workload("P04e", "sum_axes_12", _square_sum((1, 2)), ("f32[512, 768, 640]",), 1006635008, 1),
    Workload("P04f", "sum_axes_02", _square_sum((0, 2)), ("f32[512, 768, 640]",), 1006636032, 1),
    Workload("P04g", "sum_all", _square_sum(None), ("f32[512, 768, 640]",), 1006632964, 1),
    Workload("P05a", "argmax_last", argmax_last, ("f32[16384, 16384]",), 1073938432, 1),
    Workload("P05b", "argmax_first", argmax_first, ("f32[16384, 16384]",), 1073938432, 1),
    Workload("P06a", "mean_var_rows", mean_var_rows, ("f32[32768, 8192]",), 1074003968, 1),
    Workload("P06b", "mean_var_columns", mean_var_columns, ("f32[32768, 8192]",), 1073807360, 1),
    Workload("P07", "softmax", softmax, ("bf16[32768, 4096]",), 536870912, 1),
    Workload("P08", "log_softmax_first", log_softmax_first, ("f32[8192, 16384]",), 1073741824, 1),
    Workload("P09", "layernorm", layernorm, ("f32[4096, 16384]", "f32[16384]", "f32[16384]"), 537001984, 1),
    Workload("P10", "rmsnorm", rmsnorm, ("bf16[32768, 4096]", "f32[4096]"), 536887296, 1),
    Workload("P11", "add_rmsnorm", add_rmsnorm, ("f32[2048, 32768]", "f32[2048, 32768]", "f32[32768]"), 1073872896, 1),
    Workload("P12", "groupnorm", groupnorm, ("f32[128, 2048, 512]", "f32[2048]", "f32[2048]"), 1073758208, 1),
    Workload("P13", "cross_entropy", cross_entropy, ("f32[32768, 4096]", "i64[32768]"), 537133060, 2),
    Workload("P14a", "bias_gelu_tanh", bias_gelu, ("f32[8192, 8192]", "f32[8192]"), 536903680, 1),
    Workload("P14b", "bias_gelu_erf", bias_gelu_erf, ("f32[8192, 8192]", "f32[8192]"), 536903680, 1),
    Workload("P15", "swiglu", swiglu, ("bf16[8192, 65536]",), 1610612736, 1),
    Workload("P16", "geglu", geglu, ("bf16[8192, 32768]", "bf16[8192, 32768]"), 1610612736, 1),
    Workload("P17", "rope", rope, ("bf16[16384, 32, 256]", "bf16[16384, 8, 256]", "bf16[16384, 1, 256]", "bf16[16384, 1, 256]"), 687865856, 1),
    Workload("P18", "dropout_add_layernorm", dropout_add_layernorm, ("bf16[8192, 8192]", "bf16[8192, 8192]", "bf16[8192]", "bf16[8192]", 7), 402685952, 1),
    Workload("P19", "adamw", adamw, ("f32[67108864]",) * 4 + (3,), 1879048192, 1),
    Workload("P20", "nbody", nbody, ("f32[32768, 3]",), 786432, 1),
    Workload("P21a", "jacobi", jacobi, ("f32[16384, 16384]",), 2147483648, 1),
    Workload("P21b", "heat", heat, ("f32[512, 512, 512]",), 1073741824, 1),
    Workload("P22a", "cumsum_last", cumsum_last, ("f32[32768, 32768]",), 8589934592, 1),
    Workload("P22b", "cumsum_first", cumsum_first, ("f32[32768, 32768]",), 8589934592, 1),
    Workload("P23a", "transposed_add", transposed_add, ("f32[16384, 16384]",) * 3, 4294967296, 1),
    Workload("P23b", "permuted_add", permuted_add, ("f32[512, 640, 768]", "f32[640, 768, 512]", "f32[512, 640, 768]"), 4026531840, 1),
    Workload("P24", "embedding", embedding, ("f32[131072, 4096]", "i64[16384]", "f32[16384, 4096]"), 805437440, 1),
    Workload("P25", "huber_and_mse", huber_and_mse, ("f32[32768, 32768]",) * 2, 8589934600, 1),
    Workload("P26", "batchnorm", batchnorm, ("f32[64, 64, 512, 512]", "f32[64]", "f32[64]", "f32[64]", "f32[64]"), 8589936128, 3),
    Workload("P27", "multi_stat", multi_stat, ("f32[268435456]",), 1073741848, 1),
    Workload("P28", "mask_logic", mask_logic, ("f32[134217728]", "f32[134217728]", "bool[134217728]"), 1744830472, 2),
)  # fmt: skip


def scaled(workload: Workload, divisor: int) -> tuple[Any, ...]:
    """The workload's specs with every first array axis divided (at least 1): smaller runs of the same program."""
    from fuser import specs

    out: list[Any] = []
    for s in workload.specs:
        if not isinstance(s, str):
            out.append(s)
            continue
        spec = specs.parse(s)
        assert isinstance(spec, specs.ArraySpec)
        first, *rest = (int(str(d)) for d in spec.shape)
        out.append(f"{spec.dtype}[{', '.join(str(d) for d in (max(first // divisor, 1), *rest))}]")
    return tuple(out)
