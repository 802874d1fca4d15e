"""What a front end is told about each argument of a program before it builds a graph.

In: text such as `"bf16[4096, 8192]"`, or a dtype and a shape. Out: `ArraySpec`, `ScalarSpec`, `StaticSpec`.
Its own file because the DSL, the Python tracer and the planner (which has specs but no arrays) share it,
and none of them may look at another.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from operator import add, floordiv, mul, sub
from typing import Any

from fuser.dtypes import ALL, COMPLEX, DType, WeakKind
from fuser.errors import ArgumentError
from fuser.hostexpr import HostExpr, as_dim, sym
from fuser.record import dataclass
from fuser.shapes import Shape, text_of


@dataclass(frozen=True)
class ArraySpec:
    """An array of this dtype and shape. Dims are ints where static (0 and 1 always), else host expressions.

    is_scalar: a NumPy scalar such as `np.float64(2)`, which promotes as strong but cannot be stored into.
    family: the library whose array it is: torch has methods and promotion of its own. strides: in elements, where they
    are not those of C order; offset: the address modulo 16: both only where a plan is asked for.
    """

    dtype: DType
    shape: Shape
    is_scalar: bool = False
    family: str = "numpy"
    strides: tuple[int, ...] | None = None
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.dtype}{text_of(self.shape)}"


@dataclass(frozen=True)
class ScalarSpec:
    """A Python scalar whose value arrives with each call; weak in promotion."""

    kind: WeakKind

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class StaticSpec:
    """A value known while tracing (str, None, bool, dtype, tuple, or a number that was asked to be static)."""

    value: Any

    def __str__(self) -> str:
        return repr(self.value)


Spec = ArraySpec | ScalarSpec | StaticSpec

FRONT = "rows"  # the one axis that stands for `...` in front of a declared type
LONGEST_DIM = 200  # characters
_OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv}
_SPEC = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[([^\[\]]*)\])?\s*")
# What may be written for a dtype in program text: no NumPy character codes, which would claim names such as `d`.
DTYPE_NAMES: dict[str, DType] = {name: t for t in (*ALL, *COMPLEX) for name in (t.name, t.long_name)}
_WEAK: dict[str, WeakKind] = {"float": "float", "int": "int", "bool": "bool", "complex": "complex"}


def parse(text: str) -> ArraySpec | ScalarSpec:
    """`"f32[n, 8]"` -> ArraySpec, `"f32"` and `"f32[]"` -> a 0-d ArraySpec, `"float"` -> ScalarSpec.

    A named dim is a symbol, the same one wherever the name appears. Strides in elements and an address modulo 16 bytes
    may follow: `"f32[8, 4; strides 16, -1]"`, `"f32[9; offset 4]"`. Raises ArgumentError [spec].
    """
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ArgumentError(f"`{text}` is not a spec", "spec", notes=('write for instance "bf16[4096, 8192]"',))
    name, dims = match.groups()
    if dims is None and name in _WEAK:
        return ScalarSpec(_WEAK[name])
    dtype = DTYPE_NAMES.get(name)
    if dtype is None:
        known = ", ".join(t.name for t in (*ALL, *COMPLEX))
        raise ArgumentError(f"`{name}` in the spec `{text}` is not a dtype", "spec", notes=(f"dtypes: {known}",))
    dims, *placed = (dims or "").split(";")
    parts = [p.strip() for p in dims.split(",")] if dims.strip() else []
    shape = tuple(_parse_dim(p, text) for p in parts)
    strides, offset = _placed(placed, len(shape), text)
    return ArraySpec(dtype, shape, strides=strides, offset=offset)


def _placed(parts: Iterable[str], rank: int, text: str) -> tuple[tuple[int, ...] | None, int]:
    """Strides (None: those of C order) and offset."""
    where: dict[str, tuple[int, ...]] = {}
    for part in parts:
        word, _, numbers = part.strip().partition(" ")
        where[word] = _integers(numbers)
    strides, offset = where.pop("strides", None), where.pop("offset", (0,))
    good = not where and (strides is None or len(strides) == rank > 0) and len(offset) == 1
    if not good or offset[0] not in range(16):
        hint = "behind the dims may stand `; strides` with a number each, and `; offset` with one below 16"
        raise ArgumentError(f"`{text}` is not a spec", "spec", notes=(hint,))
    return strides, offset[0]


def _integers(text: str) -> tuple[int, ...]:
    """`"16, -1"`; nothing for what is no list of integers."""
    parts = [p.strip() for p in text.split(",")]
    return tuple(map(int, parts)) if all(re.fullmatch(r"-?\d{1,18}", p) for p in parts) else ()


def text_of_array(dtype: DType, shape: Iterable[int], strides: tuple[int, ...] | None, offset: int) -> str:
    """The spec of an array, as `parse` reads it."""
    placed = f"; strides {', '.join(map(str, strides))}" if strides else ""
    return f"{dtype}[{', '.join(map(str, shape))}{placed}{f'; offset {offset}' if offset else ''}]"


def looks_like_array(text: str) -> bool:
    """Whether text is an array spec (`"f32[8, n]"`, `"f32"`) rather than some other string argument."""
    match = _SPEC.fullmatch(text)
    return match is not None and match.group(1) in DTYPE_NAMES


def meant_as_array(text: str) -> bool:
    """Whether text is an array spec, or one with a mistake in it (`"f23[8]"`, `"f32[8, 4"`)."""
    return looks_like_array(text) or re.match(r"\w+\[", text) is not None


def _parse_dim(part: str, text: str) -> int | HostExpr:
    if part == "...":
        return sym(FRONT)
    try:
        found = _arithmetic(ast.parse(part, mode="eval").body) if len(part) <= LONGEST_DIM else None
    except (SyntaxError, ValueError):
        found = None
    if found is None:
        hint = "a dim is a number, a name, or a sum or product of them"
        raise ArgumentError(f"`{part}` in the spec `{text}` is not a dim", "spec", notes=(hint,))
    return as_dim(found)


def _arithmetic(e: ast.expr) -> Any:
    """`2*d + 1` as a host expression; None for anything that is no sum, difference, product or quotient of dims."""
    if isinstance(e, ast.Constant):
        return e.value if type(e.value) is int and e.value >= 0 else None
    if isinstance(e, ast.Name):
        return sym(e.id)
    if not isinstance(e, ast.BinOp):
        return None
    a, b = _arithmetic(e.left), _arithmetic(e.right)
    step = _OPERATORS.get(type(e.op))
    return None if a is None or b is None or step is None else step(a, b)


def concrete(spec: ArraySpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A spec's shape at given sizes; ArgumentError [negative-dim] where a dim comes out negative."""
    shape = tuple(int(d.evaluate(sizes)) if isinstance(d, HostExpr) else d for d in spec.shape)
    if any(d < 0 for d in shape):
        raise ArgumentError(f"{spec} is {shape} at these sizes", "negative-dim")
    return shape


def symbolic_shape(sizes: Iterable[int], preferred: Iterable[str | None], name: str, taken: set[str]) -> Shape:
    """Dims of an array argument for tracing: sizes 0 and 1 static, every other axis a fresh symbol.

    An axis takes its preferred name (from `x: f32[n, d]`) if it is still free, else `x.0`, `x.1`, ...;
    `taken` collects the names used by this and earlier arguments.
    """
    shape: list[int | HostExpr] = []
    for axis, (size, wish) in enumerate(zip(sizes, preferred, strict=True)):
        if size in (0, 1):
            shape.append(int(size))
            continue
        symbol = wish if wish and wish not in taken else f"{name}.{axis}"
        taken.add(symbol)
        shape.append(sym(symbol))
    return tuple(shape)


def dim_names_of(annotation: object, rank: int) -> list[str | None]:
    """The dim names in an annotation such as `"f32[n, d]"`; Nones where it is no spec or has another rank."""
    if isinstance(annotation, str) and "[" in annotation:
        try:
            spec = parse(annotation.strip("'\""))
        except ArgumentError:
            return [None] * rank
        if isinstance(spec, ArraySpec) and len(spec.shape) == rank:
            return [d.value if isinstance(d, HostExpr) and d.op == "sym" else None for d in spec.shape]
    return [None] * rank
