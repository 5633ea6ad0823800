"""Training a model of translation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.calls.devices import device_module
from pyentmax.data import BucketedPairs, TokenBatches, fingerprint
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.translation.parallel import SentencePair
from pyentmax.tasks.translation.segmentation import Segmenter, Words
from pyentmax.tasks.translation.translator import Translator
from pyentmax.training import History, TrainingConfig, Validation, train


def train_translator(
    architecture: str,
    pairs: Sequence[SentencePair],
    dev: Sequence[SentencePair],
    config: TrainingConfig,
    *,
    segmenter: Segmenter | None = None,
    tokens: int | None = 2048,
    batch_size: int | None = None,
    directory: str | Path | None = None,
    keep: str = "best",
    resume: bool = False,
    overwrite: bool = True,
    progress: bool = True,
    purpose: str = "train",
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    blas_threads: int | None = None,
    pause_after: int | None = None,
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
    segmenter : Segmenter, optional
        Words, if not given.
    tokens, batch_size : int
        Batches of so many tokens, padding included, or of so many pairs: one of the two.
    purpose : str
        Goes into ``last.npz``, to tell runs apart.
    device : {"cpu", "cuda"}
        Where to compute. The checkpoints are the same.
    on_validation : callable, optional
        Called at each validation with the model as it is then, and what was found.
    directory, keep, resume, overwrite, progress, clock, blas_threads, pause_after
        As for :func:`pyentmax.training.train`, whose errors may come.
    **model
        Fields of the architecture's configuration.

    Raises
    ------
    ImportError, ValueError
        If the device cannot be used; the message says what is missing.
    """
    xp = device_module(device)
    with limit_blas(blas_threads, announce=progress):
        rng = np.random.default_rng(config.seed)
        translator = Translator.untrained(architecture, pairs, segmenter or Words(), rng, **model)
        translator.model.move_to(xp)
        encoded, held_out = translator.pairs(pairs), translator.pairs(dev)
        if batch_size is not None:
            batches: Any = BucketedPairs(encoded, batch_size)
        elif tokens is not None:
            batches = TokenBatches(encoded, tokens)
        else:
            raise ValueError("tokens, batch_size: expected one of the two, got neither")
        identity = {"purpose": purpose, **translator.description(), "dev": fingerprint(held_out)}

        def validate(_: Any) -> Validation:
            found = translator.validate(held_out)
            if on_validation is not None:
                on_validation(translator, found)
            return found

        history = train(
            translator.model,
            batches,
            config,
            validate,
            directory=directory,
            save_best=translator.save,
            keep=keep,
            identity=identity,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            clock=clock,
            pause_after=pause_after,
        )
    return translator, history
