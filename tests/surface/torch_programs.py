"""Functions written with torch, one small program each; imported only where torch is.

In: float tensors `x`, `y` (4, 6), `v` (6,), and integers `i` (4, 6). Out: `PROGRAMS` by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "neg",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
BINARY = [
    "add",
    "atan2",
    "copysign",
    "eq",
    "fmod",
    "ge",
    "gt",
    "hypot",
    "le",
    "logaddexp",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "pow",
    "remainder",
    "sub",
    "xlogy",
]
ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
]


def _named(module: Any, name: str, count: int) -> Callable[..., Any]:
    function = getattr(module, name)
    return (lambda x, y, v, i: function(x)) if count == 1 else (lambda x, y, v, i: (function(x, y), function(x, v)))


def in_place(x: Any, y: Any, v: Any, i: Any) -> Any:
    z = x.clone()
    z.add_(y).mul_(2)
    z[0] = v
    z[:, 1:3] += 1
    z.relu_()
    return z


def attention_scores(x: Any, y: Any, v: Any, i: Any) -> Any:
    scores = (x @ y.transpose(-2, -1)) / math.sqrt(x.size(-1))
    return scores.masked_fill(scores < 0, float("-inf")).softmax(dim=-1)


def rms_norm(x: Any, y: Any, v: Any, i: Any) -> Any:
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * v


def rotary(x: Any, y: Any, v: Any, i: Any) -> Any:
    x1, x2 = x.chunk(2, dim=-1)
    cos, sin = torch.cos(y[..., :3]), torch.sin(y[..., :3])
    return torch.cat((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1)


def swiglu(x: Any, y: Any, v: Any, i: Any) -> Any:
    gate, up = x.split(3, dim=-1)
    return F.silu(gate) * up


def creation(x: Any, y: Any, v: Any, i: Any) -> Any:
    n, d = x.shape
    positions = torch.arange(d, dtype=torch.float32)
    mask = torch.tril(torch.ones(n, d)) > 0
    return (
        x * positions + torch.zeros(d),
        torch.where(mask, x, torch.tensor(0.0)),
        torch.full((n, d), 2.0) + x,
        torch.eye(3),
    )


def losses(x: Any, y: Any, v: Any, i: Any) -> Any:
    return F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.smooth_l1_loss(x, y), F.huber_loss(x, y)


PROGRAMS: dict[str, Callable[..., Any]] = {
    **{n: _named(torch, n, 1) for n in UNARY},
    **{n: _named(torch, n, 2) for n in BINARY},
    **{f"F.{n}": _named(F, n, 1) for n in ACTIVATIONS},
    "promotion": lambda x, y, v, i: (
        i + 1.5,
        i / 2,
        i * x,
        torch.exp(i),
        i // 2,
        i > 0.5,
        x.sum() * i,
        (i > 0) + 1,
        i.float(),
    ),
    "scalars": lambda x, y, v, i: (x * 2, 1 - x, 2**x, x // 0.5, x % 0.7, -x, abs(x), x**2, x >= 1),
    "integers": lambda x, y, v, i: (i & 3, i | 1, i ^ 5, ~i, i << 1, i >> 1, i % 3, i.sum(), i.cumsum(0), i.prod(1)),
    "alpha": lambda x, y, v, i: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), x.add(y, alpha=3)),
    "div": lambda x, y, v, i: (torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc")),
    "sums": lambda x, y, v, i: (x.sum(), x.sum(0), x.sum(dim=1, keepdim=True), torch.sum(x, dim=(0, 1)), x.prod(1)),
    "means": lambda x, y, v, i: (x.mean(), x.mean(-1), torch.mean(x, 0, keepdim=True), x.mean(dim=(0, 1))),
    "spreads": lambda x, y, v, i: (
        x.var(),
        x.std(dim=1),
        torch.var(x, dim=1, unbiased=False),
        torch.std(x, 1, keepdim=True),
        torch.var_mean(x, dim=1),
    ),
    "extremes": lambda x, y, v, i: (
        x.max(),
        x.max(dim=1).values,
        torch.min(x, 0),
        torch.max(x, y),
        x.amax(1),
        x.amin((0, 1)),
    ),
    "positions": lambda x, y, v, i: (x.argmax(), x.argmax(dim=1), torch.argmin(x, dim=0, keepdim=True)),
    "truths": lambda x, y, v, i: ((x > 0).all(), (x > 0).any(dim=1), torch.all(x > -99), torch.count_nonzero(i, dim=1)),
    "norms": lambda x, y, v, i: (
        torch.norm(x),
        x.norm(dim=1),
        torch.linalg.norm(x),
        torch.linalg.vector_norm(x, dim=1),
    ),
    "scans": lambda x, y, v, i: (x.cumsum(-1), torch.cumprod(x, dim=1)),
    "softmax": lambda x, y, v, i: (
        torch.softmax(x, -1),
        F.softmax(x, dim=0),
        x.log_softmax(1),
        torch.logsumexp(x, dim=1),
    ),
    "shapes": lambda x, y, v, i: (
        x.view(2, -1),
        x.reshape(-1),
        x.t(),
        x.T,
        x.permute(1, 0),
        x.transpose(0, 1),
        x.unsqueeze(1),
        x[None].squeeze(0),
    ),
    "sizes": lambda x, y, v, i: (x / x.size(-1), x * x.numel(), x + x.dim(), x.flatten(), x.view(x.size(0), 2, 3)),
    "joining": lambda x, y, v, i: (
        torch.cat([x, y]),
        torch.cat((x, y), dim=1),
        torch.stack([x, y], dim=1),
        torch.vstack([x, y]),
    ),
    "parting": lambda x, y, v, i: (
        *x.chunk(2, dim=1),
        *torch.split(x, 4, dim=1),
        *x.split([1, 3], dim=0),
        *x.unbind(0),
    ),
    "repeating": lambda x, y, v, i: (
        v.repeat(2, 2),
        v.expand(4, -1),
        torch.tile(v, (2,)),
        v.repeat_interleave(2),
        v.expand_as(x),
    ),
    "moving": lambda x, y, v, i: (
        x.flip(0),
        torch.flip(x, [1]),
        torch.roll(x, 1, 1),
        x.roll(2, dims=0),
        torch.movedim(x, 0, 1),
    ),
    "triangles": lambda x, y, v, i: (torch.tril(x), x.triu(diagonal=1), torch.diag(v), x.diagonal(), torch.outer(v, v)),
    "where": lambda x, y, v, i: (torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), x.masked_fill(x > 0, -1.0)),
    "clamping": lambda x, y, v, i: (
        x.clamp(-1, 1),
        torch.clamp(x, min=0),
        x.clamp_min(0.5),
        torch.clip(x, max=v),
        i.clamp(0, 3),
    ),
    "gathering": lambda x, y, v, i: (
        torch.gather(x, 1, i % 6),
        x.index_select(0, torch.tensor([2, 0])),
        x[:, [1, 3]],
        F.embedding(i % 4, x),
    ),
    "products": lambda x, y, v, i: (
        x @ v,
        torch.matmul(x, y.T),
        torch.einsum("ij,ij->i", x, y),
        torch.dot(v, v),
        x.mv(v),
    ),
    "linear": lambda x, y, v, i: (F.linear(x, y), torch.addmm(torch.zeros(4), x, y.T), F.normalize(x, dim=1)),
    "layer_norm": lambda x, y, v, i: (
        F.layer_norm(x, (6,)),
        F.layer_norm(x, (6,), v, v, 1e-6),
        F.layer_norm(x, x.shape[-1:]),
    ),
    "group_norm": lambda x, y, v, i: (F.group_norm(x, 2), F.group_norm(x[..., None], 3, v, v)),
    "glu": lambda x, y, v, i: (F.glu(x), F.gelu(x, approximate="tanh"), F.softplus(x, beta=2), F.leaky_relu(x, 0.2)),
    "torch.norm": lambda x, y, v, i: (
        torch.norm(v),
        v.norm(),
        torch.norm(x),
        torch.norm(x, p=1),
        torch.norm(x, 3, dim=1),
        x.norm(dim=-1, keepdim=True),
        torch.norm(x, dim=(0, 1)),
        torch.norm(x, p=float("inf"), dim=0, keepdim=True),
        torch.norm(x.half(), dtype=torch.float32),
    ),
    "of_integers": lambda x, y, v, i: (
        torch.reciprocal(i + 1),
        torch.square(i > 1),
        torch.logsumexp(i, 0),
        torch.sinc(i),
        torch.angle(i),
        torch.relu(i - 2),
        F.relu(i - 2),
    ),
    "casts": lambda x, y, v, i: (
        x.half(),
        x.bfloat16().float(),
        x.double(),
        x.int(),
        i.short(),
        i.char(),
        i.byte(),
        x.to(torch.float64),
        x.long(),
        x.bool(),
        x.to(i.dtype),
        i.to(x),
        x.type(torch.int32),
    ),
    "lerp": lambda x, y, v, i: (
        torch.lerp(x, y, 0.3),
        torch.addcmul(x, y, y, value=2),
        torch.nan_to_num(x),
        x.diff(dim=1),
    ),
    "padding": lambda x, y, v, i: (F.pad(x, (1, 2)), F.pad(x, (1, 1, 0, 2), value=3.0), F.one_hot(i % 5, 5)),
    "cross_entropy": lambda x, y, v, i: (
        F.cross_entropy(x, i[:, 0] % 6),
        F.cross_entropy(x, i[:, 0] % 6, reduction="none"),
        F.nll_loss(x, i[:, 0] % 6),
    ),
    "dropout_at_inference": lambda x, y, v, i: F.dropout(x, 0.5, training=False),
    "in_place": in_place,
    "attention_scores": attention_scores,
    "rms_norm": rms_norm,
    "rotary": rotary,
    "swiglu": swiglu,
    "creation": creation,
    "losses": losses,
}
