"""Device functions behind the rows that `fuser.optable` spells as `fuser_NAME`: extremes and approximations.

In: nothing. Out: `ARITHMETIC`, definitions by name, each complete in itself. Apart from `prelude`, whose other
functions move data: what is here is arithmetic, and each line of it carries an error bound that its row states.

The special-function unit flushes subnormal operands and results to zero, so operands are scaled, or a power of two is
the square of its root (exp), wherever a result that is not subnormal in the end could depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

INLINE = "static __device__ __forceinline__ "
# exp(x) = 2^(x*log2(e))
LOG2E, HALF_LOG2E, TWICE_LOG2E, LN2 = "1.44269504f", "0.72134752f", "2.88539008f", "0.693147181f"
LEAST, LEAST_QUOTIENT, LEAST_ROOT = "7.88860905e-31f", "2.35098870e-38f", "8.88178420e-16f"  # as in `optable.near`
# erf of x up to ERF_SPLIT as x + x*P(x*x), beyond as 1 - 2^-(z + z*Q(z)) of z = |x|, P and Q from the highest power
ERF_SPLIT = "1.00375843f"
ERF_P = ("6.74986004e-05f", "-0.000764764671f", "0.00514301704f", "-0.0268272441f", "0.112828694f", "-0.376125574f",
         "0.128379166f")  # fmt: skip
ERF_Q = ("6.78481811e-05f", "-0.000929938804f", "0.00695422478f", "-0.0375280045f", "0.156687424f", "0.914443195f",
         "0.628721893f")  # fmt: skip
ERFC = ("0.389225089f", "0.0378904405f", "0.281503786f", "0.277582146f", "0.282331411f")  # of `fuser_one_plus_erf_fast`


def _unit(instruction: str, result: str, operand: str) -> str:
    """`result` from the special-function unit; `approx.ftz` is one instruction, `approx` one in a frame of scalings."""
    return f'    float {result}; asm("{instruction}.f32 %0, %1;" : "=f"({result}) : "f"({operand}));'


def _function(name: str, parameters: str, *body: str) -> tuple[str, ...]:
    return (f"{INLINE}float {name}({parameters}) {{", *body, "}")


def _horner(result: str, x: str, coefficients: Sequence[str]) -> tuple[str, ...]:
    """A polynomial, from the highest power down."""
    first, second, *others = coefficients
    start = f"    float {result} = fmaf({x}, {first}, {second});"
    return (start, *(f"    {result} = fmaf({x}, {result}, {c});" for c in others))


def _test(name: str, parameters: str, condition: str) -> tuple[str, ...]:
    return (f"{INLINE}bool {name}({parameters}) {{", f"    return {condition};", "}")


def _extreme(name: str, instruction: str, compare: str, sign: str) -> tuple[str, ...]:
    """NaN of either side wins and 0.0 is above -0.0: an instruction from sm_80 on."""
    return _function(
        name, "float a, float b",
        "#if __CUDA_ARCH__ >= 800",
        "    float r;",
        f'    asm("{instruction}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));',
        "    return r;",
        "#else",
        f"    return a {compare} b || a != a || (a == b && __float_as_int(a) {sign} 0) ? a : b;",
        "#endif",
    )  # fmt: skip


ARITHMETIC: dict[str, tuple[str, ...]] = {
    "fuser_largest": _extreme("fuser_largest", "max", ">", ">="),
    "fuser_smallest": _extreme("fuser_smallest", "min", "<", "<"),
    # The instructions of the compiler's own exact division and root (NVRTC 13, sm_75 to sm_120), without the test and
    # the branch around them: `optable.near` says where they are exact. The size of x makes a NaN of the root of a
    # negative subnormal number, which the unit takes for -0.
    "fuser_divide_near": _function(
        "fuser_divide_near", "float a, float b",
        _unit("rcp.approx.ftz", "r", "b"),
        "    r = fmaf(r, fmaf(-b, r, 1.0f), r);",
        "    const float q = a * r;",
        "    return fmaf(r, fmaf(-b, q, a), q);",
    ),
    "fuser_divide_holds": _test(
        "fuser_divide_holds", "float a, float b, float q",
        f"(fabsf(a) >= {LEAST}) & (fabsf(q) >= {LEAST_QUOTIENT})",
    ),
    "fuser_sqrt_near": _function(
        "fuser_sqrt_near", "float x",
        _unit("rsqrt.approx.ftz", "r", "x"),
        "    const float s = fabsf(x) * r;",
        "    return fmaf(fmaf(-s, s, x), r * 0.5f, s);",
    ),
    "fuser_sqrt_holds": _test("fuser_sqrt_holds", "float x, float y", f"y >= {LEAST_ROOT}"),
    "fuser_largest_bf16x2": (
        f"{INLINE}unsigned int fuser_largest_bf16x2(unsigned int a, unsigned int b) {{",
        "#if __CUDA_ARCH__ >= 800",
        "    unsigned int r;",
        '    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));',
        "    return r;",
        "#else",
        "    unsigned int r = 0;",
        "    for (int k = 0; k < 32; k += 16) {",
        "        const float x = __int_as_float((int)(a >> k << 16)), y = __int_as_float((int)(b >> k << 16));",
        "        const float best = x > y || x != x || (x == y && __float_as_int(x) >= 0) ? x : y;",
        "        r |= (best != best ? 0x7fffu : (unsigned int)__float_as_int(best) >> 16) << k;",
        "    }",
        "    return r;",
        "#endif",
        "}",
    ),
    # Both polynomials, then the one that holds. The library's erff chooses between their coefficients one by one, which
    # takes more instructions, of a unit of half the rate. Bits are not those of any erff; tests/ops/test_erf.py holds
    # the bound.
    "fuser_erf": _function(
        "fuser_erf", "float x",
        "    const float z = fabsf(x), square = x * x;",
        *_horner("small", "square", ERF_P),
        *_horner("large", "z", ERF_Q),
        "    small = fmaf(x, small, x);",
        "    large = fmaf(x, large, x);",
        _unit("ex2.approx.ftz", "tail", "-fabsf(large)"),
        f"    return z >= {ERF_SPLIT} ? copysignf(1.0f - tail, x) : small;",
    ),
    "fuser_exp_fast": _function(
        "fuser_exp_fast", "float x",
        _unit("ex2.approx.ftz", "root", f"x * {HALF_LOG2E}"),
        "    return root * root;",
    ),
    # e/(1+e) of e = exp(x), kept finite: at 2^60 the quotient is 1.
    "fuser_sigmoid_fast": _function(
        "fuser_sigmoid_fast", "float x",
        f"    float half = x * {HALF_LOG2E};",
        "#if __CUDA_ARCH__ >= 800",
        '    asm("min.NaN.f32 %0, %0, %1;" : "+f"(half) : "f"(30.0f));',
        "#else",
        "    half = half > 30.0f ? 30.0f : half;",
        "#endif",
        _unit("ex2.approx.ftz", "root", "half"),
        "    const float e = root * root;",
        _unit("rcp.approx.ftz", "r", "e + 1.0f"),
        "    return e * r;",
    ),
    # 2/(1+e) of e = exp(-2x): as many instructions as tell 1 + tanh(x) from 0 where tanh(x) is -1 in f32.
    "fuser_one_plus_tanh_fast": _function(
        "fuser_one_plus_tanh_fast", "float x",
        _unit("ex2.approx.ftz", "e", f"x * -{TWICE_LOG2E}"),
        _unit("rcp.approx.ftz", "r", "fmaf(e, 0.5f, 0.5f)"),
        "    return r;",
    ),
    # 1 - 2/(1+exp(2x)), which cancels near 0: there x + x^3*(c0 + c1*x^2), error 2^-19.4.
    "fuser_tanh_fast": _function(
        "fuser_tanh_fast", "float x",
        _unit("ex2.approx.ftz", "e", f"x * {TWICE_LOG2E}"),
        _unit("rcp.approx.ftz", "r", "e + 1.0f"),
        "    const float z = x * x;",
        "    const float small = x * fmaf(z, fmaf(z, 0.126845439f, -0.333155495f), 1.0f);",
        "    return fabsf(x) < 0.3f ? small : fmaf(r, -2.0f, 1.0f);",
    ),
    # erfc(z) = exp(-z^2)*t*Q(t), t = 1/(1 + z/2), z = |x|; error 2^-19.5 of the value for z up to 10.
    "fuser_one_plus_erf_fast": _function(
        "fuser_one_plus_erf_fast", "float x",
        "    const float z = fabsf(x);",
        _unit("rcp.approx.ftz", "t", "fmaf(z, 0.5f, 1.0f)"),
        _unit("ex2.approx.ftz", "e", f"x * x * -{LOG2E}"),
        "    float q = fmaf(t, 0.0882045240f, -0.356738749f);",
        *(f"    q = fmaf(t, q, {c});" for c in ERFC),
        "    const float tail = q * t * e;",
        "    return x < 0.0f ? tail : 2.0f - tail;",
    ),
    # Scaled so that the divisor is in the range of the unit, whatever it is; the scale cancels exactly or is of no
    # matter.
    "fuser_divide_fast": _function(
        "fuser_divide_fast", "float a, float b",
        "    const float s = fabsf(b) > 8.50705917e37f ? 0.25f : fabsf(b) < 1.17549435e-38f ? 16777216.0f : 1.0f;",
        _unit("rcp.approx.ftz", "r", "b * s"),
        "    return a * s * r;",
    ),
    "fuser_reciprocal_fast": _function(
        "fuser_reciprocal_fast", "float x", _unit("rcp.approx", "r", "x"), "    return r;",
    ),
    "fuser_sqrt_fast": _function("fuser_sqrt_fast", "float x", _unit("sqrt.approx", "r", "x"), "    return r;"),
    "fuser_rsqrt_fast": _function("fuser_rsqrt_fast", "float x", _unit("rsqrt.approx", "r", "x"), "    return r;"),
    "fuser_log2_fast": _function("fuser_log2_fast", "float x", _unit("lg2.approx", "r", "x"), "    return r;"),
    "fuser_log_fast": _function(
        "fuser_log_fast", "float x", _unit("lg2.approx", "r", "x"), f"    return r * {LN2};",
    ),
}  # fmt: skip
