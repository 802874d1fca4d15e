"""Layout: line ends into indentation, and what is refused before the grammar sees it.

In: the lexer's tokens. Out: the same with `_INDENT` and `_DEDENT`, without line ends inside brackets. Its own
file because it is all that the grammar cannot say: Python's rule for indentation, brackets that match, a
bound on nesting (an untrusted text must not exhaust a stack), keywords where they do not belong.

One object serves every parse of a process, from any thread: `process` keeps its state in local variables.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from keyword import iskeyword

from lark import Token

from fuser.frontend.ast import Place

MAX_BRACKETS = 100  # Python itself refuses 200
MAX_BLOCKS = 50

KEYWORD = "KEYWORD"

_CLOSERS = {"RPAR": ("LPAR", ")"), "RSQB": ("LSQB", "]")}
_OPENERS = {"LPAR": "(", "LSQB": "["}


class Refused(Exception):
    """Text that is refused, with the places to underline and the way out; `parser` turns it into a ParseError."""

    def __init__(self, message: str, slug: str, places: tuple[Place, ...], *notes: str) -> None:
        super().__init__(message)
        self.message, self.slug, self.places, self.notes = message, slug, places, notes


def place_of(token: Token) -> Place:
    """Where a token stands."""
    line, column = token.line or 1, token.column or 1
    return Place(line, column, token.end_line or line, token.end_column or column + 1)


class Layout:
    """Lark's `postlex`: sees every token before the parser does."""

    always_accept = ("_NL", "NAME", *_OPENERS, *_CLOSERS)  # NAME: so that `inx` is never read as `in x`

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Tokens for the parser. Raises Refused."""
        indents = [("", 0, 0)]  # text, width with tabs to multiples of 8, width with tabs of 1
        brackets: list[Token] = []
        for token in stream:
            if token.type == "_NL":
                if not brackets:
                    yield token
                    yield from _indentation(token, indents)
                continue
            if token.type in _OPENERS:
                brackets.append(token)
                if len(brackets) > MAX_BRACKETS:
                    message = f"brackets are nested more than {MAX_BRACKETS} deep"
                    raise Refused(message, "nesting", (place_of(token),), "give a part a name of its own")
            elif token.type in _CLOSERS:
                _close(token, brackets)
            elif token.type == "NAME":
                token = _name(token)
            yield token
        if brackets:
            opener = brackets[-1]
            raise Refused(f"`{opener}` is never closed", "syntax", (place_of(opener),))
        yield from (Token("_DEDENT", "") for _ in indents[1:])


def _indentation(token: Token, indents: list[tuple[str, int, int]]) -> Iterator[Token]:
    """The `_INDENT` or `_DEDENT`s that a line end brings; Python's rule, under which tabs of 8 and of 1 must agree."""
    text = token.rsplit("\n", 1)[1]
    wide, narrow = len(text.expandtabs(8)), len(text)
    line = token.end_line or 1
    place = Place(line, narrow + 1, line, narrow + 2)
    if wide > indents[-1][1]:
        if narrow <= indents[-1][2]:
            raise Refused("tabs and spaces are mixed in indentation", "indentation", (place,), "use spaces only")
        if len(indents) > MAX_BLOCKS:
            raise Refused(f"blocks are nested more than {MAX_BLOCKS} deep", "nesting", (place,), "write a function")
        indents.append((text, wide, narrow))
        yield Token.new_borrow_pos("_INDENT", text, token)
        return
    while wide < indents[-1][1]:
        indents.pop()
        yield Token.new_borrow_pos("_DEDENT", text, token)
    if wide != indents[-1][1]:
        raise Refused("this line is indented like no block around it", "indentation", (place,))
    if narrow != indents[-1][2]:
        raise Refused("tabs and spaces are mixed in indentation", "indentation", (place,), "use spaces only")


def _close(token: Token, brackets: list[Token]) -> None:
    wanted, _ = _CLOSERS[token.type]
    if not brackets:
        raise Refused(f"`{token}` closes nothing", "syntax", (place_of(token),))
    opener = brackets.pop()
    if opener.type != wanted:
        raise Refused(f"`{token}` does not close `{opener}`", "syntax", (place_of(opener), place_of(token)))


def _name(token: Token) -> Token:
    """A NAME as Python reads it. Python's keywords are no names, wherever the lexer saw one: no rule takes KEYWORD."""
    if iskeyword(token):
        return Token.new_borrow_pos(KEYWORD, token, token)
    if token.isascii():
        return token
    if not token.isidentifier():
        raise Refused(f"`{token}` is not a name", "syntax", (place_of(token),), "use letters, digits and `_`")
    return token.update(value=unicodedata.normalize("NFKC", token))
