"""CUDA kernels for CuPy arrays: the ``.cu`` files of this folder, and what launches them.

``KERNELS`` holds, by the name of a function of `pyentmax`, one with its signature that runs a
kernel on a CuPy array. `pyentmax` finds it when a CuPy array comes in, and loads nothing of this
before. A kernel is compiled at its first use, by CuPy's NVRTC, and kept in CuPy's cache on disk; it
runs on the current stream, takes memory from CuPy's pool, and never waits for the device.

A function may answer ``NotImplemented`` for what its kernel does not do: the NumPy body runs then,
on the device as well.
"""

from pyentmax.backends.cuda._functions import KERNELS

__all__ = ["KERNELS"]
