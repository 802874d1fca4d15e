"""Quotients made of a shared reciprocal have the bits of the division, and only those that pay are made so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.codegen import simt
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.expand import expand
from fuser.codegen.loops import If, Kernel, Launch, Let, Operand, walk
from fuser.codegen.quotients import LEAST, MOST, SAFE
from fuser.codegen.verify import verify
from fuser.dtypes import BF16, F32
from fuser.hostexpr import scalar_symbol
from fuser.optable.base import S
from fuser.optable.fma import fma_array

Array = np.ndarray[Any, Any]
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 1.0, -3.0, 1e-30],
    np.float32,
)


def by_reciprocal(x: Array, d: Array) -> tuple[Array, Array]:
    """What the kernel computes, and where it trusts that."""
    with np.errstate(all="ignore"):
        r = np.float32(1.0) / d
        size = np.abs(r)
        r = np.where((size >= np.float32(LEAST)) & (size <= np.float32(MOST)), r, np.float32("nan"))
        q = x * r
        y = fma_array(fma_array(q, d, -x), -r, q)
        return y, np.abs(y) >= np.float32(SAFE)


def check(x: Array, d: Array) -> float:
    """The share of trusted quotients, all of which are those of the division."""
    found, trusted = by_reciprocal(x, d)
    with np.errstate(all="ignore"):
        want = x / d
    np.testing.assert_array_equal(found[trusted].view(np.int32), want[trusted].view(np.int32))
    return float(np.mean(trusted))


def near_midpoints(divisors: Array, distance: int) -> tuple[Array, Array]:
    """All (x, d) with integer mantissas for which 2^shift * x - m * d is k: x/d is k / (2^shift * d) off the midpoint m
    (odd, in units of half a last place). For an odd part of d there is one such m modulo a power of two."""
    xs, ds = [], []
    power = (divisors & -divisors).astype(np.int64)
    odd = divisors // power
    inverse = odd.copy()
    for _ in range(5):
        inverse = inverse * (2 - odd * inverse) & 0xFFFFFFFF
    for shift in (24, 25):  # quotients of at least 1, and below
        for k in [s * n for n in range(1, distance + 1) for s in (1, -1)]:
            fits = (k % power == 0) & ((k // power) % 2 == 1)
            d, p, inv = divisors[fits], power[fits], inverse[fits]
            modulus = (1 << shift) // p
            m = (-(k // p) * inv) % modulus
            while np.any(m < 1 << 25):
                x = (m * d + k) >> shift
                whole = ((m * d + k) & ((1 << shift) - 1)) == 0
                good = whole & (m >= 1 << 24) & (m < 1 << 25) & (x >= 1 << 23) & (x < 1 << 24)
                xs.append(x[good])
                ds.append(d[good])
                m = m + modulus
    return np.concatenate(xs).astype(np.float32), np.concatenate(ds).astype(np.float32)


def mantissas(step: int, first: int = 0) -> Array:
    return np.arange((1 << 23) + first, 1 << 24, step, dtype=np.int64)


@pytest.mark.parametrize("first", range(4))
def test_the_quotients_nearest_to_midpoints_round_as_the_division(first: int) -> None:
    x, d = near_midpoints(mantissas(1021, first * 255), 8)
    assert x.size > 20_000
    with np.errstate(all="ignore"):
        assert np.mean(x * (np.float32(1.0) / d) == x / d) < 0.6  # a product with the reciprocal alone would not do
    assert check(x, d) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(16))
def test_all_such_quotients_round_as_the_division(first: int) -> None:
    x, d = near_midpoints(mantissas(16, first), 8)
    assert x.size > 2_000_000
    assert check(x, d) == 1.0


def test_random_bits_of_all_kinds() -> None:
    rng = np.random.default_rng(3)
    x, d = rng.integers(0, 1 << 32, (2, 1 << 20), dtype=np.uint64).astype(np.uint32).view(np.float32)
    assert 0.02 < check(x, d) < 0.5
    middling = (rng.standard_normal((2, 1 << 20)) * 10.0 ** rng.integers(-9, 9, (2, 1 << 20))).astype(np.float32)
    assert check(*middling) > 0.9


def test_exponents_at_the_ends_of_what_is_trusted() -> None:
    mantissa = np.float32(1.0) + np.arange(64, dtype=np.float32) / np.float32(64) + np.float32(2.0**-23)
    for e in range(-45, 48):
        d = np.repeat(np.ldexp(mantissa, e), 64)
        for f in (-66, -65, -64, -63, 85, 86, 87, 88):
            with np.errstate(over="ignore"):
                x = np.ldexp(np.tile(mantissa, 64), e + f)
            check(x, d)


# -- kernels -------------------------------------------------------------------------------------------
def dividing(count: int, body: Any = None, threads: int = 32, narrow: bool = True) -> Kernel:
    """out[i] = x[i] / d[thread], `count` elements a thread. narrow: beside an output of a half type."""
    b = KernelBuilder("dividing", "cuda")
    x, d = b.buffer("x", F32, "in", 0, count * threads), b.buffer("d", F32, "in", 1, threads)
    out = b.buffer("out", F32, "out", 2, count * threads)
    if narrow:
        b.buffer("narrow", BF16, "out", 3, threads)
    thread = b.handle(b.special("thread"))
    divisor = b.handle(b.load(d, thread.value))
    (body or plain)(b, x, out, thread * count, divisor, count)
    return b.finish(Launch((1, 1), threads))


def plain(b: KernelBuilder, x: str, out: str, first: S, d: S, count: int) -> None:
    for k in range(count):
        b.store(out, (first + k).value, (b.handle(b.load(x, (first + k).value)) / d + 1.0).value)


def together(b: KernelBuilder, x: str, out: str, first: S, d: S, count: int) -> None:
    """A vector, and quotients of quotients."""
    values: list[Operand] = []
    for at in range(0, count, 4):
        for v in b.load_vec(x, (first + at).value, 4):
            once = b.handle(v) / d
            values.append(((once / d) * 2.0 + once).value)
    for at in range(0, count, 4):
        b.store_vec(out, (first + at).value, values[at : at + 4])


def looping(b: KernelBuilder, x: str, out: str, first: S, d: S, count: int) -> None:
    with b.loop("k", 0, count) as k:
        at = (first + b.handle(k)).value
        b.store(out, at, (b.handle(b.load(x, at)) / d).value)


def changing(b: KernelBuilder, x: str, out: str, first: S, d: S, count: int) -> None:
    """The divisor is another one each time."""
    by = b.mutable("by", d.value)
    for k in range(count):
        b.store(out, (first + k).value, (b.handle(b.load(x, (first + k).value)) / b.handle(by)).value)
        b.assign(by, (b.handle(by) * 2.0).value)


def settled(b: KernelBuilder, x: str, out: str, first: S, d: S, count: int) -> None:
    """A mutable divisor that no longer changes."""
    by = b.mutable("by", d.value)
    b.assign(by, (b.handle(by) * 2.0).value)
    plain(b, x, out, first, b.handle(by), count)


def parameter(b: KernelBuilder, x: str, out: str, first: S, d: S, count: int) -> None:
    """By a number that the host gives."""
    plain(b, x, out, first, b.handle(b.scalar(scalar_symbol("by", "float"), F32, "by")), count)


def run(kernel: Kernel, x: Array, d: Array) -> Array:
    out = np.zeros_like(x)
    with np.errstate(all="ignore"):
        simt.run(kernel, {"x": x, "d": d, "out": out, "narrow": np.zeros(32, BF16.numpy)}, {"=by": 3.0})
    return out


def shared(kernel: Kernel) -> int:
    return sum(isinstance(s, Let) and s.op == "fma" for s in walk(kernel.body)) // 2


@pytest.mark.parametrize("body", [plain, together, looping, changing, settled, parameter])
@pytest.mark.parametrize("count", [4, 8])
def test_kernels_keep_their_bits(body: Any, count: int) -> None:
    kernel = dividing(count, body)
    ready = expand(kernel)
    assert verify(ready, expanded=True) == []
    rng = np.random.default_rng(count)
    x = rng.standard_normal(32 * count).astype(np.float32)
    x[:: count + 1] = np.resize(SPECIAL, x[:: count + 1].size)
    for d in (np.resize(SPECIAL, 32), rng.standard_normal(32).astype(np.float32)):
        want, got = run(kernel, x, d), run(ready, x, d)
        nan = np.isnan(want)
        np.testing.assert_array_equal(nan, np.isnan(got))
        np.testing.assert_array_equal(want[~nan].view(np.int32), got[~nan].view(np.int32))


def test_which_divisions_are_shared() -> None:
    assert shared(expand(dividing(3))) == 0
    assert shared(expand(dividing(4))) == 4
    assert shared(expand(dividing(8, together))) == 16
    assert (
        shared(expand(dividing(2, looping))) == 1
    )  # one statement, but in a loop that the divisor comes from outside of
    assert shared(expand(dividing(8, changing))) == 0
    assert shared(expand(dividing(8, settled))) == 8
    assert shared(expand(dividing(8, parameter))) == 0
    assert shared(expand(dividing(8, narrow=False))) == 0


def test_one_branch_for_four_quotients_and_no_division_before_it() -> None:
    ready = expand(dividing(8, vector))
    branches = [s for s in walk(ready.body) if isinstance(s, If)]
    slow = [[s for s in walk(b.orelse) if isinstance(s, Let) and s.op == "divide"] for b in branches]
    assert [len(divisions) for divisions in slow] == [1, 1], "in a loop over four"
    outside = [s for s in ready.body if isinstance(s, Let) and s.op == "divide"]
    assert len(outside) == 1, "the reciprocal alone"


def vector(b: KernelBuilder, x: str, out: str, first: S, d: S, count: int) -> None:
    parts = [b.load_vec(x, (first + at).value, 4) for at in range(0, count, 4)]
    values = [((b.handle(v) - 1.0) / d * 3.0).value for part in parts for v in part]
    for at in range(0, count, 4):
        b.store_vec(out, (first + at).value, values[at : at + 4])
