"""The array module of a device, and what is said where there is none that computes."""

from __future__ import annotations

import sys
from typing import Any

import fake_cupy
import pytest

from pyentmax.engine.calls.devices import device_module


def test_gpu_is_that_of_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    assert device_module("cuda") is fake_cupy


def test_missing_cupy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # an ImportError, installed or not
    with pytest.raises(ImportError, match=r"needs CuPy.*pip install 'pyentmax\[cuda12\]'"):
        device_module("cuda")


def test_missing_gpu_is_named(monkeypatch):
    class NoDevice:
        __version__ = "14.0"

        @staticmethod
        def arange(n: int) -> Any:
            raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    monkeypatch.setitem(sys.modules, "cupy", NoDevice)
    with pytest.raises(ValueError, match="CuPy 14.0 is installed, but a first kernel failed"):
        device_module("cuda")


def test_gpu_that_computes_wrongly_is_refused(monkeypatch):
    monkeypatch.setattr(fake_cupy.ndarray, "__pow__", lambda self, exponent: self)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    with pytest.raises(ValueError, match=r"computes \[0, 1, 2, 3, 4\] as squares"):
        device_module("cuda")


def test_other_devices_are_unknown():
    with pytest.raises(ValueError, match="device: expected one of cpu, cuda, got 'tpu'"):
        device_module("tpu")
