"""Fusion programs in the style of CuPy's `fuse` users, in the proportions that such suites have.

In: a module (NumPy, or CuPy for its spellings) and `Data`. Out: `PROGRAMS` by name: element-wise chains, reductions
over all, outer, inner and middle axes, views, stores into arguments and locals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Data(NamedTuple):
    """x, y, z f32, w f64, i, j i32, u u8, p bool (4, 5, 6); m f32 (5, 6); v f32 (6,); h, n Python numbers."""

    x: Any
    y: Any
    z: Any
    w: Any
    m: Any
    v: Any
    i: Any
    j: Any
    u: Any
    p: Any
    h: float
    n: int


def data(seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    x, y, z = (rng.standard_normal((4, 5, 6)).astype(np.float32) for _ in range(3))
    i, j = (rng.integers(-9, 10, (4, 5, 6)).astype(np.int32) for _ in range(2))
    u = rng.integers(0, 250, (4, 5, 6)).astype(np.uint8)
    w, m = rng.standard_normal((4, 5, 6)), rng.standard_normal((5, 6)).astype(np.float32)
    return Data(x, y, z, w, m, m[0] + 2, i, j, u, rng.random((4, 5, 6)) > 0.4, 0.75, 3)


Program = Callable[[Any, Data], Any]

ELEMENTWISE: dict[str, Program] = {
    "axpy": lambda xp, d: d.h * d.x + d.y,
    "fma_chain": lambda xp, d: d.x * d.y + d.z * d.x - d.y,
    "square_of_sum": lambda xp, d: (d.x + d.y) ** 2,
    "cubic": lambda xp, d: d.x**3 - 2 * d.x**2 + d.x - 1,
    "quotient_guarded": lambda xp, d: d.x / (xp.abs(d.y) + 1e-3),
    "hypotenuse": lambda xp, d: xp.sqrt(d.x * d.x + d.y * d.y),
    "sigmoid_by_hand": lambda xp, d: 1 / (1 + xp.exp(-d.x)),
    "tanh_gate": lambda xp, d: xp.tanh(d.x) * (1 / (1 + xp.exp(-d.y))),
    "softplus_by_hand": lambda xp, d: xp.log1p(xp.exp(-xp.abs(d.x))) + xp.maximum(d.x, 0),
    "gaussian": lambda xp, d: xp.exp(-((d.x - 0.5) ** 2) / (2 * 0.3**2)),
    "log_ratio": lambda xp, d: xp.log(xp.abs(d.x) + 1) - xp.log(xp.abs(d.y) + 1),
    "trigonometry": lambda xp, d: xp.sin(d.x) * xp.cos(d.y) + xp.cos(d.x) * xp.sin(d.y),
    "angles": lambda xp, d: xp.arctan2(d.y, d.x) + xp.arcsin(xp.clip(d.z, -1, 1)),
    "hyperbolic": lambda xp, d: xp.sinh(d.x) + xp.arcsinh(d.y) - xp.cosh(d.z),
    "clip_scale": lambda xp, d: xp.clip(d.x * 255, 0, 255).astype(xp.uint8),
    "relu": lambda xp, d: xp.maximum(d.x, 0),
    "leaky_relu": lambda xp, d: xp.where(d.x > 0, d.x, 0.1 * d.x),
    "huber_by_hand": lambda xp, d: xp.where(xp.abs(d.x) < 1, 0.5 * d.x**2, xp.abs(d.x) - 0.5),
    "mask_and_or": lambda xp, d: ((d.x > 0) & (d.y > 0)) | ~d.p,
    "xor_of_masks": lambda xp, d: d.p ^ (d.x > d.y),
    "logical_functions": lambda xp, d: xp.logical_and(d.x, d.p) | xp.logical_not(d.i),
    "nan_repair": lambda xp, d: xp.where(xp.isnan(xp.log(d.x)), 0, d.x),
    "sign_magnitude": lambda xp, d: xp.sign(d.x) * xp.sqrt(xp.abs(d.x)),
    "copysign_floor": lambda xp, d: xp.copysign(xp.floor(xp.abs(d.x)), d.y),
    "rounding": lambda xp, d: (xp.floor(d.x), xp.ceil(d.x), xp.trunc(d.x), xp.rint(d.x)),
    "fractional": lambda xp, d: d.x - xp.floor(d.x),
    "floor_division": lambda xp, d: (d.i // d.n, d.i % d.n, d.x // 0.5, d.x % 0.5),
    "fmod_against_mod": lambda xp, d: xp.fmod(d.x, 0.7) - xp.mod(d.x, 0.7),
    "integer_mix": lambda xp, d: d.i * d.j - d.i // 2,
    "bit_tricks": lambda xp, d: (d.i & 7) | (d.j << 3) ^ ~d.i,
    "shifts": lambda xp, d: (d.u >> 2) + (d.u << 1),
    "wraparound": lambda xp, d: d.u + d.u * xp.uint8(3),
    "promotion": lambda xp, d: d.i * d.x + d.u,
    "wide_promotion": lambda xp, d: d.w * d.x + d.i,
    "bool_arithmetic": lambda xp, d: d.p * d.x + (d.x > 0) * 2,
    "weak_scalars": lambda xp, d: d.x * 2 + d.h * 3 - d.n,
    "strong_scalars": lambda xp, d: d.x * xp.float64(0.1) + xp.float32(2),
    "half_precision": lambda xp, d: (d.x.astype(xp.float16) * 2).astype(xp.float32),
    "cast_chain": lambda xp, d: d.x.astype(xp.int32).astype(xp.float64) / 3,
    "power_family": lambda xp, d: (d.x**2, xp.abs(d.x) ** 0.5, xp.power(2.0, d.x), xp.square(d.x)),
    "exponentials": lambda xp, d: xp.expm1(d.x) + xp.exp2(d.y) - xp.log2(xp.abs(d.z) + 1),
    "logaddexp": lambda xp, d: xp.logaddexp(d.x, d.y),
    "min_max": lambda xp, d: xp.maximum(xp.minimum(d.x, d.y), d.z),
    "fmin_fmax": lambda xp, d: xp.fmin(d.x, d.y) + xp.fmax(d.x, d.z),
    "reciprocal": lambda xp, d: xp.reciprocal(d.v) * d.x,
    "degrees": lambda xp, d: xp.deg2rad(xp.rad2deg(d.x)),
    "cube_root": lambda xp, d: xp.cbrt(d.x),
    "nextafter_gap": lambda xp, d: xp.nextafter(d.x, d.y) - d.x,
    "ldexp": lambda xp, d: xp.ldexp(d.x, 3),
    "two_results": lambda xp, d: (d.x + d.y, d.x - d.y),
    "modf": lambda xp, d: xp.modf(d.x),
    "divmod": lambda xp, d: xp.divmod(d.i, 4),
    "select": lambda xp, d: xp.where(d.x < -1, -1, xp.where(d.x > 1, 1, d.x)),
    "row_broadcast": lambda xp, d: d.x + d.v,
    "plane_broadcast": lambda xp, d: d.x * d.m - d.v,
    "column_broadcast": lambda xp, d: d.x * d.m[:, :1],
    "scalar_array": lambda xp, d: d.x * d.v[2],
    "erf_series": lambda xp, d: d.x * (1 - d.x * d.x / 3 + d.x**4 / 10),
    "black_box_polynomial": lambda xp, d: xp.polyval([0.5, -1.0, 2.0], d.x),
    "heaviside": lambda xp, d: xp.heaviside(d.x, 0.5),
    "signbit": lambda xp, d: xp.where(xp.signbit(d.x), -d.y, d.y),
    "isfinite_guard": lambda xp, d: xp.where(xp.isfinite(1 / d.i), d.x, 0),
    "float_power": lambda xp, d: xp.float_power(xp.abs(d.x), 1.5),
    "sinc": lambda xp, d: xp.sinc(d.x),
    "long_chain": lambda xp, d: ((((d.x + 1) * 2 - d.y) / 3 + d.z) * d.x - 0.5) * d.y,
}  # fmt: skip

ALL_AXES: dict[str, Program] = {
    "sum": lambda xp, d: xp.sum(d.x),
    "sum_of_squares": lambda xp, d: xp.sum(d.x * d.x),
    "sum_of_products": lambda xp, d: (d.x * d.y).sum(),
    "sum_of_integers": lambda xp, d: d.i.sum(),
    "sum_of_bytes": lambda xp, d: xp.sum(d.u),
    "sum_in_double": lambda xp, d: xp.sum(d.x, dtype=xp.float64),
    "mean": lambda xp, d: d.x.mean(),
    "mean_of_mask": lambda xp, d: xp.mean(d.p),
    "root_mean_square": lambda xp, d: xp.sqrt(xp.mean(d.x**2)),
    "variance": lambda xp, d: d.x.var(),
    "deviation": lambda xp, d: xp.std(d.x, ddof=1),
    "maximum": lambda xp, d: xp.max(d.x),
    "minimum_of_abs": lambda xp, d: xp.abs(d.x).min(),
    "range": lambda xp, d: d.x.max() - d.x.min(),
    "any_all": lambda xp, d: (xp.any(d.x > 2), xp.all(d.x > -5)),
    "count": lambda xp, d: xp.count_nonzero(d.x > 0),
    "argmax": lambda xp, d: xp.argmax(d.x),
    "argmin_of_product": lambda xp, d: (d.x * d.y).argmin(),
    "product": lambda xp, d: xp.prod(1 + 0.01 * d.x),
    "norm": lambda xp, d: xp.linalg.norm(d.m),
    "weighted_mean": lambda xp, d: (d.x * d.y**2).sum() / (d.y**2).sum(),
    "mean_squared_error": lambda xp, d: xp.mean((d.x - d.y) ** 2),
    "centre_and_scale": lambda xp, d: (d.x - d.x.mean()) / d.x.std(),
    "several_statistics": lambda xp, d: (d.x.sum(), d.x.max(), (d.x * d.x).sum(), (d.x > 0.5).sum()),
    "nan_sum": lambda xp, d: xp.nansum(xp.where(d.p, d.x, xp.nan)),
}  # fmt: skip

OUTER: dict[str, Program] = {
    "sum_0": lambda xp, d: d.x.sum(axis=0),
    "mean_0": lambda xp, d: xp.mean(d.x, axis=0),
    "max_0_of_sum": lambda xp, d: (d.x + d.y).max(axis=0),
    "var_0": lambda xp, d: d.x.var(axis=0),
    "sum_0_1": lambda xp, d: xp.sum(d.x, axis=(0, 1)),
    "keepdims_0": lambda xp, d: d.x - d.x.mean(axis=0, keepdims=True),
    "argmax_0": lambda xp, d: xp.argmax(d.x, axis=0),
    "any_0": lambda xp, d: xp.any(d.p, axis=0),
    "prod_0": lambda xp, d: xp.prod(d.i, axis=0),
    "batch_statistics": lambda xp, d: (d.x - d.x.mean((0, 1))) / xp.sqrt(d.x.var((0, 1)) + 1e-5),
    "column_norms": lambda xp, d: xp.sqrt((d.m * d.m).sum(axis=0)),
    "cumsum_0": lambda xp, d: xp.cumsum(d.x, axis=0),
    "min_0_broadcast": lambda xp, d: d.x - xp.min(d.x, axis=0),
}  # fmt: skip

INNER: dict[str, Program] = {
    "sum_last": lambda xp, d: d.x.sum(axis=-1),
    "softmax": lambda xp, d: (lambda e: e / e.sum(-1, keepdims=True))(xp.exp(d.x - d.x.max(-1, keepdims=True))),
    "log_softmax": lambda xp, d: d.x - d.x.max(-1, keepdims=True) - xp.log(
        xp.exp(d.x - d.x.max(-1, keepdims=True)).sum(-1, keepdims=True)
    ),
    "layer_norm": lambda xp, d: (d.x - d.x.mean(-1, keepdims=True)) / xp.sqrt(d.x.var(-1, keepdims=True) + 1e-5) * d.v,
    "unit_rows": lambda xp, d: d.x / xp.linalg.norm(d.x, axis=-1, keepdims=True),
    "argmax_last": lambda xp, d: d.x.argmax(axis=2),
    "dot_rows": lambda xp, d: xp.sum(d.x * d.y, axis=2),
    "cosine": lambda xp, d: (d.x * d.y).sum(-1) / (xp.sqrt((d.x**2).sum(-1)) * xp.sqrt((d.y**2).sum(-1))),
    "cumsum_last": lambda xp, d: xp.cumsum(d.x, axis=-1),
    "all_last": lambda xp, d: (d.x < 3).all(axis=-1),
}  # fmt: skip

MIDDLE: dict[str, Program] = {
    "sum_1": lambda xp, d: d.x.sum(axis=1),
    "max_1": lambda xp, d: xp.max(d.x * d.y, axis=1),
    "mean_1_keepdims": lambda xp, d: d.x - d.x.mean(axis=1, keepdims=True),
    "var_1": lambda xp, d: xp.var(d.w, axis=1, ddof=1),
    "sum_0_2": lambda xp, d: xp.sum(d.x, axis=(0, 2)),
    "channel_norm": lambda xp, d: d.x / xp.sqrt((d.x**2).mean(axis=(0, 2), keepdims=True)),
    "argmin_1": lambda xp, d: xp.argmin(d.x, axis=1),
}  # fmt: skip

VIEWS: dict[str, Program] = {
    "transpose_add": lambda xp, d: d.m + d.m.T.reshape(5, 6),
    "permute": lambda xp, d: d.x.transpose(2, 0, 1) * 2,
    "swap": lambda xp, d: xp.swapaxes(d.x, 0, 2) + 1,
    "reverse": lambda xp, d: d.x[..., ::-1] - d.x,
    "stride_two": lambda xp, d: d.x[:, ::2] * 3,
    "shifted_difference": lambda xp, d: d.x[..., 1:] - d.x[..., :-1],
    "newaxis_outer": lambda xp, d: d.v[:, None] * d.v[None, :],
    "flatten": lambda xp, d: d.x.ravel() + d.y.reshape(-1),
    "halves": lambda xp, d: xp.concatenate([d.x[..., 3:], -d.x[..., :3]], axis=-1),
    "stack": lambda xp, d: xp.stack([d.x, d.y]).max(axis=0),
    "split_gate": lambda xp, d: d.x[..., :3] * xp.tanh(d.x[..., 3:]),
    "roll": lambda xp, d: xp.roll(d.x, 1, axis=2) + xp.roll(d.x, -1, axis=2) - 2 * d.x,
    "squeeze": lambda xp, d: d.x[:, :1].squeeze(1) + xp.expand_dims(d.v, 0),
    "diagonal": lambda xp, d: xp.diagonal(d.m) * 2,
    "tile": lambda xp, d: xp.tile(d.v, (5, 1)) + d.m,
    "pick": lambda xp, d: d.x[2] + d.x[-1],
    "broadcast_to": lambda xp, d: xp.broadcast_to(d.v, (4, 5, 6)) * d.x,
    "lower_triangle": lambda xp, d: xp.tril(d.m),
    "ellipsis": lambda xp, d: d.x[..., 0] * d.x[..., -1],
    "padding": lambda xp, d: xp.pad(d.m, 1)[1:-1, 2:],
}  # fmt: skip
