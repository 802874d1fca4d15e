"""Dtypes in C: type names, exact literals, and what conversions are called.

In: dtypes and Python values. Out: C text for them. Half types are their bits in an `unsigned short`; sources
include no header, so there is no `INFINITY`, no `int32_t` and no `__half`.
"""

from __future__ import annotations

import math

from fuser.codegen.loops import Lit
from fuser.dtypes import BF16, F16, F32, F64, DType
from fuser.errors import InternalError

C_TYPES = {
    "bool": "bool",
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long",
    "f16": "unsigned short", "bf16": "unsigned short", "f32": "float", "f64": "double",
    "c64": "float2", "c128": "double2",
}  # fmt: skip
_SUFFIX = {"i64": "LL", "u32": "u", "u64": "ULL", "f32": "f"}
_FLOAT_BITS = {F32: ("__int_as_float", "0x{:08x}"), F64: ("__longlong_as_double", "0x{:016x}LL")}
PLAIN_BITS = 20  # floats with at most so many binary digits after scaling print as decimals, still exactly

# Reinterpreting 32 and 64 bits: (from kind, to kind) with kind "f" or "i".
_AS = {
    (32, "f", "i"): "__float_as_int", (32, "i", "f"): "__int_as_float",
    (64, "f", "i"): "__double_as_longlong", (64, "i", "f"): "__longlong_as_double",
}  # fmt: skip
# Half types through the prelude's leaf functions.
_TO_HALF = {F16: "fuser_f32_to_f16", BF16: "fuser_f32_to_bf16"}
_FROM_HALF = {F16: "fuser_f16_to_f32", BF16: "fuser_bf16_to_f32"}


def c_type(dtype: DType) -> str:
    """The C type that stores and computes a dtype."""
    return C_TYPES[dtype.name]


def zero(dtype: DType) -> str:
    """What a masked load gives where it reads nothing."""
    return join("0", "0", dtype.component) if dtype.is_complex else f"({c_type(dtype)})0"


def join(re: str, im: str, part: DType) -> str:
    """A complex value of its parts."""
    return f"make_{'float2' if part == F32 else 'double2'}({re}, {im})"


def unsigned_type(dtype: DType) -> str:
    """The type in which an integer dtype's arithmetic wraps; narrow ones in 32 bits, since u16 * u16 overflows int."""
    return C_TYPES["u64" if dtype.bits == 64 else "u32"]


def literal(x: Lit) -> str:
    """A literal that C reads as exactly this value."""
    if x.dtype.kind == "b":
        return "true" if x.value else "false"
    if x.dtype.is_integer:
        return _integer(int(x.value), x.dtype)
    if x.dtype not in _FLOAT_BITS:
        raise InternalError(f"{x.dtype} has no literals in C", "half-literal")
    return _float(float(x.value), x.dtype)


def _integer(value: int, dtype: DType) -> str:
    suffix = _SUFFIX.get(dtype.name, "")
    if dtype.bits >= 32 and dtype.kind == "i" and value == -(1 << (dtype.bits - 1)):
        return f"({value + 1}{suffix} - 1)"  # the positive part alone would not fit the type
    return f"{value}{suffix}"


def _float(value: float, dtype: DType) -> str:
    suffix = _SUFFIX.get(dtype.name, "")
    if not math.isfinite(value):
        function, digits = _FLOAT_BITS[dtype]
        bits = int.from_bytes(dtype.numpy.type(value).tobytes(), "little")
        return f"{function}({digits.format(bits)})"
    scaled = value * (1 << (PLAIN_BITS // 2))
    if scaled.is_integer() and abs(scaled) < 1 << PLAIN_BITS:
        return f"{value!r}{suffix}"
    mantissa, _, exponent = value.hex().partition("p")
    digits = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{digits}p{exponent}{suffix}"


def convert(text: str, source: DType, target: DType) -> str:
    """The machine's value conversion of an expression."""
    if source.is_half:
        return convert(f"{_FROM_HALF[source]}({text})", F32, target) if target != source else text
    if target.is_half:
        return f"{_TO_HALF[target]}({convert(text, source, F32)})"
    return text if source == target else f"({c_type(target)}){text}"


def reinterpret(text: str, source: DType, target: DType) -> str:
    """The same bits as another dtype of the same width."""
    if source.bits != target.bits:
        raise InternalError(f"bits of {source} are not the bits of {target}", "bitcast-width")
    before, after = ("f" if t.is_float and not t.is_half else "i" for t in (source, target))
    function = _AS.get((source.bits, before, after))
    if function is None:
        return text if c_type(source) == c_type(target) else f"({c_type(target)}){text}"
    signed = {"__int_as_float": "(int)", "__longlong_as_double": "(long long)"}.get(function, "")
    inner = f"{function}({signed if source.kind == 'u' else ''}{text})"
    return f"({c_type(target)}){inner}" if target.kind == "u" else inner
