"""Statistics of how accurate, sparse and certain a model is."""

from __future__ import annotations

from pyentmax.seq2seq.analysis.accuracy import word_accuracy
from pyentmax.seq2seq.analysis.exactness import (
    ExactnessStatistics,
    empty_string_probability,
    exactness_by_beam,
    exactness_statistics,
    smallest_exact_beam,
)
from pyentmax.seq2seq.analysis.predictions import (
    epsilon_perplexity,
    jensen_shannon,
    sparsemax_score,
)
from pyentmax.seq2seq.analysis.sparsity import SupportSizes, density, support_size, support_sizes

__all__ = [
    "ExactnessStatistics",
    "SupportSizes",
    "density",
    "empty_string_probability",
    "epsilon_perplexity",
    "exactness_by_beam",
    "exactness_statistics",
    "jensen_shannon",
    "smallest_exact_beam",
    "sparsemax_score",
    "support_size",
    "support_sizes",
    "word_accuracy",
]
