extern "C" __global__ void __launch_bounds__(256, 1) sum_columns(
    const float* __restrict__ x,
    float* __restrict__ out,
    int rows,
    int cols
) {
    __shared__ float acc_shared[288];
    __shared__ float acc_shared_1[32];
    const int thread = (int)threadIdx.x;
    const int block = (int)blockIdx.x;
    const int multiply = block * 32;
    const int trunc_rem = thread % 32;
    const int add = multiply + trunc_rem;
    const bool less = add < cols;
    const int trunc_div = thread / 32;
    float acc = 0.0f;
    #pragma unroll 1
    for (int i = trunc_div; i < rows; i += 8) {
        const int multiply_1 = i * cols;
        const int add_1 = multiply_1 + add;
        const float v = less ? x[add_1] : (float)0;
        const float add_2 = acc + v;
        acc = add_2;
    }
    const int acc_1 = thread >> 8;
    const int acc_2 = thread & 255;
    const int acc_3 = acc_2 >> 5;
    const int acc_4 = acc_2 & 31;
    const int acc_5 = acc_1 * 288;
    const int acc_6 = acc_4 * 9;
    const int acc_7 = acc_5 + acc_6;
    const int acc_8 = acc_7 + acc_3;
    acc_shared[acc_8] = acc;
    __syncthreads();
    const int acc_9 = acc_2 >> 3;
    const int acc_10 = acc_2 & 7;
    const int acc_11 = acc_9 * 9;
    const int acc_12 = acc_5 + acc_11;
    const int acc_13 = acc_12 + acc_10;
    const float acc_part = acc_shared[acc_13];
    const float acc_other = __shfl_xor_sync(0xffffffffu, acc_part, 1);
    const float acc_14 = acc_part + acc_other;
    const float acc_other_1 = __shfl_xor_sync(0xffffffffu, acc_14, 2);
    const float acc_15 = acc_14 + acc_other_1;
    const float acc_other_2 = __shfl_xor_sync(0xffffffffu, acc_15, 4);
    const float acc_16 = acc_15 + acc_other_2;
    const bool acc_17 = acc_10 == 0;
    if (acc_17) {
        const int acc_18 = acc_1 * 32;
        const int acc_19 = acc_18 + acc_9;
        acc_shared_1[acc_19] = acc_16;
    }
    __syncthreads();
    const int acc_20 = acc_1 * 32;
    const int acc_21 = acc_20 + acc_4;
    const float acc_part_1 = acc_shared_1[acc_21];
    acc = acc_part_1;
    const bool equal = trunc_div == 0;
    const bool bitwise_and = equal & less;
    if (bitwise_and) out[add] = acc;
}
