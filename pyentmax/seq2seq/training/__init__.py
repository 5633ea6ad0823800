"""Training of any model on any batches: the loop in ``loop``, and what it needs around it."""

from pyentmax.seq2seq.training.checkpoint import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)
from pyentmax.seq2seq.training.config import BEST, LAST, RunOptions, TrainingConfig, fingerprint
from pyentmax.seq2seq.training.history import History, Validation
from pyentmax.seq2seq.training.loop import read_history, train
from pyentmax.seq2seq.training.progress import counting
from pyentmax.seq2seq.training.protocol import BatchSource, Trainable

__all__ = [
    "BEST",
    "LAST",
    "BatchSource",
    "CheckpointError",
    "History",
    "RunOptions",
    "Trainable",
    "TrainingConfig",
    "Validation",
    "counting",
    "fingerprint",
    "load_checkpoint",
    "read_history",
    "save_checkpoint",
    "train",
]
