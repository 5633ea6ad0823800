"""Models of words: what they learn, list and refuse."""

import numpy as np
import pytest

from pyentmax.data import DataError
from pyentmax.tasks.inflection import Example, Inflector, train_inflector
from pyentmax.training import CheckpointError, RunOptions, TrainingConfig

WORDS = ["play", "walk", "call", "snow", "glow", "ask", "mail", "sail"]
VERBS = [Example(w, w + "ed", ("V", "PST")) for w in WORDS] + [
    Example(w, w + "s", ("V", "3", "SG", "PRS")) for w in WORDS
]
SMALL = {"batch_size": 8, "hidden": 8}
QUIET = RunOptions(progress=False)


@pytest.fixture(scope="module")
def trained():
    config = TrainingConfig(updates=150, rate=0.01, seed=0)
    return train_inflector(VERBS, VERBS, config, QUIET, **SMALL | {"hidden": 32, "dropout": 0.0})


def test_it_learns_the_words(trained):
    inflector, history = trained
    assert history.dev_accuracy[-1] == 1.0
    result = inflector.inflect("walk", "V;PST")
    assert inflector.form(result.best.tokens) == "walked"
    assert result.exact
    np.testing.assert_allclose(result.mass, 1, rtol=1e-5)
    assert result.best.attention.shape == (len("walked") + 1, len("walk") + 2)
    assert inflector.inflect("walk", ["V", "PST"]).best.tokens == result.best.tokens


def test_exact_search_agrees_with_the_beam(trained):
    inflector, _ = trained
    beam, exact = (inflector.inflect("walk", "V;PST", search=s) for s in ("beam", "exact"))
    assert beam.exact
    assert exact.exact
    assert [h.tokens for h in beam.hypotheses] == [h.tokens for h in exact.hypotheses]
    with pytest.raises(ValueError, match="search: expected 'beam' or 'exact', got 'deep'"):
        inflector.inflect("walk", "V;PST", search="deep")
    predicted = inflector.predict(VERBS[:3], search="exact")
    assert [inflector.form(r.best.tokens) for r in predicted] == [e.form for e in VERBS[:3]]
    assert all(r.proved >= 1 for r in predicted)


def test_predictions_are_in_the_order_of_the_examples(trained):
    inflector, _ = trained
    shuffled = [VERBS[i] for i in np.random.default_rng(0).permutation(len(VERBS))]
    results = inflector.predict(shuffled, batch_size=3)
    assert [inflector.form(r.best.tokens) for r in results] == [e.form for e in shuffled]
    one = inflector.inflect(shuffled[0].lemma, shuffled[0].tags)
    np.testing.assert_allclose(results[0].best.log_prob, one.best.log_prob, rtol=0, atol=1e-5)


def test_validation_counts_whole_forms(trained):
    inflector, _ = trained
    wrong = [VERBS[0], VERBS[1]._replace(form="walkt"), VERBS[2]._replace(form="çalled")]
    validation = inflector.validate(wrong)
    assert validation.accuracy == pytest.approx(1 / 3, rel=1e-15, abs=0)
    assert validation.loss > inflector.validate(VERBS).loss


def test_resuming_needs_same_model_and_words(tmp_path):
    config = TrainingConfig(updates=4)
    train_inflector(VERBS, VERBS, config, RunOptions(tmp_path, progress=False), **SMALL)
    resumed = RunOptions(tmp_path, resume=True, progress=False)
    for examples, dev, changes in (
        (VERBS, VERBS, {"output": "1"}),
        (VERBS, VERBS, {"hidden": 16}),
        (VERBS, VERBS[:5], {}),
        ([e._replace(form=e.form.replace("a", "é")) for e in VERBS], VERBS, {}),
    ):
        with pytest.raises(CheckpointError, match="run"):
            train_inflector(examples, dev, config, resumed, **SMALL | changes)


@pytest.mark.parametrize(
    ("lemma", "tags", "language", "message"),
    [
        ("qalk", "V;PST", None, "unknown character 'q' in lemma 'qalk'; known: a c"),
        ("walke\u0301", "V;PST", None, "unknown character 'e' in lemma .*; known: a c"),
        ("walk", "V;PAST", None, "unknown tag 'PAST' in 'V;PAST': .*from 3 PRS PST SG V"),
        ("walk", "V;PST", "english", "unknown language 'english': the model expects none"),
        ("", "V;PST", None, "lemma: expected at least one character"),
    ],
)
def test_what_it_has_never_seen(trained, lemma, tags, language, message):
    with pytest.raises(DataError, match=message):
        trained[0].inflect(lemma, tags, language)


def test_several_languages_need_a_name():
    verbs = [Example("walk", "walked", ("V", "PST"), "english")]
    verbs += [Example("gehen", "ging", ("V", "PST"), "german")]
    inflector = Inflector.untrained(verbs, np.random.default_rng(0), hidden=4)
    assert inflector.inflect("gehen", "V;PST", "german", max_length=3).hypotheses
    for language, message in (
        ("french", "unknown language 'french': the model expects one of english german"),
        (None, "the model knows several, name one of english german"),
    ):
        with pytest.raises(DataError, match=message):
            inflector.inflect("gehen", "V;PST", language)


def test_forced_form_has_the_probability_of_the_search(trained):
    inflector, _ = trained
    result = inflector.inflect("walk", "V;PST")
    forced = inflector.force("walk", "V;PST", "walked")
    np.testing.assert_allclose(forced.probability, result.best.probability, rtol=1e-5)
    np.testing.assert_allclose(forced.attention, result.best.attention, rtol=0, atol=1e-5)
    other = inflector.force("walk", "V;PST", "walks")
    listed = {inflector.form(h.tokens): h.probability for h in result.hypotheses}
    np.testing.assert_allclose(other.probability, listed.get("walks", 0), rtol=0, atol=1e-6)


def test_all_examples_are_forced_as_each_alone(trained):
    inflector, _ = trained
    found = dict(inflector.force_all(VERBS, batch_size=3))
    assert sorted(found) == list(range(len(VERBS)))
    for i, forced in found.items():
        alone = inflector.force(VERBS[i].lemma, VERBS[i].tags, VERBS[i].form)
        np.testing.assert_array_equal(forced.tokens, alone.tokens)
        np.testing.assert_array_equal(forced.support, alone.support)
        np.testing.assert_allclose(forced.attention, alone.attention, rtol=0, atol=1e-5)
