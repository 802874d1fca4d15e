"""Composite nodes: one node for a named function, lowered by a pass.

In: a composite row's name, its operands and static parameters. Out: a node whose dtype and shape the row infers,
its parameters in `CompositeAttrs`. `lower` gives what the node stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.construct import complexes
from fuser.construct.common import fail
from fuser.errors import ArgumentError
from fuser.graph import Builder, CompositeAttrs, Node
from fuser.hostexpr import HostExpr
from fuser.optable import table
from fuser.optable.base import Composite

_STATIC = (HostExpr, bool, int, float, str, tuple, type(None))


def composite(b: Builder, name: str, inputs: Sequence[Node], **params: Any) -> Node:
    """The node of composite `name`. Parameters are static values or host expressions; arrays are refused."""
    row = table().rows[name]
    assert isinstance(row, Composite), name
    params = {k: v.item() if isinstance(v, np.generic) else v for k, v in params.items()}
    for key, value in params.items():
        if not isinstance(value, _STATIC):
            fail(b, ArgumentError, f"`{name}` takes a number or a static value as {key}, not {value!r}", "parameter")
    if any(n.dtype.is_complex for n in inputs):
        complexes.refuse(b, name)
    dtype, shape = row.infer(b, inputs, params)
    return b.make(name, inputs, CompositeAttrs(tuple(sorted(params.items()))), dtype, shape)


def lower(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    """What a composite node stands for, built over (already rewritten) inputs."""
    row = table().known[node.op]
    assert isinstance(row, Composite), node.op
    assert isinstance(node.attrs, CompositeAttrs), node.op
    return row.lower(b, inputs, dict(node.attrs.params))
