"""Views share memory, everything else has its own; stores happen in program order. As NumPy does, or refused."""

from typing import Any

import numpy as np
import pytest

from fuser.errors import DTypeError, TraceError, UnsupportedError
from tests.frontend.trace.running import check, run, traced

M = np.arange(24.0).reshape(4, 6)


def store(view: Any) -> Any:
    """A program that stores through a view of a copy, and shows view and copy afterwards."""

    def f(x: Any) -> Any:
        y = x.copy()
        v = view(y)
        v[...] = v * 2 + 1
        y += 0.5
        return y, v

    return f


VIEWS = {
    "slice": lambda y: y[1:3],
    "step": lambda y: y[::2, 1::3],
    "backwards": lambda y: y[::-1, ::-2],
    "row": lambda y: y[2],
    "column": lambda y: y[:, 1],
    "transpose": lambda y: y.T,
    "swapaxes": lambda y: y.swapaxes(0, 1),
    "new axis": lambda y: y[:, None, 2:],
    "moveaxis": lambda y: np.moveaxis(y[None], 0, 2),
    "ravel": lambda y: y.ravel(),
    "reshape": lambda y: y.reshape(3, 8),
    "reshape of rows": lambda y: y[1:3].reshape(-1),
    "flip": lambda y: np.flip(y, 1),
    "squeeze": lambda y: y[1:2].squeeze(0),
    "split": lambda y: np.split(y, 2)[1],
    "split axes": lambda y: y.reshape(2, 2, 6)[1],
    "chain": lambda y: y[1:].T[2:].reshape(2, 2, 3)[:, 1],
    "asarray": np.asarray,
    "expand": lambda y: np.expand_dims(y, 1),
    "permuted reshape": lambda y: y.reshape(4, 2, 3).transpose(2, 0, 1)[1],
    "ellipsis": lambda y: y[..., 0],
    "all": lambda y: y[:],
    "vsplit": lambda y: np.vsplit(y, 2)[0],
    "atleast_3d": np.atleast_3d,
    "ascontiguous": np.ascontiguousarray,
    "view": lambda y: y.view(),
    "fliplr": np.fliplr,
    "hsplit": lambda y: np.hsplit(y, [2, 3])[2],
}
COPIES = {
    "copy": lambda y: y.copy(),
    "astype": lambda y: y.astype(np.float32),
    "same astype": lambda y: y.astype(np.float64),
    "gather": lambda y: y[[0, 2]],
    "flatten": lambda y: y.flatten(),
    "add": lambda y: y + 0,
    "positive": lambda y: +y,
    "array": np.array,
    "roll": lambda y: np.roll(y, 1),
    "repeat": lambda y: np.repeat(y, 2),
    "where": lambda y: np.where(y > 1, y, 0),
    "concatenate": lambda y: np.concatenate([y, y]),
    "take": lambda y: y.take([1], axis=0),
    "tile": lambda y: np.tile(y, 2),
    "ufunc": np.abs,
    "cumsum": lambda y: y.cumsum(),
    "pad": lambda y: np.pad(y, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_store_through_a_view_changes_the_base(name: str) -> None:
    check(store(VIEWS[name]), M)
    assert not np.array_equal(run(store(VIEWS[name]), M)[0], M + 0.5)


@pytest.mark.parametrize("name", COPIES)
def test_a_store_into_a_copy_does_not(name: str) -> None:
    check(store(COPIES[name]), M)


READ_ONLY = {"broadcast_to": lambda y: np.broadcast_to(y, (2, 4, 6)), "diagonal": np.diagonal}


@pytest.mark.parametrize("view", READ_ONLY.values(), ids=READ_ONLY)
def test_read_only_views_follow_their_base_and_refuse_stores(view: Any) -> None:
    def reads(x: Any) -> Any:
        y = x.copy()
        v = view(y)
        y[1:] = 7
        return v + 0

    check(reads, M)
    with pytest.raises(TraceError, match="read-only"):
        traced(store(view), M)


def test_a_reshape_that_may_be_a_copy_can_be_read_but_nothing_under_it_stored_to() -> None:
    def reads(x: Any) -> Any:
        return x.T.reshape(-1) * 2

    def stores_to_it(x: Any) -> None:
        x.T.reshape(-1)[0] = 1

    def stores_under_it(x: Any) -> Any:
        flat = x.T.ravel()
        x[0] = 1
        return flat

    def follows_a_transposed_operand(x: Any) -> Any:
        y = x.T + 1
        y.ravel()[0] = 1
        return y

    check(reads, M)
    for fn in (stores_to_it, stores_under_it, follows_a_transposed_operand):
        with pytest.raises(TraceError, match="a view or a copy"):
            traced(fn, M)


def test_stores_that_lean_on_a_contiguous_argument_say_so() -> None:
    def f(x: Any) -> None:
        x.reshape(-1)[::5] = 0

    def g(x: Any) -> Any:
        x[0] = 1
        return x.reshape(-1)

    assert traced(f, M).graph.output_tree.contiguous == {0}
    assert traced(g, M).graph.output_tree.contiguous == set()
    check(f, M)


def test_overlapping_stores_read_the_old_values() -> None:
    def f(x: Any) -> Any:
        x[1:] = x[:-1] * 1.0
        x[:, :-1] = x[:, 1:]
        x[::-1] = x
        return x

    check(f, M)


def test_the_old_value_lives_on_after_an_update_in_place() -> None:
    def f(x: Any, y: Any) -> Any:
        old = x + y
        np.maximum(x, 0, out=x)
        return old, x.sum(), x * y

    check(f, np.linspace(-1, 1, 20).reshape(10, 2), np.arange(40.0).reshape(2, 10, 2))


def test_the_same_array_under_two_names() -> None:
    def f(x: Any) -> Any:
        y = x
        y += 1
        z = x[:]
        z[0] = 9
        return x, y is x, np.shares_memory(x, z), np.shares_memory(x, x + 1)

    check(f, M)


def test_augmented_stores_through_subscripts() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y[1:3] += 1
        y[:, 0] *= 2
        y[0, 0] -= 5
        y[::2][:, 1:] /= 3
        y.T[1:2] **= 2
        return y

    check(f, M)


def test_stores_cast_to_the_dtype_of_the_array() -> None:
    def f(x: Any, i: Any) -> Any:
        out = np.zeros(x.shape, np.int32)
        out[:] = x
        out[0] = 2.9
        out[1] = i[1] * 1000
        low = np.zeros(4, np.float32)
        low[:] = x[:, 0]
        return out, low

    check(f, M, np.arange(6))


def test_updates_in_place_keep_the_dtype_or_are_refused() -> None:
    def halves(x: Any) -> Any:
        y = x.astype(np.float32)
        y += np.float64(1) * x
        return y

    def ints(x: Any) -> Any:
        y = x.astype(np.int64)
        y /= 2
        return y

    check(halves, M)
    with pytest.raises(DTypeError, match="casting rule 'same_kind'"):
        traced(ints, M)
    with pytest.raises(TypeError):
        ints(M)


def test_scalars_are_values() -> None:
    def f(x: Any) -> Any:
        s = x.sum()
        t = s
        s += 1
        e = x[0, 0]
        x[0, 0] = 50
        return s, t, e

    check(f, M)
    with pytest.raises(TypeError, match="does not support item assignment"):
        traced(lambda x: x.sum().__setitem__(0, 1), M)


def test_arguments_changed_in_program_order() -> None:
    def f(x: Any, y: Any, z: Any) -> None:
        y[:] = x
        x[0] = z[0]
        z -= y
        y += z

    check(f, M, M * 2, M * 3)
    order = [e.argument for e in traced(f, M, M, M).graph.effects]
    assert order == [0, 2, 1]


def test_an_argument_returned_as_it_is_is_known_to_be_it() -> None:
    def f(x: Any) -> Any:
        x += 1
        return x, x[1:], x.copy()

    leaves = traced(f, M).graph.output_tree.leaves
    assert [leaf.argument for leaf in leaves] == [0, None, None]


def test_a_masked_store_takes_scalars_and_broadcast_rows() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y[y > 20] = -1
        y[:, 2:][y[:, 2:] < 3] = 0
        y[np.array([True, False, False, True])] = 8
        y[0][y[0] == 8] = 1
        return y

    check(f, M)


def test_a_scalar_index_that_is_known_at_run_time() -> None:
    def f(x: Any) -> Any:
        k = x[0].argmax()
        y = x.copy()
        y[1, k] = 100
        return x[:, k], x[2, k], y

    check(f, M)


def test_views_of_views_stay_linear() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        v = y
        for _ in range(500):
            v = v[::-1]
        v[0] += 1
        return y

    assert len(traced(f, M[:, 0].copy()).graph.nodes) < 500 * 3
    check(f, M[:, 0].copy())


def test_stores_row_by_row_stay_linear() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        for k in range(400):
            row = y[k % 4]
            row += y[(k + 1) % 4]
            row[0] = 0
        return y

    assert len(traced(f, M).graph.nodes) < 400 * 8
    check(f, M)


def test_elements_chosen_by_a_mask_compute_and_are_stored_back() -> None:
    def f(x: Any, y: Any) -> Any:
        m = x > 10
        z = x.copy()
        z[m] += 1
        z[m] = np.sqrt(x[m]) * 2 - y[m] / x[m]
        z[~m] *= -1
        rows = x[:, 0] > 6
        z[rows] = z[rows] * y[0] + 1
        return z, x[m].sum(), np.mean(x[m] ** 2), x[rows].sum(axis=0), (x[m] > 15).any(), x[x < 0].sum()

    check(f, M, M * 2 + 1)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[x > 3],
        lambda x: len(x[x > 3]),
        lambda x: x[x > 3].max(),
        lambda x: np.sort(x[x > 3]),
        lambda x: x[x > 3] + x[x > 4],
        lambda x: x[x > 3][0],
        lambda x: x.copy().__setitem__(slice(2), x[x > 3]),
    ],
)
def test_other_uses_of_chosen_elements_are_refused_by_name(use: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"x\[x > [34]\]  keep the shape"):
        traced(use, M)


def test_stores_through_index_lists_that_are_known() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y[[0, -1]] = 0
        y[:, [1, 3, 1]] = y[:, [0, 2, 5]]
        y[[1, 2], [4, 5]] = 99
        y[np.arange(4), np.arange(4)] += 1000
        y[[1, 2]] *= np.array([2.0, 3.0])[:, None]
        return y

    check(f, M)


def test_stores_through_index_arrays_that_are_not_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="store through slices"):
        traced(lambda x, i: x.__setitem__(i, 0), M, np.array([0, 1]))
