"""Calls of Python functions of pyentmax in one call of attention, forward and backward.

    python benchmarks/attention_calls.py

Counted by `sys.setprofile` in the second call, 8 heads of 64 features, float32, one thread. Both
passes of tensors took 67, 65 and 527 calls for 1, 16 and 512 tokens before arguments went to the
kernels in one record, and take 46, 44 and 202 since then; arrays took 200, 286 and 426, and take
141, 222 and 137.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import pyentmax as pe
import pyentmax.torch as pt

HERE = str(Path(pe.__file__).parent)


def count(call: Callable[[], Any]) -> int:
    """The number of Python functions of the package that a second call enters."""
    calls = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(HERE)

    call()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


def both_passes(t: int) -> None:
    """Print the counts of tensors and arrays for t tokens."""
    rng = np.random.default_rng(0)
    query, key, value, g = rng.standard_normal((4, 1, 8, t, 64)).astype(np.float32)
    tensors = [torch.from_numpy(x).requires_grad_() for x in (query, key, value)]
    output = torch.from_numpy(g)

    def arrays() -> None:
        _, weights = pe.attention(query, key, value, return_weights=True)
        pe.attention_vjp(weights, query, key, value, g)

    def step() -> None:
        torch.autograd.grad(pt.attention(*tensors), tensors, output)

    forward = count(lambda: pe.attention(query, key, value)), count(lambda: pt.attention(*tensors))
    print(f"T = {t}: forward, arrays {forward[0]}, tensors {forward[1]}; ", end="")
    print(f"both passes, arrays {count(arrays)}, tensors {count(step)}")


if __name__ == "__main__":
    with pe.set_workers(1):
        torch.autograd.set_multithreading_enabled(False)  # so that the derivative is counted
        for tokens in (1, 16, 512):
            both_passes(tokens)
