# ruff: noqa: E501  -- the tables below read best with a workload a line
"""What is measured: the public workloads P01-P28, the further rows of the peers' table (A), half precision, more results
and more elements than those have (M), small inputs (S), and rows for CPUs (C).

In: nothing. Out: `GPU` (all rows for a GPU run), `CPU`, and `WORKLOADS` (P01-P28). Sizes of P rows are those of a GPU run; a
CPU run takes 1/16 (`scaled`). `minimum` counts each input read once and each result written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any

from benchmarks import libraries


@dataclass(frozen=True)
class Workload:
    """program: name in `benchmarks.programs`, a factory when `options` are given. specs: argument specs as text
    (arrays) or values (scalars). minimum: published bytes (0: not published). kernels: the plan to reach. ranges:
    bounds of uniform inputs by argument position (others are normal). writes: arguments that the program stores into.
    gathers: arguments of which only as much as the result is read. sample: a program for the leading rows of the
    result, where the whole is too large for float64. slabs: the first axis is independent, so the float64 result is
    worked out in so many parts of it. random: draws numbers, so libraries differ.
    """

    id: str
    name: str
    program: str
    specs: tuple[Any, ...]
    minimum: int = 0
    kernels: int = 1
    options: tuple[Any, ...] | None = None
    ranges: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    writes: tuple[int, ...] = ()
    gathers: tuple[int, ...] = ()
    sample: str | None = None
    slabs: int = 1
    random: bool = False
    fast_math: bool = False

    def bound(self, programs: ModuleType) -> Callable[..., Any]:
        """The program as a function over arrays of the library that `programs` is bound to."""
        found: Callable[..., Any] = getattr(programs, self.program)
        return found if self.options is None else found(*self.options)

    @cached_property
    def fn(self) -> Callable[..., Any]:
        """The program for fuser."""
        return self.bound(libraries.programs(libraries.fuser()))


def array_specs(workload: Workload) -> list[tuple[str, tuple[int, ...]] | None]:
    """(dtype name, shape) of each array argument; None for scalars."""
    from fuser import specs

    out: list[tuple[str, tuple[int, ...]] | None] = []
    for s in workload.specs:
        parsed = specs.parse(s) if isinstance(s, str) else None
        out.append(
            (str(parsed.dtype), tuple(int(str(d)) for d in parsed.shape))
            if isinstance(parsed, specs.ArraySpec)
            else None
        )
    return out  # fmt: skip


def scaled(workload: Workload, divisor: int) -> tuple[Any, ...]:
    """The workload's specs with about 1/divisor of the elements: the first argument's first axis is divided, and every
    axis of that length with it, so that the arguments still fit each other."""
    shapes = array_specs(workload)
    first = next(s for s in shapes if s is not None)[1]
    smaller = max(round(first[0] / divisor ** (1 / first.count(first[0]))), 1)
    out: list[Any] = []
    for given, found in zip(workload.specs, shapes, strict=True):
        if found is None:
            out.append(given)
            continue
        dims = ", ".join(str(smaller if d == first[0] else d) for d in found[1])
        out.append(f"{found[0]}[{dims}]")
    return tuple(out)


def resized(workload: Workload, divisor: int) -> Workload:
    """The workload at a smaller size."""
    if divisor == 1:
        return workload
    if workload.gathers:  # table, indices, and what is added have lengths of their own
        (table, width), (count,) = (s[1] for s in array_specs(workload)[:2] if s is not None)
        table, count = max(table // divisor, 1), max(count // divisor, 1)
        specs = (f"f32[{table}, {width}]", f"i64[{count}]", f"f32[{count}, {width}]")
        return replace(workload, specs=specs, ranges={1: (0, table)}, minimum=0)
    return replace(workload, specs=scaled(workload, divisor), minimum=0)


_CUBE, _MARKET = "f32[512, 768, 640]", {0: (10.0, 50.0), 1: (10.0, 50.0), 2: (0.25, 2.0)}
_UNIT = (0.0, 1.0)
W = Workload

WORKLOADS: tuple[Workload, ...] = (
    W("P01", "abs_sum", "abs_sum", ("f32[268435456]",), 1073741828),
    W("P02", "bcast_chain", "bcast_chain", ("f32[32768, 8192]", "f32[8192]", "f32[8192]", "f32[32768, 1]"), 2147680256),
    W("P03", "black_scholes", "black_scholes", ("f32[33554432]",) * 3, 671088640, ranges=_MARKET),
    W("P03f", "black_scholes fast_math", "black_scholes", ("f32[33554432]",) * 3, 671088640, ranges=_MARKET, fast_math=True),
    W("P04a", "sum_axis_0", "square_sum", (_CUBE,), 1008599040, options=(0,)),
    W("P04b", "sum_axis_1", "square_sum", (_CUBE,), 1007943680, options=(1,)),
    W("P04c", "sum_axis_2", "square_sum", (_CUBE,), 1008205824, options=(2,)),
    W("P04d", "sum_axes_01", "square_sum", (_CUBE,), 1006635520, options=((0, 1),)),
    W("P04e", "sum_axes_12", "square_sum", (_CUBE,), 1006635008, options=((1, 2),)),
    W("P04f", "sum_axes_02", "square_sum", (_CUBE,), 1006636032, options=((0, 2),)),
    W("P04g", "sum_all", "square_sum", (_CUBE,), 1006632964, options=(None,)),
    W("P05a", "argmax_last", "argmax", ("f32[16384, 16384]",), 1073938432, options=(-1,)),
    W("P05b", "argmax_first", "argmax", ("f32[16384, 16384]",), 1073938432, options=(0,)),
    W("P06a", "mean_var_rows", "mean_var", ("f32[32768, 8192]",), 1074003968, options=(1, 1)),
    W("P06b", "mean_var_columns", "mean_var", ("f32[32768, 8192]",), 1073807360, options=(0,)),
    W("P07", "softmax", "softmax", ("bf16[32768, 4096]",), 536870912),
    W("P08", "log_softmax_first", "log_softmax_first", ("f32[8192, 16384]",), 1073741824),
    W("P09", "layernorm", "layernorm", ("f32[4096, 16384]", "f32[16384]", "f32[16384]"), 537001984),
    W("P10", "rmsnorm", "rmsnorm", ("bf16[32768, 4096]", "f32[4096]"), 536887296),
    W("P11", "add_rmsnorm", "add_rmsnorm", ("f32[2048, 32768]", "f32[2048, 32768]", "f32[32768]"), 1073872896),
    W("P12", "groupnorm", "groupnorm", ("f32[128, 2048, 512]", "f32[2048]", "f32[2048]"), 1073758208),
    W("P13", "cross_entropy", "cross_entropy", ("f32[32768, 4096]", "i64[32768]"), 537133060, 2, ranges={1: (0, 4096)}),
    W("P14a", "bias_gelu_tanh", "bias_gelu", ("f32[8192, 8192]", "f32[8192]"), 536903680),
    W("P14b", "bias_gelu_erf", "bias_gelu_erf", ("f32[8192, 8192]", "f32[8192]"), 536903680),
    W("P15", "swiglu", "swiglu", ("bf16[8192, 65536]",), 1610612736),
    W("P16", "geglu", "geglu", ("bf16[8192, 32768]", "bf16[8192, 32768]"), 1610612736),
    W("P17", "rope", "rope", ("bf16[16384, 32, 256]", "bf16[16384, 8, 256]", "bf16[16384, 1, 256]", "bf16[16384, 1, 256]"), 687865856),
    W("P18", "dropout_add_layernorm", "dropout_add_layernorm", ("bf16[8192, 8192]", "bf16[8192, 8192]", "bf16[8192]", "bf16[8192]", 7), 402685952, random=True),
    W("P19", "adamw", "adamw", ("f32[67108864]",) * 4 + (3,), 1879048192, writes=(0, 2, 3), ranges={3: _UNIT}),
    W("P20", "nbody", "nbody", ("f32[32768, 3]",), 786432, sample="nbody_sample"),
    W("P21a", "jacobi", "jacobi", ("f32[16384, 16384]",), 2147483648),
    W("P21b", "heat", "heat", ("f32[512, 512, 512]",), 1073741824),
    W("P22a", "cumsum_last", "cumsum", ("f32[32768, 32768]",), 8589934592, options=(-1,)),
    W("P22b", "cumsum_first", "cumsum", ("f32[32768, 32768]",), 8589934592, options=(0,)),
    W("P23a", "transposed_add", "transposed_add", ("f32[16384, 16384]",) * 3, 4294967296),
    W("P23b", "permuted_add", "permuted_add", ("f32[512, 640, 768]", "f32[640, 768, 512]", "f32[512, 640, 768]"), 4026531840),
    W("P24", "embedding", "embedding", ("f32[131072, 4096]", "i64[16384]", "f32[16384, 4096]"), 805437440, ranges={1: (0, 131072)}, gathers=(0,)),
    W("P25", "huber_and_mse", "huber_and_mse", ("f32[32768, 32768]",) * 2, 8589934600),
    W("P26", "batchnorm", "batchnorm", ("f32[64, 64, 512, 512]", "f32[64]", "f32[64]", "f32[64]", "f32[64]"), 8589936128, 3, writes=(3, 4), ranges={4: _UNIT}),
    W("P27", "multi_stat", "multi_stat", ("f32[268435456]",), 1073741848),
    W("P28", "mask_logic", "mask_logic", ("f32[134217728]", "f32[134217728]", "bool[134217728]"), 1744830472, 2),
)  # fmt: skip


def _sweep(prefix: str, program: str, dtype: str, columns: tuple[int, ...], weight: bool) -> tuple[Workload, ...]:
    """One program over rows of several lengths, 2^28 elements in all."""
    rows = []
    for n in columns:
        specs = (f"{dtype}[{(1 << 28) // n}, {n}]", *((f"{dtype}[{n}]",) if weight else ()))
        rows.append(W(f"{prefix}{n}", f"{program} {dtype} N={n}", program, specs))
    return tuple(rows)


LONG = (4096, 8192, 16384, 32768, 65536, 131072, 262144)
_SQUARE = "[8192, 8192]"
ANCHORS: tuple[Workload, ...] = (
    W("A01", "abs_sum bf16", "abs_sum", ("bf16[268435456]",)),
    W("A02", "gelu(x*w+b) f32", "scale_bias_gelu", ("f32[8192, 8192]", "f32[8192]", "f32[8192]")),
    W("A03", "gelu(x*w+b) bf16", "scale_bias_gelu", ("bf16[8192, 8192]", "bf16[8192]", "bf16[8192]")),
    *_sweep("A04-", "softmax", "bf16", (128, 512, 1024, *LONG), False),
    *_sweep("A05-", "softmax", "f32", (1024, 32768), False),
    *_sweep("A06-", "rmsnorm", "bf16", (128, 1024, *LONG), True),
    W("A07", "layernorm bf16", "layernorm", ("bf16[32768, 8192]", "bf16[8192]", "bf16[8192]")),
    W("A08", "add_rmsnorm bf16", "add_rmsnorm", ("bf16[32768, 8192]", "bf16[32768, 8192]", "bf16[8192]")),
    W("A09", "cross_entropy bf16 32768", "cross_entropy", ("bf16[8192, 32768]", "i64[8192]"), kernels=2, ranges={1: (0, 32768)}),
    W("A10", "cross_entropy bf16 131072", "cross_entropy", ("bf16[2048, 131072]", "i64[2048]"), kernels=2, ranges={1: (0, 131072)}),
    W("A11", "column sum bf16", "plain_sum", ("bf16[65536, 4096]",), options=(0,)),
    W("A12", "middle sum of squares", "square_sum", ("f32[64, 4096, 1024]",), options=(1, 0)),
    W("A13", "batch norm + relu bf16", "batchnorm_relu", ("bf16[128, 256, 56, 56]", "f32[256]", "f32[256]"), kernels=3),
    W("A14", "variance", "variance", ("f32[268435456]",)),
    W("A15", "argmax rows", "argmax", ("f32[65536, 4096]",), options=(-1, False)),
    W("A16", "cumsum rows", "cumsum", ("f32[65536, 4096]",), options=(-1,)),
    W("A17", "cumsum flat", "cumsum", ("f32[268435456]",), options=(-1,)),
    W("A18", "relu(x + y.T)", "relu_add_transposed", (f"f32{_SQUARE}", f"f32{_SQUARE}")),
    W("A19", "swiglu bf16 8192", "swiglu", ("bf16[8192, 16384]",)),
    W("A20", "black_scholes 2^26", "black_scholes", ("f32[67108864]",) * 3, ranges=_MARKET),
)  # fmt: skip


def _small() -> tuple[Workload, ...]:
    """Inputs of 64 KB to 8 MB, where launches and latency count."""
    rows = []
    for label, kib in (("64K", 64), ("1M", 1024), ("8M", 8192)):
        n = kib * 1024
        rows += [
            W(f"S1-{label}", f"abs_sum {label}B", "abs_sum", (f"f32[{n // 4}]",)),
            W(f"S2-{label}", f"softmax bf16 {label}B", "softmax", (f"bf16[{n // 2048}, 1024]",)),
            W(f"S3-{label}", f"gelu(x*w+b) {label}B", "scale_bias_gelu", (f"f32[{n // 4096}, 1024]", "f32[1024]", "f32[1024]")),
            W(f"S4-{label}", f"column sum {label}B", "plain_sum", (f"f32[{n // 4096}, 1024]",), options=(0,)),
        ]  # fmt: skip
    return tuple(rows)


_HALF, _BEYOND = "f16[65536, 4096]", "bf16[526336, 4096]"  # 2^31 + 2^23 elements
MORE: tuple[Workload, ...] = (
    W("M01", "softmax f16", "softmax", (_HALF,)),
    W("M02", "gelu(x*w+b) f16", "scale_bias_gelu", (_HALF, "f16[4096]", "f16[4096]")),
    W("M03", "rmsnorm f16", "rmsnorm", (_HALF, "f16[4096]")),
    W("M04", "layernorm f16", "layernorm", (_HALF, "f16[4096]", "f16[4096]")),
    W("M05", "column sum f16", "plain_sum", (_HALF,), options=(0,)),
    W("M10", "adam step, three results", "adam_step", ("f32[67108864]",) * 4, ranges={3: _UNIT}),
    W("M11", "four statistics a row", "row_stats", ("f32[65536, 4096]",)),
    W("M20", "row and column sums of squares", "margins", ("f32[65536, 4096]",)),
    W("M21", "rmsnorm backward bf16", "rmsnorm_backward", ("bf16[32768, 4096]", "f32[4096]", "bf16[32768, 4096]", "f32[32768]"), ranges={3: (0.5, 1.5)}),
    W("M22", "layernorm backward bf16", "layernorm_backward", ("bf16[32768, 4096]", "f32[4096]", "bf16[32768, 4096]", "f32[32768]", "f32[32768]"), ranges={4: (0.5, 1.5)}),
    W("M30", "abs_sum bf16 > 2^31", "abs_sum", ("bf16[2155872256]",)),
    W("M31", "gelu(x*w+b) bf16 > 2^31", "scale_bias_gelu", (_BEYOND, "bf16[4096]", "bf16[4096]"), slabs=8),
    W("M32", "softmax bf16 > 2^31", "softmax", (_BEYOND,), slabs=8),
    W("M33", "column sum bf16 > 2^31", "plain_sum", (_BEYOND,), options=(0,)),
    W("M34", "cumsum rows bf16 > 2^31", "cumsum", (_BEYOND,), options=(-1,), slabs=8),
)  # fmt: skip
GPU: tuple[Workload, ...] = (*WORKLOADS, *ANCHORS, *MORE, *_small())


def _cpu_rows(t: str) -> tuple[Workload, ...]:
    """The rows of the peers' CPU table in one float type (f64 at half the elements)."""
    half = 1 if t == "f32" else 2
    flat, image, tall = (1 << 25) // half, (1 << 24) // half, 8192 // half
    tag = "" if t == "f32" else "d"
    return (
        W(f"C01{tag}", f"sum(abs(x)) {t}", "abs_sum", (f"{t}[{flat}]",)),
        W(f"C02{tag}", f"2x+3y^2-xy {t}", "polynomial", (f"{t}[{flat}]",) * 2),
        W(f"C03{tag}", f"gelu_tanh {t}", "gelu_tanh", (f"{t}[{image}]",)),
        W(f"C04{tag}", f"softmax {t}", "softmax", (f"{t}[{tall}, 4096]",)),
        W(f"C05{tag}", f"layernorm {t}", "layernorm", (f"{t}[{tall}, 4096]", f"{t}[4096]", f"{t}[4096]")),
        W(f"C06{tag}", f"column sum {t}", "plain_sum", (f"{t}[{tall}, 4096]",), options=(0,)),
        W(f"C07{tag}", f"Black-Scholes {t}", "black_scholes", (f"{t}[{(1 << 23) // half}]",) * 3, ranges=_MARKET),
        W(f"C08{tag}", f"relu(x + y.T) {t}", "relu_add_transposed", (f"{t}[{4096 // half}, {4096 // half}]",) * 2),
        W(f"C09{tag}", f"sum of squares, axes (0, 2) {t}", "square_sum", (f"{t}[128, {512 // half}, 512]",), options=((0, 2), 0)),
        W(f"C10{tag}", f"gelu(x*w+b) 64x64 {t}", "scale_bias_gelu", (f"{t}[64, 64]", f"{t}[64]", f"{t}[64]")),
    )  # fmt: skip


CPU: tuple[Workload, ...] = (
    *_cpu_rows("f32"),
    *_cpu_rows("f64"),
    *(resized(w, 16) for w in WORKLOADS if w.id != "P03f"),
)


def select(rows: tuple[Workload, ...], only: str | None) -> tuple[Workload, ...]:
    """Rows whose id starts with one of the comma-separated prefixes, in the order these are given."""
    if only is None:
        return rows
    found: dict[str, Workload] = {}
    for prefix in only.split(","):
        exact = [w for w in rows if w.id == prefix]
        matching = exact or [w for w in rows if w.id.startswith(prefix)]
        if not matching:
            raise SystemExit(f"no workload is called {prefix}; there are {', '.join(w.id for w in rows)}")
        found.update((w.id, w) for w in matching)
    return tuple(found.values())


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers; nan where there are none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
