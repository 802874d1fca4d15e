"""Number theory on integers: `gcd` and `lcm`.

In: nothing. Out: two scalar rows. Euclid's algorithm takes at most as many steps as the Fibonacci numbers below the
dtype's largest value, so a fixed number of selects replaces the loop and every lane does the same work.
"""

from __future__ import annotations

import numpy as np

from fuser.dtypes import U8, U16, U32, U64, DType
from fuser.optable.base import Cost, Names, S, ScalarOp, Table
from fuser.optable.rules import numpy_rule

_UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}


def steps(bits: int) -> int:
    """Most remainders that Euclid's algorithm takes on two unsigned numbers of this width."""
    small, large, count = 1, 2, 1
    while large < 1 << bits:
        small, large, count = large, small + large, count + 1
    return count


def _magnitude(x: S) -> S:
    """|x| as an unsigned number; the smallest integer too has one."""
    unsigned: DType = _UNSIGNED[x.dtype.bits]
    return x.op("absolute").cast(unsigned)


def _euclid(x: S, y: S) -> S:
    for _ in range(steps(x.dtype.bits)):
        done = y.eq(0)
        rest = x.op("trunc_rem", done.where(y.like(1), y))
        x, y = done.where(x, y), done.where(y, rest)
    return x


def _gcd(x: S, y: S) -> S:
    return _euclid(_magnitude(x), _magnitude(y)).cast(x.dtype)


def _lcm(x: S, y: S) -> S:
    p, q = _magnitude(x), _magnitude(y)
    common = _euclid(p, q)
    whole = p.op("trunc_div", common.eq(0).where(common.like(1), common))
    return (whole * q).cast(x.dtype)


ROWS = tuple(
    ScalarOp(
        name=name, arity=2, rule=numpy_rule(ufunc), reference=ufunc, expand=expand, exact=True, continuous=False,
        cost=Cost(instructions=46 * 20), no_vjp="of integers", names=Names(numpy=(name,), torch=(name,)), notes=notes,
    )
    for name, ufunc, expand, notes in (
        ("gcd", np.gcd, _gcd, "never negative; gcd(0, 0) is 0; a fixed 13 to 93 remainders by width: costly"),
        ("lcm", np.lcm, _lcm, "wraps where it does not fit; lcm with 0 is 0; as costly as `gcd`"),
    )
)  # fmt: skip


def register(table: Table) -> None:
    """Add this module's rows."""
    for row in ROWS:
        table.register(row)
