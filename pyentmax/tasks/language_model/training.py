"""Training a language model on the characters of a text."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.calls.devices import device_module
from pyentmax.data import Segments, text_fingerprint
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.language_model.text import Text
from pyentmax.tasks.language_model.writer import Writer, check_length
from pyentmax.training import History, TrainingConfig, Validation, train

VALIDATED = 1 << 14
"""Characters of what is held out on which a model is validated while it learns: the first ones."""


def train_writer(
    text: Text,
    config: TrainingConfig,
    *,
    context: int = 256,
    batch_size: int = 4,
    directory: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = True,
    progress: bool = True,
    purpose: str = "train",
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    blas_threads: int | None = None,
    pause_after: int | None = None,
    on_validation: Callable[[Writer, Validation], None] | None = None,
    **model: Any,
) -> tuple[Writer, History]:
    """Train a language model; returns it, as it was at the best validation, with its history.

    Parameters
    ----------
    text : Text
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    context, batch_size : int
        Characters per piece of the text, and pieces per batch.
    purpose : str
        Goes into ``last.npz``, to tell runs apart.
    device : {"cpu", "cuda"}
        Where to compute. The checkpoints are the same.
    on_validation : callable, optional
        Called at each validation with the model as it is then, and what was found.
    directory, resume, overwrite, progress, clock, blas_threads, pause_after
        As for :func:`pyentmax.training.train`, whose errors may come.
    **model
        Fields of `LanguageModelConfig` but for the size.

    Raises
    ------
    DataError
        If either part of the text is too short for the context.
    """
    xp = device_module(device)
    with limit_blas(blas_threads, announce=progress):
        rng = np.random.default_rng(config.seed)
        writer = Writer.untrained(text.train + text.held_out, rng, context, **model)
        writer.model.move_to(xp)
        learned, held_out = writer.encode(text.train), writer.encode(text.held_out)
        held_out = held_out[: VALIDATED + 1]
        batches = Segments(learned, context, batch_size, writer.model.config.memory)
        check_length(held_out, context, "held-out text")
        identity = {"purpose": purpose, **writer.description(), "dev": text_fingerprint(held_out)}

        def validate(_: Any) -> Validation:
            found = writer.validate(held_out)
            if on_validation is not None:
                on_validation(writer, found)
            return found

        history = train(
            writer.model,
            batches,
            config,
            validate,
            directory=directory,
            save_best=writer.save,
            identity=identity,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            clock=clock,
            pause_after=pause_after,
        )
    return writer, history
