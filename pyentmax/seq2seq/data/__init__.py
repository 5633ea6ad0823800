"""Data of any task: vocabularies, batches of pairs or of pieces of a text, checked downloads."""

from pyentmax.seq2seq.data.batching import (
    Batch,
    BucketedPairs,
    Pair,
    TokenBatches,
    bucketed_batches,
    make_batch,
)
from pyentmax.seq2seq.data.download import FOLDER_VARIABLE, fetch, local_folder
from pyentmax.seq2seq.data.errors import DataError
from pyentmax.seq2seq.data.segments import Segment, Segments, cut
from pyentmax.seq2seq.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

__all__ = [
    "BOS",
    "EOS",
    "FOLDER_VARIABLE",
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
    "fetch",
    "local_folder",
    "make_batch",
]
