"""A Python function over arrays, and what its arguments are, in; the `Graph` it computes, out.

The function is called with tracers (`TracedArray`, `Scalar`) in place of arrays and run-time numbers. It is called
twice: programs that draw random numbers or count their calls give two graphs, and are refused by the line that
differs. What a call must know beside the arguments (how results are nested, hidden inputs) is in
`Graph.output_tree`, a `fuser.trees.OutputTree`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuser import hostcomplex, trees
from fuser.construct import elementwise
from fuser.construct.common import NeedsStatic
from fuser.construct.loop import known_round, round_needed
from fuser.errors import FuserError, TraceTypeError, UnsupportedError
from fuser.frontend import capture, purity
from fuser.frontend.complexscalar import ComplexScalar
from fuser.frontend.context import Context, Specialize, tracing
from fuser.frontend.poison import StopTrace
from fuser.frontend.rebind import Rebinder
from fuser.frontend.scalar import Scalar, host
from fuser.frontend.selection import Selection
from fuser.frontend.storage import Storage
from fuser.frontend.tracer import TracedArray
from fuser.graph import Effect, Graph, Node
from fuser.hostexpr import Env, scalar_symbol
from fuser.specs import ArraySpec, ScalarSpec, Spec
from fuser.trees import ArrayLeaf, HostLeaf, OutputLeaf, OutputTree, StaticLeaf, Tree


def trace(
    fn: Callable[..., Any], names: Sequence[str], specs: Sequence[Spec], tree: Tree, env: Env | None = None
) -> Graph:
    """The graph of `fn` for arguments of these specs.

    `tree` is the tree of a dict from parameter names to (nested) arguments, `names` and `specs` one entry a leaf.
    A `ScalarSpec` leaf becomes the symbol `scalar_symbol(name, kind)`. `env`, where there is a call, binds its dims: a
    condition on dims is then decided by them under a guard; without it such a condition asks for static dims.

    Raises NeedsStatic where Python needs the value of a run-time scalar or dim, UnsupportedError with all
    calls that have no operator, TraceError, ShapeError, DTypeError and their kin with the user's line.
    """
    return trace_twice(fn, names, specs, tree, env)


def trace_twice(
    fn: Callable[..., Any], names: Sequence[str], specs: Sequence[Spec], tree: Tree, env: Env | None = None
) -> Graph:
    """`trace_once` done twice; TraceError [impure] names the first line where the graphs differ."""
    first = trace_once(fn, names, specs, tree, env)
    purity.compare(first, trace_once(fn, names, specs, tree, env))
    return first


def trace_once(
    fn: Callable[..., Any], names: Sequence[str], specs: Sequence[Spec], tree: Tree, env: Env | None = None
) -> Graph:
    """Call the function once with tracers and close its graph."""
    run = _Run(fn, names, specs, env)
    with tracing(run.ctx):
        try:
            return run.graph(trees.unflatten(tree, run.leaves))
        except Specialize as need:
            if known_round(need.expr):
                raise round_needed(need.what, need.span) from None
            message = f"{need.what} needs a number now; `{need.expr}` is known at the call"
            raise NeedsStatic(message, "static", need.expr, (need.span,) if need.span else ()) from None
        except StopTrace:
            failure = run.stopped()
            assert failure is not None
            raise failure from None
        except FuserError as error:
            raise run.stopped() or error from None
        except Exception as error:
            failure = run.stopped()
            if failure is not None:  # what went wrong may be due to a refused call's stand-in
                raise failure from error
            raise


class _Run:
    """One call of the function under a context."""

    def __init__(self, fn: Callable[..., Any], names: Sequence[str], specs: Sequence[Spec], env: Env | None) -> None:
        self.fn = fn
        self.ctx = Context(getattr(fn, "__name__", type(fn).__name__), env)
        self.ctx.torch = any(isinstance(s, ArraySpec) and s.family == "torch" for s in specs)
        self.rebinder = Rebinder(self.ctx, fn)
        self.arguments: list[Storage] = []
        self.leaves = [self._leaf(n, s) for n, s in zip(names, specs, strict=True)]

    def stopped(self) -> UnsupportedError | None:
        """The refused calls of a trace that could not go on, with those further down that its text shows."""
        if not self.ctx.refusals:
            return None
        from fuser.frontend import scan

        for found, span in scan.of_function(self.fn):
            self.ctx.unreached(found.text, found.advice, span)
        return self.ctx.failure()

    def _leaf(self, name: str, spec: Spec) -> Any:
        """What the function is given for one leaf."""
        if isinstance(spec, ArraySpec):
            node = self.ctx.b.argument(name, spec.dtype, spec.shape)
            storage = Storage(node, argument=len(self.arguments))
            storage.name = name
            self.arguments.append(storage)
            return TracedArray(self.ctx, storage, is_scalar=spec.is_scalar)
        if isinstance(spec, ScalarSpec):
            if spec.kind == "complex":
                return ComplexScalar(self.ctx, hostcomplex.argument(name))
            return host(self.ctx, scalar_symbol(name, spec.kind))
        return self.rebinder.value(spec.value, name, lambda: spec.value, 0)

    def graph(self, arguments: Mapping[str, Any]) -> Graph:
        args, kwargs = bind(self.fn, arguments)
        result = self.rebinder.callable(self.fn)(*args, **kwargs)
        outputs: list[Node] = []
        leaves, tree = trees.flatten(result, is_leaf=lambda v: False)
        shown = tuple(self._output(leaf, outputs) for leaf in leaves)
        failure = self.ctx.failure()
        if failure is not None:
            raise failure
        self.rebinder.check()
        effects = self._effects()
        for node in outputs:
            if len(outputs) == 1 and node not in self.ctx.b.names and node.op != "scalar":
                self.ctx.b.label(node, "out")
        captured = tuple(c.get for c in self.ctx.captured)
        contiguous = frozenset(self.ctx.needs_contiguous)
        output = OutputTree(tree, shown, captured, contiguous)
        return self.ctx.b.close(outputs, effects, output, source_of(self.fn))

    def _output(self, leaf: Any, outputs: list[Node]) -> OutputLeaf:
        """One returned value."""
        if type(leaf) is Scalar:
            return HostLeaf(leaf.expr)
        if type(leaf) is ComplexScalar:
            outputs.append(elementwise.as_node(self.ctx.b, leaf.value))
            return ArrayLeaf(len(outputs) - 1)
        if type(leaf) is TracedArray:
            outputs.append(leaf.node)
            whole = leaf._step is None and not leaf.is_scalar
            return ArrayLeaf(len(outputs) - 1, leaf._storage.argument if whole else None)
        if isinstance(leaf, (np.ndarray, np.generic)):
            value: Any = np.asarray(leaf)[()]
            outputs.append(self.ctx.outside(value) if value.ndim else elementwise.as_node(self.ctx.b, value))
            return ArrayLeaf(len(outputs) - 1)
        if type(leaf) is Selection:
            leaf._refused()
        leaf = self.rebinder.original(leaf)
        if any(type(v) in (TracedArray, Scalar, ComplexScalar) for v in vars_of(leaf)):
            message = (
                f"a {type(leaf).__name__} that holds traced arrays is returned: a call returns arrays and containers"
            )
            raise TraceTypeError(message, "result", (), ("return its arrays: return r.a, r.b",))
        return StaticLeaf(leaf)

    def _effects(self) -> list[Effect]:
        """What the program stored into arguments and captured arrays."""
        changed = [(s.argument, s) for s in self.arguments if s.version]
        for storage in self.rebinder.storages.values():
            if storage.version and storage.origin is not None:
                changed.append((self.ctx.position(storage.origin), storage))
        changed.sort(key=lambda pair: pair[1].changed)
        return [Effect(position, storage.node) for position, storage in changed if position is not None]


def vars_of(value: Any) -> Sequence[Any]:
    """The attributes of an object of the user's; none for others."""
    return list(getattr(value, "__dict__", {}).values()) if not capture.is_library(type(value).__module__) else ()


def bind(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from values by parameter name."""
    signature = inspect.signature(fn)
    given = dict(arguments)
    if isinstance(fn, np.ufunc):  # its defaults exclude each other when they are given
        given = {k: v for k, v in given.items() if v is not signature.parameters[k].default}
    bound = inspect.BoundArguments(signature, given)
    return bound.args, bound.kwargs


def source_of(fn: Callable[..., Any]) -> str:
    """`file:line` of a function, "" if unknown."""
    code = getattr(inspect.unwrap(fn), "__code__", None) or getattr(getattr(fn, "__func__", None), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
