"""Value conversions in LLVM IR: the operators `convert` and `bitcast`, for one lane or many.

In: an IR value of one dtype. Out: the IR value of another, as the machine converts. (The total `cast` of the language
is written with these, see `optable/casts.py`.) A half type is its 16 bits in a register; f16 goes through the machine's
conversion where it has one, else through integer arithmetic. Its own file because no operator row can spell what
depends on two dtypes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.codegen.llvm import irtypes as types
from fuser.dtypes import BOOL, F16, F32, DType
from fuser.errors import InternalError


def _every_second(index: int, width: int) -> Any:
    return types.index_vector(list(range(index, 2 * width, 2)))


class Converter:
    """Writes conversions. `native_half`: the machine converts between f16 and f32."""

    def __init__(self, builder: Any, native_half: bool) -> None:
        self.b, self.native_half = builder, native_half

    def convert(self, x: Any, source: DType, target: DType) -> Any:
        """`x` as `target` by value: floats to integers in range, f16 from and to f32; never bf16, never to bool."""
        if source == target:
            return x
        if F16 in (source, target) and F32 in (source, target):
            return self._widen_f16(x) if source == F16 else self._narrow_f16(x)
        if source.is_half or target.is_half or target == BOOL:
            raise InternalError(f"no machine conversion from {source} to {target}", "kernel-type")
        wanted = types.with_element(x, types.scalar(target))
        if source.is_float and target.is_float:
            return self.b.fpext(x, wanted) if target.bits > source.bits else self.b.fptrunc(x, wanted)
        if source.is_float:
            return self.b.fptosi(x, wanted) if target.kind == "i" else self.b.fptoui(x, wanted)
        return self._from_integer(x, source, target, wanted)

    def bitcast(self, x: Any, source: DType, target: DType) -> Any:
        """The same bits as another dtype of the same width."""
        if source.bits != target.bits or (source == BOOL) != (target == BOOL):
            raise InternalError(f"bitcast from {source} to {target}", "kernel-type")
        wanted = types.with_element(x, types.scalar(target))
        return x if x.type == wanted else self.b.bitcast(x, wanted)

    def part(self, x: Any, index: int, target: DType) -> Any:
        """The real or imaginary part (0 or 1) of a complex value's bits: every second lane of them."""
        width = types.width_of(x)
        both = self.b.bitcast(x, types.lanes(types.scalar(target), 2 * width))
        if width == 1:
            return self.b.extract_element(both, ir.Constant(types.I32, index))
        return self.b.shuffle_vector(both, ir.Constant(both.type, ir.Undefined), _every_second(index, width))

    def join(self, re: Any, im: Any, target: DType) -> Any:
        """The bits of complex values of two parts: their lanes in turn."""
        width = types.width_of(re)
        if width == 1:
            both = ir.Constant(types.lanes(re.type, 2), ir.Undefined)
            for k, part in enumerate((re, im)):
                both = self.b.insert_element(both, part, ir.Constant(types.I32, k))
        else:
            places = [k // 2 + (k % 2) * width for k in range(2 * width)]
            both = self.b.shuffle_vector(re, im, types.index_vector(places))
        return self.b.bitcast(both, types.with_element(re, types.scalar(target)))

    def _from_integer(self, x: Any, source: DType, target: DType, wanted: Any) -> Any:
        """From bool (i1) or an integer, to an integer or a float."""
        signed = source.kind == "i"
        if target.is_float:
            return self.b.sitofp(x, wanted) if signed else self.b.uitofp(x, wanted)
        have = types.element_of(x).width
        if have == target.bits:
            return x
        if have > target.bits:
            return self.b.trunc(x, wanted)
        return self.b.sext(x, wanted) if signed else self.b.zext(x, wanted)

    # -- f16 ---------------------------------------------------------------------------------------
    def _widen_f16(self, x: Any) -> Any:
        if not self.native_half:
            return self._widen_by_bits(x)
        half = self.b.bitcast(x, types.with_element(x, types.HALF))
        return self.b.fpext(half, types.with_element(x, types.FLOAT))

    def _narrow_f16(self, x: Any) -> Any:
        """Ties to even."""
        if not self.native_half:
            return self._narrow_by_bits(x)
        half = self.b.fptrunc(x, types.with_element(x, types.HALF))
        return self.b.bitcast(half, types.with_element(x, types.I16))

    def _float_bits(self, x: Any) -> Any:
        return self.b.bitcast(x, types.with_element(x, types.I32))

    def _bits_to_float(self, x: Any) -> Any:
        return self.b.bitcast(x, types.with_element(x, types.FLOAT))

    def _widen_by_bits(self, x: Any) -> Any:
        """Shift into place and rescale by 2^112, which is exact and takes subnormals along; fix inf and NaN."""
        b = self.b
        wide = b.zext(x, types.with_element(x, types.I32))
        magnitude = b.shl(b.and_(wide, types.like(wide, 0x7FFF)), types.like(wide, 13))
        scaled = b.fmul(self._bits_to_float(magnitude), types.constant(types.FLOAT, 2.0**112, types.width_of(x)))
        special = b.icmp_unsigned(">=", magnitude, types.like(wide, 0x7C00 << 13))
        bits = b.select(special, b.or_(magnitude, types.like(wide, 0x7F800000)), self._float_bits(scaled))
        sign = b.shl(b.and_(wide, types.like(wide, 0x8000)), types.like(wide, 16))
        return self._bits_to_float(b.or_(bits, sign))

    def _narrow_by_bits(self, x: Any) -> Any:
        """Normal results by integer rounding, subnormal ones by adding 0.5, whose last place is theirs."""
        b, bits = self.b, self._float_bits(x)
        sign = b.and_(bits, types.like(bits, 0x80000000))
        magnitude = b.xor(bits, sign)
        # normal: rebias the exponent by -112 and round away 13 bits
        odd = b.and_(b.lshr(magnitude, types.like(bits, 13)), types.like(bits, 1))
        rebias = b.add(b.add(magnitude, types.like(bits, (0xC8000000 + 0xFFF) & 0xFFFFFFFF)), odd)
        normal = b.lshr(rebias, types.like(bits, 13))
        # subnormal: 0.5 has its last place at 2^-24, the smallest half; the sum's low bits are the answer
        shifted = b.fadd(self._bits_to_float(magnitude), types.constant(types.FLOAT, 0.5, types.width_of(x)))
        tiny = b.sub(self._float_bits(shifted), types.like(bits, 0x3F000000))
        small = b.icmp_unsigned("<", magnitude, types.like(bits, 0x38800000))
        finite = b.select(small, tiny, normal)
        infinite = b.icmp_unsigned(">=", magnitude, types.like(bits, 0x47800000))
        nan = b.icmp_unsigned(">", magnitude, types.like(bits, 0x7F800000))
        payload = b.or_(
            b.and_(b.lshr(magnitude, types.like(bits, 13)), types.like(bits, 0x3FF)), types.like(bits, 0x7E00)
        )
        out = b.select(infinite, b.select(nan, payload, types.like(bits, 0x7C00)), finite)
        out = b.or_(out, b.lshr(sign, types.like(bits, 16)))
        return b.trunc(out, types.with_element(x, types.I16))
