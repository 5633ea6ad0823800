"""Models on disk, whatever the task: where a run has them, what they hold, who may overwrite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.data import BOS, EOS, Vocabulary
from pyentmax.models.checks import check_sizes, read_configuration
from pyentmax.training import (
    BEST,
    LAST,
    TRAINING_STATE,
    CheckpointError,
    checkpoint_kind,
    load_checkpoint,
)
from pyentmax.training.checkpoint import without_prefix


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
            f"no {BEST} in {path}: it is written at the first validation, and again if it is lost: "
            "continue with the same training command and, where it has that, --resume"
        )
    return path / BEST


def check_own_best(folder: Path) -> None:
    """Raise a CheckpointError if ``best.npz`` is not what ``last.npz`` of the same run has as best.

    A file copied from another run would be taken for this one's model. Only where both are there is
    there anything to compare.
    """
    best, last = folder / BEST, folder / LAST
    if not (best.exists() and last.exists()):
        return
    arrays, _ = load_checkpoint(last, TRAINING_STATE)
    recorded = without_prefix("best", arrays)
    params, _ = load_checkpoint(best, checkpoint_kind(best))
    if recorded.keys() != params.keys() or not all(
        np.array_equal(x, params[name]) for name, x in recorded.items()
    ):
        raise CheckpointError(
            f"{best}: expected the best parameters of the run in {last}, the file holds "
            "others; was it copied from another run?"
        )


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


def refuse_other_run(folder: Path, resume: bool) -> None:
    """Raise a ValueError if a folder holds a run and it is not to be continued."""
    if not resume and ((folder / LAST).exists() or (folder / BEST).exists()):
        raise ValueError(
            f"{folder} already holds a run: give --resume to continue it, or another --out"
        )


def refuse_run_of_user(folder: Path, purpose: str) -> None:
    """Raise a ValueError if a folder holds a run that is not of this purpose, a demonstration's."""
    folder = folder.resolve()  # a/../b is b, too, when a is there
    last, found = folder / LAST, None
    if last.exists():
        _, meta = load_checkpoint(last, TRAINING_STATE)
        with reading(last):
            found = dict(meta["identity"]).get("purpose")
    if found != purpose and (last.exists() or (folder / BEST).exists()):
        raise ValueError(
            f"{folder} holds a run that is not the demonstration's: give another --out"
        )
