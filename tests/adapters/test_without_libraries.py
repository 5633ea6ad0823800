"""Adapters without what they adapt to."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("room", "library"), [("jax", "JAX"), ("sklearn", "scikit-learn"), ("torch", "PyTorch")]
)
def test_the_import_says_what_to_install(room: str, library: str) -> None:
    code = f"import sys; sys.modules[{room!r}] = None\nimport pyentmax\nimport pyentmax.{room}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"ImportError: pyentmax.{room} needs {library}, which cannot be imported"
    )
    assert last.endswith(f"pip install 'pyentmax[{room}]'")
