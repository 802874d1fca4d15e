"""`fuser.ops.loop`: the same bits from NumPy, the reference, LLVM and the CUDA kernels; and what it refuses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import ArgumentError, DTypeError, FuserError, TraceError
from fuser.loopbody import LoopAttrs
from fuser.text import print_graph
from fuser.textparse import parse_graph
from fuser.verify import verify
from tests.engines import Engine, each

Array = np.ndarray[Any, Any]
loop = fuser.ops.loop
RNG = np.random.default_rng(11)
X = RNG.standard_normal((5, 37))


def by_hand(n: Any, body: Any, *states: Any, until: Any = None) -> tuple[Array, ...]:
    """What the documentation says, in NumPy: element by element, `until` read before every round."""
    now = list(np.broadcast_arrays(*states))
    going = np.ones(now[0].shape, bool)
    for i in range(max(int(np.max(n)), 0)):
        going = going & (i < np.asarray(n))
        if until is not None:
            going = going & ~until(*now)
        new = body(i, *now)
        now = [np.where(going, p, q) for p, q in zip(new if isinstance(new, tuple) else (new,), now, strict=True)]
    return tuple(now)


def same(got: Any, wanted: Any) -> None:
    one, two = ([np.asarray(v) for v in (x if isinstance(x, tuple) else (x,))] for x in (got, wanted))
    assert len(one) == len(two)
    for g, w in zip(one, two, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert g.tobytes() == w.tobytes()


# -- values ----------------------------------------------------------------------------------------
@each
@pytest.mark.parametrize("n", [-3, 0, 1, 2, 40])
def test_a_count_of_the_call(engine: Engine, n: int) -> None:
    def program(x: Any, n: int) -> Any:
        return loop(n, lambda i, y: y * 0.5 + x * i, x)

    compiled = engine.compile(program)
    same(compiled(X, n), by_hand(n, lambda i, y: y * 0.5 + X * i, X))
    same(fuser.reference(program)(X, n), compiled(X, n))


@each
def test_one_compilation_serves_every_count(engine: Engine) -> None:
    compiled = engine.compile(lambda x, n: loop(n, lambda i, y: y + i, x))
    for n in (3, 0, 1000):
        same(compiled(X, n), by_hand(n, lambda i, y: y + i, X))
    if isinstance(compiled, fuser.Compiled):
        assert len(compiled.specializations) <= 1


@each
def test_an_element_that_has_stopped_keeps_its_states(engine: Engine) -> None:
    def escape(re: Any, im: Any, n: int) -> Any:
        def step(i: Any, a: Any, b: Any, k: Any) -> Any:
            return a * a - b * b + re, 2 * a * b + im, k + 1

        return loop(n, step, 0.0, 0.0, 0, until=lambda a, b, k: a * a + b * b > 4)

    re, im = np.meshgrid(np.linspace(-2, 0.6, 67), np.linspace(-1.2, 1.2, 23))
    zero = np.zeros_like(re)
    wanted = by_hand(
        30, lambda i, a, b, k: (a * a - b * b + re, 2 * a * b + im, k + 1), zero, zero, np.zeros(re.shape, np.int64),
        until=lambda a, b, k: a * a + b * b > 4,
    )  # fmt: skip
    same(engine.compile(escape)(re, im, 30), wanted)
    assert 1 < len(np.unique(wanted[2])) <= 31
    same(engine.compile(lambda re, im: escape(re, im, 30)[2])(re, im), wanted[2])  # states that nobody asks for go


@each
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_states(engine: Engine, dtype: Any) -> None:
    re, im = np.meshgrid(np.linspace(-2, 0.6, 31), np.linspace(-1.2, 1.2, 17))
    c = (re + 1j * im).astype(dtype)

    def escape(c: Any, n: int) -> Any:
        return loop(n, lambda i, z, k: (z * z + c, k + 1), 0.0, 0, until=lambda z, k: np.abs(z) > 2)

    got = engine.compile(escape)(c, 30)
    same(got[1], fuser.reference(escape)(c, 30)[1])
    z, k = by_hand(30, lambda i, z, k: (z * z + c, k + 1), np.zeros_like(c), 0, until=lambda z, k: np.abs(z) > 2)
    same(got[1], k)
    assert got[0].dtype == dtype
    np.testing.assert_allclose(got[0], z, rtol=1e-2 if dtype is np.complex64 else 1e-8)

    def turned(c: Any, n: int) -> Any:
        return loop(n, lambda i, z: z * (0.5 + 0.25j) + c * i * 1j, 0j)

    wanted = np.zeros_like(c)
    for i in range(5):
        wanted = wanted * dtype(0.5 + 0.25j) + c * i * 1j
    same(engine.compile(turned)(c, 5), wanted)


@each
def test_states_take_each_others_old_values(engine: Engine) -> None:
    same(
        engine.compile(lambda x: loop(5, lambda i, a, b, c: (b, c, a + 1), x, x * 2, x * 3))(X),
        by_hand(5, lambda i, a, b, c: (b, c, a + 1), X, X * 2, X * 3),
    )


@each
def test_a_state_that_is_the_test_itself(engine: Engine) -> None:
    def program(x: Any) -> Any:
        return loop(9, lambda i, done, a: (a > 3, a * 2), np.zeros_like(x, dtype=bool), x, until=lambda done, a: done)

    wanted = by_hand(9, lambda i, d, a: (a > 3, a * 2), np.zeros(X.shape, bool), X, until=lambda d, a: d)
    same(engine.compile(program)(X), wanted)


@each
def test_counts_of_elements(engine: Engine) -> None:
    counts = RNG.integers(-2, 9, X.shape)
    compiled = engine.compile(lambda x, c: loop(c, lambda i, y: y * 1.5 + i, x))
    same(compiled(X, counts), by_hand(counts, lambda i, y: y * 1.5 + i, X))
    scalar = np.array([3, 5], np.int32)
    same(engine.compile(lambda x, c: loop(c[1], lambda i, y: y * 1.5 + i, x))(X, scalar),
         by_hand(5, lambda i, y: y * 1.5 + i, X))  # fmt: skip


@each
def test_integers_and_a_length_as_count(engine: Engine) -> None:
    start = np.arange(1, 60)

    def collatz(k: Any) -> Any:
        body = lambda i, k, s: (np.where(k % 2 == 0, k // 2, 3 * k + 1), s + 1)  # noqa: E731
        return loop(k.shape[0] * 4, body, k, 0, until=lambda k, s: k <= 1)

    wanted = by_hand(
        236, lambda i, k, s: (np.where(k % 2 == 0, k // 2, 3 * k + 1), s + 1), start, np.zeros(59, np.int64),
        until=lambda k, s: k <= 1,
    )  # fmt: skip
    same(engine.compile(collatz)(start), wanted)


@each
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint32])
def test_dtypes_of_states(engine: Engine, dtype: Any) -> None:
    x = (X * 20).astype(dtype) if np.dtype(dtype).kind != "u" else np.abs(X * 20).astype(dtype)
    program: Callable[..., Any] = lambda x, n: loop(n, lambda i, y: y + y // 3 + i, x)  # noqa: E731
    got = engine.compile(program, rounding="each-op")(x, 5)
    same(got, by_hand(5, lambda i, y: y + y // dtype(3) + dtype(i), x))


@each
def test_a_half_state_is_rounded_once_a_round(engine: Engine) -> None:
    x = X.astype(np.float16)

    def once(y: Array) -> Array:
        wide = y.astype(np.float32)
        return (wide * np.float32(0.9) + np.float32(0.1) * wide * wide).astype(np.float16)

    y = x
    for _ in range(6):
        y = once(y)
    same(engine.compile(lambda x, n: loop(n, lambda i, y: y * 0.9 + 0.1 * y * y, x))(x, 6), y)
    turned = engine.compile(lambda x: loop(6, lambda i, y: (y * 0.9 + 0.1 * y * y)[::-1], x))
    same(turned(x), y)  # an even number of turns, written out


@each
def test_a_loop_in_a_loop(engine: Engine) -> None:
    def program(x: Any, n: int) -> Any:
        return loop(n, lambda i, y: loop(i, lambda j, z: z * 0.5 + i * j, y), x)

    wanted = by_hand(5, lambda i, y: by_hand(i, lambda j, z: z * 0.5 + i * j, y)[0], X)
    same(engine.compile(program)(X, 5), wanted)


@each
def test_numbers_grow_to_the_shape_and_dtype_of_a_round(engine: Engine) -> None:
    x = X.astype(np.float32)
    got = engine.compile(lambda x, n: loop(n, lambda i, s, k: (s + x, k + 0.5), 0.0, 1))(x, 3)
    same(got, by_hand(3, lambda i, s, k: (s + x, k + 0.5), np.zeros(x.shape, np.float32), np.ones(x.shape)))


@each
def test_the_round_computes_as_pythons_integers_do(engine: Engine) -> None:
    x = X.astype(np.float32)
    body = lambda i, y: y + 2.0**-3 * i / (i + 1) - (i % 3 == 1) + (i // 2)  # noqa: E731
    same(engine.compile(lambda x, n: loop(n, body, x))(x, 7), by_hand(7, body, x))


@each
def test_a_loop_between_reductions(engine: Engine) -> None:
    x = np.round(X * 8)  # exact sums

    def program(x: Any, n: int) -> Any:
        y = loop(n, lambda i, y: y * 2 - x.sum(axis=1, keepdims=True), x)
        return y.max(axis=1), y.sum(axis=0)

    total = x.sum(axis=1, keepdims=True)
    (y,) = by_hand(4, lambda i, y: y * 2 - total, x)
    same(engine.compile(program)(x, 4), (y.max(axis=1), y.sum(axis=0)))


@each
def test_a_body_that_mixes_elements_is_written_out(engine: Engine) -> None:
    got = engine.compile(lambda x: loop(3, lambda i, y: y[:, ::-1] * 2, x, until=lambda y: y > 1))(X)
    same(got, by_hand(3, lambda i, y: y[:, ::-1] * 2, X, until=lambda y: y > 1))


def test_on_plain_arrays() -> None:
    same(loop(4, lambda i, y: y * 2 + i, np.arange(5.0)), by_hand(4, lambda i, y: y * 2 + i, np.arange(5.0)))
    assert loop(4, lambda i, y: y * 2 + i, 1.5) == 35.0
    assert isinstance(loop(2, lambda i, a, b: (b, a), 1.0, 2), tuple)


def test_stores_into_a_state_stay_in_the_round() -> None:
    def program(x: Any, n: int) -> Any:
        def clipped(i: Any, y: Any) -> Any:
            y *= 2
            y += i
            return y

        return loop(n, clipped, x)

    x = X.copy()
    same(fuser.compile(program)(x, 4), by_hand(4, lambda i, y: y * 2 + i, X))
    assert (x == X).all()


# -- the graph and the plan ------------------------------------------------------------------------
def newton(a: Any, n: int) -> Any:
    return loop(n, lambda i, y: 0.5 * (y + a / y), a, until=lambda y: np.abs(y * y - a) <= 1e-12 * a)


def test_it_is_one_kernel_and_reads_well() -> None:
    plan = fuser.compile(lambda a, n: np.sqrt(newton(a + 1, n)) * 2).plan("f64[n]", 20)
    assert len(plan.groups) == 1
    assert "loop n times until stopped" in plan.explain()
    text = print_graph(plan.graph)
    assert "until #" in text
    assert print_graph(parse_graph(text)) == text
    assert not verify(plan.graph)


def test_equal_loops_are_one_and_unused_states_go() -> None:
    def program(x: Any, n: int) -> Any:
        first = loop(n, lambda i, a, b: (a * 2 + 0 * i, b + 1), x, x)[0]
        return first, loop(n, lambda i, a, b: (a * 2 + 0 * i, b + 1), x, x)[0]

    graph = fuser.compile(program).plan("f32[n]", 3).graph
    (node,) = [n for n in graph.nodes if isinstance(n.attrs, LoopAttrs)]
    assert isinstance(node.attrs, LoopAttrs)
    assert node.attrs.states == 1


def test_both_results_of_a_loop_take_one_loop() -> None:
    plan = fuser.compile(lambda x, n: loop(n, lambda i, a, b: (b, a + b), x, x + 1)).plan("f64[n]", 3, device="sm_90")
    (source,) = plan.sources().values()
    assert source.count("round < n") == 1  # a thread has one element, and an element one loop
    assert len(plan.groups) == 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("spec", ["f64[n]", "f32[n]", "bf16[n]"])
def test_kernels_compile_without_spills(arch: str, spec: str) -> None:
    pytest.importorskip("cupy")
    from fuser.codegen.cuda import nvrtc

    def program(a: Any, n: int) -> Any:
        def step(i: Any, y: Any, k: Any) -> Any:
            return y - (y - np.exp(-y) - a) / (1 + np.exp(-y)), k + 1

        return loop(n, step, a, 0, until=lambda y, k: np.abs(y - np.exp(-y) - a) < 1e-4)

    for name, source in fuser.compile(program).plan(spec, 20, device=arch).sources().items():
        binary = nvrtc.compile(source, name, arch)
        assert (binary.spills, binary.stack) == (0, 0)


# -- refusals --------------------------------------------------------------------------------------
def refused(program: Any, *args: Any) -> FuserError:
    with pytest.raises(FuserError) as caught:
        fuser.compile(program)(*args)
    return caught.value


def test_everything_that_mixes_elements_is_listed() -> None:
    def program(x: Any, n: int) -> Any:
        def body(i: Any, y: Any) -> Any:
            a = y - y.mean()
            b = a[::-1]
            return a + b + x[i]

        return loop(n, body, x)

    error = refused(program, X, 5)
    assert (type(error), error.slug, len(error.spans)) == (TraceError, "loop-body", 3)
    said = "\n".join(error.notes)
    assert all(words in said for words in ("`sum` combines elements", "elements are moved", "indexed with the round"))


def test_too_many_rounds_to_write_out() -> None:
    assert refused(lambda x: loop(200, lambda i, y: y - y.mean(), x), X).slug == "loop-body"


@pytest.mark.parametrize(
    ("program", "kind", "slug"),
    [
        (lambda x, n: loop(n, lambda i, y: y * x, x.astype(np.float32)), DTypeError, "loop-dtype"),
        (lambda x, n: loop(n * 0.5, lambda i, y: y * x, x), DTypeError, "loop-count"),
        (lambda x, n: loop(n, lambda i, y: (y, y), x), ArgumentError, "loop-state"),
        (lambda x, n: loop(n, lambda i: x), ArgumentError, "loop-state"),
        (lambda x, n: loop(n, 3, x), ArgumentError, "loop-function"),
        (lambda x, n: loop(n, lambda i, y: y * 2, x, until=lambda y: y), DTypeError, "loop-until"),
        (lambda x, n: loop(n, lambda i, y: y * 2 if i > 3 else y, x), TraceError, "loop-round"),
        (lambda x, n: loop(n, lambda i, y: y * sum(range(i)), x), TraceError, "loop-round"),
    ],
)
def test_what_a_loop_does_not_take(program: Any, kind: type[FuserError], slug: str) -> None:
    error = refused(program, X, 5)
    assert (type(error), error.slug) == (kind, slug)


def test_a_state_is_named_by_the_rounds_own_parameter() -> None:
    error = refused(lambda x, n: loop(n, lambda i, speed: speed * x, x.astype(np.float32)), X, 5)
    assert "`speed` is f32 before a round and f64 after it" in error.message


def test_a_value_of_a_round_stays_in_it() -> None:
    kept: list[Any] = []

    def leaks(x: Any, n: int) -> Any:
        def body(i: Any, y: Any) -> Any:
            kept.append(y)
            return y * 2

        return loop(n, body, x) + kept[-1]

    def stores(x: Any, n: int) -> Any:
        total = np.zeros_like(x)

        def body(i: Any, y: Any) -> Any:
            total[...] += y
            return y * 2

        return loop(n, body, x) + total

    assert refused(leaks, X, 5).slug == "loop-escape"
    assert refused(stores, X, 5).slug == "loop-escape"
