"""Training a language model on the characters of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.data import Segments
from pyentmax.tasks.language_model.text import Text
from pyentmax.tasks.language_model.writer import Writer, check_length
from pyentmax.training import (
    History,
    RunOptions,
    TrainingConfig,
    Validation,
    fingerprint,
)

VALIDATED = 1 << 14
"""Characters of the held-out text on which a model is validated while it learns: the first ones."""


def train_writer(
    text: Text,
    config: TrainingConfig,
    options: RunOptions | None = None,
    *,
    context: int = 256,
    batch_size: int = 4,
    device: str = "cpu",
    on_validation: Callable[[Writer, Validation], None] | None = None,
    **model: Any,
) -> tuple[Writer, History]:
    """Train a language model; returns it, as it was at the best validation, with its history.

    Parameters
    ----------
    text : Text
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    options : RunOptions, optional
        Where and how to run, as for :func:`pyentmax.training.train`, whose errors may come.
    context, batch_size : int
        Characters per piece of the text, and pieces per batch.
    device : {"cpu", "cuda"}
        Where to compute. The checkpoints are the same.
    on_validation : callable, optional
        Called at each validation with the model as it is then, and the result.
    **model
        Fields of `LanguageModelConfig` but for the size.

    Raises
    ------
    DataError
        If either part of the text is too short for the context.
    """
    rng = np.random.default_rng(config.seed)
    writer = Writer.untrained(text.train + text.held_out, rng, context, **model)
    held_out = writer.encode(text.held_out)[: VALIDATED + 1]
    check_length(held_out, context, "held-out text")
    history = writer.fit(
        Segments(writer.encode(text.train), context, batch_size, writer.model.config.memory),
        config,
        lambda: writer.validate(held_out),
        options,
        data={
            "train": fingerprint(text.train),
            "dev": fingerprint(text.held_out),
            "context": context,
            "batch_size": batch_size,
        },
        device=device,
        on_validation=on_validation,
    )
    return writer, history
