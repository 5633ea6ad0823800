"""Training a model of translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyentmax.data import BucketedPairs, TokenBatches
from pyentmax.tasks.translation.parallel import SentencePair
from pyentmax.tasks.translation.segmentation import Segmenter, Words
from pyentmax.tasks.translation.translator import Translator
from pyentmax.training import (
    History,
    RunOptions,
    TrainingConfig,
    Validation,
    fingerprint,
)


def train_translator(
    architecture: str,
    pairs: Sequence[SentencePair],
    dev: Sequence[SentencePair],
    config: TrainingConfig,
    options: RunOptions | None = None,
    *,
    segmenter: Segmenter | None = None,
    tokens: int = 2048,
    batch_size: int | None = None,
    device: str = "cpu",
    on_validation: Callable[[Translator, Validation], None] | None = None,
    **model: Any,
) -> tuple[Translator, History]:
    """Train a model of translation; returns it with its history.

    Parameters
    ----------
    architecture : {"rnn", "transformer"}
    pairs, dev : sequences of SentencePair
        To learn from, and to validate on: the best model is that with the most tokens right where
        it reads the reference up to each.
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    options : RunOptions, optional
        Where and how to run, as for :func:`pyentmax.training.train`, whose errors may come.
    segmenter : Segmenter, optional
        By default words.
    tokens, batch_size : int
        Tokens per batch, padding included; or pairs per batch, if ``batch_size`` is given.
    device : {"cpu", "cuda"}
        Where to compute. The checkpoints are the same.
    on_validation : callable, optional
        Called at each validation with the model as it is then, and the result.
    **model
        Fields of the architecture's configuration.

    Raises
    ------
    ImportError, ValueError
        If the device cannot be used; the message says what is missing.
    """
    rng = np.random.default_rng(config.seed)
    translator = Translator.untrained(architecture, pairs, segmenter or Words(), rng, **model)
    encoded, held_out = translator.pairs(pairs), translator.pairs(dev)
    batches: Any
    if batch_size is None:
        batches, size = TokenBatches(encoded, tokens), {"tokens": tokens}
    else:
        batches, size = BucketedPairs(encoded, batch_size), {"batch_size": batch_size}
    history = translator.fit(
        batches,
        config,
        lambda: translator.validate(held_out),
        options,
        data={
            "train": fingerprint(pairs),
            "dev": fingerprint(dev),
            "segmenter": fingerprint(translator.segmenter.state().hex()),
            **size,
        },
        device=device,
        on_validation=on_validation,
    )
    return translator, history
