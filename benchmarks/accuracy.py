"""Whether a result is right, before anything is timed.

In: results as torch tensors, and what the program gives in float64 on the same inputs. Out: the worst norm-wise error,
or WrongResult. The float64 run uses PyTorch operators one by one, on the device, independent of all that is
measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks import libraries
from benchmarks.workloads import Workload

TOLERANCE = {"torch.bfloat16": 1e-2, "torch.float16": 2e-3, "torch.float32": 2e-5, "torch.float64": 1e-12}
CHUNK = 1 << 27


class WrongResult(Exception):
    """A measured library gave another answer than float64."""


def truth(workload: Workload, args: list[Any]) -> list[Any]:
    """The results in float64 (or integers), the written arguments last; in float32 where they come in slabs."""
    import torch

    if workload.slabs > 1:
        return _in_slabs(workload, args)
    wide = [a.double() if hasattr(a, "dtype") and a.dtype.is_floating_point else a for a in args]
    library = libraries.torch()
    if workload.random:
        kept = _kept(args[0], args[-1])
        library.dropout = lambda x, p, seed: torch.where(kept, x / (1 - p), 0)
    programs = libraries.programs(library)
    run = getattr(programs, workload.sample) if workload.sample else workload.bound(programs)
    with torch.no_grad():
        return leaves(run(*wide)) + [wide[k] for k in workload.writes]


def _in_slabs(workload: Workload, args: list[Any]) -> list[Any]:
    import torch

    whole, rows = replace(workload, slabs=1), len(args[0])
    step = -(-rows // workload.slabs)
    parts = []
    for start in range(0, rows, step):
        some = [a[start : start + step] if getattr(a, "shape", ())[:1] == args[0].shape[:1] else a for a in args]
        parts.append([x.float() for x in truth(whole, some)])
    return [torch.cat(column) for column in zip(*parts, strict=True)]


def _kept(like: Any, seed: int) -> Any:
    """The mask that fuser's dropout draws: its randomness has tests of its own, fused it only has to be the same."""
    import fuser

    draw = fuser.compile(_dropped)
    return draw(like.float().fill_(1), seed) != 0


def _dropped(ones: Any, seed: int) -> Any:
    import fuser

    return fuser.ops.dropout(ones, 0.1, seed)


def leaves(out: Any) -> list[Any]:
    """Results as a flat list."""
    if out is None:
        return []
    if isinstance(out, (tuple, list)):
        return [x for part in out for x in leaves(part)]
    return [out]


def as_torch(value: Any) -> Any:
    """A result of any library as a torch tensor where it lies."""
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if hasattr(value, "__dlpack__") and getattr(value, "shape", ()) != ():
        return torch.from_dlpack(value)
    number = torch.as_tensor(value.item() if hasattr(value, "item") else value)
    return number.to(getattr(torch, str(getattr(value, "dtype", number.dtype)).removeprefix("torch.")))


def compare(got: list[Any], wanted: list[Any], tolerance: float | None = None) -> float:
    """The largest of the results' errors ||got - wanted|| / ||wanted||; raises WrongResult beyond the tolerance of the
    result's dtype. Integers must be equal. Results may have more rows than were wanted (a sample)."""
    if len(got) < len(wanted):
        raise WrongResult(f"{len(got)} results, not {len(wanted)}")
    worst = 0.0
    for k, (g, w) in enumerate(zip(got, wanted, strict=False)):
        g = as_torch(g)
        if g.shape != w.shape:
            g = g[: w.shape[0]]
        if g.shape != w.shape:
            raise WrongResult(f"result {k} has shape {tuple(g.shape)}, not {tuple(w.shape)}")
        worst = max(worst, _error(k, g, w, tolerance))
    return worst


def _error(k: int, g: Any, w: Any, tolerance: float | None) -> float:
    if not g.dtype.is_floating_point:
        different = int((g.to(w.dtype).to(w.device) != w).sum())
        if different:
            raise WrongResult(f"result {k}: {different} of {w.numel()} integers differ")
        return 0.0
    g, w = g.reshape(-1), w.reshape(-1).to(g.device)
    off = norm = 0.0
    for start in range(0, max(len(w), 1), CHUNK):
        part, exact = g[start : start + CHUNK].double(), w[start : start + CHUNK].double()
        off += float(((part - exact) ** 2).sum())
        norm += float((exact**2).sum())
    error = (off / norm) ** 0.5 if norm else off**0.5
    limit = TOLERANCE[str(g.dtype)] if tolerance is None else tolerance
    if not error <= limit:
        raise WrongResult(f"result {k}: relative error {error:.3g}, allowed {limit:.0e}")
    return float(error)
