"""fuser: a graph-level automatic kernel-fusion compiler for array programs.

    import fuser
    f = fuser.compile(fn)        # fn: a plain NumPy function, or "lambda x, y: 2*x + 3*y**2"
    y = f(*arrays)               # NumPy arrays run on the CPU, CuPy and torch CUDA arrays on their GPU
    print(f.plan(*arrays))       # which kernels, how many bytes, and why

See `fuser.api` for the functions, `docs/` for the rest.
"""

from fuser._bootstrap import check

check()

from fuser.runtime.quiet import importing

with importing():
    from fuser.api import compile, load, must_fuse, no_fuse, ops, parse, reference
    from fuser.compiled import Compiled
    from fuser.errors import FuserError
    from fuser.notebook import load as load_ipython_extension  # what `%load_ext fuser` looks for
    from fuser.plan import Plan
    from fuser.runtime.pool import num_threads, set_num_threads

__version__ = "0.1.0"
__all__ = [
    "Compiled", "FuserError", "Plan", "compile", "load", "load_ipython_extension", "must_fuse", "no_fuse",
    "num_threads", "ops", "parse", "reference", "set_num_threads",
]  # fmt: skip
