"""Other libraries' spellings inside a traced function: CuPy, scipy.special, fuser.ops, compiled functions."""

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import TraceError, UnsupportedError
from tests.frontend.trace.running import check, run, traced

X = np.random.default_rng(0).standard_normal((4, 6))


def test_scipy_special() -> None:
    special = pytest.importorskip("scipy.special")
    erf, softmax = special.erf, special.softmax

    def f(x: Any) -> Any:
        return special.erf(x), special.expit(x), softmax(x, axis=1), special.logsumexp(x, axis=0), erf(x)

    check(f, X)


def test_cupy_functions_trace_as_numpys() -> None:
    cp = pytest.importorskip("cupy")
    exp = cp.exp

    def f(x: Any) -> Any:
        xp = cp.get_array_module(x)
        assert isinstance(x, cp.ndarray)
        y = cp.zeros(x.shape, dtype=cp.float32)
        y[1:] = cp.maximum(x[1:], 0) + exp(x[:-1])
        return y, xp.concatenate([x, cp.sqrt(cp.abs(x))]), cp.sum(x, axis=1), x.astype(cp.float32)

    def g(x: Any) -> Any:
        y = np.zeros(x.shape, dtype=np.float32)
        y[1:] = np.maximum(x[1:], 0) + np.exp(x[:-1])
        return y, np.concatenate([x, np.sqrt(np.abs(x))]), np.sum(x, axis=1), x.astype(np.float32)

    for got, wanted in zip(run(f, X), g(X), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert got.dtype == wanted.dtype


def test_cupys_override_protocol() -> None:
    class Kernel:
        name = "cupy_sqrt"

    class Unknown:
        name = "my_kernel"

    assert traced(lambda x: x.__cupy_override_elementwise_kernel__(Kernel, x), X).graph.outputs[0].op == "sqrt"
    with pytest.raises(UnsupportedError):
        traced(lambda x: x.__cupy_override_elementwise_kernel__(Unknown, x), X)


def test_cupys_random_numbers_are_refused() -> None:
    cp = pytest.importorskip("cupy")
    with pytest.raises(TraceError, match="would draw once"):
        traced(lambda x: x + cp.random.rand(6), X)


def test_the_array_api_namespace() -> None:
    def f(x: Any) -> Any:
        xp = x.__array_namespace__()
        y = xp.asarray(x)
        return xp.exp(y), xp.zeros(y.shape[0]), xp.concat([y, y]), xp.permute_dims(y, (1, 0))

    check(f, X)


def test_operators_of_fuser_inside_and_outside() -> None:
    def f(x: Any) -> Any:
        return fuser.ops.softmax(x)

    outside = fuser.ops.softmax(X)
    np.testing.assert_allclose(outside.sum(axis=-1), 1)
    np.testing.assert_allclose(run(f, X), outside)
    assert fuser.ops.uniform(3, (2, 2)).shape == (2, 2)


@fuser.compile
def inner(x: Any) -> Any:
    out = np.zeros(x.shape)
    out[:] = x * 2
    return out


def test_a_compiled_function_inside_another_is_traced_through() -> None:
    def f(x: Any) -> Any:
        return inner(x) + 1

    assert run(f, X).tolist() == (X * 2 + 1).tolist()


def test_tuples_and_errors_of_ufuncs_with_two_results() -> None:
    def f(x: Any) -> Any:
        q, r = np.divmod(x, 0.75)
        whole, part = divmod(x, 0.5)
        fraction, integer = np.modf(x)
        return q, r, whole, part, fraction, integer

    check(f, X)


def test_conjugates_and_parts_of_real_arrays() -> None:
    def f(x: Any) -> Any:
        y = x.conj()
        y[0] = 1
        return y, np.conj(x), x.real, np.real(x), x.imag, np.isrealobj(x)

    check(f, X)
