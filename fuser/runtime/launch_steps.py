"""What a plan of CUDA launches is made of: kernels, matrix products, counters to clear.

In: nothing. Out: records, whose addresses and numbers are words given at each call ("table places") or constants. Their
own file because `native_plan` lays them out for native code and `native_graph` makes nodes of them.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.dtypes import DType
from fuser.record import dataclass
from fuser.runtime.cublas import Direct, Product


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel: its CUfunction, grid, block, dynamic shared bytes, and its parameters as (given place, or None,
    constant).

    A parameter is one of the words given at the call, or a constant's bits; both occupy an 8-byte slot, low end first.
    """

    function: int
    grid: tuple[int, int]
    block: int
    shared: int
    parameters: tuple[tuple[int | None, int], ...]


@dataclass(frozen=True)
class ProductLaunch:
    """A product of cuBLAS: its addresses count from those at table places of the first and second operand and the
    result."""

    product: Product
    places: tuple[int, int, int]
    dtype: DType

    def at(self, first: int, second: int, out: int) -> Product:
        """The product with the three arrays at these addresses."""
        q = self.product
        a, b = replace(q.a, pointer=first + q.a.pointer), replace(q.b, pointer=second + q.b.pointer)
        return replace(q, a=a, b=b, out=out + q.out)


@dataclass(frozen=True)
class Blas:
    """How products are run: the address of CuPy's function for the calling thread's handle, cuBLAS's own functions,
    table place and bytes of their workspace."""

    handle: int
    functions: Direct
    place: int
    nbytes: int


@dataclass(frozen=True)
class Clear:
    """Bytes to set to zero before the first kernel: their address is one of the words given at the call.

    lasting: on the default stream, words of the table (all that lie in those bytes) are replaced by these addresses of
    counters that are zero, and nothing is cleared.
    """

    place: int
    nbytes: int
    lasting: tuple[tuple[int, int], ...] = ()
