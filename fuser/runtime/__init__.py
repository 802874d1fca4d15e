"""Running a plan: other people's arrays, memory, launches on CPU and CUDA."""
