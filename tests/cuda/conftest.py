"""CuPy's place taken by the emulation, for tests of what runs on a GPU's arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import emulated_cupy
import pytest

sys.path.append(str(Path(__file__).parents[1] / "claims"))


@pytest.fixture(scope="module")
def gpu() -> Iterator[emulated_cupy.Emulation]:
    """The emulation, where `pyentmax` looks for CuPy."""
    with emulated_cupy.installed() as emulation:
        yield emulation
