"""Morphological inflection: examples and their files, the model of words, and its training."""

from pyentmax.seq2seq.inflection.examples import (
    Example,
    compounds_of,
    english_verbs,
    hold_out,
    language_of,
    read_examples,
    source_tokens,
)
from pyentmax.seq2seq.inflection.inflector import Inflector, train_inflector

__all__ = [
    "Example",
    "Inflector",
    "compounds_of",
    "english_verbs",
    "hold_out",
    "language_of",
    "read_examples",
    "source_tokens",
    "train_inflector",
]
