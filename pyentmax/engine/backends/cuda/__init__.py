"""CUDA kernels for CuPy arrays: the ``.cu`` files of this folder, and what launches them.

``functions.KERNELS`` holds, by the name of a function of `pyentmax`, what runs its kernel on a CuPy
array. `pyentmax` finds it when a CuPy array comes in, and loads nothing of this before. A kernel is
compiled at its first use, by CuPy's NVRTC, and kept in CuPy's cache on disk; it runs on the current
stream, takes memory from CuPy's pool, and never waits for the device.

What runs a kernel may answer ``NotImplemented`` for what the kernel does not do: the NumPy body
runs then, on the device as well.
"""
