"""Complex values while a graph is built: their parts, what is made of those, and the refusals.

In: nodes. Out: nodes; on reals every function is what NumPy makes of a real. Complex nodes live until the pass
`split`, which leaves them to memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from fuser.construct import elementwise as ew
from fuser.construct.common import Value, fail
from fuser.dtypes import BOOL, complex_of, promote
from fuser.errors import ComplexError
from fuser.graph import Builder, Node

_ORDER = "complex numbers have no order: compare np.abs(z), or z.real and z.imag"
_LARGEST = "complex numbers have no order: choose by np.abs(z)"
_PARTS = "write it with the parts: f(z.real) + 1j*f(z.imag), whichever is meant"
_ADVICE: dict[str, str] = {
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), _ORDER),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin", "clip", "max", "min", "argmax", "argmin"), _LARGEST),
    **dict.fromkeys(("cummax", "cummin", "max_sumexp"), _LARGEST),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint", "round"), _PARTS),
    "arctan2": "the angle of a complex number is np.angle(z)",
    "hypot": "the modulus of a complex number is np.abs(z)",
    "fabs": "write np.abs(z)",
    "cumprod": "write the loop over the axis; or np.exp(np.cumsum(np.log(z)))",
    "expm1": "write np.exp(z) - 1",
    "log1p": "write np.log(1 + z)",
    "exp2": "write np.exp(z * np.log(2))",
    "rsqrt": "write 1 / np.sqrt(z)",
    "matrix norm": "write it with np.abs(z)",
}


def refuse(b: Builder, name: str) -> NoReturn:
    """No complex form: says what to write instead."""
    advice = _ADVICE.get(name, "write it with z.real and z.imag, or call it outside")
    fail(b, ComplexError, f"`{name}` has no complex form", "complex", advice)


def real(b: Builder, x: Value) -> Node:
    """The real part; a real array itself."""
    node = ew.as_node(b, x)
    return ew.node(b, "real", node) if node.dtype.is_complex else node


def imag(b: Builder, x: Value) -> Node:
    """The imaginary part; zeros of a real array's dtype."""
    from fuser.construct import views

    node = ew.as_node(b, x)
    if node.dtype.is_complex:
        return ew.node(b, "imag", node)
    return views.broadcast_to(b, ew.as_node(b, False if node.dtype == BOOL else 0, node.dtype), node.shape)


def join(b: Builder, re: Value, im: Value) -> Node:
    """The complex array of two real ones, in the smallest complex type that holds both."""
    parts = [ew.as_node(b, p) for p in (re, im)]
    part = complex_of(promote([p.dtype for p in parts])).component
    return ew.combine(b, "complex", [ew.cast(b, p, part) for p in parts], complex_of(part))


def conjugate(b: Builder, x: Value) -> Node:
    """The conjugate; a real array itself."""
    node = ew.as_node(b, x)
    return ew.node(b, "conjugate", node) if node.dtype.is_complex else node


def squared_modulus(b: Builder, x: Node) -> Node:
    """x * conj(x) as a real: the sum of the squares of both parts; x * x of a real."""
    if not x.dtype.is_complex:
        return ew.node(b, "multiply", x, x)
    re, im = real(b, x), imag(b, x)
    return ew.node(b, "add", ew.node(b, "multiply", re, re), ew.node(b, "multiply", im, im))


def by_part(b: Builder, x: Node, function: Callable[[Node], Node]) -> Node:
    """A function of reals applied to both parts."""
    return ew.combine(b, "complex", [function(real(b, x)), function(imag(b, x))], x.dtype)


def product(b: Builder, x: Node, y: Node, multiply: Callable[[Builder, Node, Node], Node]) -> Node:
    """A bilinear product of complex arrays by four real ones."""
    (a, c), (d, e) = ((real(b, n), imag(b, n)) for n in (x, y))
    re = ew.node(b, "subtract", multiply(b, a, d), multiply(b, c, e))
    im = ew.node(b, "add", multiply(b, a, e), multiply(b, c, d))
    return ew.combine(b, "complex", [re, im], x.dtype)


def angle(b: Builder, x: Value) -> Node:
    """The argument of a complex number, in radians."""
    node = ew.as_node(b, x)
    return ew.node(b, "arctan2", imag(b, node), real(b, node))
