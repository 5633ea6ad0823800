"""Runs the CUDA kernels of pyentmax on the CPU, to prove them where there is no GPU.

`compiled(code)` has g++ build the text of a ``.cu`` file with a header that stands in for CUDA's
language; `Library.launch` runs a kernel of it over NumPy arrays, each thread of a block as a fiber,
in an order that the schedule chooses. A kernel that waits for something that cannot come, or that
breaks a rule of CUDA which only some hardware forgives, raises `KernelError` with block, thread
and line. A library built with ``checked=True`` also finds races and accesses outside the kernel's
memory.
"""

from emulation.build import compiled, unavailable
from emulation.shared_library import IN_ORDER, REVERSED, KernelError, Library

__all__ = ["IN_ORDER", "REVERSED", "KernelError", "Library", "compiled", "unavailable"]
