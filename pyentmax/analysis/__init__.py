"""Statistics of how accurate, sparse, certain and calibrated a model is, and of its heads."""

from __future__ import annotations

from pyentmax.analysis.accuracy import levenshtein, mean_levenshtein, word_accuracy
from pyentmax.analysis.exactness import (
    ExactnessStatistics,
    empty_string_probability,
    exactness_by_beam,
    exactness_statistics,
    smallest_exact_beam,
)
from pyentmax.analysis.heads import (
    attention_to,
    head_densities,
    head_diversity,
    merging_scores,
    positional_confidence,
    word_clusters,
)
from pyentmax.analysis.reliability import (
    Calibration,
    CalibrationBin,
    calibration,
    listed_predictions,
)
from pyentmax.analysis.sparsity import SupportSizes, density, support_size, support_sizes

__all__ = [
    "Calibration",
    "CalibrationBin",
    "ExactnessStatistics",
    "SupportSizes",
    "attention_to",
    "calibration",
    "density",
    "empty_string_probability",
    "exactness_by_beam",
    "exactness_statistics",
    "head_densities",
    "head_diversity",
    "levenshtein",
    "listed_predictions",
    "mean_levenshtein",
    "merging_scores",
    "positional_confidence",
    "smallest_exact_beam",
    "support_size",
    "support_sizes",
    "word_accuracy",
    "word_clusters",
]
