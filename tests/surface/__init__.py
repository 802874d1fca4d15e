"""The surface of NumPy, CuPy and torch: what traces, compiled and compared with the library itself."""
