"""Training: the loop in ``loop``, files that are whole or not there in ``checkpoint``."""

from .checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from .loop import (
    BEST,
    LAST,
    TRAINING_STATE,
    History,
    TrainingConfig,
    Validation,
    fingerprint,
    train,
)

__all__ = [
    "BEST",
    "LAST",
    "TRAINING_STATE",
    "CheckpointError",
    "History",
    "TrainingConfig",
    "Validation",
    "fingerprint",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]
