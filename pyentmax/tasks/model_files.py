"""Models on disk, whatever the task: where a run has them, what they hold, who may overwrite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyentmax.data import BOS, EOS, Vocabulary
from pyentmax.models.checks import check_sizes, read_configuration
from pyentmax.training import (
    BEST,
    LAST,
    CheckpointError,
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
            f"no {BEST} in {path}: it is written at the first validation; continue with the same "
            "training command and --resume"
        )
    return path / BEST


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever is wrong with the parts of a model that are read inside is a CheckpointError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: parts are missing or do not fit together ({error}); was it written by "
            "another version?"
        ) from error


def described_model(
    network: Any, shape: Any, params: dict[str, Any], meta: dict[str, Any]
) -> tuple[Any, Vocabulary, Vocabulary]:
    """The model that a checkpoint holds, checked, and its two vocabularies; within `reading`.

    Parameters
    ----------
    network, shape : classes
        Of the model and of its configuration.
    params : dict of arrays
    meta : dict
        With the configuration and vocabularies as ``config``, ``source`` and ``target``.
    """
    source = Vocabulary.from_json(meta["source"])
    target = Vocabulary.from_json(meta["target"])
    config = read_configuration(shape, meta["config"])
    check_sizes(config, source, target)
    model = network(config, params, BOS, EOS)
    model.check_parameters()
    return model, source, target
