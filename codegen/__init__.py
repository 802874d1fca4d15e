"""Code generation: one group of a plan and a device in, a compiled kernel out.

Its own package because a kernel may depend on nothing but its group, its size class and the device.
"""

if __name__ != "fuser.codegen":
    raise ImportError(
        "`codegen` is a part of fuser: import it as `fuser.codegen` (in a clone, after `make setup`)",
        name=__name__,
    )
