"""Fusion programs that store: into arguments, locals, slices, masks and `out=`.

In: a module and `Data`. Out: `STORES` by name. Each returns something too, so that order is seen.
"""

from __future__ import annotations

from typing import Any

from tests.surface.programs_fusion import Data


def add_in_place(xp: Any, d: Data) -> Any:
    x = d.x
    x += d.y
    return x * 2


def scale_argument(xp: Any, d: Data) -> None:
    d.x[...] = d.x * d.h


def several_arguments(xp: Any, d: Data) -> Any:
    d.x[:] = d.y + 1
    d.y[:] = d.x * d.y
    return d.x + d.y


def slice_store(xp: Any, d: Data) -> Any:
    d.x[:, 0] = 0
    d.x[:, -1] = d.v
    return d.x.sum(axis=1)


def strided_store(xp: Any, d: Data) -> Any:
    out = xp.zeros_like(d.x)
    out[..., ::2] = d.x[..., ::2]
    out[..., 1::2] = -d.x[..., 1::2]
    return out


def mask_store(xp: Any, d: Data) -> Any:
    x = d.x.copy()
    x[x < 0] = 0
    x[d.p] *= 2
    return x


def mask_store_of_array(xp: Any, d: Data) -> Any:
    x = d.x.copy()
    x[d.p] = d.y[d.p]
    return x


def interior(xp: Any, d: Data) -> Any:
    out = d.m.copy()
    out[1:-1, 1:-1] = 0.25 * (d.m[:-2, 1:-1] + d.m[2:, 1:-1] + d.m[1:-1, :-2] + d.m[1:-1, 2:])
    return out


def out_argument(xp: Any, d: Data) -> Any:
    xp.multiply(d.x, d.y, out=d.z)
    xp.add(d.z, 1, out=d.z)
    return d.z.max()


def view_then_store(xp: Any, d: Data) -> Any:
    row = d.m[1]
    row += 5
    return d.m * 2


def swap(xp: Any, d: Data) -> Any:
    old = d.x.copy()
    d.x[:] = d.y
    d.y[:] = old
    return d.x - d.y


def read_after_store(xp: Any, d: Data) -> Any:
    before = d.x.sum()
    d.x[...] = 1
    return before, d.x.sum()


def accumulate_in_loop(xp: Any, d: Data) -> Any:
    total = xp.zeros(d.m.shape, dtype=xp.float32)
    for k in range(4):
        total += d.x[k] * (k + 1)
    return total


def integer_in_place(xp: Any, d: Data) -> Any:
    i = d.i
    i //= 2
    i &= 0xF
    i <<= 1
    return i


def adam(xp: Any, d: Data) -> None:
    p, g, m, v = d.x, d.y, d.z, d.w
    m *= 0.9
    m += 0.1 * g
    v *= 0.999
    v += 0.001 * g * g
    p -= 1e-2 * m / (xp.sqrt(v * v) + 1e-8)


def copyto_where(xp: Any, d: Data) -> Any:
    x = d.x.copy()
    xp.copyto(x, d.y, where=d.p)
    return x


def fill(xp: Any, d: Data) -> Any:
    x = xp.empty_like(d.x)
    x.fill(3)
    x[0] = d.m
    return x


STORES = {f.__name__: f for f in list(vars().values()) if callable(f) and getattr(f, "__module__", "") == __name__}
