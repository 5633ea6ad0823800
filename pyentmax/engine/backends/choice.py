"""The choice of the code that runs for an array.

The environment variable ``PYENTMAX_BACKEND`` is read once, at import: ``reference``
turns the kernels off, ``cpu`` makes their absence an error, empty takes what there is.
``PYENTMAX_INSTRUCTION_SET=baseline`` keeps the kernels from using more than every processor of the
platform has; otherwise they use what they find. On one machine a build gives the same bits again,
for any number of threads; between instruction sets and machines, results agree within the contract
of accuracy.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.engine.calls.dtypes import runs_kernels

BACKENDS = ("", "cpu", "reference")


@functools.cache
def kernels() -> dict[str, np.ufunc]:
    """The compiled kernels by name; empty without them."""
    chosen = _chosen_backend()
    if chosen == "reference":
        return {}
    try:
        import pyentmax._cpu as _cpu
    except ImportError as error:
        if chosen == "cpu":
            raise ImportError(
                "PYENTMAX_BACKEND=cpu asks for the compiled kernels, but pyentmax._cpu cannot be "
                f"imported ({error}); reinstall with a C compiler, or unset PYENTMAX_BACKEND"
            ) from error
        return {}
    return {name: f for name, f in vars(_cpu).items() if isinstance(f, np.ufunc)}


def kernel_for(array: Any, name: str, parameter: Any, value: Any) -> np.ufunc | None:
    """The compiled kernel of that name, if there is one for the array and the parameter's value."""
    if parameter is not None and not parameter.fits_kernel(value):
        return None
    if runs_kernels(array):
        return kernels().get(name)
    return None


def run_apart(
    call: Callable[..., Any], name: str, parameter: Any, value: Any, mask: Any, *arrays: Any
) -> Any:
    """The result of a call where a kernel supports only some rows, such as those with α ≥ 1.

    The other rows go to the body: the kernel gets the smallest value that it supports for them, and
    its result is replaced. None where the kernel supports all rows, or none.

    Parameters
    ----------
    call : callable
        the function itself, of arrays in rows, their values and their mask
    name, parameter, value
        as of `kernel_for`
    mask, *arrays
        in rows
    """
    least = getattr(parameter, "kernel_least", -math.inf)
    if least == -math.inf or type(value) is not np.ndarray or value.size < 2:
        return None
    beyond = value < least
    if beyond.all() or not beyond.any() or kernel_for(arrays[0], name, None, None) is None:
        return None
    batch = arrays[0].shape[:-1]
    results = call(arrays, np.broadcast_to(np.where(beyond, least, value), batch), mask)
    beyond, value = np.broadcast_to(beyond, batch), np.broadcast_to(value, batch)
    mask = None if mask is None else np.broadcast_to(mask, arrays[0].shape)[beyond]
    instead = call([x[beyond] for x in arrays], value[beyond], mask)
    several = isinstance(results, tuple)
    for x, y in zip(results, instead, strict=True) if several else [(results, instead)]:
        x[beyond] = y
    return results


def run_on_gpu(name: str, parameter: Any, value: Any, values: tuple[Any, ...]) -> Any:
    """The result of the CUDA kernel of that name for a CuPy array.

    NotImplemented for any other array, and for what has no kernel. The kernels are loaded when the
    first such array comes. `values` are all arguments of the call, and `value` the parameter's.
    """
    if type(values[0]).__module__.partition(".")[0] != "cupy" or _chosen_backend() == "reference":
        return NotImplemented
    if parameter is not None and not parameter.fits_kernel(value):
        return NotImplemented
    from pyentmax.engine.backends.cuda.functions import KERNELS

    run = KERNELS.get(name)
    return NotImplemented if run is None else run(() if parameter is None else (parameter,), values)


def writes_out(body: Callable[..., None]) -> Any:
    """Decorator for private functions of plain arrays that write to ``out=``: kernel, or body.

    Nothing is checked or arranged: what the operands may be is between the caller and the function,
    which has its body as `reference`.
    """
    name = body.__name__

    @functools.wraps(body)
    def public(*operands: Any, out: Any) -> None:
        kernel = kernels().get(name) if type(operands[0]) is np.ndarray else None
        (kernel or body)(*operands, out=out)

    public.reference = body  # type: ignore[attr-defined]
    return public


def packer() -> Callable[..., int] | None:
    """The compiled collector of non-zeros, for `sparse_output`; None without kernels."""
    return sys.modules["pyentmax._cpu"].pack if kernels() else None


def describe_backend() -> str:
    """One line saying what runs for NumPy arrays: first line of every command."""
    available = kernels()
    if available:
        return f"compiled CPU kernels ({len(available)}), NumPy for the rest"
    if _chosen_backend() == "reference":
        return "no kernels: plain NumPy, as PYENTMAX_BACKEND=reference asks"
    reason = "was not built (no C compiler?)"
    try:
        importlib.import_module("pyentmax._cpu")
    except ModuleNotFoundError:
        pass
    except ImportError as error:
        reason = f"cannot be imported ({error})"
    return f"no kernels: plain NumPy, because pyentmax._cpu {reason}"


def show_config() -> dict[str, Any]:
    """Print what runs on this machine, and return it as a dict.

    Examples
    --------
    >>> config = show_config()  # doctest: +ELLIPSIS
    pyentmax runs ...
    >>> sorted(config)
    ['backend', 'build', 'cuda', 'instruction_set', 'kernels', 'machine', 'numpy', 'python']
    """
    available = kernels()
    compiled = sys.modules["pyentmax._cpu"] if available else None
    config = {
        "backend": "cpu" if available else "reference",
        "kernels": sorted(available),
        "instruction_set": getattr(compiled, "INSTRUCTION_SET", None),
        "build": getattr(compiled, "BUILD_INFO", None),
        "cuda": _describe_cuda(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    print(f"pyentmax runs {describe_backend()}")
    for key, value in config.items():
        if value:
            print(f"  {key:15} {', '.join(value) if isinstance(value, list) else value}")
    return config


def _describe_cuda() -> str | None:
    # Without importing CuPy, which takes a second and may want a driver.
    if importlib.util.find_spec("cupy") is None:
        return None
    if _chosen_backend() == "reference":
        return "NumPy bodies for CuPy arrays, as PYENTMAX_BACKEND=reference asks"
    return "kernels for CuPy arrays, compiled at their first use"


def _chosen_backend() -> str:
    chosen = os.environ.get("PYENTMAX_BACKEND", "")
    if chosen not in BACKENDS:
        raise ValueError(f"PYENTMAX_BACKEND must be reference, cpu or empty, got {chosen!r}")
    return chosen


# A thread that loaded them at its first call would hold the lock of the import, and a process
# forked meanwhile would wait for it for ever.
kernels()
