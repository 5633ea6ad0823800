"""Models of words: what they learn, list and refuse."""

import numpy as np
import pytest

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.inflection import Example, Inflector, train_inflector
from pyentmax.seq2seq.training import CheckpointError, RunOptions, TrainingConfig

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


def test_batches_keep_the_order_of_the_examples(trained):
    inflector, _ = trained
    shuffled = [VERBS[i] for i in np.random.default_rng(0).permutation(len(VERBS))]
    results = inflector.predict(shuffled, batch_size=3)
    assert [inflector.form(r.best.tokens) for r in results] == [e.form for e in shuffled]
    proved = inflector.predict(shuffled[:3], search="exact")
    assert [r.best.tokens for r in proved] == [r.best.tokens for r in results[:3]]
    forced = dict(inflector.force_all(shuffled, batch_size=3))
    assert sorted(forced) == list(range(len(shuffled)))
    for i, one in forced.items():
        alone = inflector.force(shuffled[i].lemma, shuffled[i].tags, shuffled[i].form)
        np.testing.assert_array_equal(one.support, alone.support)
        np.testing.assert_allclose(one.probability, alone.probability, rtol=1e-4)


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


def test_tags_are_a_set_also_after_loading(trained, tmp_path):
    inflector = trained[0]
    inflector.save(tmp_path / "model")
    for model in (inflector, Inflector.load(tmp_path / "model")):
        one, other = (model.inflect("walk", tags) for tags in ("V;3;SG;PRS", "PRS;SG;3;V"))
        assert [h.log_prob for h in one.hypotheses] == [h.log_prob for h in other.hypotheses]
        shuffled = [example._replace(tags=example.tags[::-1]) for example in VERBS]
        assert model.predict(VERBS)[0].best.tokens == model.predict(shuffled)[0].best.tokens
        assert model.note(["PRS", "V", "3", "SG"]) == ""
        assert model.note(["3", "V"]) == "no training example has the tags V;3"


def test_model_without_an_order_says_so(trained):
    old = {k: v for k, v in trained[0].description().items() if k not in ("tags", "bundles")}
    model = Inflector.restore(trained[0].arrays(), old)
    assert "in which order" in model.note(["V", "PST"])
    assert model.source_tokens(VERBS[0]._replace(tags=("PST", "V")))[:2] == ["<PST>", "<V>"]
