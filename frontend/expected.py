"""What the grammar expected, in words: Lark's exceptions -> one sentence, a place and a hint.

In: an `UnexpectedInput`. Out: `Refused`. Apart from `parser`, because it is nothing but wording.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence, Set

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from fuser.frontend.ast import Place
from fuser.frontend.layout import KEYWORD, Refused, place_of

_OPERAND = frozenset({"NAME", "INT", "FLOAT", "LPAR"})
_OPERATORS = frozenset({"PLUS", "STAR", "LESS"})
_WORDS = {
    "COLON": "`:`", "COMMA": "`,`", "EQUAL": "`=`", "RPAR": "`)`", "RSQB": "`]`", "LPAR": "`(`", "LSQB": "`[`",
    "NAME": "a name", "IN": "`in`", "ELSE": "`else`", "_INDENT": "an indented block", "_NL": "the end of the line",
    "MODULE_END": "the end", "DEF": "`def`", "DOT": "`.`", "SEMICOLON": "`;`",
}  # fmt: skip
_STATEMENTS = frozenset({"return", "def", "pass", "while", "import", "class", "try", "with", "raise", "assert"})
_CURLY = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2212": "-", "\u2013": "-", "\u2014": "-",
          "\u00d7": "*", "\u00f7": "/"}  # fmt: skip


HINTS = {
    "while": "only `for i in range(n):` exists; to stop early, `if test: break` stands first in it",
    "import": "nothing needs importing: operators such as `exp` are built in",
    "from": "nothing needs importing: operators such as `exp` are built in",
    "class": "a program is made of functions",
    "def": "functions are defined at the left margin, not inside each other",
    "lambda": "a `lambda` can only be the whole program; write `def`",
    "try": "there are no exceptions in a program",
    "except": "there are no exceptions in a program",
    "finally": "there are no exceptions in a program",
    "raise": "there are no exceptions in a program",
    "with": "there are no context managers in a program",
    "assert": "shapes and dtypes are checked through annotations, `x: f32[n, d]`",
    "break": "it stands on a line inside a loop: `if test: break`",
    "continue": "no part of a round can be skipped: write `a if test else b`",
    "global": "a function sees its parameters and the module's constants",
    "nonlocal": "a function sees its parameters and the module's constants",
    "yield": "write `return`; several results are a tuple",
    "async": "there is no async in a program",
    "await": "there is no async in a program",
    "del": "values are freed by themselves",
    "for": "loops stand inside functions, each on lines of its own; comprehensions do not exist",
    "if": "statements stand inside functions, each on a line of its own",
    "return": "statements stand inside functions, each on a line of its own",
    "elif": "it follows an `if` block, indented as that `if`",
    "else": "it follows an `if` block, indented as that `if`",
    "in": "membership cannot be tested; compare with `==`",
}


def explain(error: UnexpectedInput, lines: tuple[str, ...]) -> Refused:
    """The refusal for an error of the lexer or the parser."""
    if isinstance(error, UnexpectedCharacters):
        return _character(error)
    if isinstance(error, UnexpectedToken):
        return _token(error, lines)
    place = Place(len(lines), 1, len(lines), 2)
    return Refused("the program ends too early", "syntax", (place,))


def _character(error: UnexpectedCharacters) -> Refused:
    char, place = error.char, Place(error.line, error.column, error.line, error.column + 1)
    if char in "'\"":
        return Refused("this string is never closed", "syntax", (place,))
    if char.isdigit():
        return Refused("this number is not followed by an operator or a blank", "syntax", (place,))
    if char == "@":
        return Refused("a program has no decorators", "syntax", (place,))
    if char in "{}":
        return Refused(f"`{char}` has no meaning here", "syntax", (place,), "a program has no dicts, sets or f-strings")
    if char == "!":
        return Refused("`!` has no meaning here", "syntax", (place,), "write `not x`, or `!=` to compare")
    if char == "\\":
        return Refused("nothing may follow `\\` on its line", "syntax", (place,))
    if char == "?":
        return Refused("`?` has no meaning here", "syntax", (place,), "a choice is written `a if test else b`")
    if char in "$`":
        return Refused(f"`{char}` has no meaning here", "syntax", (place,))
    if char in _CURLY:
        return Refused(f"`{char}` is not the sign it looks like", "syntax", (place,), f"write `{_CURLY[char]}`")
    if char.isprintable() and char.isascii():
        return Refused(f"`{char}` cannot stand here", "syntax", (place,))
    name = unicodedata.name(char, f"U+{ord(char):04X}").lower()
    return Refused(f"the character {name} has no meaning here", "syntax", (place,))


def _token(error: UnexpectedToken, lines: tuple[str, ...]) -> Refused:
    token: Token = error.token
    expected = set(error.accepts or error.expected)
    place = _place(token, lines)
    pending = _pending(error)
    opener = next((t for t in reversed(pending) if t.type in ("LPAR", "LSQB")), None)
    later = opener is not None and (token.line or 0) > (opener.line or 0)
    if opener is not None and later and token in _STATEMENTS:
        return Refused(f"`{opener}` is never closed", "syntax", (place_of(opener),))
    if token.type == "_INDENT":
        return Refused("this line is indented, but opens no block", "indentation", (place,))
    if "_INDENT" in expected:
        return Refused("an indented block must follow", "indentation", (place,))
    if token.type == KEYWORD:
        return Refused(f"`{token}` cannot stand here", "syntax", (place,), *([HINTS[token]] if token in HINTS else []))
    if token.type in ("_NL", "$END", "_DEDENT"):
        message = f"the line ends, but {_wanted(expected)} must follow"
        return Refused(message, "syntax", (place,), *_hint(token, expected, pending))
    shown = str(token).split("\n")[0]
    message = f"`{shown}` stands where {_wanted(expected)} must"
    if opener is not None and later:
        return Refused(message, "syntax", (place_of(opener), place), f"this `{opener}` is still open")
    return Refused(message, "syntax", (place,), *_hint(token, expected, pending))


def _pending(error: UnexpectedToken) -> list[Token]:
    """The tokens of the present statement that the parser has not made sense of yet, in text order."""
    parser = error.interactive_parser
    stack = parser.parser_state.value_stack if parser is not None else []
    tokens: list[Token] = []
    for item in stack:
        if isinstance(item, Token):
            tokens = [] if item.type in ("_NL", "_INDENT", "SEMICOLON") else [*tokens, item]
    return tokens


def _place(token: Token, lines: tuple[str, ...]) -> Place:
    """A line end is shown just behind the text of its line; the end of the text on the last line of code."""
    if token.type == "$END" or token.line is None:
        number = max((k for k, line in enumerate(lines, 1) if line.strip()), default=1)
        column = len(lines[number - 1].rstrip()) + 1
        return Place(number, column, number, column + 1)
    if token.type == "_NL":
        column = len(lines[token.line - 1].rstrip()) + 1
        return Place(token.line, min(column, token.column or column), token.line, column + 1)
    if token.type in ("_INDENT", "_DEDENT"):
        number = token.end_line or token.line
        return Place(number, len(token) + 1, number, len(token) + 2)
    return place_of(token)


def _wanted(expected: Set[str]) -> str:
    """The expected tokens in words, the many that start an expression as one."""
    if expected >= _OPERAND:
        return "an expression"
    if expected >= _OPERATORS:
        ends = [_WORDS[t] for t in ("RPAR", "RSQB", "COLON") if t in expected]
        return " or ".join(["an operator", *ends])
    known = [_WORDS[t] for t in _WORDS if t in expected]
    if known:
        return known[0] if len(known) == 1 else ", ".join(known[:-1]) + " or " + known[-1]
    return "an operator" if expected else "nothing"


def _hint(token: Token, expected: Set[str], pending: Sequence[Token]) -> tuple[str, ...]:
    if token == "=" and any(t.type in ("IF", "RETURN", "LPAR", "LSQB") for t in pending):
        return ("to compare, write `==`",)
    if token == ":" and "EQUAL_TO" in expected:
        return ("slices stand in `[...]`, dicts do not exist",)
    if token.type in ("STRING", "LONG_STRING") and "PLUS" in expected:
        return ('only plain and r"..." strings exist',)
    if token in ("&", "|") and pending and pending[-1] == token:
        return (f"write `{'and' if token == '&' else 'or'}`, or one `{token}`",)
    if token == "->":
        return ("the result's type stands between `)` and `:`",)
    return ()
