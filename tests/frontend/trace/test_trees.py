"""Nested values taken apart and put together again."""

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from fuser.hostexpr import sym
from fuser.trees import ArrayLeaf, HostLeaf, OutputTree, StaticLeaf, flatten, leaf_names, rebuild, unflatten

Pair = namedtuple("Pair", "low high")
A = np.zeros(2)


@pytest.mark.parametrize(
    "value",
    [1, None, A, [1, [2, 3]], (A, [A, A]), {"a": A, "b": [1.0, {"c": A}]}, Pair(A, [A]), OrderedDict(x=A), [], {}, ()],
)
def test_unflatten_undoes_flatten(value: Any) -> None:
    leaves, tree = flatten(value)
    assert tree.size == len(leaves)
    assert repr(unflatten(tree, leaves)) == repr(value)
    assert type(unflatten(tree, leaves)) is type(value)
    assert hash(tree) == hash(flatten(value)[1])


def test_a_tuple_without_arrays_is_one_leaf() -> None:
    assert flatten({"axis": (0, 1), "x": (A, 2), "deep": (None, ("a", 2.0))})[0] == [(0, 1), A, 2, (None, ("a", 2.0))]


def test_static_entries_stay_whole() -> None:
    leaves, _ = flatten({"x": [A], "config": {"n": 1, "m": [2]}}, static=frozenset({"config"}))
    assert leaves == [A, {"n": 1, "m": [2]}]


def test_names_are_paths() -> None:
    value = {"x": A, "params": {"w": A, "b": [A, A]}, "pair": Pair(A, 1), "xs": (A, 2)}
    assert leaf_names(value) == ["x", "params.w", "params.b.0", "params.b.1", "pair.low", "pair.high", "xs.0", "xs.1"]
    assert leaf_names(flatten(value)[1]) == leaf_names(value)


def test_too_few_leaves() -> None:
    with pytest.raises(ValueError, match="1 leaves for a tree of 2"):
        unflatten(flatten([1, 2])[1], [1])


def test_results_take_the_programs_shape() -> None:
    _, tree = flatten({"y": 0, "n": 0, "tag": 0, "again": [0]})
    output = OutputTree(tree, (ArrayLeaf(0), HostLeaf(sym("x.0") * 2), StaticLeaf("t"), ArrayLeaf(0)))
    assert rebuild(output, ["array"], {"x.0": 3}) == {"y": "array", "n": 6, "tag": "t", "again": ["array"]}
    assert rebuild(None, ["a"], {}) == "a"
    assert rebuild(None, ["a", "b"], {}) == ("a", "b")
