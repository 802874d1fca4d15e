"""Python numbers are run-time values: weak, exact, and specialised only where Python needs them; so are dims."""

from typing import Any

import numpy as np
import pytest

from fuser import dtypes
from fuser.construct.common import NeedsStatic
from fuser.frontend.trace import trace
from fuser.graph import ScalarAttrs
from fuser.hostexpr import sym
from fuser.specs import ArraySpec, ScalarSpec
from fuser.trees import LEAF, Tree
from tests.frontend.trace.running import check, run, traced

X = np.arange(5, dtype=np.float32)
M = np.arange(12.0).reshape(3, 4)


def test_python_scalars_are_weak_and_numpy_scalars_strong() -> None:
    def f(x: Any, h: Any) -> Any:
        return x * (2.0 * h)

    ints = np.arange(5, dtype=np.int32)
    for h in (1.0, 2.5, -3.0, 3, np.float64(1.5)):
        check(f, X, h)
    check(f, ints, 2.5)
    check(f, ints, 2)


def test_one_graph_serves_all_values() -> None:
    def f(x: Any, h: Any) -> Any:
        return x * (2.0 * h) - h**2

    t = traced(f, X, 1.5)
    scalars = {str(n.attrs.expr) for n in t.graph.nodes if isinstance(n.attrs, ScalarAttrs)}
    assert any("h" in s for s in scalars)
    assert not t.specialized


def test_host_arithmetic_is_pythons() -> None:
    def f(h: Any, n: Any) -> Any:
        return h // 2, h % 3, -h, abs(h), divmod(n, 7), n // 2, n % -3, n & 6, n << 2, ~n, h > 1, n == 5, 7 - n, 2**h

    check(f, 2.75, 5)
    check(f, -2.75, -5)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: sum(x * k for k in range(n)),
        lambda x, n: x.sum(axis=n - 3),
        lambda x, n: np.zeros(n) + x[0],
        lambda x, n: x[:n],
        lambda x, n: x if n > 2 else -x,
        lambda x, n: x * {3: 2.0}.get(n, 1.0),
        lambda x, n: x * int(n / 2),
        lambda x, n: x**n if n else x,
        lambda x, n: x * float(f"{n}.5"),
        lambda x, n: x + np.ones((n, 1)),
        lambda x, n: x * (2**n),
        lambda x, n: x + round(n * 1.5),
    ],
)
def test_where_python_needs_the_number_the_trace_is_specialised(use: Any) -> None:
    t = traced(use, X, 3)
    assert t.specialized == {"=n"}
    check(use, X, 3)


def test_the_line_that_asked_is_named() -> None:
    def f(x: Any, n: Any) -> Any:
        return sum(x for _ in range(n))

    tree = Tree("dict", dict, ("x", "n"), (LEAF, LEAF))
    with pytest.raises(NeedsStatic) as asked:
        trace(f, ["x", "n"], [ArraySpec(dtypes.F32, (sym("x.0"),)), ScalarSpec("int")], tree)
    assert asked.value.expr.symbols == {"=n"}
    assert "range(n)" in asked.value.spans[0].text


def test_an_except_clause_of_the_users_cannot_swallow_it() -> None:
    def f(x: Any, n: Any) -> Any:
        try:
            return x[:n] * range(n)[-1]
        except Exception:
            return x

    assert run(f, X, 3).tolist() == [0, 2, 4]


def test_dims_are_run_time_numbers() -> None:
    def f(x: Any) -> Any:
        n, d = x.shape
        return x.sum() / (n * d), x * n, n + d, len(x) * 2, x.size - 1, x[n // 2], x.reshape(d, n)

    assert not traced(f, M).specialized
    check(f, M)


def test_a_range_over_a_dim_fixes_that_dim() -> None:
    def f(x: Any) -> Any:
        return sum(x[k] for k in range(x.shape[0]))

    assert traced(f, M).specialized == {"x.0"}
    check(f, M)


def test_unpacking_an_array_fixes_its_length() -> None:
    def f(x: Any) -> Any:
        a, b, c = x
        return a + b * c

    assert traced(f, M).specialized == {"x.0"}
    check(f, M)


def test_conditions_that_follow_from_dims_being_at_least_two() -> None:
    def f(x: Any) -> Any:
        if x.shape[0] > 1 and x.shape[1] != 0 and x.size and len(x) >= 1 and x.shape[0] != 1:
            return x * 2
        return x

    assert not traced(f, M).specialized
    check(f, M)
    check(f, M[:1])


def test_conditions_on_dims_become_guards_where_the_call_is_known() -> None:
    def f(x: Any, y: Any) -> Any:
        assert x.shape == y.shape
        if x.shape[0] < 3:
            return x
        return x + y if x.shape[1] >= 4 else x - y

    tree = Tree("dict", dict, ("x", "y"), (LEAF, LEAF))
    specs = [ArraySpec(dtypes.F64, (sym(f"{n}.0"), sym(f"{n}.1"))) for n in "xy"]
    env = {"x.0": 3, "x.1": 4, "y.0": 3, "y.1": 4}
    graph = trace(f, ["x", "y"], specs, tree, env)
    assert graph.outputs[0].op == "add"
    assert all(g.holds(env) for g in graph.guards)
    for other in ({"x.0": 2, "y.0": 2}, {"x.1": 3, "y.1": 3}, {"y.1": 5}):
        assert not all(g.holds({**env, **other}) for g in graph.guards)


def test_equal_dims_are_known_equal() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x + y
        return z * 2 if x.shape == y.shape else z

    assert not traced(f, M, M).specialized
    check(f, M, M)


def test_what_isinstance_and_types_see() -> None:
    def f(x: Any, h: Any, n: Any) -> Any:
        assert isinstance(x, np.ndarray)
        assert not isinstance(x, (int, float))
        assert isinstance(h, float)
        assert isinstance(n, int)
        assert not isinstance(h, int)
        assert np.issubdtype(x.dtype, np.floating)
        return x * h + n

    check(f, X, 2.0, 3)


def test_numpy_functions_of_python_scalars_are_strong() -> None:
    def f(x: Any, h: Any) -> Any:
        return x * np.sqrt(h), np.float32(2) * h, x + np.maximum(h, 1), x * np.exp(2.0)

    check(f, X, 2.0)


def test_an_int_that_does_not_fit_raises_at_the_call() -> None:
    def f(x: Any, n: Any) -> Any:
        return x + n

    small = np.arange(4, dtype=np.int8)
    check(f, small, 100)
    with pytest.raises(OverflowError):
        run(f, small, 300)


def test_a_static_scalar_argument() -> None:
    def f(x: Any, flag: Any, name: Any, axes: Any) -> Any:
        return x.sum(axis=axes) if flag and name == "sum" else x

    check(f, M, True, "sum", (0, 1))
    check(f, M, False, "sum", (0,))
