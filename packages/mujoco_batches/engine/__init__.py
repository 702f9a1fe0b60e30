"""The physics: the compiled environment, and engines on the CPU and on CUDA."""
