"""Philox against the published vectors; the draws' ranges, moments and independence of layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.construct import elementwise as ew
from fuser.construct import random
from fuser.dtypes import BF16, U32
from fuser.errors import FuserError
from fuser.graph import Builder
from fuser.optable import table
from tests.construct.support import run, trace

# Random123's kat_vectors for philox4x32 with 10 rounds: counter, key, result.
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), PUBLISHED)
def test_the_published_vectors(counter: tuple[int, ...], key: tuple[int, ...], result: tuple[int, ...]) -> None:
    def build(b: Builder) -> Any:
        c0, c1, c2, c3 = (ew.as_node(b, v, U32) for v in counter)
        k0, k1 = (ew.as_node(b, v, U32) for v in key)
        return random.philox(b, (c0, c1, c2, c3), (k0, k1))

    assert tuple(int(v) for v in run(build)) == result


def philox(calls: int, key: int) -> np.ndarray[Any, Any]:
    """All words of the first calls in plain Python integers, written apart from the implementation."""
    out: list[int] = []
    for i in range(calls):
        c, k = [i & 0xFFFFFFFF, i >> 32, 0, 0], [key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF]
        for _ in range(10):
            p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [q >> 32 ^ c[1] ^ k[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ k[1], p & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        out += c
    return np.array(out, np.uint32)


@pytest.mark.parametrize("key", [0, 1, 2**40 + 5, -1])
def test_bits_follow_the_logical_index(key: int) -> None:
    found = run(lambda b, k: random.bits(b, k, (3, 5)), scalars={"k": key})[0]
    assert found.dtype == np.uint32
    assert (found.reshape(-1) == philox(4, key)[:15]).all()


def test_two_words_an_element_come_from_one_call() -> None:
    found = run(lambda b: random.bits(b, 9, (3, 5), dtype="u64"))[0]
    low, high = philox(8, 9).astype(np.uint64).reshape(-1, 2)[:15].T
    assert (found.reshape(-1) == low + (high << np.uint64(32))).all()


def test_a_key_may_be_an_array() -> None:
    as_array = run(lambda b, k: random.bits(b, k, 5), np.int64(77))[0]
    assert (as_array == run(lambda b: random.bits(b, 77, 5))[0]).all()


def test_shape_may_be_symbolic_and_does_not_change_values() -> None:
    x = np.zeros((6, 5), np.float32)
    found = run(lambda b, x: random.uniform(b, 3, x.shape), x)[0]
    assert (found.reshape(-1) == run(lambda b: random.uniform(b, 3, 30))[0]).all()


def test_streams_and_keys_differ() -> None:
    draws = [run(lambda b, k=k, s=s: random.bits(b, k, 64, stream=s))[0] for k, s in ((0, 0), (0, 1), (1, 0))]
    assert not (draws[0] == draws[1]).any()
    assert not (draws[0] == draws[2]).any()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_uniform(dtype: str) -> None:
    u = run(lambda b: random.uniform(b, 5, 20_000, dtype=dtype))[0]
    assert u.dtype == np.dtype("float32" if dtype == "f32" else "float64")
    assert (u.min(), u.max()) >= (0.0, 0.0)
    assert u.max() < 1.0
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.005
    counts = np.histogram(u, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 50  # chi-square, 19 degrees of freedom
    wide = run(lambda b: random.uniform(b, 5, 20_000, -2, 6, dtype=dtype))[0]
    np.testing.assert_allclose(wide, u * 8 - 2, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_normal(dtype: str) -> None:
    z = run(lambda b: random.normal(b, 9, 20_000, dtype=dtype))[0]
    assert np.isfinite(z).all()
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1) < 0.02
    assert abs((z**3).mean()) < 0.1
    assert abs((z**4).mean() - 3) < 0.3
    moved = run(lambda b: random.normal(b, 9, 20_000, 2.0, 3.0, dtype=dtype))[0]
    np.testing.assert_allclose(moved, z * 3 + 2, atol=1e-5)


def test_halves_are_drawn_in_f32() -> None:
    half = run(lambda b: random.normal(b, 9, 100, dtype="bf16"))[0]
    full = run(lambda b: random.normal(b, 9, 100))[0]
    assert (half == full.astype(BF16.numpy)).all()


def test_bernoulli_and_dropout() -> None:
    kept = run(lambda b: random.bernoulli(b, 1, 0.3, 20_000))[0]
    assert kept.dtype == bool
    assert abs(kept.mean() - 0.3) < 0.02
    x = np.full(20_000, 2.0, np.float32)
    row: Any = table().rows["dropout"]
    dropped = run(lambda b, x, p: row.build(b, x, p, 4), x, scalars={"p": 0.25})[0]
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(2 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.02


def test_randint() -> None:
    k = run(lambda b: random.randint(b, 1, 10_000, -3, 4))[0]
    assert k.dtype == np.int64
    assert set(k.tolist()) == set(range(-3, 4))
    assert (abs(np.bincount(k + 3) - 10_000 / 7) < 200).all()


def test_refusals() -> None:
    for build, words in (
        (lambda b: random.bits(b, 1.5, 3), "integer"),
        (lambda b: random.uniform(b, 1, 3, dtype="i32"), "floats"),
        (lambda b: random.bits(b, 1, 3, dtype="i8"), "u32"),
        (lambda b: random.dropout(b, ew.as_node(b, 1.0), 1.0, 2), "p is in"),
    ):
        with pytest.raises(FuserError, match=words):
            trace(build, [])
