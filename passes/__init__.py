"""Passes: a graph in, a simpler graph or a fusion plan out.

Its own package because no pass may know the language above it or the code generator below.
"""

if __name__ != "fuser.passes":
    raise ImportError(
        "`passes` is a part of fuser: import it as `fuser.passes` (in a clone, after `make setup`)",
        name=__name__,
    )
