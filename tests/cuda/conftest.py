"""Fixtures of the tests under emulation."""

from __future__ import annotations

from collections.abc import Iterator

import emulated_cupy
import pytest


@pytest.fixture(scope="module")
def gpu() -> Iterator[emulated_cupy.Emulation]:
    """The emulation, where `pyentmax` looks for CuPy."""
    with emulated_cupy.installed() as emulation:
        yield emulation
