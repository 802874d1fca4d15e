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
    const int biggest_1 = thread & 1;
    const bool biggest_2 = biggest_1 != 0;
    const float biggest_3 = biggest_2 ? biggest_other : biggest;
    const float biggest_4 = biggest_2 ? biggest : biggest_other;
    const bool biggest_5 = biggest_3 > biggest_4;
    const bool biggest_6 = biggest_3 != biggest_3;
    const bool biggest_7 = biggest_5 | biggest_6;
    const float biggest_8 = biggest_7 ? biggest_3 : biggest_4;
    const float biggest_other_1 = __shfl_xor_sync(0xffffffffu, biggest_8, 2);
    const int biggest_9 = thread & 2;
    const bool biggest_10 = biggest_9 != 0;
    const float biggest_11 = biggest_10 ? biggest_other_1 : biggest_8;
    const float biggest_12 = biggest_10 ? biggest_8 : biggest_other_1;
    const bool biggest_13 = biggest_11 > biggest_12;
    const bool biggest_14 = biggest_11 != biggest_11;
    const bool biggest_15 = biggest_13 | biggest_14;
    const float biggest_16 = biggest_15 ? biggest_11 : biggest_12;
    const float biggest_other_2 = __shfl_xor_sync(0xffffffffu, biggest_16, 4);
    const int biggest_17 = thread & 4;
    const bool biggest_18 = biggest_17 != 0;
    const float biggest_19 = biggest_18 ? biggest_other_2 : biggest_16;
    const float biggest_20 = biggest_18 ? biggest_16 : biggest_other_2;
    const bool biggest_21 = biggest_19 > biggest_20;
    const bool biggest_22 = biggest_19 != biggest_19;
    const bool biggest_23 = biggest_21 | biggest_22;
    const float biggest_24 = biggest_23 ? biggest_19 : biggest_20;
    biggest = biggest_24;
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
