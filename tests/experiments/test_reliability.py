"""Calibration: bins by hand, and what counts as a prediction."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.analysis import calibration, listed_predictions
from pyentmax.seq2seq.decoding import Hypothesis, SearchResult


def result(probabilities, exact, unfinished=0):
    hypotheses = [Hypothesis((i,), float(np.log(p))) for i, p in enumerate(probabilities)]
    hypotheses += [Hypothesis((9,), -1.0, finished=False)] * unfinished
    return SearchResult(tuple(hypotheses), exact, float(sum(probabilities)), "")


def test_calibration_by_hand():
    # (0.2, 0.4]: two claims of mean 0.35, half of them right; (0.8, 1]: three of mean 0.9, all.
    measured = calibration([0.4, 0.3, 0.85, 0.95, 0.9], [True, False, True, True, True], bins=5)
    assert [(b.low, b.high, b.count) for b in measured.bins] == [(0.2, 0.4, 2), (0.8, 1.0, 3)]
    np.testing.assert_allclose([b.confidence for b in measured.bins], [0.35, 0.9], rtol=1e-15)
    np.testing.assert_array_equal([b.accuracy for b in measured.bins], [0.5, 1.0])
    assert measured.error == pytest.approx(0.4 * 0.15 + 0.6 * 0.1, rel=1e-14, abs=0)
    assert measured.count == 5


def test_calibration_bins_hold_their_upper_end_and_rounding():
    measured = calibration([k / 10 for k in range(11)] + [1 + 1e-7], np.ones(12, bool))
    assert [b.count for b in measured.bins] == [2, 1, 1, 1, 1, 1, 1, 1, 1, 2]


def test_listed_predictions_are_finished_strings():
    results = [result([0.75, 0.25], True), result([0.5], False), result([], False, 1)]
    claims = listed_predictions(results, [(1,), (0,), (9,)], tuple)
    assert claims == (pytest.approx([0.75, 0.25, 0.5], rel=1e-15, abs=0), [False, True, True])
    best = listed_predictions(results, [(1,), (0,), (9,)], tuple, best_only=True)
    assert best == (pytest.approx([0.75, 0.5], rel=1e-15, abs=0), [False, True])
