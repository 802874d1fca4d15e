"""Front ends: program text or a Python function in, a `fuser.graph.Graph` out.

Its own package because nothing downstream may know which language a graph came from.
"""

if __name__ != "fuser.frontend":
    raise ImportError(
        "`frontend` is a part of fuser: import it as `fuser.frontend` (in a clone, after `make setup`)",
        name=__name__,
    )
