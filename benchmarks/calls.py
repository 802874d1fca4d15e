"""What a call costs its host: small arrays, so that everything around the kernel is what is measured.

In: options. Out: a record of median microseconds by contender. All contenders run in one process, in turn, in batches
that stay far below what the launch queue holds; the device is idle when a batch begins, and the clock stops when the
last call of the batch returns, not when the device is done.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu import PACKAGES, versions
from benchmarks.machine import open_machine
from fuser import progress

SHAPE = (64, 64)
CHAIN_SHAPE = (512, 512)  # the smallest power of two at which the chain is five kernels rather than one block's
BATCH = 50
MORE = 2  # times the rows, which one thread still does
_MORE = f", {MORE} x the rows"
SQRT_2_OVER_PI = 0.7978845608028654
GELU = """
extern "C" __global__ void __launch_bounds__(256) gelu(const float* x, const float* w, const float* b, float* y, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) {
        float v = x[i] * w[i] + b[i];
        y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
    }
}
"""
BODY = "T v = x * w + b; y = T(0.5) * v * (T(1) + tanh(T(0.7978845608028654) * (v + T(0.044715) * v * v * v)))"


@dataclass(frozen=True)
class Contender:
    """Who is measured: a name, and a call."""

    name: str
    call: Callable[[], Any]


Maker = Callable[[list[Any]], Iterator[Contender]]


def gelu(np: Any) -> Callable[..., Any]:
    """gelu(x * w + b) over a library with NumPy's names."""

    def scale_bias_gelu(x: Any, w: Any, b: Any) -> Any:
        v = x * w + b
        return 0.5 * v * (1.0 + np.tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v)))

    return scale_bias_gelu


def chain(x: Any) -> Any:
    """Four reductions of all elements, each of which the next value needs: five kernels where x is no longer small."""
    x = np.exp(x - x.max())
    x = np.sqrt(x / x.sum())
    x = np.tanh(x - x.min())
    return x / x.sum()


def layers(np: Any) -> Callable[..., Any]:
    """Two layers of a network with one matrix, over a library with NumPy's names."""

    def two_layers(x: Any, w: Any) -> Any:
        return np.tanh(np.tanh(x @ w) @ w)

    return two_layers


def run(device: str, rounds: int, seed: int, save: Callable[[Any], None], say: Callable[[str], None]) -> Any:
    """Measure all contenders that are installed; medians over `rounds` batches."""
    machine = open_machine(device)
    record: dict[str, Any] = {
        "kind": "calls",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **machine.describe(),
        "versions": versions((*PACKAGES, "numexpr", "numba")),
        "seed": seed,
        "batch": BATCH,
        "rounds": rounds,
        "us": {},
    }
    rng = np.random.default_rng(seed)
    host = [rng.standard_normal(SHAPE, np.float32) for _ in range(3)]
    makers = CUDA_MAKERS if device == "cuda" else CPU_MAKERS
    found = list(_contenders(makers, host, record, say))
    times = _interleaved(found, rounds, machine.synchronize, record, say)
    for name, samples in times.items():
        record["us"][name] = {"median": statistics.median(samples) * 1e6, "least": min(samples) * 1e6}
        say(f"{name:36s} {record['us'][name]['median']:8.2f} us   least {record['us'][name]['least']:8.2f}")
    record["beyond_kernel_us"] = _beyond_kernel(record["us"])
    for name, microseconds in record["beyond_kernel_us"].items():
        say(f"{name:36s} {microseconds:8.2f} us   beyond the kernel")
    save(record)
    return record


def _beyond_kernel(us: dict[str, dict[str, float]]) -> dict[str, float]:
    """Microseconds of a call that do not grow with its rows: what is left of it when its kernel does nothing."""
    found = {}
    for name in us:
        if name + _MORE in us:
            found[name] = (MORE * us[name]["least"] - us[name + _MORE]["least"]) / (MORE - 1)
    return found


def _contenders(
    makers: Sequence[Maker], host: list[Any], record: dict[str, Any], say: Callable[[str], None]
) -> Iterator[Contender]:
    """All contenders whose first calls succeed; what fails is recorded by its maker."""
    for make in makers:
        try:
            for c in make(host):
                for _ in range(10):
                    c.call()
                yield c
        except Exception as error:
            record.setdefault("failed", {})[make.__name__] = f"{type(error).__name__}: {error}"[:300]
            say(f"{make.__name__}: {type(error).__name__}: {str(error)[:200]}")


def _interleaved(
    found: Sequence[Contender],
    rounds: int,
    synchronize: Callable[[], None],
    record: dict[str, Any],
    say: Callable[[str], None],
) -> dict[str, list[float]]:
    """Seconds a call of each batch, by contender; one that fails is recorded and left out from then on."""
    times: dict[str, list[float]] = {c.name: [] for c in found}
    for _ in progress.track(range(rounds), "calls"):
        for c in found:
            if c.name not in times:
                continue
            try:
                times[c.name].append(_batch(c.call, synchronize))
            except Exception as error:
                record.setdefault("failed", {})[c.name] = f"{type(error).__name__}: {error}"[:300]
                say(f"{c.name}: {type(error).__name__}: {str(error)[:200]}")
                del times[c.name]
    return times


def _batch(call: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    """Seconds of one call of many, on an idle device."""
    call()
    synchronize()
    start = time.perf_counter()
    for _ in range(BATCH):
        call()
    seconds = (time.perf_counter() - start) / BATCH
    synchronize()
    return seconds


# -- on a GPU ------------------------------------------------------------------------------------------
def cupy_arrays(host: list[Any]) -> Iterator[Contender]:
    """fuser on CuPy arrays, and what a CuPy user would write."""
    import cupy

    import fuser

    x, w, b = map(cupy.asarray, host)
    out = cupy.empty_like(x)
    yield from _fuser_pair("cupy", fuser.compile(gelu(np)), (x, w, b), out)
    yield from _fuser_pair("cupy graph", fuser.compile(gelu(np), cuda_graph=True), (x, w, b), out)
    kernel = cupy.ElementwiseKernel("T x, T w, T b", "T y", BODY, "gelu")
    yield Contender("ElementwiseKernel", lambda: kernel(x, w, b))
    yield Contender("ElementwiseKernel out=", lambda: kernel(x, w, b, out))
    fused = cupy.fuse(gelu(cupy))
    yield Contender("cupy.fuse", lambda: fused(x, w, b))
    raw = cupy.RawKernel(GELU, "gelu")
    arguments = (x, w, b, out, np.int32(x.size))
    raw(((x.size + 255) // 256,), (256,), arguments)
    yield Contender("RawKernel", lambda: raw(((x.size + 255) // 256,), (256,), arguments))
    yield Contender("cupy.empty", lambda: cupy.empty(SHAPE, np.float32))


def _fuser_pair(name: str, f: Any, args: tuple[Any, ...], out: Any) -> Iterator[Contender]:
    yield Contender(f"fuser {name}", lambda: f(*args))
    yield Contender(f"fuser {name} out=", lambda: f(*args, out=out))


def torch_tensors(host: list[Any]) -> Iterator[Contender]:
    """fuser on torch CUDA tensors, and torch."""
    import torch

    import fuser

    x, w, b = (torch.from_numpy(a).cuda() for a in host)
    yield from _fuser_pair("torch", fuser.compile(gelu(np)), (x, w, b), torch.empty_like(x))
    graphed = fuser.compile(gelu(np), cuda_graph=True)
    yield Contender("fuser torch graph", lambda: graphed(x, w, b))
    eager = gelu(torch)
    yield Contender("torch eager", lambda: eager(x, w, b))
    compiled = torch.compile(gelu(torch), dynamic=False)
    yield Contender("torch.compile", lambda: compiled(x, w, b))


def jax_arrays(host: list[Any]) -> Iterator[Contender]:
    """JAX."""
    import jax
    import jax.numpy as jnp

    jitted = jax.jit(gelu(jnp))
    x, w, b = map(jnp.asarray, host)
    yield Contender("JAX jit", lambda: jitted(x, w, b))


def plans_of_five(host: list[Any]) -> Iterator[Contender]:
    """A plan of five kernels, launched and replayed, and five bare launches."""
    import cupy
    from cupy.cuda import driver

    import fuser

    x = cupy.asarray(np.random.default_rng(0).standard_normal(CHAIN_SHAPE, np.float32))
    out = cupy.empty_like(x)
    yield from _fuser_pair("five kernels", fuser.compile(chain), (x,), out)
    yield from _fuser_pair("five kernels graph", fuser.compile(chain, cuda_graph=True), (x,), out)
    args = [cupy.asarray(a) for a in host]
    y = cupy.empty_like(args[0])
    raw = cupy.RawKernel(GELU, "gelu")
    arguments = (*args, y, np.int32(y.size))

    def launches() -> None:
        for _ in range(5):
            raw((16,), (256,), arguments)

    yield Contender("five RawKernels", launches)
    yield Contender("five driver launches", _driver_launches(driver, raw, arguments))


def _driver_launches(driver: Any, raw: Any, arguments: Sequence[Any]) -> Callable[[], None]:
    """Five launches through CuPy's binding of cuLaunchKernel, parameters packed once."""
    import ctypes

    import cupy

    words = [ctypes.c_void_p(a.data.ptr) for a in arguments[:-1]] + [ctypes.c_int(int(arguments[-1]))]
    block = (ctypes.c_void_p * len(words))(*(ctypes.addressof(v) for v in words))
    function, address = raw.kernel.ptr, ctypes.addressof(block)

    def call() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        for _ in range(5):
            driver.launchKernel(function, 16, 1, 1, 256, 1, 1, 0, stream, address, 0)

    call.keep = words, block  # type: ignore[attr-defined]
    return call


# -- on the CPU ----------------------------------------------------------------------------------------
def numpy_arrays(host: list[Any]) -> Iterator[Contender]:
    """fuser on NumPy arrays, also on `MORE` times the rows, and NumPy."""
    import fuser

    out = np.empty_like(host[0])
    f = fuser.compile(gelu(np))
    yield from _fuser_pair("numpy", f, tuple(host), out)
    more = tuple(np.tile(a, (MORE, 1)) for a in host)
    yield Contender(f"fuser numpy{_MORE}", lambda: f(*more))
    room = np.empty_like(more[0])
    yield Contender(f"fuser numpy out={_MORE}", lambda: f(*more, out=room))
    plain = gelu(np)
    yield Contender("numpy", lambda: plain(*host))


def products_on_cpu(host: list[Any]) -> Iterator[Contender]:
    """Two matrix products with work of their own around each: fuser beside what NumPy and torch do."""
    import fuser

    x, w = host[:2]
    f, plain = fuser.compile(layers(np)), layers(np)
    yield Contender("fuser numpy products", lambda: f(x, w))
    yield Contender("NumPy products", lambda: plain(x, w))
    import torch

    tensors = tuple(map(torch.from_numpy, host[:2]))
    eager, compiled = layers(torch), torch.compile(layers(torch), dynamic=False)
    yield Contender("fuser torch products", lambda: f(*tensors))
    yield Contender("torch eager products", lambda: eager(*tensors))
    yield Contender("torch.compile products", lambda: compiled(*tensors))


def torch_cpu_tensors(host: list[Any]) -> Iterator[Contender]:
    """fuser on torch CPU tensors, and torch."""
    import torch

    import fuser

    x, w, b = map(torch.from_numpy, host)
    yield from _fuser_pair("torch", fuser.compile(gelu(np)), (x, w, b), torch.empty_like(x))
    eager, compiled = gelu(torch), torch.compile(gelu(torch), dynamic=False)
    yield Contender("torch eager", lambda: eager(x, w, b))
    yield Contender("torch.compile", lambda: compiled(x, w, b))


def products(host: list[Any]) -> Iterator[Contender]:
    """Two matrix products with work of their own around each: fuser beside what CuPy and torch do."""
    import cupy
    import torch

    import fuser

    x, w = map(cupy.asarray, host[:2])
    tensors = tuple(torch.from_numpy(a).cuda() for a in host[:2])
    plain, graphed = fuser.compile(layers(np)), fuser.compile(layers(np), cuda_graph=True)
    for f, name in ((plain, ""), (graphed, " graph")):
        yield Contender(f"fuser cupy products{name}", lambda f=f: f(x, w))  # type: ignore[misc]
        yield Contender(f"fuser torch products{name}", lambda f=f: f(*tensors))  # type: ignore[misc]
    by_cupy, eager = layers(cupy), layers(torch)
    yield Contender("CuPy products", lambda: by_cupy(x, w))
    yield Contender("torch eager products", lambda: eager(*tensors))
    compiled = torch.compile(layers(torch), dynamic=False)
    yield Contender("torch.compile products", lambda: compiled(*tensors))


def fuser_on_jax(host: list[Any]) -> Iterator[Contender]:
    """fuser on JAX arrays."""
    import jax.numpy as jnp

    import fuser

    f = fuser.compile(gelu(np))
    x, w, b = map(jnp.asarray, host)
    yield Contender("fuser JAX arrays", lambda: f(x, w, b))


CUDA_MAKERS = (cupy_arrays, torch_tensors, plans_of_five, products, jax_arrays, fuser_on_jax)
CPU_MAKERS = (numpy_arrays, torch_cpu_tensors, products_on_cpu, jax_arrays, fuser_on_jax)
