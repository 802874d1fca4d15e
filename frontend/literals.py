"""Numbers and strings as written.

In: tokens. Out: Python values, read with no evaluation of text. Apart from `syntax`, which is one method a rule.
"""

from __future__ import annotations

import re

from lark import Token

from fuser.frontend.layout import Refused, place_of

MAX_DIGITS = 1000

_ESCAPES = {
    "\n": "", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v",
}  # fmt: skip
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.|\n)", re.DOTALL)


def integer_value(token: Token) -> int:
    """Decimal, hexadecimal, octal or binary, with underscores. Raises Refused when absurdly long."""
    if len(token) > MAX_DIGITS:
        raise Refused(f"this number has more than {MAX_DIGITS} digits", "number-size", (place_of(token),))
    return int(token, 0)


def text_value(token: Token) -> str:
    """The value of a string literal, escapes as in Python (an unknown one is kept as written)."""
    raw = token[0] in "rR"
    body = token[1:] if raw else str(token)
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    inner = body[quotes:-quotes]
    return inner if raw else _ESCAPE.sub(lambda m: _unescape(m, token), inner)


def _unescape(match: re.Match[str], token: Token) -> str:
    code = match[1]
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        if number > 0x10FFFF:
            raise Refused(f"`\\{code}` is no character", "syntax", (place_of(token),))
        return chr(number)
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] in "xuUN":
        raise Refused(f"`\\{code}` is cut short or not supported", "syntax", (place_of(token),), "write `\\\\`")
    return "\\" + code
