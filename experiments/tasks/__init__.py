"""Tasks of the experiments: translation, and a language model over characters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from pyentmax.seq2seq.inflection.saved_model import SavedModel
from pyentmax.seq2seq.nn.optim import Adam
from pyentmax.seq2seq.training import (
    BatchSource,
    History,
    RunOptions,
    TrainingConfig,
    Validation,
    train,
)

Saved = TypeVar("Saved", bound=SavedModel)


def fit(
    saved: Saved,
    batches: BatchSource[Any],
    config: TrainingConfig,
    validate: Callable[[], Validation],
    options: RunOptions | None,
    *,
    data: dict[str, Any],
    on_validation: Callable[[Saved, Validation], None] | None = None,
    before_update: Callable[[int, Adam], Any] | None = None,
) -> History:
    """Train the model in place, as each task's function of training does; returns the history.

    Parameters
    ----------
    batches, config, options, before_update
        As for :func:`pyentmax.seq2seq.training.train`, whose errors may come.
    validate : callable
        Returns the result of a validation.
    data : dict
        What determines the run besides its settings: fingerprints and sizes of batches.
    on_validation : callable, optional
        Called at each validation with the model as it is then, and the result.
    """

    def validated(_: Any) -> Validation:
        result = validate()
        if on_validation is not None:
            on_validation(saved, result)
        return result

    settings = {"model": asdict(saved.model.config), "data": data}
    return train(
        saved.model,
        batches,
        config,
        validated,
        options,
        settings=settings,
        save_best=saved.save,
        before_update=before_update,
    )
