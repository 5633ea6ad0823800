"""Updates of training as experiments on speed time them, by batches that stay the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.optim import Adam, clip_gradients


def seconds(
    action: Callable[..., Any], *args: Any, clock: Callable[[], float] = time.perf_counter
) -> float:
    """How long an action takes."""
    started = clock()
    action(*args)
    return clock() - started


def updater(model: Any, clip: float) -> Callable[[Any], None]:
    """One update by a batch, as training does it, but at a rate that hardly moves the model."""
    optimizer, rng = Adam(model.params), np.random.default_rng(1)

    def update(batch: Any) -> None:
        params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
        model.loss(params, batch, rng).backward()
        gradients = {name: x.grad for name, x in params.items() if x.grad is not None}
        clip_gradients(gradients, clip)
        optimizer.step(gradients, 1e-6)

    return update
