"""Expressions: Python's operators with NumPy's meaning, on nodes.

In: an expression and a frame. Out: a task whose result is its value. Statements and calls of functions are
`build`'s; what operators of the table take is `calls`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from fuser.construct import contraction
from fuser.errors import DTypeError, IndexingError, NameResolutionError, UnsupportedError
from fuser.frontend import ast, operators
from fuser.frontend.machine import MAX_ITEMS, MAX_NESTING, Frame, Machine, Task
from fuser.frontend.resolve import predefined
from fuser.frontend.values import (
    Array,
    PythonType,
    Value,
    describe,
    fresh,
    is_host,
    subscript,
)  # fmt: skip
from fuser.hostexpr import HostExpr
from fuser.optable import table
from fuser.optable.base import ScalarOp


@cache
def rows_by_symbol() -> Mapping[tuple[str, int], str]:
    """(token, arity) -> scalar row, from the table's `symbol` column."""
    return {(row.symbol, row.arity): row.name for row in table().of(ScalarOp) if row.symbol}


def is_static(value: Value) -> bool:
    """Known while compiling: neither an array nor a number of the call."""
    return not isinstance(value, Array | HostExpr)


class Expressions(Machine):
    """One method a node class of `ast`."""

    def expr(self, frame: Frame, node: ast.Expr | ast.Slice) -> Task:
        """The task for an expression."""
        self.tick(node.place)
        return _VISITORS[type(node)](self, frame, node)

    def invoke(self, function: ast.Function, args: list[Value], kwargs: dict[str, Value], place: ast.Place) -> Task:
        """Inline a function of the program; `build` defines it."""
        raise NotImplementedError

    # -- atoms -------------------------------------------------------------------------------------
    def _literal(self, frame: Frame, node: ast.Number | ast.Text | ast.Constant) -> Task:
        yield from ()
        return node.value

    def _name(self, frame: Frame, node: ast.Name) -> Task:
        yield from ()
        name = node.id
        if name in frame.variables:
            return frame.variables[name]
        if name in frame.scope:
            message = f"`{name}` is used before it gets a value"
            notes = ("a name assigned anywhere in a function is local to it everywhere",)
            raise NameResolutionError(message, "unassigned", (self.module.span(node.place),), notes)
        if name in self.constants:
            return self.constants[name]
        return self.names.functions[name] if name in self.names.functions else predefined(name)

    def _items(self, frame: Frame, node: ast.Items) -> Task:
        values = []
        for item in node.items:
            values.append((yield self.expr(frame, item)))
        if _nesting(values) > MAX_NESTING:
            self.fail(UnsupportedError, f"tuples are nested more than {MAX_NESTING} deep", "nesting", node.place)
        return values if node.brackets else tuple(values)

    # -- operators ---------------------------------------------------------------------------------
    def _unary(self, frame: Frame, node: ast.Unary) -> Task:
        value = yield self.expr(frame, node.operand)
        if node.op == "not":
            return (not value) if is_static(value) else self.apply("logical_not", "not", (value,), node.place)
        return self.apply(rows_by_symbol()[node.op, 1], node.op, (value,), node.place)

    def _binary(self, frame: Frame, node: ast.Binary) -> Task:
        left = yield self.expr(frame, node.left)
        right = yield self.expr(frame, node.right)
        return self.binary(node.op, left, right, node.place)

    def binary(self, op: str, left: Value, right: Value, place: ast.Place) -> Value:
        """`left op right`."""
        if op == "@":
            return self._matmul(left, right, place)
        if op == "+" and type(left) is type(right) and isinstance(left, tuple | list):
            joined = left + right  # type: ignore[operator]
            if len(joined) > MAX_ITEMS:
                self.fail(UnsupportedError, f"this tuple has more than {MAX_ITEMS} items", "size", place)
            return joined
        return self.apply(rows_by_symbol()[op, 2], op, (left, right), place)

    def _matmul(self, left: Value, right: Value, place: ast.Place) -> Value:
        if not (isinstance(left, Array) and isinstance(right, Array)):
            wrong = right if isinstance(left, Array) else left
            self.fail(DTypeError, f"`@` takes two arrays, not {describe(self.b, wrong)}", "operand", place)
        self.at(place)
        return fresh(contraction.matmul(self.b, left.node(self.b), right.node(self.b)))

    def _logical(self, frame: Frame, node: ast.Logical) -> Task:
        """Known values as in Python; arrays and run-time numbers element by element, giving bool."""
        left = yield self.expr(frame, node.left)
        if is_static(left):
            decided = bool(left) is (node.op == "or")
            return left if decided else (yield self.expr(frame, node.right))
        right = yield self._without_stores(frame, node.right)
        return self.apply(f"logical_{node.op}", node.op, (left, right), node.place)

    def _compare(self, frame: Frame, node: ast.Compare) -> Task:
        left = yield self.expr(frame, node.first)
        result: Value = True
        start = node.first.place
        for op, expr in node.rest:
            right = yield self.expr(frame, expr)
            one = self.compare(op, left, right, start.to(expr.place))
            if one is False:
                return False
            result = one if result is True else self.apply("logical_and", "and", (result, one), node.place)
            left, start = right, expr.place
        return result

    def compare(self, op: str, left: Value, right: Value, place: ast.Place) -> Value:
        """One comparison; strings, None, dtypes and tuples are compared while compiling."""
        if op in ("is", "is not"):
            if left is not None and right is not None and not (isinstance(left, bool) and isinstance(right, bool)):
                self.fail(DTypeError, f"`{op}` tests for None only", "operand", place, "to compare values, write `==`")
            return (left is right) is (op == "is")
        if op in ("==", "!=") and not (_is_numeric(left) and _is_numeric(right)):
            return self._equal(op, left, right, place)
        return self.apply(rows_by_symbol()[op, 2], op, (left, right), place)

    def _equal(self, op: str, left: Value, right: Value, place: ast.Place) -> Value:
        if isinstance(left, tuple | list) and isinstance(right, tuple | list):
            same: Value = len(left) == len(right)
            for one, two in zip(left, right, strict=False) if same else ():
                pair = self.compare("==", one, two, place)
                same = pair if same is True else self.apply("logical_and", "and", (same, pair), place)
            return same if op == "==" else self.apply("logical_not", "not", (same,), place)
        if isinstance(left, Array) or isinstance(right, Array):
            wrong = right if isinstance(left, Array) else left
            self.fail(DTypeError, f"`{op}` takes arrays and numbers, not {describe(self.b, wrong)}", "operand", place)
        left, right = (operators.as_dtype(v) if isinstance(v, PythonType) else v for v in (left, right))
        return (left == right) is (op == "==")

    def _choice(self, frame: Frame, node: ast.Choice) -> Task:
        """`yes if test else no`: decided while compiling if the test is known, else `where` on both."""
        test = yield self.expr(frame, node.test)
        if is_static(test):
            return (yield self.expr(frame, node.yes if test else node.no))
        yes = yield self._without_stores(frame, node.yes)
        no = yield self._without_stores(frame, node.no)
        if not (_is_numeric(yes) and _is_numeric(no)):
            self.truth(test, "`if`", node.test.place)
        return self.apply("where", "if", (test, yes, no), node.place)

    def _without_stores(self, frame: Frame, node: ast.Expr) -> Task:
        """An expression that is evaluated though Python might skip it: a store in it would always happen."""
        before = self.stores
        value = yield self.expr(frame, node)
        if self.stores != before:
            message = "a function called here stores into an array, but may be skipped at run time"
            self.fail(UnsupportedError, message, "store-in-choice", node.place, "call it in a statement of its own")
        return value

    # -- attributes, subscripts, calls -------------------------------------------------------------
    def _attribute(self, frame: Frame, node: ast.Attribute) -> Task:
        value = yield self.expr(frame, node.value)
        self.at(node.place)
        return operators.attribute(self, value, node)

    def _slice(self, frame: Frame, node: ast.Slice) -> Task:
        parts: list[Any] = []
        for part in (node.start, node.stop, node.step):
            value = None if part is None else (yield self.expr(frame, part))
            if not (value is None or isinstance(value, int | HostExpr)) or isinstance(value, bool):
                assert part is not None
                shown = describe(self.b, value)
                self.fail(IndexingError, f"a slice takes integers, not {shown}", "slice", part.place)
            parts.append(value)
        return slice(*parts)

    def _subscript(self, frame: Frame, node: ast.Subscript) -> Task:
        value = yield self.expr(frame, node.value)
        key = yield self.key(frame, node)
        self.at(node.place)
        return self.getitem(value, key, node)

    def key(self, frame: Frame, node: ast.Subscript) -> Task:
        """The keys of a subscript, always as a tuple; arrays in it as nodes."""
        keys: list[Any] = []
        for expr in node.keys:
            keys.append((yield self.expr(frame, expr)))
        if node.single and isinstance(keys[0], tuple):
            keys = list(keys[0])
        return tuple(operators.plain(self, k, node.place) for k in keys)

    def getitem(self, value: Value, key: tuple[Any, ...], node: ast.Subscript) -> Value:
        """`value[key]` for arrays and tuples."""
        if isinstance(value, Array):
            return subscript(self.b, value, key)
        if isinstance(value, tuple | list):
            return self._pick(value, key, node)
        self.fail(IndexingError, f"{describe(self.b, value)} cannot be indexed", "not-indexable", node.place)

    def _pick(self, value: Any, key: tuple[Any, ...], node: ast.Subscript) -> Value:
        if len(key) == 1 and isinstance(key[0], HostExpr):
            raise self.needs_static("an index into a tuple", key[0], node.place)
        if len(key) == 1 and isinstance(key[0], slice):
            bounds = (key[0].start, key[0].stop, key[0].step)
            open_bound = next((v for v in bounds if isinstance(v, HostExpr)), None)
            if open_bound is not None:
                raise self.needs_static("a slice of a tuple", open_bound, node.place)
        try:
            return value[key[0]] if len(key) == 1 else value[key]  # type: ignore[no-any-return]
        except (IndexError, TypeError, ValueError):
            message = f"a tuple of {len(value)} items has no item `{self.module.excerpt(node.place)}`"
            self.fail(IndexingError, message, "tuple-index", node.place)

    def _call(self, frame: Frame, node: ast.Call) -> Task:
        function = yield self.expr(frame, node.function)
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        for expr in node.arguments:
            args.append((yield self.expr(frame, expr)))
        for keyword in node.keywords:
            kwargs[keyword.name] = yield self.expr(frame, keyword.value)
        if isinstance(function, ast.Function):
            return (yield self.invoke(function, args, kwargs, node.place))
        self.at(node.place)
        return operators.call(self, function, args, kwargs, node)


def _nesting(value: Value) -> int:
    """How deep tuples nest; they are bounded one by one as they are made, so this recursion is bounded too."""
    return 1 + max(map(_nesting, value), default=0) if isinstance(value, tuple | list) else 0


def _is_numeric(value: Value) -> bool:
    return isinstance(value, Array) or is_host(value)


_VISITORS: dict[type, Callable[..., Task]] = {
    ast.Number: Expressions._literal, ast.Text: Expressions._literal, ast.Constant: Expressions._literal,
    ast.Name: Expressions._name, ast.Items: Expressions._items, ast.Unary: Expressions._unary,
    ast.Binary: Expressions._binary, ast.Logical: Expressions._logical, ast.Compare: Expressions._compare,
    ast.Choice: Expressions._choice, ast.Attribute: Expressions._attribute, ast.Slice: Expressions._slice,
    ast.Subscript: Expressions._subscript, ast.Call: Expressions._call,
}  # fmt: skip
