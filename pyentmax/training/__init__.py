"""Training: the loop in ``loop``, files that are whole or not there in ``checkpoint``."""

from .checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from .loop import History, TrainingConfig, Validation, train

__all__ = [
    "CheckpointError",
    "History",
    "TrainingConfig",
    "Validation",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]
