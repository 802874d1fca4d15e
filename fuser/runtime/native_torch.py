"""torch's tensors for the native road: what native code asks torch, and the entries of calls on a GPU.

In: torch as it is installed. Out: `library()`, a block of words for native code, or None where this torch cannot be
asked; `need`, what a tensor argument must be; `entry`, the native form of a `CudaCall`. Tensors are looked at through
the table of C functions that DLPack 1.2 defines (`__dlpack_c_exchange_api__`), and nothing of torch's own objects is
read. What that table does not tell (gradients, lazy negatives and conjugates, inference) is asked by name.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fuser.dtypes import U8
from fuser.runtime import native_plan, tensors
from fuser.runtime import native_words as w
from fuser.runtime.native_entry import Device, Entry, Need, SameNeed, TensorNeed
from fuser.runtime.native_numbers import number_need

if TYPE_CHECKING:
    from fuser.runtime.quickcuda import CudaCall

NAMES = (
    (w.T_GRAD, "requires_grad"), (w.T_NEGATED, "is_neg"), (w.T_CONJUGATED, "is_conj"), (w.T_INFERENCE, "is_inference"),
)  # fmt: skip


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("give", ctypes.c_void_p), ("take", ctypes.c_void_p), ("see", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )  # fmt: skip


@cache
def exchange() -> Any:
    """torch's table of functions; None where it has none, or one of another major version."""
    torch = sys.modules.get("torch")
    capsule = getattr(getattr(torch, "Tensor", None), "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        address = get(capsule, b"dlpack_exchange_api")
    except (ValueError, ctypes.ArgumentError):  # a capsule of another name, or no capsule
        return None
    table = _Exchange.from_address(address or 0)
    return table if table.major == 1 and table.see and table.stream else None


@cache
def library() -> Any:
    """Words of `T_*`; None where torch cannot be asked."""
    table = exchange()
    if table is None:
        return None
    driver = native_plan.driver()
    words = [0] * w.TORCH_WORDS
    words[w.T_SEE], words[w.T_STREAM] = table.see, table.stream
    words[w.T_CURRENT] = driver.address("device") if driver is not None else 0
    names = [sys.intern(name) for _, name in NAMES]
    for (word, _), name in zip(NAMES, names, strict=True):
        words[word] = id(name)
    modes = [sys.modules["torch"].is_grad_enabled, sys.modules["torch"].is_inference_mode_enabled]
    words[w.T_RECORDING], words[w.T_INFERRING] = map(id, modes)
    words[w.T_FALSE] = id(False)
    block = (ctypes.c_int64 * len(words))(*words)
    block.keep = (names, modes)  # type: ignore[attr-defined]
    return block


def watches() -> list[tuple[int, Any, Any, Any]]:
    """What every road of tensors watches: that no level of torch's forward mode is entered, where a tensor may carry a
    derivative that only torch's own functions would see."""
    from torch.autograd import forward_ad

    names, level, none = vars(forward_ad), "_current_level", -1
    return [(w.W_GLOBAL, names, level, none)] if level in names else []


def need(tensor: Any, slot: int) -> TensorNeed | None:
    """What a tensor argument must be for calls like this one; None where DLPack tells another story than torch."""
    table = exchange()
    if table is None:
        return None
    words = (ctypes.c_int64 * w.D_WORDS)()
    see = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(table.see)
    if see(tensor, ctypes.addressof(words)):
        return None
    rank, shape, strides = tensor.dim(), tuple(tensor.shape), tuple(tensor.stride())
    told = [tuple((ctypes.c_int64 * rank).from_address(words[k])) if rank else () for k in (w.D_SHAPE, w.D_STRIDES)]
    address = words[w.D_DATA] + words[w.D_OFFSET]
    if told != [shape, strides] or address != tensor.data_ptr() or words[w.D_RANK] & 0xFFFFFFFF != rank:
        return None
    return TensorNeed(
        type(tensor), words[w.D_RANK], words[w.D_DEVICE], shape, strides, tensor.element_size(), address & 15, slot
    )


def entry(call: CudaCall, args: Sequence[Any]) -> Entry | None:
    """The entry for calls on tensors of a GPU of the kinds of `args`; None where native code cannot make one."""
    known, dynamics, plan = library(), call.native_dynamics(), call.plan
    if known is None or dynamics is None or plan is None or not known[w.T_CURRENT]:
        return None
    needs = [_need(call, k, a) for k, a in enumerate(args)]
    if any(n is None for n in needs):
        return None
    first = len(call.places.arrays)
    scratch = first + len(call.results)
    block = scratch + len(call.arena.offsets)
    makers = [(*maker, first + k) for k, maker in enumerate(call.makers)]
    if call.arena.nbytes:
        makers.append((*tensors.maker((call.arena.nbytes,), U8, call.place), block))
    whole = call.places.out is not None
    return Entry(
        needs=tuple(n for n in needs if n is not None),
        results=tuple(makers),
        temps=tuple((block, offset, scratch + k) for k, offset in enumerate(call.arena.offsets)),
        steps=(),
        effects=(),
        pairs=call.pairs,
        outputs=tuple(call.native_outputs()),
        single=call.finish is None or whole,
        finish=None if whole or call.finish is tuple else call.finish,
        table=plan.table,
        release=False,  # the launcher does that
        keep=(call, known),
        library=ctypes.addressof(known),
        device=Device(plan.block, call.ordinal, native_plan.raise_error, tuple(dynamics)),
        written=tuple(sorted(call.written)),
        bump=tensors.bump(),
    )


def _need(call: CudaCall, position: int, value: Any) -> Need | None:
    if position == call.places.out or position in call.places.arrays:
        return need(value, call.slot_of(position))
    if type(value) in (float, int):
        return number_need(call.program, dict(call.places.scalars)[position], type(value))
    return SameNeed(value)
