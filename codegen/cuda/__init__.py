"""CUDA: the printer of the kernel language, its prelude, and the direct NVRTC binding."""
