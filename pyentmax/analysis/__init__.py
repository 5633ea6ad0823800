"""Statistics of how accurate, how sparse, how certain and how well calibrated a model is."""

from __future__ import annotations

from pyentmax.analysis.accuracy import levenshtein, mean_levenshtein, word_accuracy
from pyentmax.analysis.exactness import (
    ExactnessStatistics,
    empty_string_probability,
    exactness_by_beam,
    exactness_statistics,
    smallest_exact_beam,
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
    "calibration",
    "density",
    "empty_string_probability",
    "exactness_by_beam",
    "exactness_statistics",
    "levenshtein",
    "listed_predictions",
    "mean_levenshtein",
    "smallest_exact_beam",
    "support_size",
    "support_sizes",
    "word_accuracy",
]
