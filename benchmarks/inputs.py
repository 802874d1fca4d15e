"""Fresh random inputs for a workload, made where they are used.

In: a workload, a seed. Out: torch tensors on a device, or NumPy arrays on the host, and Python scalars. Floats are
normal unless the workload bounds them; integers are uniform within its bounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.workloads import Workload, array_specs
from fuser import dtypes


def on_device(workload: Workload, device: str, seed: int) -> list[Any]:
    """Torch tensors, drawn on the device: nothing crosses the bus."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    out: list[Any] = []
    for k, (given, found) in enumerate(zip(workload.specs, array_specs(workload), strict=True)):
        if found is None:
            out.append(given)
            continue
        name, shape = found
        dtype = torch.bfloat16 if name == "bf16" else getattr(torch, str(dtypes.find(name).numpy))  # type: ignore[union-attr]
        low, high = workload.ranges.get(k, (None, None))
        if dtype == torch.bool:
            out.append(torch.rand(shape, generator=generator, device=device) < 0.5)
        elif not dtype.is_floating_point:
            out.append(
                torch.randint(int(low or 0), int(high or 100), shape, generator=generator, device=device).to(dtype)
            )
        elif low is None or high is None:
            out.append(torch.randn(shape, generator=generator, device=device, dtype=dtype))
        else:
            drawn = torch.rand(shape, generator=generator, device=device, dtype=dtype)
            out.append(drawn.mul_(high - low).add_(low))
    return out


def on_host(workload: Workload, seed: int) -> list[Any]:
    """NumPy arrays."""
    rng = np.random.default_rng(seed)
    out: list[Any] = []
    for k, (given, found) in enumerate(zip(workload.specs, array_specs(workload), strict=True)):
        if found is None:
            out.append(given)
            continue
        name, shape = found
        dtype = np.dtype(dtypes.find(name).numpy)  # type: ignore[union-attr]
        low, high = workload.ranges.get(k, (None, None))
        if name == "bool":
            out.append(rng.random(shape, np.float32) < 0.5)
        elif dtype.kind in "iu":
            out.append(rng.integers(int(low or 0), int(high or 100), shape, dtype=np.int64).astype(dtype))
        else:
            draw = np.float64 if name == "f64" else np.float32
            if low is None or high is None:
                out.append(rng.standard_normal(shape, draw).astype(dtype))
            else:
                out.append((rng.random(shape, draw) * draw(high - low) + draw(low)).astype(dtype))
    return out


def nbytes(value: Any) -> int:
    """Bytes of an array's elements; 0 for a Python scalar."""
    if not hasattr(value, "dtype"):
        return 0
    return int(value.itemsize * math.prod(value.shape))


def minimum_bytes(workload: Workload, args: list[Any], results: list[Any]) -> tuple[int, int]:
    """(read, written): each input read once, each result written once. `results` hold the arguments written, too."""
    written = sum(map(nbytes, results))
    read = 0
    for k, a in enumerate(args):
        whole = nbytes(a)
        read += min(whole, nbytes(results[0])) if k in workload.gathers else whole
    return read, written
