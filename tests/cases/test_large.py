"""A29: more than 2**31 elements, where 32-bit index arithmetic would wrap (takes 5 GB of memory)."""

import numpy as np
import pytest

import fuser

SIZES = (2**31 - 1, 2**31, 2**31 + 8)


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_elements_beyond_32_bit_indices(n: int) -> None:
    @fuser.compile
    def f(x):
        y = x + np.int8(1)
        return y, y.sum(dtype=np.int64), (x == 5).sum()

    x = np.zeros(n, np.int8)
    x[0], x[-1] = 3, 5
    y, total, fives = f(x)
    assert (int(y[-1]), int(y[0]), int(total), int(fives)) == (6, 4, n + 8, 1)
