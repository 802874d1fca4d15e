"""From grammar rules to the syntax tree: one method a rule, called by Lark's parser as it reduces.

In: the tokens and nodes of a rule (every token is kept, so places are exact). Out: nodes of `fuser.frontend.ast`.
What Python's grammar forbids but an LALR rule does not say (targets, order of parameters) is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lark import Token

from fuser.frontend import ast
from fuser.frontend.annotations import annotation_of
from fuser.frontend.ast import Place
from fuser.frontend.layout import Refused, place_of
from fuser.frontend.literals import integer_value, text_value
from fuser.record import dataclass


@dataclass(frozen=True)
class Star:
    """A bare `*` among parameters."""

    place: Place


@dataclass(frozen=True)
class Block:
    """Statements of a suite, with the place of the whole."""

    body: tuple[ast.Statement, ...]


@dataclass(frozen=True)
class Elif:
    """`elif test:` on its way into the `If` before it."""

    place: Place
    test: ast.Expr
    body: tuple[ast.Statement, ...]


@dataclass(frozen=True)
class Parsed:
    """What the start rules give: functions and other statements in text order."""

    functions: tuple[ast.Function, ...]
    statements: tuple[ast.Statement, ...]


def _at(item: Any) -> Place:
    return place_of(item) if isinstance(item, Token) else item.place


def _span(items: Sequence[Any]) -> Place:
    return _at(items[0]).to(_at(items[-1]))


def _nodes(items: Iterable[Any]) -> tuple[Any, ...]:
    """The items that are not tokens."""
    return tuple(i for i in items if not isinstance(i, Token))


def _has(items: Iterable[Any], text: str) -> bool:
    return any(isinstance(i, Token) and i == text for i in items)


class Builder:
    """The methods are named after the rules and aliases of grammar.lark."""

    # -- programs and functions --------------------------------------------------------------------
    def module(self, items: list[Any]) -> Parsed:
        nodes = _nodes(items)
        functions = tuple(n for n in nodes if isinstance(n, ast.Function))
        return Parsed(functions, tuple(s for n in nodes if isinstance(n, Block) for s in n.body))

    def lambda_line(self, items: list[Any]) -> Parsed:
        start = next(i for i in items if isinstance(i, Token) and i == "lambda")
        *rest, body = _nodes(items)
        parameters = rest[0] if rest else ()
        place = place_of(start).to(body.place)
        result = ast.Return(body.place, body)
        return Parsed((ast.Function(place, "lambda", parameters, None, (result,), "", place_of(start)),), ())

    def function(self, items: list[Any]) -> ast.Function:
        name = items[1]
        nodes = _nodes(items)
        parameters = nodes[0] if isinstance(nodes[0], tuple) else ()
        body = nodes[-1].body
        returns = annotation_of(nodes[-2]) if _has(items, "->") else None
        doc = ""
        if isinstance(body[0], ast.Ignored) and isinstance(body[0].value, ast.Text):
            doc = body[0].value.value
        place = place_of(items[0]).to(place_of(name))
        return ast.Function(place, str(name), parameters, returns, body, doc, place_of(name))

    def parameters(self, items: list[Any]) -> tuple[ast.Parameter, ...]:
        """Checks Python's rules: one `*`, something after it, no default before a parameter without."""
        out: list[ast.Parameter] = []
        star: Star | None = None
        for item in _nodes(items):
            if isinstance(item, Star):
                if star is not None:
                    raise Refused("only one `*` may stand among parameters", "syntax", (item.place,))
                star = item
                continue
            if any(p.name == item.name for p in out):
                raise Refused(f"parameter `{item.name}` is there twice", "syntax", (item.place,))
            if star is None and item.default is None and out and out[-1].default is not None:
                message = f"`{item.name}` has no default but follows `{out[-1].name}`, which has one"
                raise Refused(message, "syntax", (item.place,))
            out.append(replace(item, keyword_only=True) if star is not None else item)
        if star is not None and not (out and out[-1].keyword_only):
            raise Refused("parameters passed by keyword must follow `*`", "syntax", (star.place,))
        return tuple(out)

    typed_parameters = parameters

    def typed_parameter(self, items: list[Any]) -> ast.Parameter:
        nodes = list(_nodes(items))
        annotation = annotation_of(nodes.pop(0)) if _has(items, ":") else None
        default = nodes.pop(0) if _has(items, "=") else None
        return ast.Parameter(_span(items), str(items[0]), annotation, default, False)

    parameter = typed_parameter

    def star(self, items: list[Any]) -> Star:
        return Star(_span(items))

    # -- statements --------------------------------------------------------------------------------
    def suite(self, items: list[Any]) -> Block:
        body: list[ast.Statement] = []
        for node in _nodes(items):
            body.extend(node.body if isinstance(node, Block) else (node,))
        return Block(tuple(body))

    def line(self, items: list[Any]) -> Block:
        return Block(_nodes(items))

    def ignored(self, items: list[Any]) -> ast.Ignored:
        return ast.Ignored(_span(items), items[0])

    def assign(self, items: list[Any]) -> ast.Assign:
        *targets, value = _nodes(items)
        for target in targets:
            check_target(target)
        return ast.Assign(_span(items), tuple(targets), value)

    def annotated(self, items: list[Any]) -> ast.Assign:
        target, annotation, *value = _nodes(items)
        if not isinstance(target, ast.Name):
            raise Refused("only a plain name can be annotated", "syntax", (target.place,))
        if not value:
            raise Refused(f"`{target.id}` is annotated but gets no value", "syntax", (_span(items),))
        return ast.Assign(_span(items), (target,), value[0], annotation_of(annotation))

    def update(self, items: list[Any]) -> ast.Update:
        target, op, value = items
        if not isinstance(target, ast.Name | ast.Subscript):
            raise Refused(f"`{op}` needs a name or `name[...]` on its left", "syntax", (target.place,))
        return ast.Update(_span(items), target, op.removesuffix("="), value)

    def return_(self, items: list[Any]) -> ast.Return:
        return ast.Return(_span(items), items[1] if len(items) > 1 else None)

    def pass_(self, items: list[Any]) -> ast.Pass:
        return ast.Pass(_span(items))

    def break_(self, items: list[Any]) -> ast.Break:
        return ast.Break(_span(items))

    def for_(self, items: list[Any]) -> ast.For:
        target, iterable, block = _nodes(items)
        check_target(target)
        return ast.For(place_of(items[0]).to(iterable.place), target, iterable, block.body)

    def if_(self, items: list[Any]) -> ast.If:
        test, block, *more = _nodes(items)
        otherwise: tuple[ast.Statement, ...] = more.pop().body if more and isinstance(more[-1], Block) else ()
        for part in reversed(more):
            otherwise = (ast.If(part.place, part.test, part.body, otherwise),)
        return ast.If(place_of(items[0]).to(test.place), test, block.body, otherwise)

    def elif_(self, items: list[Any]) -> Elif:
        test, block = _nodes(items)
        return Elif(place_of(items[0]).to(test.place), test, block.body)

    # -- expressions -------------------------------------------------------------------------------
    def bare_items(self, items: list[Any]) -> ast.Items:
        return ast.Items(_span(items), _nodes(items), False)

    def items(self, items: list[Any]) -> ast.Items:
        return ast.Items(_span(items), _nodes(items), items[0] == "[")

    def group(self, items: list[Any]) -> ast.Expr:
        inner: ast.Expr = items[1]
        return replace(inner, place=_span(items))

    def choice(self, items: list[Any]) -> ast.Choice:
        yes, test, no = _nodes(items)
        return ast.Choice(_span(items), test, yes, no)

    def logical(self, items: list[Any]) -> ast.Logical:
        return ast.Logical(_span(items), str(items[1]), items[0], items[2])

    def unary(self, items: list[Any]) -> ast.Unary:
        return ast.Unary(_span(items), str(items[0]), items[1])

    def binary(self, items: list[Any]) -> ast.Binary:
        return ast.Binary(_span(items), str(items[1]), items[0], items[2])

    def comparator(self, items: list[Any]) -> Token:
        return Token("COMPARATOR", " ".join(items))

    def compare(self, items: list[Any]) -> ast.Compare:
        rest = tuple((str(op), right) for op, right in zip(items[1::2], items[2::2], strict=True))
        return ast.Compare(_span(items), items[0], rest)

    def call(self, items: list[Any]) -> ast.Call:
        arguments = items[2] if isinstance(items[2], tuple) else ()
        positional: list[ast.Expr] = []
        keywords: list[ast.Keyword] = []
        for a in arguments:
            if not isinstance(a, ast.Keyword):
                if keywords:
                    raise Refused("a positional argument follows a keyword argument", "syntax", (a.place,))
                positional.append(a)
            elif any(k.name == a.name for k in keywords):
                raise Refused(f"keyword `{a.name}` is there twice", "syntax", (a.place,))
            else:
                keywords.append(a)
        return ast.Call(_span(items), items[0], tuple(positional), tuple(keywords))

    def arguments(self, items: list[Any]) -> tuple[Any, ...]:
        return _nodes(items)

    def keyword(self, items: list[Any]) -> ast.Keyword:
        return ast.Keyword(_span(items), str(items[0]), items[2])

    def attribute(self, items: list[Any]) -> ast.Attribute:
        return ast.Attribute(_span(items), items[0], str(items[2]), place_of(items[2]))

    def subscript(self, items: list[Any]) -> ast.Subscript:
        keys, single = items[2]
        return ast.Subscript(_span(items), items[0], keys, single)

    def subscripts(self, items: list[Any]) -> tuple[tuple[Any, ...], bool]:
        return _nodes(items), not _has(items, ",")

    def slice(self, items: list[Any]) -> ast.Slice:
        parts: list[ast.Expr | None] = [None]
        for item in items:
            if isinstance(item, Token):
                parts.append(None)
            else:
                parts[-1] = item
        start, stop, step = (*parts, None, None)[:3]
        return ast.Slice(_span(items), start, stop, step)

    # -- atoms -------------------------------------------------------------------------------------
    def name(self, items: list[Token]) -> ast.Name:
        return ast.Name(_span(items), str(items[0]))

    def integer(self, items: list[Token]) -> ast.Number:
        return ast.Number(_span(items), integer_value(items[0]))

    def float_(self, items: list[Token]) -> ast.Number:
        return ast.Number(_span(items), float(items[0].replace("_", "")))

    def imaginary(self, items: list[Token]) -> ast.Number:
        return ast.Number(_span(items), complex(items[0].replace("_", "")))

    def text(self, items: list[Token]) -> ast.Text:
        return ast.Text(_span(items), "".join(text_value(t) for t in items))

    def none(self, items: list[Token]) -> ast.Constant:
        return ast.Constant(_span(items), None)

    def true(self, items: list[Token]) -> ast.Constant:
        return ast.Constant(_span(items), True)

    def false(self, items: list[Token]) -> ast.Constant:
        return ast.Constant(_span(items), False)

    def ellipsis(self, items: list[Token]) -> ast.Constant:
        return ast.Constant(_span(items), ...)


def check_target(target: ast.Expr) -> None:
    """Refuse what cannot be assigned to; iterative."""
    stack = [target]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Items):
            stack.extend(node.items)
        elif isinstance(node, ast.Attribute):
            raise Refused("an attribute cannot be assigned", "syntax", (node.place,), "make a new value instead")
        elif not isinstance(node, ast.Name | ast.Subscript):
            hint = "to compare, write `==`"
            raise Refused("only names and `name[...]` can be assigned", "syntax", (node.place,), hint)
