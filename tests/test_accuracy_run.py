"""benchmarks/accuracy.py: a sample of its rows, and that it would see what is wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pyentmax

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "accuracy.py"


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module  # where its dataclasses look for themselves
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "rows"),
    [
        ("float32", 20_000),
        ("float64", 4_000),
        pytest.param("float32", 400_000, marks=pytest.mark.deep),
        pytest.param("float64", 40_000, marks=pytest.mark.deep),
    ],
)
def test_sample_keeps_the_contract(accuracy: ModuleType, dtype: str, rows: int) -> None:
    state = accuracy.State(dtype, seed=1, backend="")
    accuracy.check_until(state, rows)
    assert state.rows >= rows
    assert len(state.worst) == 10
    broken = {check: worst for check, worst in state.worst.items() if worst.use > 1}
    assert not broken, accuracy.report(state)


@pytest.mark.parametrize(
    ("name", "wrong", "check"),
    [
        ("softmax", lambda p: p * (1 + 2e-5), "softmax: Σp = 1"),
        ("softmax", lambda p: np.sqrt(p * p + 1e-12), "softmax: p"),
        ("sparsemax", lambda p: np.where(p == 0, 1e-5, p), "sparsemax: p"),
        ("entmax15", lambda p: np.where(p < 1e-5, 0, p), "entmax15: p"),
        ("entmax15", lambda p: np.full_like(p, np.nan), "entmax15: Σp = 1"),
        ("entmax", lambda p: np.where(p < 1e-3, 0, p), "entmax, α > 2: p"),
        ("entmax", lambda p: p[:, ::-1], "entmax, 1 < α ≤ 2: p"),
    ],
)
def test_errors_are_detected(
    accuracy: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any, check: str
) -> None:
    right = getattr(pyentmax, name)
    monkeypatch.setattr(pyentmax, name, lambda *args: wrong(right(*args)).astype(np.float32))
    state = accuracy.State("float32", seed=1, backend="")
    accuracy.check_until(state, 2_000)
    assert state.worst[check].use > 1
    assert not [w for c, w in state.worst.items() if not c.startswith(name) and w.use > 1]
