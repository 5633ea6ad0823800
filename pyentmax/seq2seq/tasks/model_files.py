"""Models of all tasks on disk: the folder of a run, and one file per model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from pyentmax.engine.calls.devices import device_module
from pyentmax.seq2seq.training import (
    BEST,
    LAST,
    BatchSource,
    CheckpointError,
    History,
    RunOptions,
    TrainingConfig,
    Validation,
    load_checkpoint,
    save_checkpoint,
    train,
)


def best_of(path: str | Path) -> Path:
    """The file of a model, given itself or the folder of a run.

    Raises
    ------
    FileNotFoundError
        If the run has not been validated yet, so that there is no best model.
    """
    path = Path(path)
    if not path.is_dir():
        return path
    if not (path / BEST).exists() and (path / LAST).exists():
        raise FileNotFoundError(
            f"no {BEST} in {path}: the first validation writes it; continue the training with "
            "--resume"
        )
    return path / BEST


class SavedModel:
    """A model with all that it takes to use it, saved to one file.

    A subclass names its ``kind`` of checkpoint, describes itself and restores itself from that
    description.
    """

    kind: ClassVar[str]
    model: Any

    def description(self) -> dict[str, Any]:
        """Configuration and vocabularies, in a form that JSON can hold."""
        raise NotImplementedError

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these arrays and this description."""
        raise NotImplementedError

    def fit(
        self,
        batches: BatchSource[Any],
        config: TrainingConfig,
        validate: Callable[[], Validation],
        options: RunOptions | None,
        *,
        data: dict[str, Any],
        device: str = "cpu",
        on_validation: Callable[[Self, Validation], None] | None = None,
    ) -> History:
        """Train the model in place, as each task's function of training does; returns the history.

        Parameters
        ----------
        batches, config, options
            As for :func:`pyentmax.seq2seq.training.train`, whose errors may come.
        validate : callable
            Returns the result of a validation.
        data : dict
            What determines the run besides its settings: fingerprints and sizes of batches.
        device : {"cpu", "cuda"}
            Where to compute. The checkpoints are the same.
        on_validation : callable, optional
            Called at each validation with the model as it is then, and the result.
        """

        def validated(_: Any) -> Validation:
            result = validate()
            if on_validation is not None:
                on_validation(self, result)
            return result

        self.model.move_to(device_module(device))
        settings = {"model": asdict(self.model.config), "data": data}
        return train(
            self.model, batches, config, validated, options, settings=settings, save_best=self.save
        )

    def arrays(self) -> dict[str, Any]:
        """What is saved besides the description: the parameters."""
        return dict(self.model.params)

    def save(self, path: str | Path) -> None:
        """Write the model with all that belongs to it to one ``.npz``, by `save_checkpoint`."""
        save_checkpoint(path, self.arrays(), {"kind": self.kind, **self.description()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote, from the file or from the folder of a run.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        CheckpointError
            If the file is damaged, of another kind, or its parts do not fit together.
        """
        path = best_of(path)
        arrays, description = load_checkpoint(path, cls.kind)
        try:
            loaded = cls.restore(arrays, description)
            loaded.model.check_parameters()
        except (KeyError, TypeError, ValueError, MemoryError) as error:
            raise CheckpointError(
                f"{path}: parts are missing or do not fit together ({error}); was it written by "
                "another version?"
            ) from error
        return loaded
