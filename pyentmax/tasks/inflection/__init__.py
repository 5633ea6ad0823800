"""Morphological inflection: examples and their files, the model of words, and its training."""

from pyentmax.tasks.inflection.conll2018 import SPLITS, conll2018_files, conll2018_languages
from pyentmax.tasks.inflection.examples import (
    Example,
    compounds_of,
    encode_examples,
    english_verbs,
    hold_out,
    language_of,
    read_examples,
    source_tokens,
    target_tokens,
)
from pyentmax.tasks.inflection.inflector import Inflector, WordDecoder, load_word_decoder
from pyentmax.tasks.inflection.training import train_inflector

__all__ = [
    "SPLITS",
    "Example",
    "Inflector",
    "WordDecoder",
    "compounds_of",
    "conll2018_files",
    "conll2018_languages",
    "encode_examples",
    "english_verbs",
    "hold_out",
    "language_of",
    "load_word_decoder",
    "read_examples",
    "source_tokens",
    "target_tokens",
    "train_inflector",
]
