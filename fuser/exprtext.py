"""Host expressions as text that parses back to the very same tree.

In: expressions (deep and shared ones too), or tokens. Out: text with few parentheses and one reading, or
raw `HostExpr` nodes, built without simplifying. Its own file because dims, index maps, guards, scalars and
parameters of a graph's text all hold expressions.

    comparison  chain [< <= > >= == != & | ^ << >> chain]
    chain       [-] term {(+ | -) term}         an n-ary integer sum, or one float + or -
    term        atom {* atom} | atom (/ // % **) atom
    atom        number | !inf !nan | True | symbol | function(...) | (comparison) | ?k, a subexpression bound by `let`
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import field
from functools import cache
from typing import NoReturn

from fuser.errors import ParseError, Span
from fuser.hostexpr import ExprKind, HostExpr, _result_kind, lit, sym
from fuser.hostfunctions import FUNCTIONS, literal_text
from fuser.record import dataclass

_TIGHT = ("/", "//", "%", "**")
_LOOSE = ("<", "<=", ">", ">=", "==", "!=", "&", "|", "^", "<<", ">>")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*|[=$@#][A-Za-z_0-9.]+")
_WORDS = frozenset({"True", "False", "sym", *FUNCTIONS})
HOIST_DEPTH = 24  # every so many levels a subexpression gets its own line, so that no parser needs to recurse deeper
HOIST_SIZE = 12  # a subexpression of more nodes than this that is used twice gets its own line
MAX_NESTING = 100

COMPARISON, CHAIN, TERM, ATOM = range(4)


# -- printing --------------------------------------------------------------------------------------
@dataclass
class Printer:
    """Prints expressions; long shared or deep subexpressions are named `?0, ?1, ...` in `lets`, in order of use."""

    lets: list[str] = field(default_factory=list)
    _uses: dict[int, int] = field(default_factory=dict)
    _done: dict[int, tuple[str, int]] = field(default_factory=dict)
    _depth: dict[int, tuple[int, int]] = field(default_factory=dict)  # id -> (depth since the last let, size)
    _alive: list[HostExpr] = field(default_factory=list)  # ids stay valid while their objects do

    def announce(self, roots: Iterable[HostExpr]) -> None:
        """Count uses; call once with every expression that will be printed."""
        for root in roots:
            self._alive.append(root)
            self._uses[id(root)] = self._uses.get(id(root), 0) + 1
            for n in root.walk():
                if id(n) not in self._depth:
                    self._depth[id(n)] = (0, 0)
                    for a in n.args:
                        self._uses[id(a)] = self._uses.get(id(a), 0) + 1

    def show(self, root: HostExpr) -> str:
        """The expression's text."""
        self._alive.append(root)
        for n in root.walk():
            if id(n) not in self._done:
                self._done[id(n)] = self._print(n)
        return self._done[id(root)][0]

    def _print(self, n: HostExpr) -> tuple[str, int]:
        depth = 1 + max((self._depth[id(a)][0] for a in n.args), default=0)
        size = 1 + sum(self._depth[id(a)][1] for a in n.args)
        self._depth[id(n)] = (depth, min(size, 1 << 20))
        made = self._form(n)
        shared = self._uses.get(id(n), 1) > 1 and size > HOIST_SIZE
        if n.args and (depth >= HOIST_DEPTH or shared):
            self.lets.append(made[0])
            self._depth[id(n)] = (0, 1)
            return f"?{len(self.lets) - 1}", ATOM
        return made

    def _form(self, n: HostExpr) -> tuple[str, int]:
        if n.op == "lit":
            text = _literal(n.value)
            return text, CHAIN if text.startswith("-") else ATOM
        if n.op == "sym":
            return symbol_text(n.value), ATOM
        if n.op == "+" and len(n.args) > 1:
            return self._sum(n), CHAIN
        if n.op == "-" and len(n.args) == 2 and not all(a.kind == "int" for a in n.args):
            return f"{self._at(n.args[0], TERM)} - {self._at(n.args[1], TERM)}", CHAIN
        if n.op == "*" and len(n.args) > 1:
            return self._product(n)
        if n.op in _TIGHT and len(n.args) == 2:
            return f"{self._at(n.args[0], ATOM)} {n.op} {self._at(n.args[1], ATOM)}", TERM
        if n.op in _LOOSE and len(n.args) == 2:
            return f"{self._at(n.args[0], CHAIN)} {n.op} {self._at(n.args[1], CHAIN)}", COMPARISON
        name = n.op if n.op.isidentifier() else json.dumps(n.op)
        return f"{name}({', '.join(self._at(a, COMPARISON) for a in n.args)})", ATOM

    def _at(self, n: HostExpr, level: int) -> str:
        text, own = self._done[id(n)]
        return text if own >= level else f"({text})"

    def _sum(self, n: HostExpr) -> str:
        """Terms joined; in an integer sum a negative one shows as a subtraction."""
        integers = all(a.kind == "int" for a in n.args)
        text = ""
        for k, a in enumerate(n.args):
            part, own = self._done[id(a)]
            signed = own == CHAIN and _negative(a) and integers
            if k == 0:
                text = part if signed or own >= TERM else f"({part})"
            elif signed:
                text += f" - {part[1:]}"
            else:
                text += f" + {self._at(a, TERM)}"
        return text

    def _product(self, n: HostExpr) -> tuple[str, int]:
        first, *rest = n.args
        tail = "*".join(self._at(a, ATOM) for a in rest)
        if _negative(n):
            head = "-" if first.value == -1 else f"{_literal(first.value)}*"
            return head + tail, CHAIN
        return f"{self._at(first, ATOM)}*{tail}", TERM


def _negative(n: HostExpr) -> bool:
    """A negative integer literal, or an integer product whose first factor is one: printed with a leading minus."""
    if n.op == "lit":
        return n.kind == "int" and n.value < 0
    return n.op == "*" and n.kind == "int" and n.args[0].op == "lit" and n.args[0].kind == "int" and n.args[0].value < 0


def _literal(value: float | int | bool) -> str:
    text = literal_text(value)
    return f"!{text}" if isinstance(value, float) and not math.isfinite(value) else text


def symbol_text(name: str) -> str:
    """A symbol's name, quoted where it does not look like one."""
    return name if _PLAIN.fullmatch(name) and name not in _WORDS else f"sym{json.dumps(name)}"


# -- tokens ----------------------------------------------------------------------------------------
_TOKEN = r"""(?P<space>[ \t]+)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?)
      | (?P<special>!-?(?:inf|nan))
      | (?P<let>\?\d+)
      | (?P<node>%\d+)
      | (?P<name>[A-Za-z_][A-Za-z_0-9.]*|[=$@\#][A-Za-z_0-9.]+)
      | (?P<op><-|->|//|\*\*|<<|>>|<=|>=|==|!=|[-+*/%<>&|^(){}\[\],:;=`])"""


@cache
def _token() -> re.Pattern[str]:
    """Compiled when something is parsed: it takes half a millisecond, and most processes only print."""
    return re.compile(_TOKEN, re.VERBOSE)


@dataclass(frozen=True)
class Token:
    """A word of a line of a graph's text, from that column (1-based) on."""

    kind: str
    text: str
    column: int


def tokenize(line: str, number: int, filename: str = "<graph>") -> list[Token]:
    """The tokens of a line; ParseError names the first character that starts none."""
    out: list[Token] = []
    at, pattern = 0, _token()
    while at < len(line):
        m = pattern.match(line, at)
        if m is None:
            span = Span(filename, number, at + 1, at + 2, line)
            raise ParseError(f"a graph's text has no token that starts with {line[at]!r}", "graph-text", (span,))
        if m.lastgroup != "space":
            out.append(Token(m.lastgroup or "", m.group(), at + 1))
        at = m.end()
    return out


@dataclass
class Reader:
    """A cursor over the tokens of one line, with expressions as its largest phrase."""

    line: str
    number: int
    lets: list[HostExpr]
    kinds: dict[str, ExprKind]
    filename: str = "<graph>"
    at: int = 0
    nesting: int = 0
    tokens: list[Token] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = tokenize(self.line, self.number, self.filename)

    # -- the cursor --------------------------------------------------------------------------------
    @property
    def peek(self) -> str:
        """The next token's text, empty at the end of the line."""
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    @property
    def kind(self) -> str:
        return self.tokens[self.at].kind if self.at < len(self.tokens) else ""

    def next(self) -> str:
        text = self.peek
        if not text:
            self.fail("the line ends too early")
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.peek == text and self.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected `{text}`" + (f", found `{self.peek}`" if self.peek else ""))

    def fail(self, message: str) -> NoReturn:
        """Raise ParseError at the next token."""
        column = self.tokens[self.at].column if self.at < len(self.tokens) else len(self.line) + 1
        span = Span(self.filename, self.number, column, column + max(len(self.peek), 1), self.line)
        raise ParseError(message, "graph-text", (span,))

    # -- expressions -------------------------------------------------------------------------------
    def expression(self) -> HostExpr:
        """One comparison."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail("an expression is nested too deeply")
        left = self.chain()
        if self.kind == "op" and self.peek in _LOOSE:
            left = raw(self.next(), left, self.chain())
        self.nesting -= 1
        return left

    def chain(self) -> HostExpr:
        minus = self.accept("-")
        first = self.term()
        parts = [(self._negated(first) if minus else first, "+")]
        while self.peek in ("+", "-") and self.kind == "op":
            sign = self.next()
            parts.append((self.term(), sign))
        if len(parts) == 1:
            return parts[0][0]
        if all(p.kind == "int" for p, _ in parts):
            return raw("+", *(self._negated(p) if sign == "-" else p for p, sign in parts))
        if len(parts) > 2:
            self.fail("a float sum has two terms; write parentheses")
        return raw(parts[1][1], parts[0][0], parts[1][0])

    def _negated(self, e: HostExpr) -> HostExpr:
        if e.op == "lit" and e.kind != "bool":
            return lit(-e.value)
        if e.op == "*" and e.args[0].op == "lit":
            return raw("*", lit(-e.args[0].value), *e.args[1:])
        if e.kind != "int":
            self.fail("write neg(...) of a float")
        return raw("*", lit(-1), *(e.args if e.op == "*" else (e,)))

    def term(self) -> HostExpr:
        first = self.atom()
        if self.kind == "op" and self.peek in _TIGHT:
            return raw(self.next(), first, self.atom())
        factors = [first]
        while self.accept("*"):
            factors.append(self.atom())
        return raw("*", *factors) if len(factors) > 1 else first

    def atom(self) -> HostExpr:
        kind, text = self.kind, self.next()
        if kind == "number":
            return lit(int(text)) if text.isdigit() else lit(float(text))
        if kind == "special":
            return lit(float(text[1:]))
        if kind == "let":
            return self._bound(int(text[1:]))
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if kind in ("name", "string"):
            return self._named(kind, text)
        self.at -= 1
        self.fail(f"`{text}` starts no expression")

    def _bound(self, k: int) -> HostExpr:
        if k >= len(self.lets):
            self.fail(f"?{k} is not bound yet")
        return self.lets[k]

    def _named(self, kind: str, text: str) -> HostExpr:
        if text in ("True", "False"):
            return lit(text == "True")
        if text == "sym" and self.kind == "string":
            return self._symbol(json.loads(self.next()))
        name = json.loads(text) if kind == "string" else text
        if not self.accept("("):
            return self._symbol(name)
        if name not in FUNCTIONS:
            self.fail(f"no host function is called `{name}`")
        args = [self.expression()]
        while self.accept(","):
            args.append(self.expression())
        self.expect(")")
        return raw(name, *args)

    def _symbol(self, name: str) -> HostExpr:
        return sym(name, self.kinds.get(name, "int"))


def raw(op: str, *args: HostExpr) -> HostExpr:
    """A node exactly as written, with the kind that `call` would give it."""
    return HostExpr(op, args, None, _result_kind(op, args))
