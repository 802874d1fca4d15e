"""The few device functions that C lacks, and vector types: only what a kernel uses is printed before it.

In: names of helpers, and vectors as (dtype, width). Out: their C definitions. Its own file because these and those of
`arithmetic` are the only hand-written lines of CUDA C in fuser. A header would cost 0.1 to 2.5 s a compilation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.codegen.cuda.arithmetic import ARITHMETIC, INLINE
from fuser.codegen.cuda.types import c_type
from fuser.dtypes import DType


def _awaiting(name: str, parameter: str, array: str, *then: str) -> tuple[str, ...]:
    """A function that waits for each word of a published value; then: what it does with the word's place."""
    return (
        "template <class T> " + INLINE + f"T {name}({parameter}, long long index) {{",
        "    const int words = ((int)sizeof(T) + 3) / 4;",
        "    union { T value; unsigned int part[words]; } whole = {};",
        "    for (int k = 0; k < words; ++k) {",
        "        unsigned long long word;",
        "        do {",
        '            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"',
        f'                         : "=l"(word) : "l"({array} + index * words + k) : "memory");',
        "        } while ((word >> 32) == 0);",
        "        whole.part[k] = (unsigned int)word;",
        *then,
        "    }",
        "    return whole.value;",
        "}",
    )


HELPERS: dict[str, tuple[str, ...]] = {
    # f16 by the conversion instruction, which knows subnormals; a bf16 is the upper half of an f32, and older cards
    # round it by hand: half a unit added below the cut, less the last kept bit's share where that is even.
    "fuser_f16_to_f32": (
        INLINE + "float fuser_f16_to_f32(unsigned short h) {",
        "    float f;",
        '    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));',
        "    return f;",
        "}",
    ),
    "fuser_f32_to_f16": (
        INLINE + "unsigned short fuser_f32_to_f16(float f) {",
        "    unsigned short h;",
        '    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));',
        "    return h;",
        "}",
    ),
    "fuser_bf16_to_f32": (
        INLINE + "float fuser_bf16_to_f32(unsigned short h) {",
        "    return __int_as_float((int)((unsigned int)h << 16));",
        "}",
    ),
    "fuser_f32_to_bf16": (
        INLINE + "unsigned short fuser_f32_to_bf16(float f) {",
        "#if __CUDA_ARCH__ >= 800",
        "    unsigned short h;",
        '    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));',
        "    return h;",
        "#else",
        "    const unsigned int bits = (unsigned int)__float_as_int(f);",
        "    return (unsigned short)(f != f ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);",
        "#endif",
        "}",
    ),
    "fuser_pair": (
        INLINE + "unsigned int fuser_pair(unsigned short low, unsigned short high) {",
        "    return (unsigned int)high << 16 | low;",
        "}",
    ),
    # Release and acquire: what others did before their ticket (or their blocks before a barrier) is visible after it.
    "fuser_ticket": (
        INLINE + "int fuser_ticket(int* counter, int limit) {",
        "    int old;",
        '    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"',
        '                 : "=r"(old) : "l"(counter), "r"(limit) : "memory");',
        "    return old;",
        "}",
    ),
    "fuser_number": (
        INLINE + "int fuser_number(int* counter, int limit) {",
        "    return (int)atomicInc((unsigned int*)counter, (unsigned int)limit);",
        "}",
    ),
    # 16 bytes pass the first-level cache by. Cards before sm_80 have no such copy and make it at once.
    "fuser_copy": (
        "template <int bytes> " + INLINE + "void fuser_copy(bool exists, void* to, const void* from) {",
        "#if __CUDA_ARCH__ >= 800",
        "    const unsigned int place = (unsigned int)__cvta_generic_to_shared(to);",
        "    if (bytes == 16)",
        '        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }"',
        '                     : : "r"(place), "l"(from), "r"((int)exists) : "memory");',
        "    else",
        '        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3; }"',
        '                     : : "r"(place), "l"(from), "r"((int)exists), "n"(bytes) : "memory");',
        "#else",
        "    struct __align__(bytes) whole { unsigned int part[bytes / 4]; };",
        "    if (exists) *(whole*)to = *(const whole*)from;",
        "#endif",
        "}",
    ),
    "fuser_prefetch": (
        INLINE + "void fuser_prefetch(const void* from) {",
        '    asm volatile("prefetch.global.L2 [%0];" : : "l"(from));',
        "}",
    ),
    "fuser_commit": (
        INLINE + "void fuser_commit() {",
        "#if __CUDA_ARCH__ >= 800",
        '    asm volatile("cp.async.commit_group;" : : : "memory");',
        "#endif",
        "}",
    ),
    "fuser_await_copies": (
        "template <int pending> " + INLINE + "void fuser_await_copies() {",
        "#if __CUDA_ARCH__ >= 800",
        '    asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");',
        "#endif",
        "}",
    ),
    # All threads of a warp arrive and wait together (aligned). No memory is ordered: mailboxes do that.
    "fuser_cluster_arrive": (
        INLINE + "void fuser_cluster_arrive() {",
        '    asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory");',
        "}",
    ),
    "fuser_cluster_wait": (
        INLINE + "void fuser_cluster_wait() {",
        '    asm volatile("barrier.cluster.wait.aligned;" : : : "memory");',
        "}",
    ),
    # A mailbox is an mbarrier whose one phase ends when that many bytes have come.
    "fuser_open": (
        INLINE + "void fuser_open(unsigned long long* box, int bytes) {",
        "    const unsigned int at = (unsigned int)__cvta_generic_to_shared(box);",
        '    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(at) : "memory");',
        '    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");',
        '    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"',
        '                 : : "r"(at), "r"(bytes) : "memory");',
        "}",
    ),
    "fuser_send": (
        "template <class T>",
        INLINE + "void fuser_send(T* place, unsigned long long* box, int rank, T value) {",
        "    unsigned int to = (unsigned int)__cvta_generic_to_shared(place);",
        "    unsigned int counted = (unsigned int)__cvta_generic_to_shared(box);",
        '    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(rank));',
        '    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(counted) : "r"(rank));',
        "    union { T value; unsigned int narrow; unsigned long long wide; } bits;",
        "    bits.value = value;",
        "    if (sizeof(T) == 4)",
        '        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"',
        '                     : : "r"(to), "r"(bits.narrow), "r"(counted) : "memory");',
        "    else",
        '        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];"',
        '                     : : "r"(to), "l"(bits.wide), "r"(counted) : "memory");',
        "}",
    ),
    "fuser_receive": (
        INLINE + "void fuser_receive(unsigned long long* box) {",
        "    const unsigned int at = (unsigned int)__cvta_generic_to_shared(box);",
        "    unsigned int there;",
        "    do {",
        '        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"',
        '             " selp.u32 %0, 1, 0, p; }"',
        '                     : "=r"(there) : "r"(at) : "memory");',
        "    } while (!there);",
        "}",
    ),
    # A value travels in words of {32 bits of it, 1}: a word is stored and seen whole, so no fence is needed.
    "fuser_publish": (
        "template <class T> " + INLINE + "void fuser_publish(long long* flags, long long index, T value) {",
        "    const int words = ((int)sizeof(T) + 3) / 4;",
        "    union { T value; unsigned int part[words]; } whole = {};",
        "    whole.value = value;",
        "    for (int k = 0; k < words; ++k)",
        '        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"',
        '                     : : "l"(flags + index * words + k), "l"((1ull << 32) | whole.part[k]) : "memory");',
        "}",
    ),
    "fuser_await": _awaiting("fuser_await", "const long long* flags", "flags"),
    "fuser_take": _awaiting("fuser_take", "long long* slots", "slots", "        slots[index * words + k] = 0;"),
    **ARITHMETIC,
}


def vector_type(dtype: DType, width: int) -> str:
    """Name of the aligned vector of `width` elements."""
    return f"fuser_{dtype.name}x{width}"


def vector_lines(dtype: DType, width: int) -> tuple[str, ...]:
    """Its definition: a struct whose alignment makes one access of the whole."""
    alignment = width * dtype.bytes
    name, members = vector_type(dtype, width), f"{c_type(dtype)} v[{width}]"
    if in_pairs(dtype, width):
        members = f"unsigned int v[{width // 2}]"
    return (f"struct __align__({alignment}) {name} {{ {members}; }};",)


def in_pairs(dtype: DType, width: int) -> bool:
    """Whether a vector is words of two halves: the upper one of bf16 is then an f32 after one `and`, where an array of
    halves costs a permutation and a shift."""
    return dtype.is_half and width % 2 == 0


def element(dtype: DType, width: int, vector: str, k: int) -> str:
    """Element `k` of a vector."""
    if not in_pairs(dtype, width):
        return f"{vector}.v[{k}]"
    return f"({c_type(dtype)})" + (f"({vector}.v[{k // 2}] >> 16)" if k % 2 else f"{vector}.v[{k // 2}]")


def whole(dtype: DType, elements: Sequence[str]) -> str:
    """The initializer of a vector."""
    if in_pairs(dtype, len(elements)):
        elements = [f"fuser_pair({a}, {b})" for a, b in zip(elements[::2], elements[1::2], strict=True)]
    return f"{{{{{', '.join(elements)}}}}}"


def prelude(helpers: Iterable[str], vectors: Iterable[tuple[DType, int]]) -> list[str]:
    """Definitions of the vectors and helpers used, in a fixed order."""
    lines: list[str] = []
    for dtype, width in sorted(set(vectors), key=lambda v: (v[0].name, v[1])):
        lines += vector_lines(dtype, width)
    used = set(helpers)
    for name, text in HELPERS.items():
        if name in used:
            lines += text
    return lines
