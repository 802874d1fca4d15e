"""Element types and NumPy-2 promotion.

In: dtype spellings of users (names, NumPy dtypes, Python types). Out: interned `DType` values and
the promotion rules (NEP 50, plus fuser's own rules for bfloat16). Its own file because every other
part of fuser speaks `DType`, and none of them may ask NumPy for a promotion by itself.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fuser.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["b", "i", "u", "f", "c"]
WeakKind = Literal["bool", "int", "float", "complex"]


@dataclass(frozen=True)
class DType:
    """One element type.

    `kind` is NumPy's letter (b, i, u, f, c); `bits` the storage width (bool stores 8 bits).
    Complex types are storage: a pass computes them as pairs of reals (`passes/split.py`).
    """

    name: str
    kind: Kind
    bits: int

    @property
    def bytes(self) -> int:
        """Storage size of one element in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; bool is not one."""
        return self.kind in "iu"

    @property
    def is_inexact(self) -> bool:
        """A float or complex type."""
        return self.kind in "fc"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def component(self) -> DType:
        """The dtype of a complex type's two parts; the dtype itself otherwise."""
        return {"c64": F32, "c128": F64}.get(self.name, self)

    @property
    def alignment(self) -> int:
        """Bytes that an element's address is a multiple of: NumPy aligns a complex number as its parts."""
        return self.component.bytes

    @property
    def is_half(self) -> bool:
        """f16 or bf16: stored narrow, computed in f32 (DESIGN "rounding belongs to the graph")."""
        return self.kind == "f" and self.bits == 16

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype with the same bits (ml_dtypes for bf16)."""
        return _bfloat16() if self.name == "bf16" else _NUMPY[self.name]

    @property
    def long_name(self) -> str:
        """NumPy's name, without asking NumPy for its dtype."""
        return "bfloat16" if self.name == "bf16" else str(_NUMPY[self.name])

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


BOOL = DType("bool", "b", 8)
I8, I16, I32, I64 = (DType(f"i{n}", "i", n) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{n}", "u", n) for n in (8, 16, 32, 64))
F16, F32, F64 = (DType(f"f{n}", "f", n) for n in (16, 32, 64))
BF16 = DType("bf16", "f", 16)
C64, C128 = DType("c64", "c", 64), DType("c128", "c", 128)

ALL: tuple[DType, ...] = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64)
COMPLEX = (C64, C128)

_NUMPY: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"f{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
_BY_NUMPY = {_NUMPY[t.name]: t for t in (*ALL, *COMPLEX) if t is not BF16}
_BY_NAME = {t.name: t for t in (*ALL, *COMPLEX)}
_LONG_NAMES = {t.long_name: t for t in (*ALL, *COMPLEX)} | {
    "float": F64,
    "int": I64,
}


@cache
def _bfloat16() -> np.dtype[Any]:
    """bf16 in NumPy, imported by the first program that has it."""
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


# Weak Python scalars: the kind that an operator result takes when the scalar's kind is the higher one.
_WEAK_DEFAULT: dict[WeakKind, DType] = {"bool": BOOL, "int": I64, "float": F64, "complex": C128}
_WEAK_SAMPLE: dict[WeakKind, Any] = {"bool": True, "int": 0, "float": 0.0, "complex": 0j}
_KIND_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_WEAK_RANK: dict[WeakKind, int] = {"bool": 0, "int": 1, "float": 2, "complex": 3}


def find(spelling: object) -> DType | None:
    """The `DType` for a name (`"f32"`, `"float32"`), NumPy dtype or type, Python type; None if unknown."""
    if isinstance(spelling, DType):
        return spelling
    if isinstance(spelling, str) and (hit := _BY_NAME.get(spelling) or _LONG_NAMES.get(spelling)):
        return hit
    try:
        dtype = np.dtype(spelling)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None
    known = _BY_NUMPY.get(dtype.newbyteorder("="))
    return BF16 if known is None and dtype.name == "bfloat16" else known


def in_python(spelling: Any) -> Any:
    """A dtype's spelling as NumPy reads it: the few codes that name another type there (`i8` is int64) become NumPy's
    dtype, all else stays."""
    if type(spelling) is not str or spelling not in _BY_NAME:
        return spelling
    try:
        return np.dtype(spelling)
    except TypeError:
        return spelling


def weak_kind(value: object) -> WeakKind | None:
    """The weak kind of a Python scalar, None for anything else (NumPy scalars are strong)."""
    if isinstance(value, np.generic):
        return None
    for kind, types in (("bool", bool), ("int", int), ("float", float), ("complex", complex)):
        if isinstance(value, types):
            return kind  # type: ignore[return-value]
    return None


@cache
def _promote_two(a: DType, b: DType) -> DType:
    """Strong promotion of two dtypes: NumPy's, extended to bf16 (bf16+f16 -> f32, bf16+int -> bf16)."""
    if a == b:
        return a
    if BF16 in (a, b):
        other = b if a == BF16 else a
        if other == F16:
            return F32
        return other if other.kind == "c" or other in (F32, F64) else BF16
    return _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]


def _apply_weak(strong: DType, weak: WeakKind) -> DType:
    """A strong dtype met by a weak scalar: kept, unless the scalar's kind is higher (NEP 50)."""
    if _WEAK_RANK[weak] <= _KIND_RANK[strong.kind]:
        return strong
    if strong == BF16:  # only complex ranks above a float
        return C64
    return _BY_NUMPY[np.result_type(strong.numpy, _WEAK_SAMPLE[weak])]


def promote(items: Iterable[DType | WeakKind]) -> DType:
    """Result dtype of operands given as dtypes (strong) and weak kinds, as NumPy 2 promotes (NEP 50).

    All-weak operands give NumPy's default for the highest kind (i64, f64). Order does not matter.
    """
    items = list(items)
    strong = [t for t in items if isinstance(t, DType)]
    weak: list[WeakKind] = sorted((t for t in items if not isinstance(t, DType)), key=_WEAK_RANK.__getitem__)
    if not strong:
        return _WEAK_DEFAULT[weak[-1]]
    if all(t != BF16 for t in strong):
        samples = [_WEAK_SAMPLE[w] for w in weak]
        return _BY_NUMPY[np.result_type(*(t.numpy for t in strong), *samples)]
    result = strong[0]
    for t in strong[1:]:
        result = _promote_two(result, t)
    return _apply_weak(result, weak[-1]) if weak else result


def complex_of(t: DType) -> DType:
    """The complex type that holds a real one: c128 for f64 and integers of 32 bits or more, as NumPy promotes."""
    return promote([t, "complex"])


def compute_dtype(t: DType) -> DType:
    """The dtype arithmetic happens in: f32 for the half types, the dtype itself otherwise."""
    return F32 if t.is_half else t
