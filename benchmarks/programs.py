"""The measured programs, each written once against a free name `xp`.

In: `xp`, one of `benchmarks.libraries` (NumPy unless `libraries.programs` says otherwise). Out: functions over
arrays of that library. A function that writes into its arguments does so through `xp.assign` and ends in `xp.written`:
JAX must return what the others store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks import libraries

xp = libraries.numpy()

INNER2 = (slice(1, -1),) * 2
INNER3 = (slice(1, -1),) * 3
Program = Callable[..., Any]


# -- elementwise ---------------------------------------------------------------------------------------
def bcast_chain(x, g, b, m):
    return xp.tanh(x * g + b) * xp.sigmoid(x - m)


def polynomial(x, y):
    return 2 * x + 3 * y**2 - x * y


def normal_cdf(x):
    return 0.5 * (1.0 + xp.erf(x * (1 / math.sqrt(2.0))))


def black_scholes(spot, strike, years, rate=0.03, volatility=0.25):
    spread = volatility * xp.sqrt(years)
    d1 = (xp.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * xp.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    return call, call - spot + discounted


def gelu_tanh(v):
    return 0.5 * v * (1 + xp.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))


def bias_gelu(x, b):
    return gelu_tanh(x + b)


def scale_bias_gelu(x, w, b):
    return gelu_tanh(x * w + b)


def bias_gelu_erf(x, b):
    v = x + b
    return v * normal_cdf(v)


def swiglu(ab):
    half = ab.shape[-1] // 2
    a, b = ab[..., :half], ab[..., half:]
    return a * xp.sigmoid(a) * b


def geglu(a, b):
    return xp.gelu(a) * b


def rotated(x):
    half = x.shape[-1] // 2
    return xp.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def rope(q, k, cos, sin):
    return q * cos + rotated(q) * sin, k * cos + rotated(k) * sin


def adamw(p, g, m, v, step, rate=1e-3):
    m = xp.assign(m, 0.9 * m + 0.1 * g)
    v = xp.assign(v, 0.999 * v + 0.001 * g * g)
    unbiased_m = m / (1 - 0.9**step)
    unbiased_v = v / (1 - 0.999**step)
    p = xp.assign(p, p - rate * (unbiased_m / (xp.sqrt(unbiased_v) + 1e-8) + 0.01 * p))
    return xp.written((), p, m, v)


def jacobi(u):
    return xp.put(u, INNER2, 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]))


def heat(u, k=0.1):
    c = u[1:-1, 1:-1, 1:-1]
    around = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
    around = around + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
    return xp.put(u, INNER3, c + k * (around - 6 * c))


def relu_add_transposed(x, y):
    return xp.relu(x + y.T)


def transposed_add(a, b, c):
    return xp.relu(a + b.T) * c


def permuted_add(a, b, c):
    return xp.relu(a + xp.transpose(b, (2, 0, 1))) * c


def embedding(table, indices, position):
    return table[indices] * math.sqrt(table.shape[-1]) + position


def mask_logic(x, y, m, a=0.25, b=0.5):
    mask = ((x > a) & (y < b)) | ~m
    return xp.where(mask, x, -y), xp.count_nonzero(mask)


# -- reductions ----------------------------------------------------------------------------------------
def abs_sum(x):
    return xp.sum(xp.abs(x))


def square_sum(axis: Any, offset: int = 1) -> Program:
    def sum_of_squares(x):
        return xp.sum(x * x + offset, axis=axis) if offset else xp.sum(x * x, axis=axis)

    return sum_of_squares


def plain_sum(axis: Any) -> Program:
    def axis_sum(x):
        return xp.sum(x, axis=axis)

    return axis_sum


def argmax(axis: int, with_value: bool = True) -> Program:
    def index_of_max(x):
        index = xp.argmax(x, axis=axis)
        return (index, xp.max(x, axis=axis)) if with_value else index

    return index_of_max


def mean_var(axis: int, ddof: int = 0) -> Program:
    def moments(x):
        return xp.mean(x, axis=axis), xp.var(x, axis=axis, ddof=ddof)

    return moments


def variance(x):
    return xp.var(x, axis=None, ddof=0)


def huber_and_mse(a, b):
    d = a - b
    size = xp.abs(d)
    return xp.mean(d * d), xp.mean(xp.where(size < 1, 0.5 * d * d, size - 0.5))


def multi_stat(x, t=0.5):
    return xp.sum(x), xp.sum(x * x), xp.min(x), xp.max(x), xp.count_nonzero(x > t)


def nbody(position):
    gap = position[None, :, :] - position[:, None, :]
    squared = xp.sum(gap * gap, axis=-1) + 1e-3
    return xp.sum(gap / (squared * xp.sqrt(squared))[:, :, None], axis=1)


def nbody_sample(position):
    """The first bodies only: the whole in float64 would be 25 GB a temporary."""
    gap = position[None, :, :] - position[:256, None, :]
    squared = xp.sum(gap * gap, axis=-1) + 1e-3
    return xp.sum(gap / (squared * xp.sqrt(squared))[:, :, None], axis=1)


def cumsum(axis: int) -> Program:
    def running_sum(x):
        return xp.cumsum(x, axis=axis)

    return running_sum


# -- rows ----------------------------------------------------------------------------------------------
def softmax(x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def log_softmax_first(x):
    shifted = x - xp.max(x, axis=0, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=0, keepdims=True))


def layernorm(x, w, b, eps=1e-5):
    mean = xp.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    var = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(var + eps) * w + b


def rmsnorm(x, w, eps=1e-6):
    h = xp.widened(x)
    return xp.cast_like(h / xp.sqrt(xp.mean(h * h, axis=-1, keepdims=True) + eps) * w, x)


def add_rmsnorm(x, res, w, eps=1e-6):
    r = x + res
    return r, r / xp.sqrt(xp.mean(r * r, axis=-1, keepdims=True) + eps) * w


def groupnorm(x, w, b, eps=1e-5):
    n, c, s = x.shape
    g = x.reshape(n, c // 4, 4 * s)
    mean = xp.mean(g, axis=-1, keepdims=True)
    centred = g - mean
    var = xp.mean(centred * centred, axis=-1, keepdims=True)
    y = (centred / xp.sqrt(var + eps)).reshape(n, c, s)
    return y * w[None, :, None] + b[None, :, None]


def cross_entropy(logits, target):
    return xp.cross_entropy(logits, target)


def dropout_add_layernorm(x, res, w, b, seed, eps=1e-5):
    return layernorm(res + xp.dropout(x, 0.1, seed), w, b, eps)


def batchnorm(x, w, b, running_mean, running_var, eps=1e-5, momentum=0.1):
    mean = xp.mean(x, axis=(0, 2, 3))
    var = xp.var(x, axis=(0, 2, 3), ddof=0)
    running_mean = xp.assign(running_mean, (1 - momentum) * running_mean + momentum * mean)
    running_var = xp.assign(running_var, (1 - momentum) * running_var + momentum * var)
    shape = (1, -1, 1, 1)
    scale = w / xp.sqrt(var + eps)
    y = (x - mean.reshape(shape)) * scale.reshape(shape) + b.reshape(shape)
    return xp.written((y,), running_mean, running_var)


def batchnorm_relu(x, w, b, eps=1e-5):
    shape = (1, -1, 1, 1)
    h = xp.widened(x)
    mean = xp.mean(h, axis=(0, 2, 3))
    scale = w / xp.sqrt(xp.var(h, axis=(0, 2, 3), ddof=0) + eps)
    y = (h - mean.reshape(shape)) * scale.reshape(shape) + b.reshape(shape)
    return xp.cast_like(xp.relu(y), x)


# -- several results ------------------------------------------------------------------------------------
def adam_step(p, g, m, v, rate=1e-3):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - rate * m / (xp.sqrt(v) + 1e-8), m, v


def row_stats(x):
    mean = xp.mean(x, axis=-1)
    return xp.min(x, axis=-1), xp.max(x, axis=-1), mean, xp.sqrt(xp.mean(x * x, axis=-1) - mean * mean)


def margins(x):
    return xp.sum(x * x, axis=1), xp.sum(x * x, axis=0)


def rmsnorm_backward(x, w, dy, scale):
    """`scale`: 1 / root mean square of each row, which the forward pass kept."""
    hat = xp.widened(x) * scale[:, None]
    wanted = xp.widened(dy)
    g = wanted * w
    dx = (g - hat * xp.mean(g * hat, axis=-1, keepdims=True)) * scale[:, None]
    return xp.cast_like(dx, x), xp.sum(wanted * hat, axis=0)


def layernorm_backward(x, w, dy, mean, scale):
    """`mean` and `scale` (1 / standard deviation) of each row, which the forward pass kept."""
    hat = (xp.widened(x) - mean[:, None]) * scale[:, None]
    wanted = xp.widened(dy)
    g = wanted * w
    of_g, of_product = xp.mean(g, axis=-1, keepdims=True), xp.mean(g * hat, axis=-1, keepdims=True)
    dx = (g - of_g - hat * of_product) * scale[:, None]
    return xp.cast_like(dx, x), xp.sum(wanted * hat, axis=0), xp.sum(wanted, axis=0)
