"""Translation: parallel text, sub-words, models on disk, and their training."""

from pyentmax.seq2seq.tasks.translation.configuration import Experiment, read_experiment
from pyentmax.seq2seq.tasks.translation.parallel import (
    SentencePair,
    read_parallel,
    read_table,
    toy_german,
)
from pyentmax.seq2seq.tasks.translation.segmentation import Subwords, Words
from pyentmax.seq2seq.tasks.translation.translator import Translator, train_translator

__all__ = [
    "Experiment",
    "SentencePair",
    "Subwords",
    "Translator",
    "Words",
    "read_experiment",
    "read_parallel",
    "read_table",
    "toy_german",
    "train_translator",
]
