"""Training a model of inflection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.calls.devices import device_module
from pyentmax.data import BucketedPairs, fingerprint
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.inflection.examples import Example
from pyentmax.tasks.inflection.inflector import Inflector
from pyentmax.training import History, TrainingConfig, train


def train_inflector(
    examples: Sequence[Example],
    dev: Sequence[Example],
    config: TrainingConfig,
    *,
    batch_size: int = 32,
    directory: str | Path | None = None,
    keep: str = "best",
    resume: bool = False,
    overwrite: bool = True,
    progress: bool = True,
    purpose: str = "train",
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    blas_threads: int | None = None,
    **model: Any,
) -> tuple[Inflector, History]:
    """Train a model of inflection; returns it with its history.

    Parameters
    ----------
    examples, dev : sequences of Example
        To learn from, and to validate on.
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    batch_size : int, default 32
        Examples per update.
    purpose : str
        Goes into ``last.npz``, to tell runs apart.
    device : {"cpu", "cuda"}
        Where to compute. The checkpoints are the same.
    directory, keep, resume, overwrite, progress, clock, blas_threads
        As for :func:`pyentmax.training.train`, whose errors may come.
    **model
        Fields of :class:`pyentmax.models.rnn_seq2seq.RNNSeq2SeqConfig`.

    Raises
    ------
    ImportError, ValueError
        If the device cannot be used; the message says what is missing.
    """
    xp = device_module(device)
    with limit_blas(blas_threads, announce=progress):
        inflector = Inflector.untrained(examples, np.random.default_rng(config.seed), **model)
        inflector.model.move_to(xp)
        dev_print = fingerprint(inflector.pairs(dev))
        identity = {"purpose": purpose, **inflector.description(), "dev": dev_print}
        history = train(
            inflector.model,
            BucketedPairs(inflector.pairs(examples), batch_size),
            config,
            lambda _: inflector.validate(dev),
            directory=directory,
            save_best=inflector.save,
            keep=keep,
            identity=identity,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            clock=clock,
        )
    return inflector, history
