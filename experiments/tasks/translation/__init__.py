"""Translation: parallel text, sub-words, models on disk, and their training."""

from experiments.tasks.translation.parallel import (
    SentencePair,
    read_parallel,
    read_table,
    toy_german,
)
from experiments.tasks.translation.segmentation import Subwords, Words
from experiments.tasks.translation.translator import Translator, train_translator

__all__ = [
    "SentencePair",
    "Subwords",
    "Translator",
    "Words",
    "read_parallel",
    "read_table",
    "toy_german",
    "train_translator",
]
