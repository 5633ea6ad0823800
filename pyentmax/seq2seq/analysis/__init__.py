"""Statistics of how accurate, sparse, certain and calibrated a model is, and of its heads."""

from __future__ import annotations

from pyentmax.seq2seq.analysis.accuracy import word_accuracy
from pyentmax.seq2seq.analysis.corpus_attention import (
    HeadMeasures,
    PerSentence,
    SentenceAttention,
    corpus_attention,
    measure_heads,
)
from pyentmax.seq2seq.analysis.exactness import (
    ExactnessStatistics,
    empty_string_probability,
    exactness_by_beam,
    exactness_statistics,
    smallest_exact_beam,
)
from pyentmax.seq2seq.analysis.heads import (
    attention_to,
    head_densities,
    head_diversity,
    merging_scores,
    positional_confidence,
)
from pyentmax.seq2seq.analysis.predictions import (
    epsilon_perplexity,
    jensen_shannon,
    sparsemax_score,
)
from pyentmax.seq2seq.analysis.reliability import (
    Calibration,
    CalibrationBin,
    calibration,
    listed_predictions,
)
from pyentmax.seq2seq.analysis.sparsity import SupportSizes, density, support_size, support_sizes

__all__ = [
    "Calibration",
    "CalibrationBin",
    "ExactnessStatistics",
    "HeadMeasures",
    "PerSentence",
    "SentenceAttention",
    "SupportSizes",
    "attention_to",
    "calibration",
    "corpus_attention",
    "density",
    "empty_string_probability",
    "epsilon_perplexity",
    "exactness_by_beam",
    "exactness_statistics",
    "head_densities",
    "head_diversity",
    "jensen_shannon",
    "listed_predictions",
    "measure_heads",
    "merging_scores",
    "positional_confidence",
    "smallest_exact_beam",
    "sparsemax_score",
    "support_size",
    "support_sizes",
    "word_accuracy",
]
