"""CuPy where there is no GPU, kernels included: the stand-in for its arrays, and the emulation.

`installed` puts it in place of CuPy, so that `pyentmax.engine.backends.cuda` launches its kernels
as on a GPU. Host memory in place of the device's, shared memory not asked for and arguments of a
wrong type are errors, as are accesses outside the arrays that are alive.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulation import IN_ORDER, Library, compiled

sys.path.append(str(Path(__file__).parents[1] / "device"))
import fake_cupy  # noqa: E402

LIMITS = {"MaxSharedMemoryPerBlockOptin": 232448, "MaxSharedMemoryPerMultiprocessor": 233472}
# Bytes of dynamic shared memory: 48 KB less what a kernel declares, which is 1 KB at most.
WITHOUT_ASKING = 47 * 1024


@dataclass
class Launched:
    """One launch: the kernel's name, blocks, threads of a block, bytes of dynamic shared memory."""

    name: str
    grid: int
    block: int
    shared: int


@dataclass
class Emulation:
    """What the emulation is told, and tells, while it stands in for CuPy.

    Attributes
    ----------
    schedule, checked
        as in `emulation.Library.launch` and `emulation.compiled`
    launches : list of Launched
        so far
    together : callable
        what else is compiled beside a kernel of a name, as a compiler takes long to start
    memory : mapping
        the pieces of the device's memory that are alive, whole
    allocations : int
        how many there have been
    """

    schedule: int = IN_ORDER
    checked: bool = False
    launches: list[Launched] = field(default_factory=list)
    together: Callable[[str], tuple[str, ...]] = lambda name: (name,)
    memory: weakref.WeakValueDictionary[int, np.ndarray] = field(
        default_factory=weakref.WeakValueDictionary
    )
    allocations: int = 0


_compiled = functools.cache(compiled)


class _Device:
    id = 0
    attributes = LIMITS

    def __init__(self, number: int = 0) -> None:
        assert number == 0

    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


class _Function:
    """A kernel that is called as CuPy calls one."""

    max_dynamic_shared_size_bytes = WITHOUT_ASKING

    def __init__(self, library: Library, name: str, emulation: Emulation) -> None:
        self._library, self._name, self._emulation = library, name, emulation

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], *,
                 shared_mem: int = 0) -> None:  # fmt: skip
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise RuntimeError(
                f"CUDA_ERROR_INVALID_VALUE: {shared_mem} bytes of shared memory, of "
                f"{self.max_dynamic_shared_size_bytes} asked for"
            )
        (blocks,), (threads,) = grid, block
        # CuPy passes a 0-d NumPy array, a struct among them, by value.
        values = [a[()] if isinstance(a, np.ndarray) and not a.ndim else a for a in args]
        held = [a._held if isinstance(a, fake_cupy.ndarray) else a for a in values]
        self._emulation.launches.append(Launched(self._name, blocks, threads, shared_mem))
        self._library.launch(
            self._name, blocks, threads, held, arrays=list(self._emulation.memory.values()),
            shared=shared_mem, schedule=self._emulation.schedule,
            flush_subnormals="double" not in self._name,
        )  # fmt: skip


def _raw_module(emulation: Emulation) -> type:
    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...] = (),
                     name_expressions: Sequence[str] = ()) -> None:  # fmt: skip
            assert "-std=c++17" in options, "the kernels are written in C++17"
            (name,) = name_expressions
            names = emulation.together(name)
            self._library = _compiled(code, names, checked=emulation.checked)

        def get_function(self, name: str) -> _Function:
            return _Function(self._library, name, emulation)

    return RawModule


@contextlib.contextmanager
def installed(*, checked: bool = False) -> Iterator[Emulation]:
    """Have `pyentmax` find this where it looks for CuPy."""
    from pyentmax.engine.backends.cuda import launch

    emulation = Emulation(checked=checked)
    module = types.ModuleType("cupy")
    module.__getattr__ = fake_cupy.__getattr__  # type: ignore[method-assign]
    for name in ("ndarray", "asarray", "asnumpy", "ufunc"):
        setattr(module, name, getattr(fake_cupy, name))
    module.RawModule = _raw_module(emulation)  # type: ignore[attr-defined]
    module.cuda = types.SimpleNamespace(Device=_Device)  # type: ignore[attr-defined]

    def hold(array: Any, held: np.ndarray) -> None:
        array._held = held
        while isinstance(held.base, np.ndarray):
            held = held.base
        if emulation.memory.get(id(held)) is not held:
            emulation.memory[id(held)] = held
            emulation.allocations += 1

    def interface(array: Any) -> dict[str, Any]:
        return dict(array._held.__array_interface__)

    caches = (launch._compiled, launch._limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", module)
        patch.setattr(fake_cupy.ndarray, "__module__", "cupy")
        patch.setattr(fake_cupy.ndarray, "__init__", hold)
        patch.setattr(fake_cupy.ndarray, "__cuda_array_interface__", property(interface))
        patch.setattr(fake_cupy.ndarray, "device", _Device(), raising=False)
        for cache in caches:
            cache.cache_clear()
        yield emulation
    for cache in caches:
        cache.cache_clear()
