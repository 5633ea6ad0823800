"""Training: the loop in ``loop``, and what it needs around it in a module each."""

from pyentmax.training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from pyentmax.training.identity import fingerprint
from pyentmax.training.loop import (
    BEST,
    LAST,
    TRAINING_STATE,
    History,
    TrainingConfig,
    Validation,
    train,
)
from pyentmax.training.progress import counting

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
