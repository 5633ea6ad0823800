"""Models of words: what they learn, list, refuse, and how they are saved."""

from dataclasses import replace

import numpy as np
import pytest

from pyentmax.analysis import empty_string_probability
from pyentmax.data import DataError
from pyentmax.tasks.inflection import Example, Inflector, load_word_decoder, train_inflector
from pyentmax.training import (
    CheckpointError,
    RunOptions,
    TrainingConfig,
    save_checkpoint,
)

QUIET = RunOptions(progress=False)
WORDS = ["play", "walk", "call", "snow", "glow", "ask", "mail", "sail"]
VERBS = [Example(w, w + "ed", ("V", "PST")) for w in WORDS] + [
    Example(w, w + "s", ("V", "3", "SG", "PRS")) for w in WORDS
]


@pytest.fixture(scope="module")
def trained():
    config = TrainingConfig(updates=150, rate=0.01, seed=0)
    return train_inflector(VERBS, VERBS, config, QUIET, batch_size=8, hidden=32, dropout=0.0)


def test_it_learns_the_words(trained):
    inflector, history = trained
    assert history.dev_accuracy[-1] == 1.0
    result = inflector.inflect("walk", "V;PST")
    assert inflector.form(result.best.tokens) == "walked"
    assert result.exact
    np.testing.assert_allclose(result.mass, 1, rtol=1e-5)
    assert result.best.attention.shape == (len("walked") + 1, len("walk") + 2)
    # Tags as a sequence are the same tags.
    again = inflector.inflect("walk", ["V", "PST"])
    assert again.best.tokens == result.best.tokens


def test_exact_search_agrees_with_the_beam(trained):
    inflector, _ = trained
    beam, exact = (inflector.inflect("walk", "V;PST", search=s) for s in ("beam", "exact"))
    assert beam.exact
    assert exact.exact
    assert [h.tokens for h in beam.hypotheses] == [h.tokens for h in exact.hypotheses]
    np.testing.assert_allclose(exact.best.attention, beam.best.attention, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="search: expected 'beam' or 'exact', got 'deep'"):
        inflector.inflect("walk", "V;PST", search="deep")
    predicted = inflector.predict(VERBS, search="exact", batch_size=3)
    assert [inflector.form(r.best.tokens) for r in predicted] == [e.form for e in VERBS]
    assert all(r.proved >= 1 for r in predicted)


def test_predictions_are_in_the_order_of_the_examples(trained):
    inflector, _ = trained
    order = np.random.default_rng(0).permutation(len(VERBS))
    shuffled = [VERBS[i] for i in order]
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


def test_same_seed_same_model():
    config = TrainingConfig(updates=5, seed=3)
    runs = [
        train_inflector(VERBS, VERBS, config, QUIET, batch_size=8, hidden=8)[0].model.params
        for _ in range(2)
    ]
    assert all((runs[0][name] == runs[1][name]).all() for name in runs[0])


def test_save_and_load(trained, tmp_path):
    inflector, _ = trained
    inflector.save(tmp_path / "best.npz")
    for path in (tmp_path, tmp_path / "best.npz"):
        loaded = Inflector.load(path)
        assert loaded.model.config == inflector.model.config
        assert (loaded.source, loaded.target) == (inflector.source, inflector.target)
        result, expected = (m.inflect("snow", "V;PST") for m in (loaded, inflector))
        assert result.best.tokens == expected.best.tokens
        assert result.best.log_prob == expected.best.log_prob


def test_several_checkpoints_are_an_ensemble(tmp_path):
    paths = [tmp_path / f"{seed}.npz" for seed in range(3)]
    single = []
    for seed, path in enumerate(paths):
        inflector = Inflector.untrained(VERBS, np.random.default_rng(seed), hidden=8)
        inflector.save(path)
        single.append(inflector)
    assert isinstance(load_word_decoder(paths[:1]), Inflector)
    ensemble = load_word_decoder(paths)
    result = ensemble.inflect("walk", "V;PST", search="exact", budget=3, max_length=4)
    # The first token is a mean of three: the probability of ending at once shows it.
    ids = single[0].pairs([Example("walk", "", ("V", "PST"))])[0][0][None]
    alone = [empty_string_probability(i.model, ids, ids >= 0) for i in single]
    together = empty_string_probability(ensemble.model, ids, ids >= 0)
    np.testing.assert_allclose(together, np.mean(alone, axis=0), rtol=1e-5)
    np.testing.assert_allclose(result.mass + result.mass_bound, 1, rtol=1e-4)
    assert len(ensemble.predict(VERBS[:3])) == 3

    longer = [*VERBS, Example("zip", "zipped", ("V", "PST"))]
    Inflector.untrained(longer, np.random.default_rng(0), hidden=8).save(paths[2])
    with pytest.raises(CheckpointError, match=r"2\.npz: its source vocabulary .* \(z\): expected"):
        load_word_decoder(paths)
    with pytest.raises(ValueError, match="at least one model"):
        load_word_decoder([])


def test_broken_files(trained, tmp_path):
    inflector, _ = trained
    with pytest.raises(FileNotFoundError, match=r"best\.npz"):
        Inflector.load(tmp_path)
    path = tmp_path / "best.npz"
    inflector.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        Inflector.load(path)
    params = dict(inflector.model.params)
    bias = params.pop("output.bias")
    description = {"kind": "inflection model", **inflector.description()}
    for changed in (params, params | {"output.bias": bias[1:]}, params | {"more": bias}):
        save_checkpoint(path, changed, description)
        with pytest.raises(CheckpointError, match="parts are missing or do not fit together"):
            Inflector.load(path)


def test_a_run_without_a_validation_yet(tmp_path):
    (tmp_path / "last.npz").touch()
    with pytest.raises(FileNotFoundError, match="written at the first validation"):
        Inflector.load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"output": "1"}, {"attention": "2"}, {"dropout": 0.5}, {"hidden": 16}],
)
def test_another_model_does_not_go_on_with_a_run(tmp_path, changes):
    config = TrainingConfig(updates=4, seed=0)
    options = {"batch_size": 8, "hidden": 8, "dropout": 0.2}
    run = RunOptions(tmp_path, progress=False)
    train_inflector(VERBS, VERBS, config, run, **options)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        train_inflector(VERBS, VERBS, config, replace(run, resume=True), **(options | changes))


def test_other_words_do_not_go_on_with_a_run(tmp_path):
    config = TrainingConfig(updates=4, seed=0)
    options = {"batch_size": 8, "hidden": 8}
    run = RunOptions(tmp_path, progress=False)
    train_inflector(VERBS, VERBS, config, run, **options)
    run = replace(run, resume=True)
    accented = [e._replace(form=e.form.replace("a", "é")) for e in VERBS]
    with pytest.raises(CheckpointError, match=r"data\.train was"):
        train_inflector(accented, accented, config, run, **options)
    with pytest.raises(CheckpointError, match=r"data\.dev was"):
        train_inflector(VERBS, VERBS[:5], config, run, **options)


@pytest.mark.parametrize(
    ("lemma", "tags", "language", "message"),
    [
        ("qalk", "V;PST", None, "unknown character 'q' in lemma 'qalk': expected .* 'ac"),
        ("walk", "V;PAST", None, "unknown tag 'PAST' in 'V;PAST': .*from 3 PRS PST SG V"),
        ("walk", "V;PST", "english", "unknown language 'english': the model expects none"),
        ("", "V;PST", None, "lemma: expected at least one character"),
    ],
)
def test_what_it_has_never_seen(trained, lemma, tags, language, message):
    with pytest.raises(DataError, match=message):
        trained[0].inflect(lemma, tags, language)


def test_languages():
    verbs = [Example("walk", "walked", ("V", "PST"), "english")]
    verbs += [Example("gehen", "ging", ("V", "PST"), "german")]
    inflector = Inflector.untrained(verbs, np.random.default_rng(0), hidden=4)
    assert inflector.inflect("gehen", "V;PST", "german", max_length=3).hypotheses
    with pytest.raises(
        DataError, match="unknown language 'french': the model expects one of english german"
    ):
        inflector.inflect("gehen", "V;PST", "french")
    with pytest.raises(DataError, match="the model knows several, name one of english german"):
        inflector.inflect("gehen", "V;PST")


def test_softmax_is_never_exact():
    config = TrainingConfig(updates=150, rate=0.01, seed=0)
    inflector, _ = train_inflector(
        VERBS, VERBS, config, QUIET, batch_size=8, hidden=32, dropout=0.0, output="softmax"
    )
    result = inflector.inflect("walk", "V;PST")
    assert inflector.form(result.best.tokens) == "walked"
    assert not result.exact
    assert result.mass < 1
    assert "infinitely many strings are possible" in result.reason


def test_forced_decoding_of_a_form(trained):
    inflector, _ = trained
    result = inflector.inflect("walk", "V;PST")
    said = inflector.force("walk", "V;PST", "walked")
    assert inflector.form(said.tokens[:-1]) == "walked"
    np.testing.assert_allclose(said.probability, result.best.probability, rtol=1e-5)
    np.testing.assert_allclose(said.attention, result.best.attention, rtol=0, atol=1e-5)
    # A certain model finds another form impossible, and says where.
    other = inflector.force("walk", "V;PST", "walks")
    listed = {inflector.form(h.tokens): h.probability for h in result.hypotheses}
    np.testing.assert_allclose(other.probability, listed.get("walks", 0), rtol=0, atol=1e-6)
    assert other.possible[:4].all()
    with pytest.raises(DataError, match="unknown character 'q' in form 'walqed': .* 'ac"):
        inflector.force("walk", "V;PST", "walqed")
    with pytest.raises(DataError, match="unknown tag"):
        inflector.force("walk", "V;PAST", "walked")


def test_all_examples_are_forced_as_each_alone(trained):
    inflector, _ = trained
    found = dict(inflector.force_all(VERBS, batch_size=3))
    assert sorted(found) == list(range(len(VERBS)))
    for i, said in found.items():
        alone = inflector.force(VERBS[i].lemma, VERBS[i].tags, VERBS[i].form)
        np.testing.assert_array_equal(said.tokens, alone.tokens)
        np.testing.assert_array_equal(said.support, alone.support)
        np.testing.assert_allclose(said.attention, alone.attention, rtol=0, atol=1e-5)


def test_an_ensemble_is_forced_too(tmp_path):
    paths = [tmp_path / f"{seed}.npz" for seed in range(2)]
    single = []
    for seed, path in enumerate(paths):
        inflector = Inflector.untrained(VERBS, np.random.default_rng(seed), hidden=8)
        inflector.save(path)
        single.append(inflector.force("walk", "V;PST", "walked"))
    said = load_word_decoder(paths).force("walk", "V;PST", "walked")
    np.testing.assert_array_equal(said.support, single[0].support | single[1].support)
