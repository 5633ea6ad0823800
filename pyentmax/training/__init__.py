"""Training: the loop in ``loop``, and what it needs around it in a module each."""

from .checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from .identity import fingerprint
from .loop import (
    BEST,
    LAST,
    TRAINING_STATE,
    History,
    TrainingConfig,
    Validation,
    train,
)
from .progress import counting

__all__ = [
    "BEST",
    "LAST",
    "TRAINING_STATE",
    "CheckpointError",
    "History",
    "TrainingConfig",
    "Validation",
    "counting",
    "fingerprint",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]
