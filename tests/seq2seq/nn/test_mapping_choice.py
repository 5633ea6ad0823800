"""Mappings chosen by name: bad parameters are refused, zeros are certain."""

from __future__ import annotations

import numpy as np
import pytest

from pyentmax.seq2seq.nn.mapping_choice import choose_mapping


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("entmax", "expected entmax:ALPHA, numbers"),
        ("topk_softmax:nan", "k must be at least 1"),
        ("topk_softmax:0", "k must be at least 1"),
        ("topk_sparsemax:1.5", "k must be a whole number"),
        ("fusedmax:-1", "strength must be at least 0"),
        ("entmax:nan", "alpha must be above 0"),
        ("csoftmax:-0.1", "upper must be at least 0"),
        ("budget_sparsemax:nan", "budget must be at least 0"),
    ],
)
def test_bad_parameters_are_refused(choice, words):
    with pytest.raises(ValueError, match=f"mapping: {words}.*'{choice}'"):
        choose_mapping(choice)


@pytest.mark.parametrize(
    "choice", ["csoftmax:0.1", "budget_sparsemax:7", "topk_softmax:1e9", "fusedmax:0", "entmax:inf"]
)
def test_parameters_valid_for_some_rows_are_accepted(choice):
    assert str(choose_mapping(choice).params[0]) in {"0.1", "7.0", "1000000000.0", "0.0", "inf"}


@pytest.mark.parametrize("name", ["fusedmax:0.1", "oscarmax:0.1"])
def test_support_holds_all_positive_probabilities(name):
    # p and the support are computed separately, and may round a score on the threshold differently.
    z = np.round(4 * np.random.default_rng(0).standard_normal((16_000, 6))) / 8
    log_p, possible, _ = choose_mapping(name).certified(z)
    assert possible[log_p > -np.inf].all()
