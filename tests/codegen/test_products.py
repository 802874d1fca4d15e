"""High and low words of one product come from one multiplication on CUDA, and stay two on CPUs."""

from __future__ import annotations

import numpy as np

from fuser.codegen import simt
from fuser.codegen.builder import KernelBuilder
from fuser.codegen.cuda.printer import print_kernel
from fuser.codegen.expand import expand
from fuser.codegen.loops import Kernel, Launch, Let, walk
from fuser.codegen.primitives import Target
from fuser.codegen.verify import verify
from fuser.dtypes import U32

FACTOR = 0xD2511F53


def words(target: Target = "cuda", low: bool = True, changing: bool = False) -> Kernel:
    """high[i], low[i] = words of x[i] * FACTOR; changing: x is another one by the time of the second."""
    b = KernelBuilder("words", target)
    x = b.buffer("x", U32, "in", 0, 32)
    high, lower = b.buffer("high", U32, "out", 1, 32), b.buffer("low", U32, "out", 2, 32)
    i = b.special("thread") if target == "cuda" else b.literal(0, U32)
    value = b.load(x, i)
    if changing:
        value = b.mutable("value", value)
    b.store(high, i, b.let("mulhi", (value, b.literal(FACTOR, U32)), U32))
    if changing:
        b.assign(value, b.let("add", (value, b.literal(1, U32)), U32))
    if low:
        b.store(lower, i, b.let("multiply", (value, b.literal(FACTOR, U32)), U32))
    return b.finish(Launch((1, 1), 32))


def operators(kernel: Kernel) -> list[str]:
    return [s.op for s in walk(kernel.body) if isinstance(s, Let)]


def test_words_are_those_of_the_product() -> None:
    x = np.random.default_rng(0).integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32)
    x[:3] = 0, 1, 0xFFFFFFFF
    product = x.astype(np.uint64) * np.uint64(FACTOR)
    for kernel in (words(), expand(words())):
        found = {"high": np.zeros(32, np.uint32), "low": np.zeros(32, np.uint32)}
        simt.run(kernel, {"x": x, **found}, {})
        np.testing.assert_array_equal(found["high"], product >> np.uint64(32))
        np.testing.assert_array_equal(found["low"], product & np.uint64(0xFFFFFFFF))


def test_one_multiplication_gives_both() -> None:
    ready = expand(words())
    assert verify(ready, expanded=True) == []
    assert operators(ready).count("multiply") == 1
    assert "mulhi" not in operators(ready)
    assert "__umulhi" not in print_kernel(ready)


def test_a_lone_high_word_stays_an_instruction_and_changed_factors_are_two_products() -> None:
    assert operators(expand(words(low=False))) == ["mulhi"]
    assert "mulhi" in operators(expand(words(changing=True)))
