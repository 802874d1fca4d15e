struct __align__(16) fuser_f32x4 { float v[4]; };
extern "C" __global__ void __launch_bounds__(64, 1) saxpy(
    const float* __restrict__ x,
    const float* __restrict__ y,
    float* __restrict__ out,
    int n,
    float a
) {
    const int block = (int)blockIdx.x;
    const int multiply = block * 64;
    const int thread = (int)threadIdx.x;
    const int add = multiply + thread;
    const int multiply_1 = add * 4;
    const bool less = multiply_1 < n;
    if (less) {
        const fuser_f32x4 xv_vec = *reinterpret_cast<const fuser_f32x4*>(x + multiply_1);
        const float xv = xv_vec.v[0];
        const float xv_1 = xv_vec.v[1];
        const float xv_2 = xv_vec.v[2];
        const float xv_3 = xv_vec.v[3];
        const fuser_f32x4 yv_vec = *reinterpret_cast<const fuser_f32x4*>(y + multiply_1);
        const float yv = yv_vec.v[0];
        const float yv_1 = yv_vec.v[1];
        const float yv_2 = yv_vec.v[2];
        const float yv_3 = yv_vec.v[3];
        const float multiply_2 = a * xv;
        const float add_1 = multiply_2 + yv;
        const float multiply_3 = a * xv_1;
        const float add_2 = multiply_3 + yv_1;
        const float multiply_4 = a * xv_2;
        const float add_3 = multiply_4 + yv_2;
        const float multiply_5 = a * xv_3;
        const float add_4 = multiply_5 + yv_3;
        *reinterpret_cast<fuser_f32x4*>(out + multiply_1) = {{add_1, add_2, add_3, add_4}};
    }
}
