"""Complex programs as a NumPy user writes them, and how near to NumPy they must come.

In: nothing. Out: tables of operators and programs. An operator's bound is normwise, in eps of the result's modulus; 0
asks for NumPy's bits. Products are exempt: NumPy's own bits depend on whether the machine fuses multiply and add, so
their bound is in eps of the moduli multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    """Complex numbers (or reals) of modulus about 1, in all four quadrants; some real, some imaginary."""
    rng = np.random.default_rng(seed)
    re, im = rng.standard_normal(shape), rng.standard_normal(shape)
    if np.dtype(dtype).kind != "c":
        return re.astype(dtype)
    flat = (re + 1j * im).astype(dtype).reshape(-1)
    flat[::11] = flat[::11].real
    flat[5::11] = 1j * flat[5::11].imag
    return flat.reshape(shape)


@dataclass(frozen=True)
class Operator:
    """fn of one or two complex arrays; `eps`: the normwise bound, 0 for equal bits."""

    name: str
    fn: Callable[..., Any]
    eps: float = 0
    arity: int = 1


OPERATORS = (
    Operator("add", lambda z, w: z + w, 0, 2), Operator("subtract", lambda z, w: z - w, 0, 2),
    Operator("multiply", lambda z, w: z * w, 3, 2), Operator("divide", lambda z, w: z / w, 0, 2),
    Operator("negative", lambda z: -z), Operator("positive", lambda z: +z), Operator("conj", lambda z: z.conj()),
    Operator("conjugate", np.conjugate), Operator("real", lambda z: z.real), Operator("imag", lambda z: np.imag(z)),
    Operator("abs", np.abs, 3), Operator("absolute operator", lambda z: abs(z), 3), Operator("angle", np.angle, 3),
    Operator("angle in degrees", lambda z: np.angle(z, deg=True), 4), Operator("sign", np.sign, 4),
    Operator("reciprocal", np.reciprocal), Operator("square", np.square, 3), Operator("exp", np.exp, 4),
    Operator("log", np.log, 4), Operator("log2", np.log2, 6), Operator("log10", np.log10, 6),
    Operator("sqrt", np.sqrt, 4), Operator("sin", np.sin, 5), Operator("cos", np.cos, 5), Operator("tan", np.tan, 9),
    Operator("sinh", np.sinh, 5), Operator("cosh", np.cosh, 5), Operator("tanh", np.tanh, 9),
    *(Operator(f"power {n}", lambda z, n=n: z**n, 3 * abs(n)) for n in (0, 1, 2, 3, 4, 7, -1, -2)),
    Operator("power 0.5", lambda z: z**0.5, 4), Operator("power 1.5", lambda z: z**1.5, 12),
    Operator("power 1j", lambda z: z**1j, 16), Operator("power of arrays", lambda z, w: z**w, 64, 2),
    Operator("equal", lambda z, w: z == w, 0, 2), Operator("not equal", lambda z, w: z != w, 0, 2),
    Operator("equal itself", lambda z: z == z.copy()), Operator("isnan", np.isnan), Operator("isinf", np.isinf),
    Operator("isfinite", np.isfinite), Operator("isreal", np.isreal), Operator("iscomplex", np.iscomplex),
    Operator("logical_not", np.logical_not), Operator("logical_and", np.logical_and, 0, 2),
    Operator("astype bool", lambda z: z.astype(bool)), Operator("where", lambda z, w: np.where(z.real > 0, z, w), 0, 2),
    Operator("round", lambda z: np.round(z, 2), 2), Operator("nan_to_num", np.nan_to_num),
    Operator("weak float", lambda z: 2.0 * z + 1), Operator("weak complex", lambda z: z + 2j),
    Operator("strong scalar", lambda z: z + np.complex64(1 + 2j)), Operator("real by imaginary", lambda z: 1j * z.real),
    Operator("other width", lambda z: z.astype(np.complex128)), Operator("narrower", lambda z: z.astype(np.complex64)),
    Operator("isclose", lambda z, w: np.isclose(z, w), 0, 2), Operator("vdot", lambda z, w: np.vdot(z, w), 9, 2),
    Operator("vecdot", lambda z, w: np.vecdot(z, w), 9, 2), Operator("inner", lambda z, w: np.inner(z, w), 16, 2),
    Operator("matmul", lambda z, w: z @ w.T, 16, 2), Operator("norm", lambda z: np.linalg.norm(z), 9),
    Operator("norm of rows", lambda z: np.linalg.norm(z, axis=-1), 9),
)  # fmt: skip

FOLDS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "var": np.var, "std": np.std, "nansum": np.nansum,
    "nanmean": np.nanmean, "any": np.any, "all": np.all, "count_nonzero": np.count_nonzero,
    "sum of squares": lambda z, axis: np.sum(z * z.conj(), axis=axis),
}  # fmt: skip
AXES: tuple[Any, ...] = (None, 0, 1, 2, (0, 2))


# -- programs --------------------------------------------------------------------------------------
def butterfly(z: Array, w: Array) -> Any:
    """One radix-2 stage of an FFT."""
    half = z.shape[-1] // 2
    even, odd = z[..., :half], z[..., half:]
    turned = odd * w[..., :half]
    out = np.empty_like(z)
    out[..., :half] = even + turned
    out[..., half:] = even - turned
    return out


def mandelbrot(z: Array, c: Array) -> Any:
    """Eight steps of z*z + c, held where they have left the disc."""
    for _ in range(8):
        inside = np.abs(z) < 2
        z = np.where(inside, z * z + c, z)
    return z, np.abs(z) < 2


def rotated(z: Array, w: Array) -> Any:
    """A phase rotation by an angle a row."""
    phase = np.exp(1j * np.angle(w[..., :1]))
    return z * phase


def power_spectrum(z: Array, w: Array) -> Any:
    """abs(z)**2, normalised."""
    power = np.abs(z) ** 2
    return power / power.sum(axis=-1, keepdims=True)


def mean_phase(z: Array, w: Array) -> Any:
    """The circular mean of the angles."""
    unit = z / (np.abs(z) + 1e-6)
    return np.angle(unit.mean(axis=-1)), np.abs(unit.mean())


def coherence(z: Array, w: Array) -> Any:
    """|<z w*>|^2 / (<|z|^2> <|w|^2>) by rows."""
    cross = np.mean(z * np.conj(w), axis=-1)
    return np.abs(cross) ** 2 / (np.mean(np.abs(z) ** 2, axis=-1) * np.mean(np.abs(w) ** 2, axis=-1))


def stores(z: Array, w: Array) -> Any:
    """Slice stores, stores into parts, in-place operators, and a write into an argument."""
    out = z.copy()
    out[..., 1:] = w[..., :-1]
    out[..., 0] = 1 - 2j
    out.real *= 2
    out.imag[0] = 3
    w += out
    w[..., -1] = 0
    return out


def moved(z: Array, w: Array) -> Any:
    """Views, joins, padding and broadcasting."""
    both = np.stack([z, w]).transpose(1, 0, *range(2, z.ndim + 1))
    wide = np.concatenate([z, w.real, np.zeros_like(z)], axis=-1)
    return both, wide[..., ::2], np.pad(z, [(0, 0)] * (z.ndim - 1) + [(1, 2)]), np.broadcast_to(z[:1], z.shape) + w


def running(z: Array, w: Array) -> Any:
    return np.cumsum(z, axis=-1), np.diff(z, axis=-1), np.roll(z, 1, axis=-1) - z


def schroedinger(z: Array, w: Array) -> Any:
    """Two steps of an explicit scheme with a real potential."""
    dt = 0.01
    for _ in range(2):
        laplacian = np.zeros_like(z)
        laplacian[..., 1:-1] = z[..., 2:] - 2 * z[..., 1:-1] + z[..., :-2]
        z = z + 1j * dt * (laplacian - w.real * z)
    return z, (np.abs(z) ** 2).sum()


def made_inside(z: Array, w: Array) -> Any:
    """Complex arrays made in the program, and reals made complex."""
    grid = np.linspace(0, 1, z.shape[-1]) * 2j
    steady = np.full(z.shape, 1 + 1j, dtype=z.dtype)
    return z.real + 1j * w.imag, grid + z, steady - np.ones_like(z), np.arange(4).astype(np.complex64), np.eye(3) * 1j


PROGRAMS: dict[str, Callable[[Array, Array], Any]] = {
    f.__name__: f
    for f in (
        butterfly, mandelbrot, rotated, power_spectrum, mean_phase, coherence, stores, moved, running, schroedinger,
        made_inside,
    )
}  # fmt: skip
