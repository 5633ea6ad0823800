"""The report on a model: its numbers are those of the parts, and its files hold them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.certainty import exactness_statistics
from experiments.peters2019 import sparsity_report
from pyentmax.seq2seq.inflection import Example, Inflector, train_inflector
from pyentmax.seq2seq.training import RunOptions, TrainingConfig

VERBS = [Example(w, w + "ed", ("V", "PST")) for w in ("play", "walk", "call", "snow", "glow")]


pytestmark = pytest.mark.slow  # trains and draws


@pytest.fixture(scope="module")
def inflector():
    config = TrainingConfig(updates=130, rate=0.02, seed=0)
    options = RunOptions(progress=False)
    return train_inflector(VERBS, VERBS, config, options, hidden=16, dropout=0.0)[0]


def test_report_and_its_file_agree_with_searches(inflector, tmp_path):
    report = sparsity_report.measure(inflector, VERBS, beam=4, batch_size=2)
    assert list(report.by_beam) == [1, 2, 3, 4]
    assert 0 < report.by_beam[4] < 1
    for k, share in report.by_beam.items():
        results = inflector.predict(VERBS, 2, beam=k)
        assert share == np.mean([result.exact for result in results])
    assert report.exactness == exactness_statistics(results)
    right = [inflector.form(r.best.tokens) == e.form for r, e in zip(results, VERBS, strict=True)]
    assert report.accuracy == np.mean(right)
    best, listed = report.calibration["best"], report.calibration["listed"]
    assert (best.count, listed.count) == (5, sum(len(r.hypotheses) for r in results))
    # A target position for each character and the end.
    assert len(report.supports.output) == sum(len(e.form) + 1 for e in VERBS)
    assert set(report.supports.source_lengths) == {6}
    numbers = json.loads(sparsity_report.write(report, tmp_path / "deep" / "out")[0].read_text())
    assert numbers["accuracy"] == report.accuracy
    assert {int(k): share for k, share in numbers["exact_by_beam"].items()} == report.by_beam
    for name in ("attention", "output"):
        counts = numbers[f"{name}_supports"]
        assert np.dot(counts, range(len(counts))) == getattr(report.supports, name).sum()
    bins = numbers["calibration"]["best"]["bins"]
    assert [one["count"] for one in bins] == [one.count for one in best.bins]
    assert f"{best.error:.2%}" in sparsity_report.describe(report)


def test_exact_search_decides_what_the_beam_left_open(inflector):
    report = sparsity_report.measure(inflector, VERBS, beam=2, batch_size=2)
    beam = inflector.predict(VERBS, beam=2)
    exact = inflector.predict(VERBS, search="exact")
    left = [i for i, result in enumerate(beam) if not result.exact]
    assert (report.exact_beam, report.undecided) == (2, len(left))
    assert 0 < report.undecided < len(VERBS)
    assert report.proved == sum(exact[i].proved > 0 for i in left) == report.undecided
    assert report.missed == sum(exact[i].best.tokens != beam[i].best.tokens for i in left)
    # A wider beam is asked only about what a beam of 5 leaves open.
    wide = sparsity_report.measure(inflector, VERBS, beam=8)
    narrow = inflector.predict(VERBS, beam=5)
    assert wide.undecided == sum(not result.exact for result in narrow)
    # One expansion never gets to the end of a string.
    assert sparsity_report.measure(inflector, VERBS, beam=2, budget=1).proved == 0


def test_strings_that_never_end_predict_nothing(tmp_path):
    untrained = Inflector.untrained(VERBS, np.random.default_rng(0), hidden=8, output="2")
    untrained.model.params["output.bias"][untrained.model.eos] = -100
    report = sparsity_report.measure(untrained, VERBS[:1], beam=2)
    assert "no string ended" in sparsity_report.describe(report)
    numbers = json.loads(sparsity_report.write(report, tmp_path)[0].read_text())
    assert numbers["calibration"] == {"best": None, "listed": None}
    with pytest.raises(ValueError, match="examples: expected at least one"):
        sparsity_report.measure(untrained, [])
