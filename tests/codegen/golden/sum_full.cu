static __device__ __forceinline__ int fuser_ticket(int* counter, int limit) {
    int old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(old) : "l"(counter), "r"(limit) : "memory");
    return old;
}
extern "C" __global__ void __launch_bounds__(64, 1) sum_full(
    const float* __restrict__ x,
    float* __restrict__ out,
    float* partials,
    int* counter,
    int n
) {
    __shared__ float acc_shared[2];
    __shared__ float total_shared[2];
    const int thread = (int)threadIdx.x;
    const int block = (int)blockIdx.x;
    float acc = 0.0f;
    const int multiply = block * 64;
    const int add = multiply + thread;
    #pragma unroll 1
    for (int i = add; i < n; i += 512) {
        const float v = x[i];
        const float add_1 = acc + v;
        acc = add_1;
    }
    const int acc_1 = thread & 31;
    const int acc_2 = thread >> 5;
    const float acc_other = __shfl_xor_sync(0xffffffffu, acc, 1);
    const float acc_3 = acc + acc_other;
    const float acc_other_1 = __shfl_xor_sync(0xffffffffu, acc_3, 2);
    const float acc_4 = acc_3 + acc_other_1;
    const float acc_other_2 = __shfl_xor_sync(0xffffffffu, acc_4, 4);
    const float acc_5 = acc_4 + acc_other_2;
    const float acc_other_3 = __shfl_xor_sync(0xffffffffu, acc_5, 8);
    const float acc_6 = acc_5 + acc_other_3;
    const float acc_other_4 = __shfl_xor_sync(0xffffffffu, acc_6, 16);
    const float acc_7 = acc_6 + acc_other_4;
    const bool acc_8 = acc_1 == 0;
    if (acc_8) {
        acc_shared[acc_2] = acc_7;
    }
    __syncthreads();
    const int acc_9 = thread >> 6;
    const int acc_10 = acc_9 * 2;
    const int acc_11 = thread & 1;
    const int acc_12 = acc_10 + acc_11;
    const float acc_part = acc_shared[acc_12];
    const float acc_other_5 = __shfl_xor_sync(0xffffffffu, acc_part, 1);
    const float acc_13 = acc_part + acc_other_5;
    acc = acc_13;
    __shared__ int last[1];
    const bool equal = thread == 0;
    if (equal) {
        partials[block] = acc;
        const int ticket = fuser_ticket(counter + 0, 7);
        last[0] = ticket;
    }
    __syncthreads();
    const int number = last[0];
    const bool equal_1 = number == 7;
    if (equal_1) {
        float total = 0.0f;
        #pragma unroll 1
        for (int k = thread; k < 8; k += 64) {
            const float p = partials[k];
            const float add_2 = total + p;
            total = add_2;
        }
        const float total_other = __shfl_xor_sync(0xffffffffu, total, 1);
        const float total_1 = total + total_other;
        const float total_other_1 = __shfl_xor_sync(0xffffffffu, total_1, 2);
        const float total_2 = total_1 + total_other_1;
        const float total_other_2 = __shfl_xor_sync(0xffffffffu, total_2, 4);
        const float total_3 = total_2 + total_other_2;
        const float total_other_3 = __shfl_xor_sync(0xffffffffu, total_3, 8);
        const float total_4 = total_3 + total_other_3;
        const float total_other_4 = __shfl_xor_sync(0xffffffffu, total_4, 16);
        const float total_5 = total_4 + total_other_4;
        if (acc_8) {
            total_shared[acc_2] = total_5;
        }
        __syncthreads();
        const float total_part = total_shared[acc_12];
        const float total_other_5 = __shfl_xor_sync(0xffffffffu, total_part, 1);
        const float total_6 = total_part + total_other_5;
        total = total_6;
        if (equal) out[0] = total;
    }
}
