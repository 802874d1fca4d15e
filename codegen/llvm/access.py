"""Loads and stores of arrays, for one lane or many.

In: an array, an index value, perhaps a mask. Out: IR. A linear index of step 1 (or -1) becomes one
vector access aligned to the element; a linear index of another constant step into a register array becomes whole
vectors and shuffles, so that the array can live in registers; a step known only at run time is tested for 1 (the slice
of a contiguous array) at each access; everything else goes lane by lane. Nothing is read or written where a mask is
false: a scalar load then reads a zero of the stack instead.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.codegen.llvm import irtypes as types
from fuser.codegen.llvm.spell import intrinsic
from fuser.codegen.llvm.vector import Lanes, Linear, Uniform, Value, constant_int
from fuser.dtypes import BOOL, DType
from fuser.errors import InternalError
from fuser.record import dataclass


@dataclass(frozen=True)
class Array:
    """A buffer or register array; `size` is known for register arrays."""

    pointer: Any
    dtype: DType
    size: int | None = None


class Access:
    """Writes memory accesses. `zeros` gives a stack slot that holds 0, for masked scalar loads."""

    def __init__(self, builder: Any, lanes: Lanes, entry: Any) -> None:
        self.b, self.lanes, self._entry = builder, lanes, entry
        self._zero: Any = None

    # -- loads -------------------------------------------------------------------------------------
    def load(self, array: Array, index: Value, mask: Value | None) -> Value:
        raw = self._load_memory(array, index, mask)
        if array.dtype == BOOL:
            return self.lanes.wrap(self.b.icmp_unsigned("!=", raw, types.like(raw, 0)))
        return self.lanes.wrap(raw)

    def _load_memory(self, array: Array, index: Value, mask: Value | None) -> Any:
        if isinstance(index, Uniform) and (mask is None or isinstance(mask, Uniform)):
            return self._load_one(array, index.ir, mask.ir if mask else None)
        if isinstance(index, Linear) and isinstance(index.step, int):
            if abs(index.step) == 1:
                return self._load_run(array, index, mask)
            if array.size is not None and mask is None and index.step > 1:
                return self._load_every(array, index)
        elif isinstance(index, Linear):
            return self._load_strided(array, index, mask)
        return self._load_lanes(array, index, mask)

    def _load_strided(self, array: Array, index: Linear, mask: Value | None) -> Any:
        """Lanes `step` apart, `step` known at run time: one vector where it is 1."""
        with self.b.if_else(self.b.icmp_signed("==", index.step, types.like(index.step, 1))) as (then, otherwise):
            with then:
                near = self._load_run(array, Linear(index.base, 1), mask)
                near_end = self.b.block
            with otherwise:
                far = self._load_lanes(array, index, mask)
                far_end = self.b.block
        value = self.b.phi(near.type)
        value.add_incoming(near, near_end)
        value.add_incoming(far, far_end)
        return value

    def _load_lanes(self, array: Array, index: Value, mask: Value | None) -> Any:
        out = ir.Constant(types.lanes(types.memory(array.dtype), self.lanes.width), ir.Undefined)
        for k in range(self.lanes.width):
            chosen = self.lanes.lane(mask, k) if mask else None
            value = self._load_one(array, self.lanes.lane(index, k), chosen)
            out = self.b.insert_element(out, value, ir.Constant(types.I32, k))
        return out

    def _load_one(self, array: Array, index: Any, mask: Any) -> Any:
        address = self._address(array, index)
        if mask is not None:
            address = self.b.select(mask, address, self._zero_slot())
        return self.b.load(address, align=array.dtype.alignment, typ=types.memory(array.dtype))

    def _load_run(self, array: Array, index: Linear, mask: Value | None) -> Any:
        """Lanes that are neighbours in memory, in either direction."""
        kind = types.lanes(types.memory(array.dtype), self.lanes.width)
        address = self._run_address(array, index)
        if mask is None:
            value = self.b.load(address, align=array.dtype.alignment, typ=kind)
        else:
            zero = types.zero(types.memory(array.dtype), self.lanes.width)
            args = [address, ir.Constant(types.I32, array.dtype.alignment), self._run_mask(index, mask), zero]
            value = intrinsic(self.b, "masked.load", kind, args, suffixes=[kind, types.POINTER])
        return value if index.step == 1 else self._reversed(value)

    def _load_every(self, array: Array, index: Linear) -> Any:
        """Elements base, base + step, ...: whole vectors from the multiple of `step` below, then shuffles."""
        width, step = self.lanes.width, index.step
        base = constant_int(index.base)
        if base is None:
            raise InternalError("a strided index into a register array is not known when compiling", "kernel-index")
        first, rest = base - base % step, base % step
        kind = types.lanes(types.memory(array.dtype), width)
        parts = [
            self.b.load(
                self._address(array, ir.Constant(types.I64, first + k * width)), align=array.dtype.alignment, typ=kind
            )
            for k in range(step)
        ]
        return self._pick(parts, [rest + step * k for k in range(width)])

    def _pick(self, parts: list[Any], places: list[int]) -> Any:
        """Elements at `places` of the concatenated `parts` (each `width` long)."""
        width = self.lanes.width
        if len(parts) == 2:
            return self.b.shuffle_vector(parts[0], parts[1], types.index_vector(places))
        out = ir.Constant(parts[0].type, ir.Undefined)
        for k, place in enumerate(places):
            value = self.b.extract_element(parts[place // width], ir.Constant(types.I32, place % width))
            out = self.b.insert_element(out, value, ir.Constant(types.I32, k))
        return out

    # -- stores ------------------------------------------------------------------------------------
    def store(self, array: Array, index: Value, value: Value, mask: Value | None, stream: Any = None) -> None:
        """stream: an i1 that says whether whole vectors may go past the caches; None where none may."""
        if isinstance(index, Uniform) and self.lanes.width > 1:
            raise InternalError("all iterations of a vector loop store to one place", "kernel-race")
        if isinstance(index, Linear) and isinstance(index.step, int) and abs(index.step) == 1:
            if stream is not None and index.step == 1 and mask is None:
                return self._store_past(array, index, value, stream)
            return self._store_run(array, index, value, mask)
        if isinstance(index, Linear) and not isinstance(index.step, int):
            one = self.b.icmp_signed("==", index.step, types.like(index.step, 1))
            with self.b.if_else(one) as (then, otherwise):
                with then:
                    self._store_run(array, Linear(index.base, 1), value, mask)
                with otherwise:
                    self._store_lanes(array, index, value, mask)
            return
        self._store_lanes(array, index, value, mask)

    def _store_lanes(self, array: Array, index: Value, value: Value, mask: Value | None) -> None:
        raw = self._in_memory(array, self.lanes.vector(value))
        for k in range(self.lanes.width):
            one = raw if self.lanes.width == 1 else self.b.extract_element(raw, ir.Constant(types.I32, k))
            self._store_one(array, self.lanes.lane(index, k), one, self.lanes.lane(mask, k) if mask else None)

    def _store_one(self, array: Array, index: Any, value: Any, mask: Any) -> None:
        if mask is None:
            self.b.store(value, self._address(array, index), align=array.dtype.alignment)
            return
        with self.b.if_then(mask):
            self.b.store(value, self._address(array, index), align=array.dtype.alignment)

    def _store_run(self, array: Array, index: Linear, value: Value, mask: Value | None) -> None:
        raw = self._in_memory(array, self.lanes.vector(value))
        raw = raw if index.step == 1 else self._reversed(raw)
        address = self._run_address(array, index)
        if mask is None:
            self.b.store(raw, address, align=array.dtype.alignment)
            return
        args = [raw, address, ir.Constant(types.I32, array.dtype.alignment), self._run_mask(index, mask)]
        intrinsic(self.b, "masked.store", ir.VoidType(), args, suffixes=[raw.type, types.POINTER])

    def _store_past(self, array: Array, index: Linear, value: Value, stream: Any) -> None:
        """A vector past the caches where `stream` holds and the address is a multiple of the vector's bytes."""
        raw, b = self._in_memory(array, self.lanes.vector(value)), self.b
        address, nbytes = self._run_address(array, index), array.dtype.bytes * self.lanes.width
        misaligned = b.and_(b.ptrtoint(address, types.I64), ir.Constant(types.I64, nbytes - 1))
        past = b.and_(stream, b.icmp_unsigned("==", misaligned, types.like(misaligned, 0)))
        with b.if_else(past, likely=True) as (then, otherwise):
            with then:
                store = b.store(raw, address, align=nbytes)
                store.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(types.I32, 1)]))
            with otherwise:
                b.store(raw, address, align=array.dtype.bytes)

    def until_aligned(self, array: Array, index: Uniform, width: int) -> Any:
        """Elements from `index` to the next multiple of `width` elements' bytes in memory, an i64."""
        b, size = self.b, array.dtype.bytes
        beyond = b.sub(ir.Constant(types.I64, 0), b.ptrtoint(self._address(array, index.ir), types.I64))
        return b.lshr(
            b.and_(beyond, ir.Constant(types.I64, size * width - 1)), ir.Constant(types.I64, size.bit_length() - 1)
        )

    # -- helpers -----------------------------------------------------------------------------------
    def _in_memory(self, array: Array, value: Any) -> Any:
        return self.b.zext(value, types.with_element(value, types.I8)) if array.dtype == BOOL else value

    def _address(self, array: Array, index: Any) -> Any:
        if index.type.width < 64:
            index = self.b.sext(index, types.I64)
        return self.b.gep(array.pointer, [index], inbounds=True, source_etype=types.memory(array.dtype))

    def _run_address(self, array: Array, index: Linear) -> Any:
        return self._address(array, index.base if index.step == 1 else self.lanes.lane(index, self.lanes.width - 1))

    def _run_mask(self, index: Linear, mask: Value) -> Any:
        lanes = self.lanes.vector(mask)
        return lanes if index.step == 1 else self._reversed(lanes)

    def _reversed(self, value: Any) -> Any:
        order = types.index_vector(list(range(self.lanes.width - 1, -1, -1)))
        return self.b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), order)

    def _zero_slot(self) -> Any:
        if self._zero is None:
            with self.b.goto_block(self._entry):
                self._zero = self.b.alloca(types.I128)
                self._zero.align, self._zero.type = 16, types.POINTER
                self.b.store(ir.Constant(types.I128, 0), self._zero)
        return self._zero
