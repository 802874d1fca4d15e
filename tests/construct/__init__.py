"""The construct layer against NumPy: the same call on nodes, evaluated by the reference, and on arrays."""
