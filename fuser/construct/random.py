"""Random numbers: Philox4x32-10 on the logical linear index of each element.

In: a key (an integer, known at the call or computed) and a shape. Out: ordinary integer scalar nodes. Values do
not depend on layout, fusion or device. The four words of Philox with counter (c low, c high, stream, 0) and the key's
two halves belong to four neighbouring elements where each takes one (element i takes word i mod 4 of call c = i div 4),
or to two where each takes two. So four values cost one call wherever a kernel holds neighbours together.
"""

from __future__ import annotations

import math
from typing import Any

from fuser.construct import creation, views
from fuser.construct import elementwise as ew
from fuser.construct.common import Value, describe, dtype_of, fail, is_host, shape_of, static_int
from fuser.dtypes import BOOL, F32, F64, U32, U64, DType
from fuser.errors import ArgumentError, DTypeError
from fuser.graph import Builder, Node
from fuser.hostexpr import HostExpr, as_dim, call, lit, wrap
from fuser.indexmap import axes, linear
from fuser.shapes import Shape, numel

ROUNDS = 10
_M0, _M1 = 0xD2511F53, 0xCD9E8D57  # multipliers and Weyl increments: Salmon et al., "Parallel random numbers", 2011
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


def philox(b: Builder, counter: tuple[Node, Node, Node, Node], key: tuple[Node, Node]) -> tuple[Node, Node, Node, Node]:
    """Philox4x32-10: four u32 counter words and two u32 key words to four random words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for step in range(ROUNDS):
        if step:
            k0, k1 = ew.node(b, "add", k0, _W0), ew.node(b, "add", k1, _W1)
        high0, low0 = _product(b, c0, _M0)
        high1, low1 = _product(b, c2, _M1)
        c0, c1, c2, c3 = _mix(b, high1, c1, k0), low1, _mix(b, high0, c3, k1), low0
    return c0, c1, c2, c3


def _product(b: Builder, x: Node, factor: int) -> tuple[Node, Node]:
    """High and low word of a product: two operators, because a CPU's vectors of 64-bit words take twice the time; where
    one instruction gives both words, `codegen.products` joins them."""
    m = ew.as_node(b, factor, U32)
    return ew.node(b, "mulhi", x, m), ew.node(b, "multiply", x, m)


def _mix(b: Builder, x: Node, y: Node, k: Node) -> Node:
    return ew.node(b, "bitwise_xor", ew.node(b, "bitwise_xor", x, y), k)


def _key_words(b: Builder, key: Value) -> tuple[Node, Node]:
    """Low and high word of a key of up to 64 bits."""
    if is_host(key):
        host = wrap(key)  # type: ignore[arg-type]
        if host.kind != "int":
            fail(b, DTypeError, f"a random key is an integer, not {describe(b, key)}", "random-key")
        low, high = call("&", host, _MASK), call("&", call(">>", host, 32), _MASK)
        return ew.as_node(b, low, U32), ew.as_node(b, high, U32)
    node = ew.as_node(b, key)
    if not node.dtype.is_integer or node.rank:
        fail(b, DTypeError, f"a random key is one integer, not {describe(b, node)}", "random-key")
    return _words(b, ew.cast(b, node, U64))


def _words(b: Builder, x: Node) -> tuple[Node, Node]:
    return ew.cast(b, x, U32), ew.cast(b, ew.node(b, "right_shift", x, ew.as_node(b, 32, x.dtype)), U32)


def words(b: Builder, key: Value, shape: object, stream: object, count: int) -> tuple[Node, ...]:
    """`count` (1 or 2) independent u32 arrays for a key, shape and stream.

    A call of Philox gives four words, to 4 / count neighbouring elements.
    """
    dims: Shape = shape_of(b, shape)
    sharing = 4 // count
    low, high = _words(b, ew.cast(b, _position(b, dims, sharing, call_of="//"), U64))
    number = static_int(b, stream, "stream")
    zero = ew.as_node(b, 0, U32)
    drawn = philox(b, (low, high, ew.as_node(b, number & _MASK, U32), zero), _key_words(b, key))
    place = _position(b, dims, sharing, call_of="%")
    return tuple(views.broadcast_to(b, _chosen(b, place, drawn[k::count]), dims) for k in range(count))


def _position(b: Builder, dims: Shape, sharing: int, call_of: str) -> Node:
    """Which call of Philox an element's words come from (`//`), or whose turn in that call it is (`%`); i64."""
    size = lit(1) * numel(dims)
    count = call("//", size + (sharing - 1), sharing) if call_of == "//" else sharing
    at = call(call_of, linear(axes(len(dims)), dims), sharing)
    return views.view(b, creation.iota(b, (as_dim(count),), 0), (at,), dims)


def _chosen(b: Builder, place: Node, options: tuple[Node, ...]) -> Node:
    """The option whose number `place` is."""
    found = options[-1]
    for k in range(len(options) - 2, -1, -1):
        found = ew.where(b, ew.node(b, "equal", place, k), options[k], found)
    return found


def bits(b: Builder, key: Value, shape: object, dtype: object = U32, stream: object = 0) -> Node:
    """Random u32 or u64 integers, all values equally likely."""
    target = dtype_of(b, dtype)
    if target == U32:
        return words(b, key, shape, stream, 1)[0]
    if target == U64:
        return _join(b, *words(b, key, shape, stream, 2))
    fail(b, DTypeError, f"random bits are u32 or u64, not {target}", "dtype")


def _join(b: Builder, low: Node, high: Node) -> Node:
    upper = ew.node(b, "left_shift", ew.cast(b, high, U64), ew.as_node(b, 32, U64))
    return ew.node(b, "bitwise_or", upper, ew.cast(b, low, U64))


def _unit(b: Builder, drawn: tuple[Node, ...], open_low: bool = False) -> Node:
    """Floats in [0, 1), or in (0, 1] when `open_low`: multiples of 2^-24 (f32, one word) or 2^-53 (f64, two)."""
    if len(drawn) == 2:
        count, size, dtype = ew.node(b, "right_shift", _join(b, *drawn), ew.as_node(b, 11, U64)), 53, F64
    else:
        count, size, dtype = ew.node(b, "right_shift", drawn[0], ew.as_node(b, 8, U32)), 24, F32
    if open_low:
        count = ew.node(b, "add", count, 1)
    return ew.node(b, "multiply", ew.cast(b, count, dtype), math.ldexp(1.0, -size))


def _work_dtype(b: Builder, dtype: object) -> tuple[DType, DType]:
    target = dtype_of(b, dtype)
    if not target.is_float:
        fail(b, DTypeError, f"this draw makes floats, not {target}", "dtype")
    return (F64 if target == F64 else F32), target


def uniform(
    b: Builder, key: Value, shape: object, low: Any = 0.0, high: Any = 1.0, dtype: object = F32, stream: object = 0
) -> Node:
    """Uniform floats in [low, high)."""
    work, target = _work_dtype(b, dtype)
    unit = _unit(b, words(b, key, shape, stream, 2 if work == F64 else 1))
    if not _is(low, 0) or not _is(high, 1):
        width = ew.apply(b, "subtract", high, low)
        unit = ew.node(b, "add", ew.node(b, "multiply", unit, width), low)
    return ew.cast(b, unit, target)


def _is(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


def normal(
    b: Builder, key: Value, shape: object, mean: Any = 0.0, std: Any = 1.0, dtype: object = F32, stream: object = 0
) -> Node:
    """Normal floats by Box and Muller: sqrt(-2 ln u) cos(2 pi v)."""
    work, target = _work_dtype(b, dtype)
    drawn = words(b, key, shape, stream, 2)
    if work == F64:
        more = words(b, key, shape, static_int(b, stream, "stream") ^ 0x80000000, 2)
        u, v = _unit(b, drawn, open_low=True), _unit(b, more)
    else:
        u, v = _unit(b, drawn[:1], open_low=True), _unit(b, drawn[1:])
    radius = ew.node(b, "sqrt", ew.node(b, "multiply", ew.node(b, "log", u), -2.0))
    value = ew.node(b, "multiply", radius, ew.node(b, "cos", ew.node(b, "multiply", v, 2.0 * math.pi)))
    if not _is(std, 1):
        value = ew.node(b, "multiply", value, std)
    if not _is(mean, 0):
        value = ew.node(b, "add", value, mean)
    return ew.cast(b, value, target)


def bernoulli(b: Builder, key: Value, p: Any, shape: object, stream: object = 0) -> Node:
    """True with probability `p` (a number or an array that broadcasts)."""
    drawn = uniform(b, key, shape, stream=stream)
    return ew.node(b, "less", drawn, p if is_host(p) else ew.cast(b, p, F32))


def randint(b: Builder, key: Value, shape: object, low: Any, high: Any, stream: object = 0) -> Node:
    """i64 integers in [low, high), by multiplying up (bias below 2^-32 * (high - low))."""
    from fuser.dtypes import I64

    drawn = ew.cast(b, words(b, key, shape, stream, 1)[0], U64)
    span = ew.cast(b, ew.apply(b, "subtract", high, low), U64)
    scaled = ew.node(b, "right_shift", ew.node(b, "multiply", drawn, span), ew.as_node(b, 32, U64))
    return ew.node(b, "add", ew.cast(b, scaled, I64), ew.cast(b, low, I64))


def dropout(b: Builder, x: Node, p: Any, key: Value, stream: object = 0) -> Node:
    """Elements zeroed with probability `p`, the others scaled by 1 / (1 - p)."""
    if not isinstance(p, HostExpr | int | float):
        fail(b, ArgumentError, f"dropout's p is a number, not {describe(b, p)}", "dropout")
    if isinstance(p, int | float) and not 0 <= p < 1:
        fail(b, ArgumentError, f"dropout's p is in [0, 1), not {p}", "dropout")
    limit = call("min", call("ceil", call("*", wrap(p), 1 << 32)), _MASK)  # of 2^32 words, so many mean zero
    kept = ew.node(b, "greater_equal", words(b, key, x.shape, stream, 1)[0], ew.as_node(b, limit, U32))
    scaled = ew.node(b, "multiply", x, call("/", 1.0, call("-", 1.0, p)))
    result = ew.where(b, kept, scaled, ew.as_node(b, 0, scaled.dtype))
    assert kept.dtype == BOOL
    return result
