"""Who is measured on a device: fuser, and what its users would pick instead.

In: a workload and torch tensors. Out: `PEERS` by name, each of which turns them into a callable, or raises Skip with
the reason. All see the same memory (DLPack); arguments that a program stores into are cloned for each.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import cuda_compute, handwritten, libraries, torch_forms
from benchmarks.workloads import Workload

Call = Callable[[], Any]


class Skip(Exception):
    """This peer has no way to run the workload."""


@dataclass(frozen=True)
class Ready:
    """A prepared program. call: runs it once. facts: what the peer knows of its kernels, asked after the first call.
    own_stream: it runs on JAX's stream, so the flush before it must, too. written: the stored-into arguments."""

    call: Call
    facts: Callable[[], dict[str, Any]] = dict
    own_stream: bool = False
    written: Sequence[Any] = ()


def fuser_peer(w: Workload, args: list[Any]) -> Ready:
    import fuser

    compiled = fuser.compile(w.fn, fast_math=w.fast_math)
    return Ready(lambda: compiled(*args), lambda: plan_facts(compiled, args), written=[args[k] for k in w.writes])


def plan_facts(compiled: Any, args: list[Any]) -> dict[str, Any]:
    """Kernels, registers, spills and schedules of the plan that a call uses."""
    plan = compiled.plan(*args)
    kernels = plan.kernels
    return {
        "planned_kernels": sum(max(len(k.built), 1) for k in kernels),
        "planned_bytes": plan.bytes_moved,
        "registers": max((k.registers for k in kernels), default=-1),
        "spills": max((k.spills for k in kernels), default=-1),
        "schedules": [_schedule_text(k) for k in kernels],
    }


def _schedule_text(kernel: Any) -> str:
    s = kernel.schedule
    if s is None:
        return f"{kernel.label} library"
    numbers = {"T": "threads", "V": "vector", "U": "unroll", "row": "threads_per_row"}
    shown = " ".join(f"{k}{getattr(s, v)}" for k, v in numbers.items() if hasattr(s, v))
    resident = " resident" if getattr(s, "resident", False) else ""
    return f"{kernel.label} {s.kind} {shown}{resident} r{kernel.registers}"


def _torch_program(w: Workload) -> Callable[..., Any]:
    form = torch_forms.forms().get(w.program)
    return form if form is not None else w.bound(libraries.programs(libraries.torch()))


def eager_peer(w: Workload, args: list[Any]) -> Ready:
    program = _torch_program(w)
    if w.program == "nbody" and args[0].shape[0] > 16384:
        raise Skip("its temporaries would take 13 GB each")
    return Ready(_without_grad(program, args), written=[args[k] for k in w.writes])


def compile_peer(w: Workload, args: list[Any]) -> Ready:
    import torch

    torch._dynamo.reset()
    program = torch.compile(_torch_program(w), dynamic=False)
    return Ready(_without_grad(program, args), written=[args[k] for k in w.writes])


def _without_grad(program: Callable[..., Any], args: list[Any]) -> Call:
    import torch

    def call() -> Any:
        with torch.no_grad():
            return program(*args)

    return call


def jax_peer(w: Workload, args: list[Any]) -> Ready:
    import jax

    jax.config.update("jax_enable_x64", True)
    program = w.bound(libraries.programs(libraries.jax()))
    compiled = jax.jit(program, donate_argnums=w.writes)
    held = [_as_jax(a, copy=k in w.writes) for k, a in enumerate(args)]
    kept: list[Any] = []

    def call() -> Any:
        out = compiled(*held)
        if w.writes:  # donated arguments are gone: the results take their places
            for k, new in zip(reversed(w.writes), reversed(out), strict=False):
                held[k] = new
        kept[:] = [out]
        return out

    def facts() -> dict[str, Any]:
        memory = compiled.lower(*held).compile().memory_analysis()
        return {"peak_bytes": int(memory.temp_size_in_bytes + memory.output_size_in_bytes)}

    return Ready(call, facts, own_stream=True)


def _as_jax(a: Any, copy: bool) -> Any:
    import jax
    import jax.numpy as jnp

    if not hasattr(a, "dtype"):
        return a
    array = jax.dlpack.from_dlpack(a.contiguous())
    return jnp.array(array, copy=True) if copy else array


def _as_cupy(args: list[Any]) -> list[Any]:
    import cupy
    import torch

    if any(getattr(a, "dtype", None) == torch.bfloat16 for a in args):
        raise Skip("CuPy has no bfloat16")
    return [cupy.from_dlpack(a) if hasattr(a, "dtype") else a for a in args]


def cupy_peer(w: Workload, args: list[Any]) -> Ready:
    held = _as_cupy(args)
    if w.program == "nbody" and held[0].shape[0] > 16384:
        raise Skip("its temporaries would take 13 GB each")
    program = w.bound(libraries.programs(libraries.cupy()))
    return Ready(lambda: program(*held), written=[args[k] for k in w.writes])


FUSABLE = {
    "abs_sum",
    "polynomial",
    "black_scholes",
    "gelu_tanh",
    "bias_gelu",
    "scale_bias_gelu",
    "bias_gelu_erf",
    "geglu",
}


def cupy_fuse_peer(w: Workload, args: list[Any]) -> Ready:
    import cupy

    if w.program not in FUSABLE:
        raise Skip("cupy.fuse takes elementwise programs and one reduction")
    held = _as_cupy(args)
    program = cupy.fuse(w.bound(libraries.programs(libraries.cupy())))
    return Ready(lambda: program(*held))


def cupy_kernel_peer(w: Workload, args: list[Any]) -> Ready:
    """CuPy's ReductionKernel or ElementwiseKernel, where a user would write one."""
    import cupy

    held = _as_cupy(args)
    if w.program == "abs_sum":
        reduction = cupy.ReductionKernel("T x", "T y", "abs(x)", "a + b", "y = a", "0", "abs_sum")
        return Ready(lambda: reduction(held[0]))
    if w.program == "scale_bias_gelu":
        body = "T v = x * w + b; y = T(0.5) * v * (1 + tanh(T(0.7978845608028654) * (v + T(0.044715) * v * v * v)))"
        kernel = cupy.ElementwiseKernel("T x, T w, T b", "T y", body, "gelu")
        return Ready(lambda: kernel(*held))
    raise Skip("no kernel written for it")


def quack_peer(w: Workload, args: list[Any]) -> Ready:
    if importlib.util.find_spec("quack") is None:
        raise Skip("not installed")
    if w.program == "softmax":
        from quack.softmax import softmax

        return Ready(lambda: softmax(args[0]))
    if w.program == "rmsnorm":
        from quack.rmsnorm import rmsnorm

        return Ready(lambda: rmsnorm(args[0], args[1], eps=1e-6))
    if w.program == "cross_entropy":
        from quack.cross_entropy import cross_entropy

        return Ready(lambda: cross_entropy(args[0], args[1], reduction="mean"))
    if w.program == "rmsnorm_backward":
        from quack.rmsnorm import rmsnorm_bwd

        x, weight, wanted, scale = args
        return Ready(lambda: rmsnorm_bwd(x, weight, wanted, scale)[:2])
    raise Skip("QuACK has no such kernel")


def liger_peer(w: Workload, args: list[Any]) -> Ready:
    if importlib.util.find_spec("liger_kernel") is None:
        raise Skip("not installed")
    from liger_kernel.transformers import functional as liger

    if w.program == "swiglu":
        half = args[0].shape[-1] // 2
        a, b = args[0][..., :half].contiguous(), args[0][..., half:].contiguous()
        return Ready(lambda: liger.liger_swiglu(a, b))
    names = {
        "geglu": "geglu",
        "layernorm": "layer_norm",
        "rmsnorm": "rms_norm",
        "cross_entropy": "cross_entropy",
        "softmax": "softmax",
    }
    if w.program not in names:
        raise Skip("Liger has no such kernel")
    function = getattr(liger, f"liger_{names[w.program]}")
    rest = (1e-5,) if w.program == "layernorm" else (1e-6,) if w.program == "rmsnorm" else ()
    return Ready(lambda: function(*args, *rest))


def cuda_compute_peer(w: Workload, args: list[Any]) -> Ready:
    if not cuda_compute.installed():
        raise Skip("not installed")
    found = cuda_compute.form(w.program, w.options, args[0])
    if found is None:
        raise Skip("cuda.compute has no form for it")
    return Ready(found)


def by_hand_peer(w: Workload, args: list[Any]) -> Ready:
    if w.program != "abs_sum" or "float32" not in str(args[0].dtype):
        raise Skip("nothing written by hand for it")
    return Ready(handwritten.one_kernel(args[0]))


def two_kernels_peer(w: Workload, args: list[Any]) -> Ready:
    if w.program != "abs_sum" or "float32" not in str(args[0].dtype):
        raise Skip("nothing written by hand for it")
    return Ready(handwritten.two_kernels(args[0]))


PEERS: dict[str, Callable[[Workload, list[Any]], Ready]] = {
    "fuser": fuser_peer,
    "torch": eager_peer,
    "torch.compile": compile_peer,
    "jax": jax_peer,
    "cupy": cupy_peer,
    "cupy.fuse": cupy_fuse_peer,
    "cupy kernel": cupy_kernel_peer,
    "quack": quack_peer,
    "liger": liger_peer,
    "cuda.compute": cuda_compute_peer,
    "by hand": by_hand_peer,
    "by hand, two kernels": two_kernels_peer,
}
BY_HAND = ("by hand", "by hand, two kernels")  # what fuser is held against, but nothing that a user would pick
