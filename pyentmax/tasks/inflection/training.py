"""Training a model of inflection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.calls.devices import device_module
from pyentmax.tasks.inflection.examples import Example
from pyentmax.tasks.inflection.inflector import Inflector
from pyentmax.training import History, TrainingConfig, fingerprint, train


def train_inflector(
    examples: Sequence[Example],
    dev: Sequence[Example],
    config: TrainingConfig,
    *,
    directory: str | Path | None = None,
    keep: str = "best",
    resume: bool = False,
    progress: bool = True,
    purpose: str = "train",
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    **model: Any,
) -> tuple[Inflector, History]:
    """Train a model of inflection; ``model`` holds the fields of :class:`RNNSeq2SeqConfig`.

    The seed in ``config`` fixes the initial parameters too. ``purpose`` goes into ``last.npz``, to
    tell runs apart. ``device`` is "cpu", or "cuda" for a GPU: an ImportError or ValueError says
    what is missing for that. The checkpoints are the same. See :func:`pyentmax.training.train` for
    the rest.
    """
    xp = device_module(device)
    inflector = Inflector.untrained(examples, np.random.default_rng(config.seed), **model)
    inflector.model.move_to(xp)
    identity = {
        "purpose": purpose,
        **inflector.description(),
        "dev": fingerprint(inflector.pairs(dev)),
    }
    history = train(
        inflector.model,
        inflector.pairs(examples),
        config,
        lambda _: inflector.validate(dev),
        directory=directory,
        save_best=inflector.save,
        keep=keep,
        identity=identity,
        resume=resume,
        progress=progress,
        clock=clock,
    )
    return inflector, history
