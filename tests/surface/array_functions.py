"""NumPy's array functions, one small program each, under the name that the array-API standard or NumPy gives it.

In: arrays `x`, `y` (4, 6) and `v` (6,) of one dtype. Out: `STANDARD`, programs of the array-API standard's functions
(None where the function cannot be part of a fused program), `LINALG` of its extension, and `MORE`, NumPy's other
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = Callable[[Any, Any, Any], Any]

ROWS = np.array([0, 3, 1, 1])
ELEMENTWISE_1 = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_invert",
    "ceil",
    "conj",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "floor",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_not",
    "negative",
    "positive",
    "real",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "square",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
ELEMENTWISE_2 = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "nextafter",
    "not_equal",
    "remainder",
    "subtract",
]


def _one(name: str) -> Program:
    return lambda x, y, v: getattr(np, name)(x)


def _two(name: str) -> Program:
    return lambda x, y, v: (getattr(np, name)(x, y), getattr(np, name)(x, v))


STANDARD: dict[str, Program | None] = {
    **{n: _one(n) for n in ELEMENTWISE_1},
    **{n: _two(n) for n in ELEMENTWISE_2},
    "reciprocal": lambda x, y, v: np.reciprocal(np.where(x == 0, 1, x)),  # 1 // 0 is 0 in fuser, undefined in NumPy
    "bitwise_left_shift": lambda x, y, v: np.bitwise_left_shift(x, 2),
    "bitwise_right_shift": lambda x, y, v: np.bitwise_right_shift(x, 2),
    "clip": lambda x, y, v: (np.clip(x, 1, 3), np.clip(x, None, v), np.clip(x, min=1)),
    "pow": lambda x, y, v: (np.pow(x, 2), np.pow(x, 3)),
    "arange": lambda x, y, v: x + np.arange(x.shape[1]),
    "asarray": lambda x, y, v: (np.asarray(x), np.asarray([1, 2, 3])),
    "empty": lambda x, y, v: np.empty(x.shape).shape,
    "empty_like": lambda x, y, v: np.empty_like(x).shape,
    "eye": lambda x, y, v: (np.eye(3), np.eye(x.shape[0], x.shape[1], 1)),
    "from_dlpack": lambda x, y, v: np.from_dlpack(x) + 1,
    "full": lambda x, y, v: (np.full(x.shape, 3), np.full((2, 3), 1.5)),
    "full_like": lambda x, y, v: np.full_like(x, 1),
    "linspace": lambda x, y, v: (np.linspace(0, 1, 7), np.linspace(0, 1, x.shape[0], endpoint=False)),
    "meshgrid": lambda x, y, v: np.meshgrid(v, x[:, 0], indexing="ij"),
    "ones": lambda x, y, v: np.ones(x.shape),
    "ones_like": lambda x, y, v: np.ones_like(x),
    "tril": lambda x, y, v: (np.tril(x), np.tril(x, k=1)),
    "triu": lambda x, y, v: (np.triu(x), np.triu(x, k=-1)),
    "zeros": lambda x, y, v: np.zeros(x.shape, dtype=x.dtype),
    "zeros_like": lambda x, y, v: np.zeros_like(x),
    "astype": lambda x, y, v: (np.astype(x, np.float32), x.astype(bool)),
    "can_cast": lambda x, y, v: np.can_cast(x.dtype, np.float64),
    "finfo": lambda x, y, v: x + np.finfo(np.float32).eps,
    "iinfo": lambda x, y, v: np.minimum(x, np.iinfo(np.int8).max),
    "isdtype": lambda x, y, v: np.isdtype(x.dtype, "real floating"),
    "result_type": lambda x, y, v: x.astype(np.result_type(x, np.float32)),
    "take": lambda x, y, v: np.take(x, ROWS, axis=0),
    "take_along_axis": lambda x, y, v: np.take_along_axis(x, ROWS[:, None], axis=1),
    "__array_namespace_info__": lambda x, y, v: x + x.__array_namespace__().__array_namespace_info__().default_dtypes()[
        "real floating"
    ].type(1),
    "matmul": lambda x, y, v: (np.matmul(x, y.T), np.matmul(x, v)),
    "matrix_transpose": lambda x, y, v: np.matrix_transpose(x),
    "tensordot": lambda x, y, v: (np.tensordot(x, y, axes=2), np.tensordot(x, v, axes=1)),
    "vecdot": lambda x, y, v: np.vecdot(x, y),
    "broadcast_arrays": lambda x, y, v: np.broadcast_arrays(x, v),
    "broadcast_to": lambda x, y, v: np.broadcast_to(v, x.shape),
    "concat": lambda x, y, v: (np.concat([x, y]), np.concat([x, y], axis=1), np.concat([x, y], axis=None)),
    "expand_dims": lambda x, y, v: np.expand_dims(x, 1),
    "flip": lambda x, y, v: (np.flip(x), np.flip(x, 1)),
    "moveaxis": lambda x, y, v: np.moveaxis(x, 0, 1),
    "permute_dims": lambda x, y, v: np.permute_dims(x, (1, 0)),
    "repeat": lambda x, y, v: (np.repeat(x, 2, axis=1), np.repeat(v, 3)),
    "reshape": lambda x, y, v: np.reshape(x, (2, -1)),
    "roll": lambda x, y, v: (np.roll(x, 1), np.roll(x, -2, axis=1), np.roll(x, (1, 2), axis=(0, 1))),
    "squeeze": lambda x, y, v: np.squeeze(x[:, None], axis=1),
    "stack": lambda x, y, v: np.stack([x, y], axis=1),
    "tile": lambda x, y, v: (np.tile(v, 2), np.tile(x, (2, 1))),
    "unstack": lambda x, y, v: np.unstack(x),
    "argmax": lambda x, y, v: (np.argmax(x), np.argmax(x, axis=1)),
    "argmin": lambda x, y, v: (np.argmin(x), np.argmin(x, axis=0, keepdims=True)),
    "count_nonzero": lambda x, y, v: (np.count_nonzero(x), np.count_nonzero(x, axis=1)),
    "nonzero": None,
    "searchsorted": lambda x, y, v: np.searchsorted(np.array([-1, 0, 2]), x),
    "where": lambda x, y, v: (np.where(x > y, x, v), np.where(x != 0, x, 1)),
    "unique_all": None, "unique_counts": None, "unique_inverse": None, "unique_values": None,
    "argsort": None, "sort": None,
    "cumulative_sum": lambda x, y, v: (np.cumulative_sum(v), np.cumulative_sum(x, axis=1)),
    "cumulative_prod": lambda x, y, v: np.cumulative_prod(v),
    "max": lambda x, y, v: (np.max(x), np.max(x, axis=1)),
    "mean": lambda x, y, v: (np.mean(x), np.mean(x, axis=0, keepdims=True)),
    "min": lambda x, y, v: (np.min(x), np.min(x, axis=(0, 1))),
    "prod": lambda x, y, v: np.prod(x[:, :2], axis=1),
    "std": lambda x, y, v: (np.std(x), np.std(x, axis=1, correction=1)),
    "sum": lambda x, y, v: (np.sum(x), np.sum(x, axis=1), np.sum(x, axis=0, dtype=np.float64)),
    "var": lambda x, y, v: (np.var(x), np.var(x, axis=1, ddof=1)),
    "all": lambda x, y, v: (np.all(x), np.all(x, axis=0)),
    "any": lambda x, y, v: (np.any(x), np.any(x, axis=1)),
    "diff": lambda x, y, v: (np.diff(v), np.diff(x, n=2, axis=1)),
}  # fmt: skip

LINALG: dict[str, Program | None] = {
    "linalg.cross": lambda x, y, v: np.linalg.cross(x[:, :3], y[:, :3]),
    "linalg.diagonal": lambda x, y, v: np.linalg.diagonal(x),
    "linalg.matmul": lambda x, y, v: np.linalg.matmul(x, y.T),
    "linalg.matrix_norm": lambda x, y, v: np.linalg.matrix_norm(x),
    "linalg.matrix_power": lambda x, y, v: np.linalg.matrix_power(x[:, :4], 3),
    "linalg.matrix_transpose": lambda x, y, v: np.linalg.matrix_transpose(x),
    "linalg.outer": lambda x, y, v: np.linalg.outer(v, v),
    "linalg.tensordot": lambda x, y, v: np.linalg.tensordot(x, v, axes=1),
    "linalg.trace": lambda x, y, v: np.linalg.trace(x),
    "linalg.vecdot": lambda x, y, v: np.linalg.vecdot(x, v),
    "linalg.vector_norm": lambda x, y, v: (np.linalg.vector_norm(x), np.linalg.vector_norm(x, axis=1, ord=1)),
    **dict.fromkeys(
        f"linalg.{n}" for n in (
            "cholesky", "det", "eigh", "eigvalsh", "inv", "matrix_rank", "pinv", "qr", "slogdet", "solve", "svd",
            "svdvals",
        )
    ),
}  # fmt: skip

MORE: dict[str, Program] = {
    "atleast": lambda x, y, v: (np.atleast_1d(v), np.atleast_2d(v), np.atleast_3d(v), np.atleast_2d(v, x)),
    "append": lambda x, y, v: (np.append(x, y), np.append(x, y, axis=0)),
    "array_split": lambda x, y, v: np.array_split(v, 4),
    "average": lambda x, y, v: (np.average(x), np.average(x, axis=1, weights=np.arange(6))),
    "block": lambda x, y, v: np.block([[x, y], [y, x]]),
    "choose": lambda x, y, v: np.choose((x > y).astype(int), [x, y]),
    "column_stack": lambda x, y, v: np.column_stack([v, v]),
    "convolve": lambda x, y, v: np.convolve(v, np.array([1, 2, 1]), mode="same"),
    "copysign": lambda x, y, v: np.copysign(np.abs(x), y),
    "corrcoef": lambda x, y, v: np.corrcoef(x),
    "correlate": lambda x, y, v: np.correlate(v, np.array([1, 2, 1]), mode="full"),
    "cov": lambda x, y, v: (np.cov(x), np.cov(v, v)),
    "cross": lambda x, y, v: (np.cross(x[:, :3], y[:, :3]), np.cross(v[:3], v[3:])),
    "cumsum": lambda x, y, v: (np.cumsum(x), np.cumsum(x, axis=0), x.cumsum(1)),
    "cumprod": lambda x, y, v: (np.cumprod(v[:3]), np.cumprod(x[:, :2], axis=1)),
    "deg2rad": lambda x, y, v: (np.deg2rad(x), np.rad2deg(x)),
    "diag": lambda x, y, v: (np.diag(v), np.diag(x), np.diag(v, 1), np.diagflat(v)),
    "diagonal": lambda x, y, v: (np.diagonal(x), x.diagonal(1), np.diag_indices(3)[0]),
    "digitize": lambda x, y, v: np.digitize(x, np.array([-1.0, 0.0, 1.5])),
    "divmod": lambda x, y, v: np.divmod(x, y),
    "dot": lambda x, y, v: (np.dot(x, v), np.dot(v, v), x.dot(y.T), np.vdot(x, y), np.inner(x, v)),
    "dstack": lambda x, y, v: (np.dstack([x, y]), np.hstack([x, y]), np.vstack([x, v])),
    "ediff1d": lambda x, y, v: (np.ediff1d(v), np.ediff1d(v, to_end=v[:1], to_begin=v[:2])),
    "einsum": lambda x, y, v: (
        np.einsum("ij,ij->i", x, y), np.einsum("ij->ji", x), np.einsum("ij,j", x, v), np.einsum("ik,jk->ij", x, y)
    ),
    "empty_full_of": lambda x, y, v: np.full(x.shape[0], 2.5, dtype=np.float32),
    "fix": lambda x, y, v: np.fix(x),
    "flip_ud_lr": lambda x, y, v: (np.flipud(x), np.fliplr(x), np.rot90(x), np.rot90(x, 2)),
    "float_power": lambda x, y, v: np.float_power(x, 2),
    "fmod": lambda x, y, v: (np.fmod(x, y), np.fmin(x, y), np.fmax(x, y)),
    "geomspace": lambda x, y, v: np.geomspace(1, 1000, 4) + np.logspace(0, 3, 4),
    "gradient": lambda x, y, v: (np.gradient(v), np.gradient(x, axis=0), np.gradient(x, 0.5)),
    "heaviside": lambda x, y, v: np.heaviside(x, 0.5),
    "indices": lambda x, y, v: (np.indices((2, 3)), np.tri(3, 4), np.identity(3), np.vander(v, 3)),
    "interp": lambda x, y, v: np.interp(x, [-1.0, 0.0, 2.0], [3.0, 1.0, 2.0]),
    "isclose": lambda x, y, v: (np.isclose(x, y), np.allclose(x, x), np.array_equal(x, x), np.array_equiv(x, v)),
    "isin": lambda x, y, v: (np.isin(x, [1, 2]), np.isposinf(x), np.isneginf(x)),
    "angle": lambda x, y, v: (np.angle(x.astype(float)), np.angle(y.astype(float), deg=True), np.real_if_close(x)),
    "fftshift": lambda x, y, v: (np.fft.fftshift(x), np.fft.ifftshift(x, axes=1), np.fft.fftshift(v)),
    "putmask": lambda x, y, v: _putmask(x, y),
    "isreal": lambda x, y, v: (np.isreal(x), np.iscomplex(x), np.isrealobj(x)),
    "kron": lambda x, y, v: np.kron(v, v),
    "ldexp": lambda x, y, v: np.ldexp(x, 2),
    "linalg_norm": lambda x, y, v: (np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(v, 1)),
    "logical": lambda x, y, v: np.logical_and.reduce(np.stack([x > 0, y > 0, x > y])),
    "multi_dot": lambda x, y, v: np.linalg.multi_dot([x, y.T, x]),
    "nan_to_num": lambda x, y, v: np.nan_to_num(x),
    "nanmax": lambda x, y, v: (np.nanmax(x), np.nanmin(x, axis=1)),
    "nanmean": lambda x, y, v: (np.nanmean(x), np.nanstd(x, axis=1), np.nanvar(x)),
    "nansum": lambda x, y, v: (np.nansum(x), np.nansum(x, axis=1), np.nanprod(v)),
    "nanargmax": lambda x, y, v: (np.nanargmax(x), np.nanargmin(x, axis=1)),
    "nancumsum": lambda x, y, v: (np.nancumsum(x), np.nancumprod(v)),
    "outer": lambda x, y, v: (np.outer(v, v), np.multiply.outer(v, v)),
    "pad": lambda x, y, v: (
        np.pad(x, 1), np.pad(x, ((1, 2), (0, 1)), mode="edge"), np.pad(v, 2, mode="reflect"), np.pad(v, 2, mode="wrap")
    ),
    "pad_constant": lambda x, y, v: (np.pad(v, (1, 3), constant_values=1), np.pad(v, 2, mode="symmetric")),
    "piecewise": lambda x, y, v: np.piecewise(x, [x < 0, x >= 0], [0, 1]),
    "polyval": lambda x, y, v: np.polyval([2, 1, 3], x),
    "ptp": lambda x, y, v: (np.ptp(x), np.ptp(x, axis=1)),
    "ravel": lambda x, y, v: (np.ravel(x), x.flatten(), np.reshape(x, -1), np.ravel(x, order="F")),
    "resize": lambda x, y, v: np.resize(v, (3, 4)),
    "rollaxis": lambda x, y, v: np.rollaxis(x, 1),
    "round": lambda x, y, v: (np.round(x, 1), np.around(x), x.round()),
    "select": lambda x, y, v: np.select([x > 1, x < 0], [x, y], default=0),
    "sinc": lambda x, y, v: np.sinc(x),
    "split": lambda x, y, v: (*np.split(v, 3), *np.hsplit(x, 2), *np.vsplit(x, [1])),
    "swapaxes": lambda x, y, v: (np.swapaxes(x, 0, 1), np.transpose(x), x.T),
    "take_method": lambda x, y, v: (x.take([0, 2], axis=1), np.take(v, 3)),
    "trace": lambda x, y, v: (np.trace(x), np.trace(x, 1)),
    "trapezoid": lambda x, y, v: (np.trapezoid(v), np.trapezoid(x, dx=0.5, axis=0)),
    "triu_mask": lambda x, y, v: (np.tri(4, 6) * x, np.triu(np.ones((6, 6)))),
    "unwrap": lambda x, y, v: np.unwrap(v.astype(float)),
    "insert_delete": lambda x, y, v: (np.delete(v, 2), np.delete(x, 1, axis=0), np.insert(v, 2, 7)),
    "trim_mean_by_slices": lambda x, y, v: np.mean(x[:, 1:-1], axis=1),
    "apply_over_axes": lambda x, y, v: np.apply_over_axes(np.sum, x, [0, 1]),
    "frexp": lambda x, y, v: np.frexp(x),
    "modf": lambda x, y, v: np.modf(x),
    "signs": lambda x, y, v: (np.sign(x), np.signbit(x), np.positive(x), np.fabs(x)),
    "hanning": lambda x, y, v: v * np.hanning(6) + np.hamming(6),
    "polynomials": lambda x, y, v: np.polynomial.polynomial.polyval(x, [1.0, 2.0, 3.0]),
    "ix_": lambda x, y, v: x[np.ix_([0, 2], [1, 3])],
}  # fmt: skip


def _putmask(x: Any, y: Any) -> Any:
    z = x.copy()
    np.putmask(z, z > 1, 0)
    np.putmask(z, z > y, y)
    return z
