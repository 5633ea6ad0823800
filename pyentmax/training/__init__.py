"""Training of any model on any batches: the loop in ``loop``, and what it needs around it."""

from pyentmax.training.checkpoint import (
    CheckpointError,
    checkpoint_kind,
    load_checkpoint,
    save_checkpoint,
)
from pyentmax.training.config import TrainingConfig
from pyentmax.training.history import History, Validation
from pyentmax.training.loop import BEST, LAST, TRAINING_STATE, check_pause, train
from pyentmax.training.progress import counting
from pyentmax.training.protocol import BatchSource, Trainable

__all__ = [
    "BEST",
    "LAST",
    "TRAINING_STATE",
    "BatchSource",
    "CheckpointError",
    "History",
    "Trainable",
    "TrainingConfig",
    "Validation",
    "check_pause",
    "checkpoint_kind",
    "counting",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]
