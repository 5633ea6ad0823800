"""Numbers that say how right, how sparse and how certain a model is."""

from __future__ import annotations

from .accuracy import levenshtein, mean_levenshtein, word_accuracy
from .exactness import ExactnessStatistics, empty_string_probability, exactness_statistics
from .sparsity import density, support_size

__all__ = [
    "ExactnessStatistics",
    "density",
    "empty_string_probability",
    "exactness_statistics",
    "levenshtein",
    "mean_levenshtein",
    "support_size",
    "word_accuracy",
]
