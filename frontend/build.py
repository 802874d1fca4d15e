"""Statements and functions: a program's text run on nodes, once, while its graph is built.

In: a function of a resolved module and a spec for each parameter. Out: a closed `Graph` with spans, the user's
names, and effects for stores into arguments. Loops over known ranges are unrolled and calls inlined here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from fuser import hostcomplex, trees
from fuser.construct import elementwise
from fuser.construct.common import same_shape
from fuser.dtypes import BF16, F16, DType
from fuser.errors import ArgumentError, DTypeError, ShapeError, TraceError, TraceTypeError, UnsupportedError
from fuser.frontend import ast, loops
from fuser.frontend.declared import Dims
from fuser.frontend.expressions import Expressions
from fuser.frontend.loops import RunRange
from fuser.frontend.machine import Frame, Task
from fuser.frontend.resolve import NO_SCOPE, Names
from fuser.frontend.storage import Storage
from fuser.frontend.values import Array, Value, describe, dims_of, fresh, is_host, subscript
from fuser.graph import Builder, Effect, Graph, Node
from fuser.hostcomplex import HostComplex
from fuser.hostexpr import HostExpr, call, scalar_symbol, wrap
from fuser.specs import DTYPE_NAMES, ArraySpec, ScalarSpec, Spec

_HOST_RANK = {"bool": 0, "int": 1, "float": 2, "complex": 3}


class Returned:
    """A `return` on its way out of nested blocks."""

    __slots__ = ("place", "value")

    def __init__(self, value: Value, place: ast.Place) -> None:
        self.value, self.place = value, place


class Runner(Expressions):
    """Runs the functions of one module on one builder."""

    def __init__(self, module: ast.Module, names: Names, constants: Mapping[str, Value], b: Builder) -> None:
        super().__init__(module, names, constants, b)
        self._storages: dict[int, Storage] = {}  # by argument position
        self.outside: list[set[int]] = []  # ids of storages that the loops being traced may not change

    # -- functions ---------------------------------------------------------------------------------
    def graph(self, function: ast.Function, specs: Sequence[Spec]) -> Graph:
        """The graph of a function for arguments as specified (see `fuser.frontend.program`)."""
        frame = self.frame(function)
        for parameter, spec in zip(function.parameters, specs, strict=True):
            self.at(parameter.place)
            self.receive(frame, parameter, self._argument(parameter, spec))
        self._bind_dims(frame)
        value, place = self.run(self.body(frame))
        self.at(place)
        effects = [Effect(k, self._storages[k].node) for k in self.written]
        if value is None and not effects:
            message = f"`{function.name}` has no result"
            self.fail(ArgumentError, message, "no-result", function.header, "end it with `return`")
        outputs, tree = self._results(value, place)
        return self.b.close(outputs, effects, tree, self.module.text)

    def constant(self, expr: ast.Expr) -> Task:
        """The value of an expression outside functions: a module constant or a default."""
        nowhere = ast.Function(expr.place, "", (), None, (), "", expr.place)
        return self.expr(Frame(nowhere, NO_SCOPE, Dims(self.b, self.module)), expr)

    def _argument(self, parameter: ast.Parameter, spec: Spec) -> Value:
        if isinstance(spec, ArraySpec):
            node = self.b.argument(parameter.name, spec.dtype, spec.shape)
            storage = Storage(node, argument=len(self.b.arguments) - 1)
            self._storages[len(self.b.arguments) - 1] = storage
            return Array(storage)
        if isinstance(spec, ScalarSpec):
            kind = spec.kind
            return hostcomplex.argument(parameter.name) if kind == "complex" else scalar_symbol(parameter.name, kind)
        return spec.value  # type: ignore[no-any-return]

    def _results(self, value: Value, place: ast.Place) -> tuple[list[Node], trees.OutputTree]:
        """Output nodes, and how they and the host's numbers are nested."""
        self.at(place)
        outputs: list[Node] = []
        found, tree = trees.flatten(value, is_leaf=lambda v: False)
        leaves: list[trees.OutputLeaf] = []
        for leaf in found:
            if isinstance(leaf, Array):
                node = leaf.node(self.b)
                whole = leaf.parent is None and node.rank > 0
                leaves.append(trees.ArrayLeaf(len(outputs), leaf.storage.argument if whole else None))
                outputs.append(node)
                if node not in self.b.names:
                    self.b.label(node, "out")
            elif isinstance(leaf, HostComplex):
                leaves.append(trees.ArrayLeaf(len(outputs)))
                outputs.append(elementwise.as_node(self.b, leaf))
            elif isinstance(leaf, HostExpr):
                leaves.append(trees.HostLeaf(leaf))
            elif leaf is None or is_host(leaf):
                leaves.append(trees.StaticLeaf(leaf))
            else:
                self.fail(TraceTypeError, f"{describe(self.b, leaf)} cannot be a result", "result", place)
        self.b.span = None
        return outputs, trees.OutputTree(tree, tuple(leaves))

    def frame(self, function: ast.Function) -> Frame:
        return Frame(function, self.names.scopes[function.name], Dims(self.b, self.module))

    def _bind_dims(self, frame: Frame) -> None:
        """After all parameters: dims that are expressions are settled, and names of dims become variables."""
        frame.dims.settle()
        for name in frame.dims.bound:
            frame.variables.setdefault(name, frame.dims.value(name))

    def body(self, frame: Frame) -> Task:
        """Run a function's body: its value, checked against the annotation, and where it was returned."""
        function = frame.function
        done = yield self.block(frame, function.body)
        value, place = (done.value, done.place) if done is not None else (None, function.header)
        if function.returns is not None:
            value = self.conform(frame, function.returns, value, place, "the result")
        return value, place

    def invoke(self, function: ast.Function, args: list[Value], kwargs: dict[str, Value], place: ast.Place) -> Task:
        """Inline a call."""
        frame = self.frame(function)
        given = self._pair(function, args, kwargs, place)
        self.calls.append((function.name, place))
        for parameter in function.parameters:
            if parameter.name in given:
                value = given[parameter.name]
            else:
                assert parameter.default is not None
                value = yield self.constant(parameter.default)
            self.at(parameter.place)
            self.receive(frame, parameter, value)
        self._bind_dims(frame)
        value, _ = yield self.body(frame)
        self.calls.pop()
        return value

    def _pair(
        self, function: ast.Function, args: list[Value], kwargs: Mapping[str, Value], place: ast.Place
    ) -> dict[str, Value]:
        """Arguments by parameter name. Raises ArgumentError [call]."""
        positional = [p for p in function.parameters if not p.keyword_only]
        if len(args) > len(positional):
            message = f"`{function.name}` takes {len(positional)} positional arguments, not {len(args)}"
            self.fail(ArgumentError, message, "call", place)
        given = {p.name: a for p, a in zip(positional, args, strict=False)}
        names = {p.name for p in function.parameters}
        for name, value in kwargs.items():
            if name not in names or name in given:
                problem = "gets it twice" if name in given else "has no such parameter"
                self.fail(ArgumentError, f"`{name}`: `{function.name}` {problem}", "call", place)
            given[name] = value
        missing = [f"`{p.name}`" for p in function.parameters if p.name not in given and p.default is None]
        if missing:
            self.fail(ArgumentError, f"`{function.name}` also needs {', '.join(missing)}", "call", place)
        return given

    # -- values against annotations ----------------------------------------------------------------
    def receive(self, frame: Frame, parameter: ast.Parameter, value: Value) -> None:
        """Bind a parameter, converted and checked as its annotation says."""
        none_by_default = isinstance(parameter.default, ast.Constant) and parameter.default.value is None
        if parameter.annotation is not None and not (value is None and none_by_default):
            value = self._declared(frame, parameter.annotation, value, parameter.place, f"`{parameter.name}`")
        if isinstance(value, Array) and value.storage.node not in self.b.names:
            self.label(value, parameter.name)
        frame.variables[parameter.name] = value

    def conform(self, frame: Frame, declared: ast.Annotation, value: Value, place: ast.Place, what: str) -> Value:
        """A result or an annotated variable against its annotation."""
        if isinstance(declared, ast.TupleType):
            if not isinstance(value, tuple | list) or len(value) != len(declared.items):
                spans = (self.module.span(declared.place), self.module.span(place))
                message = f"{what} is {describe(self.b, value)}, but {len(declared.items)} values are declared"
                raise DTypeError(message, "declared-kind", spans)
            items = zip(declared.items, value, strict=True)
            return tuple(self.conform(frame, d, v, place, f"result {k}") for k, (d, v) in enumerate(items))
        if isinstance(declared, ast.ArrayType) and isinstance(value, Array):
            node = value.node(self.b)
            frame.dims.match_result(declared, node.dtype, dims_of(self.b, node), place, what)
            return value
        return self._declared(frame, declared, value, place, what)

    def _declared(self, frame: Frame, declared: ast.Annotation, value: Value, place: ast.Place, what: str) -> Value:
        if isinstance(declared, ast.ArrayType):
            if isinstance(value, Array):
                node = value.node(self.b)
                frame.dims.match(declared, node.dtype, dims_of(self.b, node), what)
                return value
            if is_host(value) and declared.dtype is not None and not declared.dims:
                return fresh(elementwise.as_node(self.b, value, DTYPE_NAMES[declared.dtype]))  # type: ignore[arg-type]
        elif isinstance(declared, ast.WeakType) and is_host(value):
            converted = self._weak(declared.kind, value)
            if converted is not None:
                return converted
        elif (isinstance(declared, ast.StaticType) and isinstance(value, str)) or (
            isinstance(declared, ast.NoneType) and value is None
        ):
            return value
        spans = tuple(dict.fromkeys((self.module.span(declared.place), self.module.span(place))))
        wanted = self.module.excerpt(declared.place)
        hint = () if not isinstance(declared, ast.WeakType) else (_weak_hint(what, value),)
        given = f"a {wrap(value).kind}" if is_host(value) else describe(self.b, value)  # type: ignore[arg-type]
        message = f"{what} is {given}, but {wanted} is declared"
        raise DTypeError(message, "declared-kind", spans, hint)

    def _weak(self, kind: str, value: Any) -> Value:
        """A number as `complex`, `float`, `int` or `bool`: widened, never narrowed (None then)."""
        own = value.kind if isinstance(value, HostExpr | HostComplex) else type(value).__name__
        if _HOST_RANK[own] > _HOST_RANK[kind]:
            return None
        if own == kind:
            return value  # type: ignore[no-any-return]
        if kind == "complex":
            return hostcomplex.settled(hostcomplex.of(value))
        return call(kind, value) if isinstance(value, HostExpr) else {"float": float, "int": int}[kind](value)

    # -- statements --------------------------------------------------------------------------------
    def block(self, frame: Frame, body: Sequence[ast.Statement]) -> Task:
        for statement in body:
            self.tick(statement.place)
            done = yield _STATEMENTS[type(statement)](self, frame, statement)
            if done is not None:
                return done
        return None

    def _pass(self, frame: Frame, s: ast.Pass) -> Task:
        yield from ()

    def _ignored(self, frame: Frame, s: ast.Ignored) -> Task:
        """Strings are comments, calls may store; anything else is surely a mistake."""
        if isinstance(s.value, ast.Text):
            return
        before = self.stores
        yield self.expr(frame, s.value)
        if self.stores == before:
            hint = "give it a name, or write `return`"
            self.fail(UnsupportedError, "this line computes a value that nothing uses", "no-effect", s.place, hint)

    def _return(self, frame: Frame, s: ast.Return) -> Task:
        value = None if s.value is None else (yield self.expr(frame, s.value))
        return Returned(value, s.place if s.value is None else s.value.place)

    def _if(self, frame: Frame, s: ast.If) -> Task:
        test = yield self.expr(frame, s.test)
        if loops.breaks(s.body) and isinstance(test, Array | HostExpr):
            self.misplaced_break(s.place)
        known = self.truth(test, "`if`", s.test.place)
        return (yield self.block(frame, s.body if known else s.otherwise))

    def _for(self, frame: Frame, s: ast.For) -> Task:
        iterable = yield self.expr(frame, s.iterable)
        if isinstance(iterable, RunRange) or loops.breaks(s.body):
            return loops.run(self, frame, s, iterable)
        for item in self._sequence(iterable, s.iterable.place):
            yield self.assign(frame, s.target, item)
            done = yield self.block(frame, s.body)
            if done is not None:
                return done
        return None

    def _break(self, frame: Frame, s: ast.Break) -> Task:
        yield from ()
        self.misplaced_break(s.place)

    def misplaced_break(self, place: ast.Place) -> NoReturn:
        message = "`break` stands in the first statement of a loop, `if test: break`"
        hint = "move the test to the top: it is read before each round"
        self.fail(TraceError, message, "loop-break", place, hint)

    def _sequence(self, value: Value, place: ast.Place) -> Any:
        """What a loop or an unpacking runs over; an array gives its slices along the first axis."""
        if isinstance(value, tuple | list | range):
            return value
        if isinstance(value, RunRange) and value.unknown is not None:
            raise self.needs_static("the length of a loop", value.unknown, place)
        if isinstance(value, Array) and value.node(self.b).rank:
            count = dims_of(self.b, value.node(self.b))[0]
            if isinstance(count, HostExpr):
                raise self.needs_static("the length of a loop", count, place)
            return (subscript(self.b, value, (k,)) for k in range(count))
        self.fail(TraceTypeError, f"{describe(self.b, value)} cannot be looped over", "not-iterable", place)

    def _assign(self, frame: Frame, s: ast.Assign) -> Task:
        value = yield self.expr(frame, s.value)
        if s.annotation is not None:
            what = f"`{self.module.excerpt(s.targets[0].place)}`"
            value = self.conform(frame, s.annotation, value, s.value.place, what)
        for target in s.targets:
            yield self.assign(frame, target, value, named=not isinstance(s.value, ast.Name))

    def assign(self, frame: Frame, target: ast.Expr, value: Value, named: bool = True) -> Task:
        """Bind a name, unpack, or store. `named`: the value may take the name (an alias does not rename)."""
        if isinstance(target, ast.Name):
            if isinstance(value, slice | range | RunRange):
                self.fail(TraceTypeError, "this value cannot be kept", "operand", target.place)
            frame.variables[target.id] = value
            if named:
                self.label(value, target.id)
        elif isinstance(target, ast.Items):
            for part, item in zip(target.items, self._unpacked(value, len(target.items), target.place), strict=True):
                yield self.assign(frame, part, item)
        elif isinstance(target, ast.Subscript):
            array = yield self.expr(frame, target.value)
            key = yield self.key(frame, target)
            self.store(array, key, value, target)

    def _unpacked(self, value: Value, count: int, place: ast.Place) -> Sequence[Value]:
        if isinstance(value, Array) and value.node(self.b).rank:
            length = dims_of(self.b, value.node(self.b))[0]
            if self.b.shapes.unify(length, count, self.module.span(place)):
                return [subscript(self.b, value, (k,)) for k in range(count)]
            self.fail(ShapeError, f"{count} names for an array of length {length}", "unpack", place)
        items = list(self._sequence(value, place))
        if len(items) != count:
            self.fail(ArgumentError, f"{count} names for {len(items)} values", "unpack", place)
        return items

    def store(self, array: Value, key: tuple[Any, ...], value: Value, target: ast.Subscript) -> None:
        """`array[key] = value`."""
        if not isinstance(array, Array):
            message = f"{describe(self.b, array)} cannot be stored into"
            self.fail(TraceTypeError, message, "store", target.value.place)
        rank = array.node(self.b).rank
        if not rank and array.storage.argument is None:
            message = "a scalar cannot be stored into"
            self.fail(TraceTypeError, message, "store", target.value.place, "give the name a new value instead")
        new = self.operand(value, "=", target.place)
        self.at(target.place)
        node = array.store(self.b, key, new)
        self.stored(array, node, target.value)

    def stored(self, array: Array, node: Node, root: ast.Expr) -> None:
        """Bookkeeping after a store: effects on arguments, the name of the new value."""
        self.stores += 1
        if any(id(array.storage) in outside for outside in self.outside):
            raise loops.Unsuited("it stores into an array of outside")
        if array.storage.argument is not None:
            self.written.setdefault(array.storage.argument)
        if isinstance(root, ast.Name):
            self.b.label(node, root.id)

    def _update(self, frame: Frame, s: ast.Update) -> Task:
        """`target op= value`: in place for arrays, as in NumPy (views and arguments see it); else a new value."""
        key = None
        root = s.target.value if isinstance(s.target, ast.Subscript) else s.target
        held = yield self.expr(frame, root)
        old = held
        if isinstance(s.target, ast.Subscript):
            key = yield self.key(frame, s.target)
            self.at(s.target.place)
            old = self.getitem(held, key, s.target)
        value = yield self.expr(frame, s.value)
        new = self.binary(s.op, old, value, s.place)
        if key is None and not (isinstance(held, Array) and held.node(self.b).rank):
            yield self.assign(frame, s.target, new)
            return
        if not isinstance(held, Array):
            self.fail(TraceTypeError, f"{describe(self.b, held)} cannot be stored into", "store", root.place)
        self._check_in_place(old, new, s)
        self.at(s.place)
        node = held.store(self.b, (...,) if key is None else key, self.operand(new, s.op, s.place))
        self.stored(held, node, root)

    def _check_in_place(self, old: Value, new: Value, s: ast.Update) -> None:
        """NumPy's rules for `x += y`: the result must have x's shape and a dtype of x's kind or below."""
        if not (isinstance(old, Array) and isinstance(new, Array)) or not old.node(self.b).rank:
            return  # an element: NumPy stores the converted result
        a, c = old.node(self.b), new.node(self.b)
        text = self.module.excerpt(s.target.place)
        if not _same_kind(c.dtype, a.dtype):
            message = f"`{text} {s.op}=` would store {c.dtype} into {a.dtype}"
            hint = f"write `{text} = {text} {s.op} ...`, or convert: `{a.dtype}(...)`"
            self.fail(DTypeError, message, "in-place-dtype", s.place, hint)
        if not same_shape(self.b, a.shape, c.shape):
            shown = f"{describe(self.b, old)} and {describe(self.b, new)}"
            message = f"`{text} {s.op}=` would change the shape: {shown}"
            self.fail(ShapeError, message, "in-place-shape", s.place, f"write `{text} = {text} {s.op} ...`")


def _same_kind(source: DType, target: DType) -> bool:
    """NumPy's casting rule for in-place operators; bf16 counts as f16."""
    one, two = (np.dtype(np.float16) if t in (BF16, F16) else t.numpy for t in (source, target))
    return bool(np.can_cast(one, two, "same_kind"))


_STATEMENTS: dict[type, Callable[..., Task]] = {
    ast.Pass: Runner._pass, ast.Ignored: Runner._ignored, ast.Return: Runner._return, ast.If: Runner._if,
    ast.Break: Runner._break,
    ast.For: Runner._for, ast.Assign: Runner._assign, ast.Update: Runner._update,
}  # fmt: skip


def _weak_hint(what: str, value: Value) -> str:
    """How to declare what was given for a parameter that is declared a number."""
    if value is None:
        return "a parameter that may be missing has None as its default"
    if is_host(value):
        return f"declare it `{wrap(value).kind}`, or convert it before the call"  # type: ignore[arg-type]
    return f"declare {what} as a dtype, `f32`"
