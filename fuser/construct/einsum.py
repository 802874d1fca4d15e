"""`einsum`: from its subscripts to labelled contractions.

In: a subscript string (or NumPy's interleaved form) and operands. Out: what `contraction.contract` builds.
Its own file because the notation, with ellipses and implicit results, is a small language.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.construct.common import describe, fail
from fuser.construct.contraction import Labelled, contract
from fuser.errors import ArgumentError
from fuser.graph import Builder, Node


def einsum(b: Builder, *arguments: Any, optimize: Any = False) -> Node:
    """Einstein summation. `optimize` is accepted and changes nothing: operands contract left to right."""
    subscripts, operands = _as_text(b, arguments)
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        fail(
            b, ArgumentError, f"einsum names {len(terms)} operands in {subscripts!r} but got {len(operands)}", "einsum"
        )
    hidden = max(
        (n.rank - len(t.replace("...", "")) for t, n in zip(terms, operands, strict=True) if "..." in t), default=0
    )
    labelled = [_labels(b, t, n, hidden) for t, n in zip(terms, operands, strict=True)]
    result = _output(b, output, hidden) if arrow else _implicit(terms, hidden)
    known = {n for _, labels in labelled for n in labels}
    for name in result:
        if name not in known:
            fail(b, ArgumentError, f"einsum's result names `{name}`, which no operand has", "einsum")
    return contract(b, labelled, result)


def _as_text(b: Builder, arguments: Sequence[Any]) -> tuple[str, list[Node]]:
    """The string form of either way to call einsum."""
    if not arguments:
        fail(b, ArgumentError, "einsum needs subscripts and operands", "einsum")
    if isinstance(arguments[0], str):
        return arguments[0], list(arguments[1:])
    operands, lists = list(arguments[0:-1:2]), list(arguments[1::2])
    tail = f"->{_letters(arguments[-1])}" if len(arguments) % 2 else ""
    if not tail:
        operands = list(arguments[::2])
    return ",".join(_letters(n) for n in lists[: len(operands)]) + tail, operands


def _letters(numbers: Sequence[Any]) -> str:
    return "".join("..." if n is Ellipsis else chr(ord("A") + n if n < 26 else ord("a") + n - 26) for n in numbers)


def _labels(b: Builder, term: str, node: Node, hidden: int) -> Labelled:
    head, dots, tail = term.partition("...")
    letters = head + tail
    if not all(c.isalpha() for c in letters):
        fail(b, ArgumentError, f"einsum's subscripts are letters: {term!r}", "einsum")
    count = node.rank - len(letters)
    if count < 0 or (count and not dots):
        fail(b, ArgumentError, f"einsum's {term!r} names {len(letters)} axes of {describe(b, node)}", "einsum")
    middle = [f".{k}" for k in range(hidden - count, hidden)] if dots else []
    return node, [*head, *middle, *tail]


def _output(b: Builder, term: str, hidden: int) -> list[str]:
    head, dots, tail = term.partition("...")
    labels = [*head, *([f".{k}" for k in range(hidden)] if dots else []), *tail]
    if len(set(labels)) < len(labels):
        fail(b, ArgumentError, f"einsum's result {term!r} repeats a label", "einsum")
    return labels


def _implicit(terms: Sequence[str], hidden: int) -> list[str]:
    """Without `->`: the ellipsis axes, then labels that occur once, in alphabetical order."""
    letters = "".join(t.replace("...", "") for t in terms)
    return [f".{k}" for k in range(hidden)] + sorted(c for c in set(letters) if letters.count(c) == 1)
