"""Programs mean what Python with NumPy means by the same text.

Every program is run twice: as a graph by the reference, and by Python itself, where the language's names are NumPy
functions. Results, dtypes and what happened to the arguments must agree. Where the language goes beyond Python
(`and` on arrays, `a if c else b` on arrays) the NumPy text is given beside it.
"""

from __future__ import annotations
import __future__

from typing import Any

import numpy as np
import pytest

from tests.frontend.dsl.support import flat, run

PLAIN = """
sum max min mean var prod any all argmax cumsum abs exp log sqrt sin where maximum minimum zeros ones arange
concatenate stack reshape transpose clip floor take copy sign square full zeros_like flip roll repeat
logical_and logical_or logical_not tanh take_along_axis
"""
NAMES: dict[str, Any] = {name: getattr(np, name) for name in PLAIN.split()}
NAMES |= {f"f{b}": getattr(np, f"float{b}") for b in (16, 32, 64)} | {"i32": np.int32, "i64": np.int64, "u8": np.uint8}
NAMES |= {"pi": np.pi, "inf": np.inf, "newaxis": None, "rsqrt": lambda v: 1 / np.sqrt(v)}
NAMES |= {"sigmoid": lambda v: 1 / (1 + np.exp(-v))}


def _largest(*args: Any, **options: Any) -> Any:
    """`max` as the language reads it: Python's on several numbers, NumPy's on an array."""
    return max(*args) if len(args) > 1 and all(isinstance(a, int | float) for a in args) else np.max(*args, **options)


NAMES["max"] = _largest


def by_python(text: str, values: tuple[Any, ...], **dims: int) -> tuple[Any, list[Any]]:
    """The result and the arguments after the call, by Python and NumPy; annotations are not looked at."""
    space = NAMES | dims
    exec(compile(text, "t.fuse", "exec", __future__.annotations.compiler_flag), space)
    given = [np.array(v) if isinstance(v, np.ndarray) else v for v in values]
    function = [v for v in space.values() if getattr(v, "__code__", None) and v.__code__.co_filename == "t.fuse"][-1]
    with np.errstate(all="ignore"):
        result = function(*given)
    return result, [g for g in given if isinstance(g, np.ndarray | np.generic)]


def same(one: Any, two: Any) -> None:
    """Two results, leaf by leaf: kind, dtype, shape and value."""
    ones, twos = flat(one), flat(two)
    assert len(ones) == len(twos)
    for a, b in zip(ones, twos, strict=True):
        if isinstance(b, np.ndarray | np.generic):
            a = np.asarray(a)
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=2e-6 if b.dtype != np.float64 else 1e-12, atol=1e-6)
        else:
            assert type(a) is type(b)
            assert a == b


def check(text: str, *values: Any, numpy: str = "", **dims: int) -> None:
    """Run both ways, with symbolic and with static dims. `dims` are what Python reads for named lengths."""
    for symbolic in (True, False):
        result, after = run(text, *values, symbolic=symbolic)
        expected, expected_after = by_python(numpy or text, values, **dims)
        same(result, expected)
        same(after, expected_after)


X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
V = np.array([0.5, -1.5, 2.25, 3.0, -4.0], np.float64)
I = np.array([-7, 7, 0, 3, 2], np.int32)
J = np.array([2, -2, 5, -3, 1], np.int32)

EXPRESSIONS = {
    "precedence": ("x + y * x ** 2 ** 0.5 / -y - +x", V, V + 9),
    "power binds tighter than minus": ("-x ** 2, (-x) ** 2, 2 ** -x", V),
    "floor and modulo": ("x // y, x % y, -x // y, -x % -y", I, J),
    "bits": ("x & y | x ^ ~y, x << 2 >> 1", I, J),
    "comparisons": ("x < y, x <= y, x == y, x != y, x >= y, x > y", I, J),
    "int and float": ("x / y, x * 2.5, x + 1, 1 - x, x * f32(2)", I, J),
    "f32 keeps f32": ("x * 2.0 + 1, 3 / (x + 20), x ** 2", X),
    "numbers alone": ("(2 ** 10, 7 // -2, 7 % -3, 1 / 4, -7 // 2, 2 ** -1, 0x10, 1_000, 0b11, True + 1)", V),
    "methods": ("x.sum(axis=-1), x.max(axis=0, keepdims=True), x.mean(), x.T, x.argmax(axis=1), x.cumsum(axis=0)", X),
    "attributes": ("x.shape, x.ndim, x.size, x.shape[-1] * 2, x.T.shape", X),
    "casts": ("f64(x), i32(x), x.astype(f16), x.astype(float), u8(x > 0)", X),
    "basic indexing": ("x[1], x[-1, ::2], x[..., 0], x[:, None, 1:3], x[::-1, -2:], x[1:2, newaxis], x[2, 3]", X),
    "index arrays": ("x[y], x[y, 0], x[:, [0, 2]], take(x, y, axis=0)", X, np.array([2, 0, -1])),
    "joining": ("concatenate([x, x + 1], axis=1), stack((x, x)), concatenate((x, x))", X),
    "creation": ("zeros(3), ones((2, 2)), arange(4), full((2,), 7.5), zeros_like(x)", X),
    "rearranging": ("reshape(x, (4, 3)), x.reshape(-1), transpose(x, (1, 0)), flip(x, axis=1), roll(x, 1, axis=0)", X),
    "reductions of everything": ("sum(x), prod(x), min(x), max(x), any(x > 2), all(x > 2), mean(x), var(x)", X),
    "reductions with options": ("sum(x, axis=(0, 1)), sum(x, axis=1, dtype=f64), sum(x, axis=0, where=x > 0)", X),
    "matmul": ("x @ x.T, x @ x[0]", X),
    "where and clip": ("where(x > 0, x, -x), clip(x, -1, 2), maximum(x, 0), minimum(x, x[0])", X),
    "length": ("len(x), len((1, 2, 3)), len(x.shape)", X),
    "tuples": ("(1, 2) + (3,), (1, 2, 3)[1:], x.shape[:1] + (9,), (x, x)[1]", X),
    "known comparisons": ("'a' == 'b', None is None, x is not None, (1, 2) == (1, 2), 3 < 4 < 2", X),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name: str) -> None:
    text, *values = EXPRESSIONS[name]
    parameters = ", ".join(("x", "y")[: len(values)])
    check(f"def f({parameters}):\n    return {text}\n", *values)


PROGRAMS = {
    "augmented assignment of an alias": (
        """
def f(x):
    y = x
    y += 1
    x = x * 2
    return x, y
""", (X,)),
    "a store through views": (
        """
def f(x):
    y = x[1:]
    z = y[:, ::2]
    z[0] = 100
    z *= 2
    x.T[0, 0] = -1
    return y, z, x.sum()
""", (X,)),
    "overlapping copy": ("def f(x):\n    x[1:] = x[:-1]\n    x[:-1] += x[1:]\n    return x\n", (V,)),
    "stores of every kind": (
        """
def f(x):
    y = copy(x)
    y[0, 1] = 7
    y[..., -1] = y[..., 0] * 2
    y[::2] = 0
    y[y > 3] = 3
    y[1, :] -= 1
    y[:] = y + x
    return y
""", (X,)),
    "an element updated": ("def f(x):\n    x[1] += 1.75\n    return x\n", (I,)),
    "narrowing in place": ("def f(x, y):\n    x += y\n    return x\n", (X[0], V[:4])),
    "scalars rebind": (
        """
def f(x):
    s = sum(x)
    t = s
    s += 1.5
    n = 2
    n *= 4
    return s, t, n
""", (I,)),
    "functions mutate what they are given": (
        """
def clear(a, k=0):
    a[k] = 0
    return a

def f(x):
    clear(x, k=2)
    y = clear(x + 1)
    return x, y
""", (V,)),
    "defaults and keywords": (
        """
SCALE = 3
def g(a, b=SCALE, *, c=-1):
    return a * b + c

def f(x):
    return g(x), g(x, 1), g(b=x, a=2), g(x, c=x)
""", (V,)),
    "loops": (
        """
def f(x):
    total = 0
    for i in range(len((1, 2, 3))):
        for a, b in ((1, 2), (3, 4)):
            total = total + x * i + a * b
    for row in (x, -x):
        total += row
    else_ = total
    for i in range(3, 0, -1): else_ = else_ - i
    return else_
""", (V,)),
    "known conditions": (
        """
def f(x, w=None, kind="a"):
    if w is not None:
        x = x * w
    elif kind == "a":
        x = x + 1
    else:
        x = x - 1
    if kind != "a" or w is None:
        return x * 2
    return x
""", (V,)),
    "unpacking": (
        """
def f(x):
    a, (b, c) = x[0], (x[1], x[2])
    [d, e] = a, b
    p = q = d + e
    return a, b, c, p, q
""", (X,)),
    "unpacking an array": ("def f(x):\n    a, b, c = x\n    return a * b + c\n", (X,)),
    "shadowing": ("def f(x):\n    e = exp(x)\n    max = e.max()\n    pi = 3\n    return e / max * pi\n", (V,)),
    "module constants": ("A = (1, 2)\nB = A[1] * 2.5\ndef f(x):\n    return x * B + A[0]\n", (V,)),
    "softmax": (
        """
def f(x):
    m = max(x, axis=-1, keepdims=True)
    e = exp(x - m)
    return e / sum(e, axis=-1, keepdims=True)
""", (X,)),
    "unicode names": ("def f(x):\n    \u03bb = x * 2\n    \uff41 = \u03bb + 1\n    return a\n", (V,)),
    "results nest": ("def f(x):\n    return x, (x + 1, [x.shape, None]), sum(x)\n", (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    text, values = PROGRAMS[name]
    check(text, *values)


BEYOND = {
    "and, or, not are element by element": (
        "x > 0 and not y or x == y", "logical_or(logical_and(x > 0, logical_not(y)), x == y)"
    ),
    "and gives bool": ("x and y", "logical_and(x, y)"),
    "chained comparisons": ("0 < x <= y != 2", "(0 < x) & (x <= y) & (y != 2)"),
    "choice": ("x if x > y else 2 * y", "where(x > y, x, 2 * y)"),
    "choices nest": ("1 if x > 2 else 2 if y > 0 else x", "where(x > 2, 1, where(y > 0, 2, x))"),
    "known operand first": ("True and x, 0 or y", "x, y"),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_beyond_python(name: str) -> None:
    text, numpy = BEYOND[name]
    head = "def f(x, y):\n    return "
    check(head + text, I, J, numpy=head + numpy)


SCALARS = {
    "computed in Python": ("x * (2.0 * h), 2.0 * h, h * h + k, k // 2, k ** -1, -k, h / k", "x, h, k", (X, 0.1, 3)),
    "comparisons of scalars": ("where(h < 0.5, x, -x), h < k < 5, h == 0.1", "x, h, k", (X, 0.1, 3)),
    "weak in promotion": ("x * h, x + k, x / k", "x, h, k", (np.float16([1, 2]), 0.1, 3)),
    "python functions": ("float(k), int(2.5), max(k, 10), min(k, 2, h), abs(h)", "x, h, k", (X, 0.5, 3)),
    "functions of scalars": ("x * sqrt(h)", "x, h", (V, 2.0)),
}


@pytest.mark.parametrize("name", SCALARS)
def test_run_time_scalars(name: str) -> None:
    text, parameters, values = SCALARS[name]
    head = "import builtins\nmin, max, abs = builtins.min, builtins.max, builtins.abs\n"
    numpy = f"{head}def f({parameters}):\n    return {text}"
    check(f"def f({parameters}):\n    return {text}\n", *values, numpy=numpy)


def test_dims_are_numbers() -> None:
    text = "def f(x: [n, d]):\n    return sum(x, axis=1) / d, n + d, x[: n - 1], zeros(d)\n"
    result, _ = run(text, X)
    same(result, (X.sum(axis=1) / 4, 7, X[:2], np.zeros(4)))


def test_half_of_an_axis() -> None:
    text = "def f(x: [n, 2*d]) -> [n, d]:\n    return x[:, :d] * x[:, d:]\n"
    same(run(text, X)[0], X[:, :2] * X[:, 2:])


def test_strong_scalars_keep_their_dtype() -> None:
    text = "def f(x, s: f64):\n    return x * s\n"
    result, _ = run(text, X, 2.0)
    assert result.dtype == np.float64
    assert run(text, X, np.float64(2.0))[0].dtype == np.float64


def test_widened_weak_scalars() -> None:
    result, _ = run("def f(h: float):\n    return h\n", 3)
    assert type(result) is float


def test_a_hundred_doublings() -> None:
    text = "def f(a):\n    for i in range(100):\n        a = a + a\n    return a\n"
    same(run(text, V)[0], V * 2.0**100)


def test_five_thousand_steps() -> None:
    text = "def f(x):\n    for k in range(5000):\n        x = x * 1.0001 if k % 2 else x - 0.001\n    return x\n"
    check(text, np.linspace(-1, 1, 17))
