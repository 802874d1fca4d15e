"""Annotations as written: `f32[n, d]`, `[..., d]`, `float`, `(f32[n], i64[n])`.

In: the expression after `:` or `->`. Out: an `Annotation` node; ParseError [annotation] for anything else. How
declared types meet actual arguments is `signature`'s business; here is only their syntax.
"""

from __future__ import annotations

from difflib import get_close_matches

from fuser.frontend import ast
from fuser.frontend.layout import Refused
from fuser.specs import DTYPE_NAMES

WEAK = ("float", "int", "bool", "complex")
_DIM_OPERATORS = frozenset({"+", "-", "*", "//"})
_EXAMPLE = "write for instance `x`, `x: [n, d]`, `x: f32[n, d]`, `x: bf16[..., d]`, `eps: float = 1e-6`"


def annotation_of(expr: ast.Expr) -> ast.Annotation:
    """The type that an annotation expression means."""
    match expr:
        case ast.Items(brackets=True):
            return ast.ArrayType(expr.place, None, _dims(expr.items))
        case ast.Items():
            return ast.TupleType(expr.place, tuple(annotation_of(i) for i in expr.items))
        case ast.Constant(value=None):
            return ast.NoneType(expr.place)
        case ast.Name():
            return _named(expr)
        case ast.Subscript(value=ast.Name(id="tuple")):
            return ast.TupleType(expr.place, tuple(annotation_of(_no_slice(k)) for k in expr.keys))
        case ast.Subscript(value=ast.Name() as head):
            return ast.ArrayType(expr.place, _dtype(head), _dims(_keys(expr)))
        case ast.Binary(op="|", right=ast.Constant(value=None)):
            return annotation_of(expr.left)
    raise Refused("this is not a type", "annotation", (expr.place,), _EXAMPLE)


def _named(name: ast.Name) -> ast.Annotation:
    if name.id in WEAK:
        return ast.WeakType(name.place, name.id)
    if name.id == "str":
        return ast.StaticType(name.place, name.id)
    return ast.ArrayType(name.place, _dtype(name), ())


def _dtype(name: ast.Name) -> str:
    if name.id in DTYPE_NAMES:
        return DTYPE_NAMES[name.id].name
    near = get_close_matches(name.id, [*DTYPE_NAMES, *WEAK, "str"], n=1)
    hint = f"did you mean `{near[0]}`?" if near else _EXAMPLE
    raise Refused(f"`{name.id}` is not a type", "annotation", (name.place,), hint)


def _keys(expr: ast.Subscript) -> tuple[ast.Expr, ...]:
    """`f32[n, d]` has its dims as keys, `f32[()]` is the 0-d array."""
    keys = tuple(_no_slice(k) for k in expr.keys)
    if expr.single and isinstance(keys[0], ast.Items) and not keys[0].items:
        return ()
    return keys


def _no_slice(key: ast.Expr | ast.Slice) -> ast.Expr:
    if isinstance(key, ast.Slice):
        raise Refused("a slice is not a dim", "annotation", (key.place,), "`_` is any dim, `...` any number of them")
    return key


def _dims(items: tuple[ast.Expr, ...]) -> tuple[ast.Expr | None, ...]:
    dims: list[ast.Expr | None] = []
    for position, item in enumerate(items):
        if isinstance(item, ast.Constant) and item.value is ...:
            if position:
                raise Refused("`...` must be the first dim", "annotation", (item.place,))
            dims.append(None)
        else:
            dims.append(_dim(item))
    return tuple(dims)


def _dim(expr: ast.Expr) -> ast.Expr:
    for node in ast.walk(expr):
        match node:
            case ast.Number(value=int()):
                continue
            case ast.Name() if node.id not in DTYPE_NAMES and node.id not in WEAK:
                continue
            case ast.Binary() if node.op in _DIM_OPERATORS:
                continue
        raise Refused("this is not a dim", "annotation", (node.place,), "a dim is a number, a name, or `2*d`")
    return expr
