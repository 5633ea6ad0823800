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
from pyentmax.training.protocol import Attentive, BatchSource, Diagnosed, Trainable
from pyentmax.training.recipes import AttentionStart

__all__ = [
    "BEST",
    "LAST",
    "AttentionStart",
    "Attentive",
    "BatchSource",
    "CheckpointError",
    "Diagnosed",
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
    "save_checkpoint",
    "train",
]
