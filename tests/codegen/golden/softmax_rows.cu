static __device__ __forceinline__ float fuser_largest(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a > b || a != a || (a == b && __float_as_int(a) >= 0) ? a : b;
#endif
}
extern "C" __global__ void __launch_bounds__(64, 1) softmax_rows(
    const float* __restrict__ x,
    float* __restrict__ out,
    int rows,
    int cols
) {
    const int thread = (int)threadIdx.x;
    const int block = (int)blockIdx.x;
    const int multiply = (int)((unsigned int)block * (unsigned int)8);
    const int trunc_div = thread / 8;
    const int add = (int)((unsigned int)multiply + (unsigned int)trunc_div);
    const int trunc_rem = thread % 8;
    const bool less = add < rows;
    const int subtract = (int)((unsigned int)rows - (unsigned int)1);
    const int where = less ? add : subtract;
    const int multiply_1 = where * cols;
    float biggest = __int_as_float(0xff800000);
    #pragma unroll 1
    for (int j = trunc_rem; j < cols; j += 8) {
        const int add_1 = multiply_1 + j;
        const float v = x[add_1];
        const bool bigger_1 = biggest > v;
        const bool bigger_2 = biggest != biggest;
        const bool bigger_3 = bigger_1 | bigger_2;
        const float bigger = bigger_3 ? biggest : v;
        biggest = bigger;
    }
    const float biggest_other = __shfl_xor_sync(0xffffffffu, biggest, 1);
    const float biggest_1 = fuser_largest(biggest, biggest_other);
    const float biggest_other_1 = __shfl_xor_sync(0xffffffffu, biggest_1, 2);
    const float biggest_2 = fuser_largest(biggest_1, biggest_other_1);
    const float biggest_other_2 = __shfl_xor_sync(0xffffffffu, biggest_2, 4);
    const float biggest_3 = fuser_largest(biggest_2, biggest_other_2);
    biggest = biggest_3;
    float total = 0.0f;
    #pragma unroll 1
    for (int j_1 = trunc_rem; j_1 < cols; j_1 += 8) {
        const int add_2 = multiply_1 + j_1;
        const float v_1 = x[add_2];
        const float subtract_1 = v_1 - biggest;
        const float exp_ = expf(subtract_1);
        const float add_3 = total + exp_;
        total = add_3;
    }
    const float total_other = __shfl_xor_sync(0xffffffffu, total, 1);
    const float total_1 = total + total_other;
    const float total_other_1 = __shfl_xor_sync(0xffffffffu, total_1, 2);
    const float total_2 = total_1 + total_other_1;
    const float total_other_2 = __shfl_xor_sync(0xffffffffu, total_2, 4);
    const float total_3 = total_2 + total_other_2;
    total = total_3;
    #pragma unroll 1
    for (int j_2 = trunc_rem; j_2 < cols; j_2 += 8) {
        const int add_4 = multiply_1 + j_2;
        const float v_2 = x[add_4];
        const float subtract_2 = v_2 - biggest;
        const float exp__1 = expf(subtract_2);
        const float divide = exp__1 / total;
        if (less) out[add_4] = divide;
    }
}
