"""Data: inflection examples and their files, vocabularies and batches by length."""

from pyentmax.data.batching import (
    Batch,
    Pair,
    bucketed_batches,
    encode_examples,
    make_batch,
    padding_share,
)
from pyentmax.data.bundled import english_verbs
from pyentmax.data.download import SPLITS, conll2018_files, conll2018_languages
from pyentmax.data.errors import DataError
from pyentmax.data.inflection import (
    Example,
    compounds_of,
    hold_out,
    language_of,
    read_examples,
    source_tokens,
    target_tokens,
)
from pyentmax.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "SPLITS",
    "UNK",
    "Batch",
    "DataError",
    "Example",
    "Pair",
    "Vocabulary",
    "bucketed_batches",
    "compounds_of",
    "conll2018_files",
    "conll2018_languages",
    "encode_examples",
    "english_verbs",
    "hold_out",
    "language_of",
    "make_batch",
    "padding_share",
    "read_examples",
    "source_tokens",
    "target_tokens",
]
