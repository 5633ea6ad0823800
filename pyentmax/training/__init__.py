"""Training of any model on any batches: the loop in ``loop``, and what it needs around it."""

from pyentmax.training.checkpoint import (
    CheckpointError,
    checkpoint_kind,
    load_checkpoint,
    save_checkpoint,
)
from pyentmax.training.config import (
    BEST,
    LAST,
    SETTINGS,
    RunOptions,
    TrainingConfig,
    fingerprint,
    read_settings,
)
from pyentmax.training.history import History, Validation
from pyentmax.training.loop import TRAINING_STATE, read_history, train
from pyentmax.training.progress import counting
from pyentmax.training.protocol import BatchSource, Trainable

__all__ = [
    "BEST",
    "LAST",
    "SETTINGS",
    "TRAINING_STATE",
    "BatchSource",
    "CheckpointError",
    "History",
    "RunOptions",
    "Trainable",
    "TrainingConfig",
    "Validation",
    "checkpoint_kind",
    "counting",
    "fingerprint",
    "load_checkpoint",
    "read_history",
    "read_settings",
    "save_checkpoint",
    "train",
]
