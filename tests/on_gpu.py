"""Functions over a GPU's arrays in the place of those over the host's: their kernels, emulated."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path += [str(Path(__file__).parent / room) for room in ("cuda", "device")]
import emulated_cupy  # noqa: E402
import fake_cupy  # noqa: E402
from emulation import REVERSED, unavailable  # noqa: E402

from pyentmax.engine.backends.cuda.functions import KERNELS  # noqa: E402

BODIES_THAT_LOOK = ("fusedmax", "oscarmax")  # when to end
MARKS = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]


def moved(x: Any) -> Any:
    """Arrays and lists to the device, which has the machine's byte order alone."""
    if isinstance(x, list):
        x = np.array(x)
    if isinstance(x, np.ndarray):
        x = fake_cupy.asarray(x.astype(x.dtype.newbyteorder("="), copy=False))
    return x


def on_gpu(function: Callable[..., Any], kernels: bool = True) -> Callable[..., Any]:
    """The function between a copy of its arguments to the device and of its results from there.

    Between the two nothing is copied; `out` on the host is what `out` on the device becomes.
    Without kernels the rules run on the stand-in's arrays.
    """

    @functools.wraps(function)
    def call(*args: Any, out: Any = None, **options: Any) -> Any:
        with emulated_cupy.installed() if kernels else nullcontext() as emulation:
            if emulation:
                emulation.schedule = REVERSED
            there = [moved(x) for x in args]
            options = {key: moved(x) for key, x in options.items()}
            if out is not None:
                same = [x for x, given in zip(there, args, strict=True) if given is out]
                options["out"] = (same or [moved(out)])[0]
            fake_cupy.copies.reset()
            found = function(*there, **options)
            copies = fake_cupy.copies.to_host + fake_cupy.copies.to_device
            name = getattr(function, "kernel", "")
            looks = not (kernels and name in KERNELS)
            looks = looks and function.__qualname__.startswith(BODIES_THAT_LOOK)
            assert looks or not copies
            if out is not None:
                assert found is options["out"]
                out[...] = found.get()
                return out
            return tuple(x.get() for x in found) if isinstance(found, tuple) else found.get()

    return call
