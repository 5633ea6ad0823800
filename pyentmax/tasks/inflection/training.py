"""Training a model of inflection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyentmax.data import BucketedPairs
from pyentmax.tasks.inflection.examples import Example
from pyentmax.tasks.inflection.inflector import Inflector
from pyentmax.training import History, RunOptions, TrainingConfig, fingerprint


def train_inflector(
    examples: Sequence[Example],
    dev: Sequence[Example],
    config: TrainingConfig,
    options: RunOptions | None = None,
    *,
    batch_size: int = 32,
    device: str = "cpu",
    **model: Any,
) -> tuple[Inflector, History]:
    """Train a model of inflection; returns it with its history.

    Parameters
    ----------
    examples, dev : sequences of Example
        To learn from, and to validate on.
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    options : RunOptions, optional
        Where and how to run, as for :func:`pyentmax.training.train`, whose errors may come.
    batch_size : int, default 32
        Examples per update.
    device : {"cpu", "cuda"}
        Where to compute. The checkpoints are the same.
    **model
        Fields of :class:`pyentmax.models.rnn_seq2seq.RNNSeq2SeqConfig`.

    Raises
    ------
    ImportError, ValueError
        If the device cannot be used; the message says what is missing.
    """
    inflector = Inflector.untrained(examples, np.random.default_rng(config.seed), **model)
    history = inflector.fit(
        BucketedPairs(inflector.pairs(examples), batch_size),
        config,
        lambda: inflector.validate(dev),
        options,
        data={
            "train": fingerprint(examples),
            "dev": fingerprint(dev),
            "batch_size": batch_size,
        },
        device=device,
    )
    return inflector, history
