"""Language modelling: characters of a text, models on disk, their training and their writing."""

from pyentmax.seq2seq.tasks.language_model.writer import (
    Predictions,
    Text,
    Writer,
    read_text,
    train_writer,
)

__all__ = ["Predictions", "Text", "Writer", "read_text", "train_writer"]
