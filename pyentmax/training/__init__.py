"""Training of any model on any batches: the loop in ``loop``, and what it needs around it."""

from pyentmax.training.checkpoint import (
    CheckpointError,
    checkpoint_kind,
    load_checkpoint,
    save_checkpoint,
)
from pyentmax.training.config import BEST, LAST, RunOptions, TrainingConfig, fingerprint
from pyentmax.training.history import History, Validation
from pyentmax.training.loop import read_history, train
from pyentmax.training.progress import counting
from pyentmax.training.protocol import BatchSource, Diagnosed, Scheduled, Trainable

__all__ = [
    "BEST",
    "LAST",
    "BatchSource",
    "CheckpointError",
    "Diagnosed",
    "History",
    "RunOptions",
    "Trainable",
    "Scheduled",
    "TrainingConfig",
    "Validation",
    "checkpoint_kind",
    "counting",
    "fingerprint",
    "load_checkpoint",
    "read_history",
    "save_checkpoint",
    "train",
]
