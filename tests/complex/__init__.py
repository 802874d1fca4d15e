"""Complex numbers: arithmetic on pairs of reals, on every engine, as arguments of every library."""
