"""LLVM: kernels of the kernel language as native code for CPUs."""
