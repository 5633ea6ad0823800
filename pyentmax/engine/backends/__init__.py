"""Who computes: the choice between kernels and NumPy bodies, threads, and what launches kernels."""
