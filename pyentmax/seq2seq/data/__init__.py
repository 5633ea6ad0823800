"""Data of any task: vocabularies, batches of pairs or of pieces of a text."""

from pyentmax.seq2seq.data.batching import (
    Batch,
    BucketedPairs,
    Pair,
    TokenBatches,
    bucketed_batches,
    make_batch,
)
from pyentmax.seq2seq.data.errors import DataError
from pyentmax.seq2seq.data.segments import Segment, Segments, cut
from pyentmax.seq2seq.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Batch",
    "BucketedPairs",
    "DataError",
    "Pair",
    "Segment",
    "Segments",
    "TokenBatches",
    "Vocabulary",
    "bucketed_batches",
    "cut",
    "make_batch",
]
