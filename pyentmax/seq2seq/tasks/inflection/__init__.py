"""Morphological inflection: examples and their files, the model of words, and its training."""

from pyentmax.seq2seq.tasks.inflection.conll2018 import SPLITS, conll2018_files, conll2018_languages
from pyentmax.seq2seq.tasks.inflection.examples import (
    Example,
    compounds_of,
    english_verbs,
    hold_out,
    language_of,
    read_examples,
    source_tokens,
)
from pyentmax.seq2seq.tasks.inflection.inflector import Inflector, train_inflector

__all__ = [
    "SPLITS",
    "Example",
    "Inflector",
    "compounds_of",
    "conll2018_files",
    "conll2018_languages",
    "english_verbs",
    "hold_out",
    "language_of",
    "read_examples",
    "source_tokens",
    "train_inflector",
]
