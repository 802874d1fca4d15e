"""Declared types against actual values: dtypes, ranks and named dims.

In: an `Annotation` and the dtype and shape that it meets. Out: the dims' names bound, equalities handed to the
builder (a merge, or a guard that is checked per call), or an error that names both sites.
"""

from __future__ import annotations

from fuser.dtypes import DType
from fuser.errors import DTypeError, ShapeError, Span
from fuser.frontend import ast
from fuser.graph import Builder
from fuser.hostexpr import Dim, HostExpr, as_dim, call, lit, sym, wrap
from fuser.indexmap import coefficient
from fuser.record import dataclass
from fuser.shapes import Shape, text_of
from fuser.specs import DTYPE_NAMES


@dataclass(frozen=True)
class Bound:
    """What a dim name was found to be, and where."""

    dim: Dim
    owner: str
    place: ast.Place


@dataclass(frozen=True)
class Pending:
    """A dim written as an expression over names, to be settled when all parameters have been seen."""

    expr: ast.Expr
    actual: Dim
    owner: str


class Dims:
    """The dim names of one function call."""

    def __init__(self, b: Builder, module: ast.Module) -> None:
        self.b, self.module = b, module
        self.bound: dict[str, Bound] = {}
        self.pending: list[Pending] = []

    def span(self, place: ast.Place) -> Span:
        return self.module.span(place)

    def value(self, name: str) -> Dim:
        """The dim that a name stands for; KeyError if nothing bound it."""
        return self.b.shapes.canonical(self.bound[name].dim)

    # -- arguments ---------------------------------------------------------------------------------
    def match(self, declared: ast.ArrayType, dtype: DType, shape: Shape, owner: str) -> None:
        """Hold a value against its annotation. `owner` is how messages call it.

        Raises DTypeError [declared-dtype], ShapeError [declared-rank], [declared-dim], [dim-clash].
        """
        if declared.dtype is not None and DTYPE_NAMES[declared.dtype] != dtype:
            spans = (self.span(declared.place),)
            message = f"{owner} is {dtype}{text_of(shape)}, but {declared.dtype} is declared"
            hint = f"convert it before the call, or leave the dtype open: `{shown_dims(self.module, declared)}`"
            raise DTypeError(message, "declared-dtype", spans, (hint,))
        dims = declared.dims
        open_front = bool(dims) and dims[0] is None
        named = dims[1:] if open_front else dims
        if len(shape) < len(named) or (len(shape) != len(named) and not open_front):
            spans = (self.span(declared.place),)
            wanted = f"at least {len(named)}" if open_front else f"{len(named)}"
            message = f"{owner} has rank {len(shape)} ({dtype}{text_of(shape)}), but rank {wanted} is declared"
            raise ShapeError(message, "declared-rank", spans)
        for expr, actual in zip(named, shape[len(shape) - len(named) :], strict=True):
            assert expr is not None  # `...` stands in front only
            self._match_dim(expr, actual, owner)

    def _match_dim(self, expr: ast.Expr, actual: Dim, owner: str) -> None:
        if isinstance(expr, ast.Number):
            self._fixed(expr, int(expr.value.real), actual, owner)
        elif not isinstance(expr, ast.Name):
            self.pending.append(Pending(expr, actual, owner))
        elif expr.id not in self.bound:
            if expr.id != "_":
                self.bound[expr.id] = Bound(actual, owner, expr.place)
        elif not self.b.shapes.unify(self.bound[expr.id].dim, actual, self.span(expr.place)):
            self._clash(expr.id, expr.place, actual, owner)

    def _fixed(self, expr: ast.Expr, wanted: int, actual: Dim, owner: str) -> None:
        if not self.b.shapes.unify(actual, wanted, self.span(expr.place)):
            message = f"{owner} has {actual} where {wanted} is declared"
            raise ShapeError(message, "declared-dim", (self.span(expr.place),))

    def _clash(self, name: str, place: ast.Place, actual: Dim, owner: str) -> None:
        first = self.bound[name]
        message = f"`{name}` is {self.value(name)} from {first.owner} but {actual} from {owner}"
        spans = (self.span(first.place), self.span(place))
        raise ShapeError(message, "dim-clash", spans)

    # -- dims that are expressions -----------------------------------------------------------------
    def settle(self) -> None:
        """Work off the pending expressions, solving each for a name that nothing else binds (`2*d`)."""
        for p in self.pending:
            names = {n.id: n for n in ast.walk(p.expr) if isinstance(n, ast.Name)}
            free = [n for n in names if n not in self.bound]
            if len(free) > 1:
                self._unsolvable(p, free[0])
            if free:
                self._solve(p, names[free[0]])
            wanted = self._evaluate(p.expr)
            if not self.b.shapes.unify(p.actual, wanted, self.span(p.expr.place)):
                text = self.module.excerpt(p.expr.place)
                message = f"{p.owner} has {p.actual} where `{text}` = {wanted} is declared"
                first = [self.span(self.bound[n].place) for n in names]
                raise ShapeError(message, "dim-clash", (*first, self.span(p.expr.place)))
        self.pending.clear()

    def _solve(self, p: Pending, name: ast.Name) -> None:
        expr = wrap(self._evaluate(p.expr, {name.id: sym(f"?{name.id}")}))
        factor = coefficient(expr, f"?{name.id}")
        if factor is None or not factor.is_literal or factor.value == 0:
            self._unsolvable(p, name.id)
        assert factor is not None
        rest = expr.substitute({f"?{name.id}": lit(0)})
        dim = as_dim(call("//", wrap(p.actual) - rest, factor))
        self.bound[name.id] = Bound(dim, p.owner, name.place)

    def _unsolvable(self, p: Pending, name: str) -> None:
        text = self.module.excerpt(p.expr.place)
        message = f"`{name}` cannot be told from `{text}`"
        hint = f"name it in some parameter by itself: `x: [{name}]`"
        raise ShapeError(message, "dim-unknown", (self.span(p.expr.place),), (hint,))

    def _evaluate(self, expr: ast.Expr, extra: dict[str, HostExpr] | None = None) -> Dim:
        """A dim expression; inner nodes before outer ones, so iterative."""
        values: dict[int, HostExpr] = {}
        for node in reversed(list(ast.walk(expr))):
            match node:
                case ast.Number():
                    values[id(node)] = lit(int(node.value.real))
                case ast.Name():
                    values[id(node)] = wrap(self.value(node.id)) if node.id in self.bound else (extra or {})[node.id]
                case ast.Binary():
                    values[id(node)] = call(node.op, values[id(node.left)], values[id(node.right)])
        return self.b.shapes.canonical(as_dim(values[id(expr)]))

    # -- results -----------------------------------------------------------------------------------
    def match_result(self, declared: ast.ArrayType, dtype: DType, shape: Shape, place: ast.Place, what: str) -> None:
        """`match` for a result or an annotated variable; the place where it is made is shown too."""
        try:
            self.match(declared, dtype, shape, what)
            self.settle()
        except (DTypeError, ShapeError) as error:
            if error.slug == "declared-dtype":
                error.notes = (f"write `{declared.dtype}(...)` to convert",)
            raise error.with_context((self.span(place),)) from None


def shown_dims(module: ast.Module, declared: ast.ArrayType) -> str:
    """The dims of an annotation as a dtype-free one: `[n, d]`."""
    return "[" + ", ".join("..." if d is None else module.excerpt(d.place) for d in declared.dims) + "]"
