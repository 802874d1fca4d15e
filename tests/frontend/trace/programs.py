"""Small NumPy programs, unmodified, each with arguments: the surface that the tracer must cover.

Every function of the module is one program; `ARGUMENTS` gives what it is called with (default: one f32 matrix).
"""

import math
from collections import namedtuple
from functools import reduce
from typing import Any

import numpy as np
from numpy import exp, zeros

rng = np.random.default_rng(0)
X = rng.standard_normal((4, 6)).astype(np.float32)
Y = rng.standard_normal((4, 6)).astype(np.float32)
V = rng.standard_normal(6).astype(np.float32)
D = rng.standard_normal((4, 6))
I = rng.integers(-50, 50, (4, 6)).astype(np.int32)
U = rng.integers(0, 255, (4, 6)).astype(np.uint8)
B = X > 0
Pair = namedtuple("Pair", "low high")


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x, w, b, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    var = x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * w + b


def operators(x, y):
    return x + y, x - y, x * y, x / y, x // y, x % y, -x, +x, abs(x), x**2


def reflected(x):
    return 1 - x, 2 / (x + 10), 2**x, 3 // (x + 10), 5 % (x + 10), 1.5 * x, 1 + x


def comparisons(x, y):
    return x < y, x <= y, x > 0, x >= 0.5, x == y, x != y, 0 < x  # noqa: SIM300


def integer_operators(i, j):
    return i & j, i | j, i ^ j, ~i, i << 2, i >> 1, i // 7, i % 7, divmod(i, 5)


def promotion(x, i, u, b):
    return x + i, i + u, u + 1, u + b, x * 2, i * 2.5, i / 2, b + b, x + np.float64(1), u + np.int8(1)


def scalar_arithmetic(x, h):
    return x * (2.0 * h), (h + 1) ** 2, x / h, h // 2, -h


def integer_scalar(x, n):
    return x * n, n / 2, x + n // 2, x * (n % 3), n > 1


def ufunc_functions(x):
    y = np.abs(x) + 0.5
    return np.sqrt(y), np.log(y), np.exp(x), np.sin(x), np.tanh(x), np.floor(x), np.rint(x), np.sign(x), np.square(x)


def ufunc_where(x, y):
    out = np.zeros(x.shape, np.float32)
    np.add(x, y, out=out, where=x > 0)
    return out


def ufunc_dtype(i):
    return np.add(i, i, dtype=np.float64), np.multiply(i, 2, dtype=np.int64)


def ufunc_out(x, y):
    out = np.empty(x.shape, np.float64)
    np.multiply(x, y, out=out)
    np.exp(out, out)
    return out


def ufunc_methods(x):
    total = np.multiply.reduce(x, axis=None)
    return np.add.reduce(x), np.maximum.reduce(x, axis=1), total, np.add.accumulate(x, axis=1)


def ufunc_outer(v):
    return np.multiply.outer(v, v), np.subtract.outer(v, v)


def reductions(x):
    return x.sum(), x.sum(0), x.prod(axis=1), x.min(), x.max(axis=0), x.mean(), x.std(axis=1), x.var(ddof=1), x.argmax()


def reduction_functions(x):
    return np.sum(x, axis=(0, 1)), np.mean(x, 1, keepdims=True), np.amax(x, -1), np.argmin(x, axis=0), np.ptp(x, axis=1)


def bool_reductions(x):
    return (x > 0).all(axis=1), (x > 0).any(), (x > 0).sum(axis=0), np.count_nonzero(x > 0), np.all(x > -9)


def masked_reductions(x):
    return x.sum(where=x > 0), x.max(axis=1, where=x < 0, initial=-5), np.sum(x, initial=10), np.mean(x, where=x > 0)


def sums_of_small_ints(u, i):
    return u.sum(), u.sum(axis=0), i.prod(axis=1), u.mean(), i.sum(dtype=np.int16), np.cumsum(u, axis=1)


def norm(x):
    return np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x, axis=0, keepdims=True)


def casts(x):
    rounded = x.astype(np.float16).astype(np.float32)
    return x.astype(np.float64), x.astype("int32"), rounded, x.astype(bool), x.astype(int)


def shapes(x):
    n, d = x.shape
    return x.reshape(d, n), x.reshape(-1), x.T, x.ravel(), x.reshape((2, -1)), x[None].squeeze(), x.size, x.ndim, len(x)


def shape_arithmetic(x):
    n, d = x.shape
    return x.sum() / (n * d), x * (1.0 / n), np.ones(n - 1), np.arange(d), (n, d // 2)


def axes_moved(x):
    y = x[:, None, :]
    return y.transpose(1, 0, 2), np.moveaxis(y, 0, -1), y.swapaxes(0, 2), np.transpose(x), np.expand_dims(x, (0, 3))


def slices(x):
    return x[1:], x[:-1], x[::2], x[:, 1:-1], x[1], x[-1, 2], x[..., 0], x[::-1], x[1:3, 2:5], x[:, ::-2]


def new_axes(x):
    return x[np.newaxis], x[:, None], x[..., None], x[0][None, :], x[:, np.newaxis, 1:]


def gathers(x, v):
    return x[:, np.array([2, 0, 2])], x[[1, 3]], np.take(x, [0, 2], axis=1), x[np.arange(4), np.arange(4)]


def gather_by_argument(x, idx):
    return x[:, idx], np.take_along_axis(x, idx[None, :], axis=1), x[0, idx]


def stores(x):
    y = np.zeros_like(x)
    y[1:-1] = x[1:-1] * 2
    y[0] = 7
    y[:, -1] += 1
    y[2, 3] = x[0, 0]
    return y


def stores_through_views(x):
    y = x.copy()
    row = y[1]
    row[:] = 5
    column = y.T[2]
    column += 1
    y.reshape(-1)[0] = 9
    y[::2, ::-1][0, 1:3] *= 10
    return y, row, column


def masked_stores(x, y):
    z = x.copy()
    z[z < 0] = 0
    z[y > 0.5] = -1
    z[1:][y[1:] < -0.5] = 3
    return z


def in_place(x, y):
    z = x * 1
    z += y
    z -= 0.5
    z *= 2
    z /= 3
    w = z
    w += 1
    return z, w is z


def argument_mutation(x):
    x[1:] = x[:-1] * 1.0
    return x


def program_order(x, y):
    old = x + y
    np.maximum(x, 0, out=x)
    return old, x.sum(), x * y


def two_arguments_changed(x, y):
    x += y
    y[0] = x[0]
    x[-1] = 0


def element_is_a_value(x):
    y = x.copy()
    first = y[0, 0]
    y[0, 0] = 100
    first += 1
    return first, y


def swapped_buffers(x):
    a, b = x.copy(), np.zeros_like(x)
    for _ in range(3):
        b[1:-1] = 0.5 * (a[2:] + a[:-2])
        a, b = b, a
    return a


def jacobi(x, steps):
    for _ in range(steps):
        new = x.copy()
        new[1:-1, 1:-1] = 0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])
        x = new
    return x


def wheres(x, y):
    chosen = np.select([x < -1, x < 1], [x, y], 0.5)
    return np.where(x > 0, x, 0.01 * x), np.where(x > y, 1, 0), chosen, np.clip(x, -1, 1)


def clips(x):
    return x.clip(0), np.clip(x, None, 0.5), x.clip(min=-0.5, max=0.5), np.minimum(x, 0), np.fmax(x, 0)


def joined(x, y):
    rows = np.vstack([x, y])
    return np.concatenate([x, y]), np.concatenate((x, y), axis=1), np.stack([x, y]), rows, np.hstack((x, y))


def padded(x):
    return np.pad(x, 1), np.pad(x, ((0, 0), (1, 2)), constant_values=3), np.pad(x, 1, mode="edge")


def rolled(x):
    return np.roll(x, 1, axis=0), np.roll(x, -2), np.flip(x), np.tile(x, (2, 1)), np.repeat(x, 2, axis=1), np.flipud(x)


def split_up(x):
    a, b = np.split(x, 2, axis=1)
    c, d, e = np.split(x, [1, 3], axis=1)
    return a * b, c, d + 1, e


def scans(x):
    return np.cumsum(x, axis=1), x.cumsum(), np.cumprod(x, axis=0), np.diff(x), np.diff(x, axis=0)


def contractions(x, y):
    return x @ y.T, np.dot(x, y.T), np.matmul(x.T, y), np.einsum("ij,ij->i", x, y), np.tensordot(x, y.T, 1)


def vectors(v):
    return v @ v, np.dot(v, v), np.inner(v, v), np.outer(v, v), np.cumsum(v)


def created(x):
    n, d = x.shape
    return np.eye(n), np.full((n, d), 2.5), np.linspace(0, 1, 5), np.arange(2, 10, 3), np.tri(3), np.ones(d, dtype=int)


def literal_arrays(x):
    w = np.array([0.25, 0.5, 0.25], dtype=np.float32)
    k = np.asarray([[1, 2], [3, 4]])
    return w[0] * x[:-2] + w[1] * x[1:-1] + w[2] * x[2:], k * 2, x[:2, :2] * k


def array_of_results(x):
    return np.array([x.min(), x.max(), x.mean()]), np.array([[x[0, 0], 1.0], [0.0, x[1, 1]]])


def constant_loop(x):
    total = 0
    for shift in np.arange(3):
        total = total + np.roll(x, int(shift), axis=0)
    return total


def list_of_offsets(x):
    return sum(np.roll(x, s, axis=a) for s, a in [(1, 0), (-1, 0), (1, 1), (-1, 1)]) - 4 * x


def as_arrays(x, y):
    x, y = np.asarray(x), np.ascontiguousarray(y)
    return np.array(x) + np.asarray(y, dtype=np.float64)


def from_imports(x):
    out = zeros(x.shape, dtype=x.dtype)
    out[:] = exp(x)
    return out


def nested_arguments(params, inputs):
    return {"h": inputs[0] @ params["w"] + params["b"], "rest": [inputs[1] * 2, None, "tag"]}


def nested_results(x):
    return Pair(x.min(), x.max()), {"shape": x.shape, "mean": x.mean()}, [x, (x + 1,)], 3, None


def keyword_arguments(x, *, scale=2.0, axis=-1, shift=0):
    return (x * scale + shift).sum(axis=axis)


def star_arguments(first, *rest):
    for x in rest:
        first = first + x
    return first


def default_mode(x, mode="relu"):
    if mode == "relu":
        return np.maximum(x, 0)
    return np.tanh(x)


def optional_argument(x, bias=None):
    return x if bias is None else x + bias


def static_conditions(x):
    if x.ndim == 2 and x.dtype == np.float32 and isinstance(x, np.ndarray):
        return x * 2
    return x


def scalar_conditions(x, h, n):
    if h > 0.5:
        x = x * h
    for k in range(n):
        x = x + k
    return x


def scalar_axis(x, axis):
    return x.sum(axis=axis), np.roll(x, axis)


def loop_over_rows(x):
    total = np.zeros(x.shape[1], x.dtype)
    for k in range(x.shape[0]):
        total += x[k] * (k + 1)
    return total


def helper(x):
    return np.maximum(x, 0.1 * x)


def calls_helpers(x):
    h = helper(x)
    return helper(h) + (lambda t: t * 2)(x)


def folded(x, y):
    return reduce(np.maximum, [x, y, x + y]), max([1, 2])


def math_functions(x, h):
    return x * math.sqrt(h) + math.exp(h) * math.pi


def black_scholes(s, k, t, r, sigma):
    d1 = (np.log(s / k) + (r + 0.5 * sigma**2) * t) / (sigma * np.sqrt(t))
    d2 = d1 - sigma * np.sqrt(t)
    cdf = lambda v: 0.5 * (1 + np.tanh(0.7978845608 * (v + 0.044715 * v**3)))  # noqa: E731
    return s * cdf(d1) - k * np.exp(-r * t) * cdf(d2)


def adam(p, g, m, v, lr, t):
    m[:] = 0.9 * m + 0.1 * g
    v[:] = 0.999 * v + 0.001 * g * g
    p -= lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def k_means_step(x, c):
    d = ((x[:, None, :] - c[None, :, :]) ** 2).sum(axis=2)
    return d.argmin(axis=1), d.min(axis=1).sum()


def horner(x):
    y = np.zeros_like(x)
    for c in (0.5, -1.25, 2.0, 3.5):
        y = y * x + c
    return y


def logistic_map(x, r):
    for _ in range(5):
        x = r * x * (1 - x)
    return x


def nan_handling(x):
    y = np.where(x > 1, np.nan, x)
    return np.isnan(y), np.nan_to_num(y), np.nansum(y), np.nanmax(y, axis=1), np.isfinite(y).all()


def meta(x, y):
    return np.result_type(x, 1.0) == np.float32, np.shape(x), np.ndim(x), np.size(x), np.copy(x), x.itemsize


def copies(x):
    y = x.copy()
    y[0] = 0
    z = np.copy(x)
    z.fill(2)
    np.copyto(z[0], 5)
    return x, y, z


def broadcasts(x, v):
    return x + v, x * v[None, :], x - x[:, :1], np.broadcast_to(v, (3, 6)), np.broadcast_to(v, x.shape) + 1


def zero_d(x):
    s = x.sum()
    s += 1
    return s, s * x, np.sqrt(s * s), s.dtype, s.shape


def strong_scalars(x, c):
    return x * c, np.float32(2) * x, np.sqrt(c) + x


def float_scalars_are_strong_after_numpy(x, h):
    return x * np.sqrt(h), np.maximum(h, 0.0) * x, np.float64(2) * h


def grid(x):
    n, d = x.shape
    i, j = np.meshgrid(np.arange(n), np.arange(d), indexing="ij")
    return i + j, x * i


def chained_views(x):
    y = x.copy()
    z = y[1:]
    w = z[:, 2:]
    w[0, 0] = 42
    y *= 2
    return y, z, w


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "layer_norm": (X, V, V), "operators": (X, Y), "comparisons": (X, Y), "integer_operators": (I, I.T.copy().T),
    "promotion": (X, I, U, B), "scalar_arithmetic": (X, 2.5), "integer_scalar": (X, 7), "ufunc_where": (X, Y),
    "ufunc_dtype": (I,), "ufunc_out": (X, Y), "ufunc_outer": (V,), "sums_of_small_ints": (U, I), "gathers": (X, V),
    "gather_by_argument": (X, np.array([3, -1, 0])), "masked_stores": (X, Y), "in_place": (X, Y),
    "program_order": (X, Y),
    "two_arguments_changed": (X, Y), "jacobi": (D, 3), "wheres": (X, Y), "joined": (X, Y), "contractions": (D, D),
    "vectors": (V,), "as_arrays": (X, Y), "scalar_conditions": (X, 0.75, 3), "scalar_axis": (X, 1),
    "nested_arguments": ({"w": D.T.copy(), "b": np.ones(4)}, [D, I]), "star_arguments": (X, Y, D), "folded": (X, Y),
    "math_functions": (X, 2.0), "strong_scalars": (X, np.float64(1.5)), "meta": (X, Y), "broadcasts": (X, V),
    "float_scalars_are_strong_after_numpy": (X, 2.0), "k_means_step": (D, D[:3].copy()), "optional_argument": (X,),
    "black_scholes": (np.abs(D) + 1, np.abs(D) + 1.5, np.abs(D) + 0.1, 0.02, 0.3), "logistic_map": (np.abs(X) % 1, 3.7),
    "adam": (D, D + 1, D * 0.5, D * D, 0.01, 3),
}  # fmt: skip
SKIP = {"exp", "zeros", "reduce", "Pair", "helper", "namedtuple"}
PROGRAMS = {
    name: fn
    for name, fn in globals().items()
    if callable(fn) and name not in SKIP and getattr(fn, "__module__", "") == __name__
}
