"""sum(abs(x)) by hand in CUDA C: one kernel that reads x once, and the two kernels that an unfused program runs.

In: a float32 tensor. Out: callables that give a 0-d tensor. The single kernel gives each of 4,096 fixed contiguous
shares to one block with four 16-byte loads in flight a thread; the last block to finish adds the partial sums in order.
It is also the probe for this card's read ceiling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SHARES, THREADS = 4096, 256

SOURCE = r"""
extern "C" {
__device__ float block_sum(float v) {
    __shared__ float part[32];
    for (int s = 1; s < 32; s *= 2) v += __shfl_xor_sync(~0u, v, s);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = threadIdx.x < (blockDim.x >> 5) ? part[threadIdx.x] : 0.0f;
    for (int s = 1; s < 32; s *= 2) v += __shfl_xor_sync(~0u, v, s);
    __syncthreads();
    return v;
}
__device__ float magnitude(float4 v) { return (fabsf(v.x) + fabsf(v.y)) + (fabsf(v.z) + fabsf(v.w)); }

__global__ __launch_bounds__(256, 4)
void abs_sum(const float4* __restrict__ x, long long vectors, float* partial, unsigned* ticket, float* out) {
    long long share = (vectors + gridDim.x - 1) / gridDim.x;
    long long begin = share * blockIdx.x, end = min(begin + share, vectors);
    float a = 0, b = 0, c = 0, d = 0;
    long long i = begin + threadIdx.x;
    for (; i + 3 * blockDim.x < end; i += 4 * blockDim.x) {
        float4 p = x[i], q = x[i + blockDim.x], r = x[i + 2 * blockDim.x], s = x[i + 3 * blockDim.x];
        a += magnitude(p); b += magnitude(q); c += magnitude(r); d += magnitude(s);
    }
    for (; i < end; i += blockDim.x) a += magnitude(x[i]);
    float total = block_sum((a + b) + (c + d));
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = total;
        __threadfence();
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    float v = 0;
#pragma unroll 16
    for (int k = threadIdx.x; k < gridDim.x; k += blockDim.x) v += __ldcg(partial + k);
    v = block_sum(v);
    if (threadIdx.x == 0) *out = v;
}

__global__ void absolute(const float4* __restrict__ x, long long vectors, float4* y) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < vectors) { float4 v = x[i]; y[i] = make_float4(fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w)); }
}
}
"""


def one_kernel(x: Any) -> Callable[[], Any]:
    """The fused version."""
    launch = _reducer(x)
    return lambda: launch(x)


def two_kernels(x: Any) -> Callable[[], Any]:
    """abs into memory, then the sum: three times the bytes."""
    import torch

    absolute = _module().get_function("absolute")
    launch, vectors = _reducer(x), x.numel() // 4

    def run() -> Any:
        y = torch.empty_like(x)
        absolute((-(-vectors // THREADS),), (THREADS,), (x.data_ptr(), vectors, y.data_ptr()))
        return launch(y)

    return run


def _reducer(x: Any) -> Callable[[Any], Any]:
    import torch

    kernel = _module().get_function("abs_sum")
    shares = min(SHARES, max(1, x.numel() // 4096))
    partial = torch.empty(shares, dtype=torch.float32, device=x.device)
    ticket = torch.zeros(1, dtype=torch.int32, device=x.device)

    def launch(values: Any) -> Any:
        out = torch.empty((), dtype=torch.float32, device=values.device)
        pointers = (values.data_ptr(), values.numel() // 4, partial.data_ptr(), ticket.data_ptr(), out.data_ptr())
        kernel((shares,), (THREADS,), pointers)
        return out

    return launch


def _module() -> Any:
    import cupy

    return cupy.RawModule(code=SOURCE, options=("-std=c++17",))
