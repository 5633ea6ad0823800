"""Language modelling: characters of a text, models on disk, their training and their writing."""

from pyentmax.tasks.language_model.text import Text, read_text
from pyentmax.tasks.language_model.training import train_writer
from pyentmax.tasks.language_model.writer import Predictions, Writer

__all__ = ["Predictions", "Text", "Writer", "read_text", "train_writer"]
