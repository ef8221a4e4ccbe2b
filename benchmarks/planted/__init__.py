"""Four bad kernels among good ones: `python -m benchmarks.planted`, on a CUDA device."""
