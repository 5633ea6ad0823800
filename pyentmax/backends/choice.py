"""Which arrays are taken, and which code runs for them.

Every mapping is written once as a readable NumPy body. ``accelerated`` puts a wrapper around
it that hands host arrays to the compiled kernel of the same name in ``pyentmax._cpu``, if that
was built, CuPy arrays to that in ``pyentmax.backends.cuda``, and everything else to the body, which
stays reachable as ``function.reference``.
No mapping knows about this, nor about ``workers=``, the threads of a call (`pyentmax.set_workers`).

The environment variable ``PYENTMAX_BACKEND`` is read once, at the first call: ``reference``
turns the kernels off, ``cpu`` makes their absence an error, empty takes what there is.
``PYENTMAX_INSTRUCTION_SET=baseline`` keeps the kernels from using more than every processor of the
platform has; otherwise they use what they find. The results are the same to the last bit.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import platform
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np

from pyentmax.backends import threads
from pyentmax.calls.lazy import cut_alike

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

BACKENDS = ("", "cpu", "reference")


class Arrangement(Protocol):
    """How one call's arguments become operands of a kernel (see ``mappings/_rows.py``)."""

    kernel_ready: bool

    @staticmethod
    def plain(*args: Any, **kwargs: Any) -> tuple[Any, ...] | None:
        """Kernel operands of the commonest kind of call, or None: saves small calls the checks."""

    def operands(self) -> tuple[Any, ...]:
        """Kernel operands of any valid call."""

    def target(self) -> Any:
        """The caller's own array in the shape of the result, if the kernel can write to it."""

    def restore(self, rows: Any) -> Any:
        """The kernel's result in the shape and dtype that the caller expects."""


class Accelerated(Protocol[P, R]):
    """A function that runs a kernel where it can; `reference` is its body, which never does."""

    @property
    def reference(self) -> Callable[P, R]:
        """The NumPy body."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: Any, workers: int | None, **kwargs: Any) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Run the kernel, on so many threads, or the body."""


def accelerated(arrange: Any) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """Decorator: run the kernel named like the function where there is one, else the function.

    ``arrange`` is an `Arrangement` with the function's own signature; None where the host has no
    kernel, and a GPU alone has one.
    """

    def decorate(body: Callable[P, R]) -> Accelerated[P, R]:
        name = body.__name__

        @functools.wraps(body)
        def public(*args: Any, workers: int | None = None, **kwargs: Any) -> R:
            if workers is not None:
                workers = threads.counted(workers)
            kernel = kernels().get(name)
            if kernel is not None:
                operands = arrange.plain(*args, **kwargs)
                if operands is not None:
                    if workers is None and operands[0].size < threads.ENTRIES_PER_WORKER:
                        return kernel(*operands)
                    return threads.run(kernel, operands, workers=workers)
            on_gpu = _cuda_kernel(name, args[0] if args else next(iter(kwargs.values()), None))
            answer = NotImplemented if on_gpu is None else on_gpu(*args, **kwargs)
            if answer is not NotImplemented:
                return cast("R", answer)
            if kernel is None:
                return body(*args, **kwargs)
            arranged = arrange(*args, **kwargs)
            if not arranged.kernel_ready:
                return body(*args, **kwargs)
            operands = cut_alike(kernel, arranged.operands())
            rows = threads.run(kernel, operands, arranged.target(), workers)
            return arranged.restore(rows)

        public.reference = body  # type: ignore[attr-defined]
        public.__signature__ = _with_workers(inspect.signature(body))  # type: ignore[attr-defined]
        return cast("Accelerated[P, R]", public)

    return decorate


def writes_out(body: Callable[P, None]) -> Accelerated[P, None]:
    """Decorator for private functions of plain arrays that write to ``out=``: kernel, or body.

    Nothing is checked or arranged: what the operands may be is between the caller and the function.
    """
    name = body.__name__

    @functools.wraps(body)
    def public(*operands: Any, out: Any) -> None:
        kernel = kernels().get(name) if type(operands[0]) is np.ndarray else None
        if kernel is None:
            body(*operands, out=out)
        else:
            kernel(*operands, out=out)

    public.reference = body  # type: ignore[attr-defined]
    return cast("Accelerated[P, None]", public)


def _with_workers(signature: inspect.Signature) -> inspect.Signature:
    parameter = inspect.Parameter(
        "workers", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="int | None"
    )
    return signature.replace(parameters=[*signature.parameters.values(), parameter])


@functools.cache
def kernels() -> dict[str, np.ufunc]:
    """The compiled kernels by name; empty without them. Loaded at the first call."""
    wanted = _wanted_backend()
    if wanted == "reference":
        return {}
    try:
        module = importlib.import_module("pyentmax._cpu")
    except ImportError as error:
        if wanted == "cpu":
            raise ImportError(
                "PYENTMAX_BACKEND=cpu asks for the compiled kernels, but pyentmax._cpu cannot be "
                f"imported ({error}); reinstall with a C compiler, or unset PYENTMAX_BACKEND"
            ) from error
        return {}
    return {name: f for name, f in vars(module).items() if isinstance(f, np.ufunc)}


def _cuda_kernel(name: str, array: Any) -> Callable[..., Any] | None:
    """What runs the CUDA kernel of that name for a CuPy array, loaded when the first one comes."""
    if type(array).__module__.partition(".")[0] != "cupy" or _wanted_backend() == "reference":
        return None
    found: dict[str, Callable[..., Any]] = importlib.import_module("pyentmax.backends.cuda").KERNELS
    return found.get(name)


def packer() -> Callable[..., int] | None:
    """The compiled collector of non-zeros, for `sparse_output`; None without kernels."""
    if not kernels():
        return None
    pack: Callable[..., int] = importlib.import_module("pyentmax._cpu").pack
    return pack


def describe_backend() -> str:
    """One line saying what runs for NumPy arrays: first line of every command."""
    found = kernels()
    if found:
        return f"compiled CPU kernels ({len(found)}), NumPy for the rest"
    if _wanted_backend() == "reference":
        return "no kernels: plain NumPy, as PYENTMAX_BACKEND=reference asks"
    return "no kernels: plain NumPy, because pyentmax._cpu was not built (no C compiler?)"


def show_config() -> dict[str, Any]:
    """Print what runs on this machine, and return it as a dict.

    Examples
    --------
    >>> config = show_config()  # doctest: +ELLIPSIS
    pyentmax runs ...
    >>> sorted(config)
    ['backend', 'build', 'cuda', 'instruction_set', 'kernels', 'machine', 'numpy', 'python']
    """
    found = kernels()
    module = importlib.import_module("pyentmax._cpu") if found else None
    config = {
        "backend": "cpu" if found else "reference",
        "kernels": sorted(found),
        "instruction_set": getattr(module, "INSTRUCTION_SET", None),
        "build": getattr(module, "BUILD_INFO", None),
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
    if _wanted_backend() == "reference":
        return "NumPy bodies for CuPy arrays, as PYENTMAX_BACKEND=reference asks"
    return "kernels for CuPy arrays, compiled at their first use"


def _wanted_backend() -> str:
    wanted = os.environ.get("PYENTMAX_BACKEND", "")
    if wanted not in BACKENDS:
        raise ValueError(f"PYENTMAX_BACKEND must be reference, cpu or empty, got {wanted!r}")
    return wanted
