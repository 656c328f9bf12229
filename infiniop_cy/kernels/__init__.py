"""C++ headers shared by the CPU kernels and the CUDA sources."""
