"""Programs in the form a PyTorch user would write them: the library's own function where it has one.

In: PyTorch. Out: `forms`, functions by workload program; programs missing here are run as written in `programs`. Eager
and compiled PyTorch are both given these, because they are the stronger peers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def forms() -> dict[str, Callable[..., Any]]:
    """The functions by program name."""
    import torch
    from torch.nn import functional as F

    def add_rmsnorm(x: Any, res: Any, w: Any, eps: float = 1e-6) -> Any:
        r = x + res
        return r, F.rms_norm(r, (r.shape[-1],), w, eps)

    def rmsnorm(x: Any, w: Any, eps: float = 1e-6) -> Any:
        if x.dtype == w.dtype:
            return F.rms_norm(x, (x.shape[-1],), w, eps)
        h = x.float()
        return (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + eps) * w).to(x.dtype)

    def swiglu(ab: Any) -> Any:
        a, b = ab.chunk(2, dim=-1)
        return F.silu(a) * b

    def dropout_add_layernorm(x: Any, res: Any, w: Any, b: Any, seed: int, eps: float = 1e-5) -> Any:
        return F.layer_norm(res + F.dropout(x, 0.1), (x.shape[-1],), w, b, eps)

    def batchnorm(x: Any, w: Any, b: Any, mean: Any, var: Any, eps: float = 1e-5, momentum: float = 0.1) -> Any:
        return F.batch_norm(x, mean, var, w, b, True, momentum, eps)

    return {
        "softmax": lambda x: F.softmax(x, -1),
        "log_softmax_first": lambda x: F.log_softmax(x, 0),
        "layernorm": lambda x, w, b, eps=1e-5: F.layer_norm(x, (x.shape[-1],), w, b, eps),
        "rmsnorm": rmsnorm,
        "add_rmsnorm": add_rmsnorm,
        "groupnorm": lambda x, w, b, eps=1e-5: F.group_norm(x, x.shape[1] // 4, w, b, eps),
        "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
        "bias_gelu": lambda x, b: F.gelu(x + b, approximate="tanh"),
        "scale_bias_gelu": lambda x, w, b: F.gelu(x * w + b, approximate="tanh"),
        "bias_gelu_erf": lambda x, b: F.gelu(x + b),
        "swiglu": swiglu,
        "dropout_add_layernorm": dropout_add_layernorm,
        "batchnorm": batchnorm,
        "batchnorm_relu": lambda x, w, b, eps=1e-5: F.relu(F.batch_norm(x, None, None, w, b, True, 0.1, eps)),
    }
