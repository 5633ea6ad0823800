"""What models, sources, clocks and settings of one's own may give to training."""

import json
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from bigrams import Bigrams, Windows

from pyentmax.models.grid_transformer import GridTransformerConfig
from pyentmax.models.language_model import LanguageModelConfig
from pyentmax.models.rnn_seq2seq import RNNSeq2SeqConfig
from pyentmax.models.transformer import TransformerConfig
from pyentmax.training import CheckpointError, TrainingConfig, Validation, train


def config(**changes):
    return TrainingConfig(**{"updates": 40, "rate": 0.02, "validate_every": 10} | changes)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, bool])
def test_what_a_source_counts_may_be_any_whole_number(tmp_path, kind):
    """The sum of an array, which JSON does not hold, ended the run at its first checkpoint."""

    class Counted(Windows):
        def count(self, batch):
            return kind(1)

    settings = config(updates=4, validate_every=2, accumulate=2)
    validation = {"validate": lambda model: Validation(1.0, 0.0), "progress": False}
    train(Bigrams(), Counted(), settings, directory=tmp_path, pause_after=3, **validation)
    train(Bigrams(), Counted(), settings, directory=tmp_path, resume=True, **validation)


def test_what_a_source_counts_otherwise_is_named():
    class Halves(Windows):
        def count(self, batch):
            return 2.5

    class Owed(Windows):
        def count(self, batch):
            return -1

    class Nothing(Windows):
        def count(self, batch):
            return 0

    settings = config(updates=2, validate_every=2, accumulate=2)
    for source, got in ((Halves(), 2.5), (Owed(), -1)):
        with pytest.raises(
            ValueError, match=f"count: expected a whole number from 0 up, got {got}"
        ):
            train(Bigrams(), source, settings, lambda model: Validation(1.0, 0.0), progress=False)
    train(Bigrams(), Nothing(), settings, lambda model: Validation(1.0, 0.0), progress=False)
    empty = Bigrams()
    empty.params = {}
    with pytest.raises(ValueError, match="model: expected parameters to be trained, got none"):
        train(empty, Windows(), settings, lambda model: Validation(1.0, 0.0), progress=False)


@pytest.mark.parametrize("identity", [{"settings": "mine"}, {"model": 1}, {"text": "another"}])
def test_an_identity_hides_no_other(identity):
    """Of two under a name, one was compared."""
    options = {"validate": lambda model: Validation(1.0, 0.0), "progress": False}
    with pytest.raises(ValueError, match=r"^identity: expected nothing else under the names"):
        train(Bigrams(), Windows(), config(), identity=identity, **options)
    train(Bigrams(), Windows(), config(updates=1), identity=Windows.identity, **options)


@pytest.mark.parametrize("of_source", [False, True])
def test_a_part_of_the_identity_that_is_missing_is_a_difference(tmp_path, of_source):
    def again(identity, **options):
        batches = Windows()
        if of_source:
            batches.identity, identity = identity, {}
        options |= {"validate": lambda model: Validation(1.0, 0.0), "directory": tmp_path}
        settings = config(updates=4, validate_every=2)
        train(Bigrams(), batches, settings, identity=identity, progress=False, **options)

    again({"corpus": "a"}, pause_after=2)
    for other in ({}, {"corpus": "b"}):
        with pytest.raises(CheckpointError, match=r"\(corpus: .*\)"):
            again(other, resume=True)
    again({"corpus": "a"}, resume=True)


def test_identities_differ_as_json_does(tmp_path):
    """It said "was 1, is 1" of a text and a number, and True was 1."""
    options = {"validate": lambda model: Validation(1.0, 0.0), "directory": tmp_path}
    settings = config(updates=4, validate_every=2)

    def again(identity, **more):
        train(Bigrams(), Windows(), settings, identity=identity, progress=False, **options | more)

    again({"a": [1, 2]}, pause_after=2)
    for other, said in (([True, 2], "not the same"), ("1", "not the same")):
        with pytest.raises(CheckpointError, match=rf"\(a: {said}\)"):
            again({"a": other}, resume=True)
    again({"a": [1.0, 2]}, resume=True)
    again({"a": 1}, pause_after=2)
    for other, said in (("1", "was 1, is '1'"), (True, "was 1, is True")):
        with pytest.raises(CheckpointError, match=rf"\(a: {said}\)"):
            again({"a": other}, resume=True)


def test_what_cannot_be_trained_is_named():
    options = {"validate": lambda model: Validation(1.0, 0.0), "progress": False}
    model = Bigrams()
    model.loss = lambda params, batch, rng=None: params["scores"].sum(axis=0)[:1]
    with pytest.raises(ValueError, match=r"loss: expected a scalar, got one of shape \(1,\)"):
        train(model, Windows(), config(), **options)
    model = Bigrams()
    model.params = {0: model.params["scores"]}
    with pytest.raises(ValueError, match="expected texts for the parameters' names, got 0"):
        train(model, Windows(), config(), **options)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"a": 1.0, "b": 2.0}, "expected the same names each time, update, a; got update, a, b"),
        ({0: 1.0}, "expected"),
        ({"update": 7, "a": 1.0}, "expected other names than update"),
        ({"a": np.float32(1)}, "expected what JSON can hold"),
        ({}, None),
    ],
)
def test_what_could_not_be_watched_again_is_refused_before_it_is_saved(tmp_path, later, message):
    """Such a last.npz was written, and refused as damaged by the run that was to go on from it."""
    model = Bigrams()
    found = iter([{"a": 1.0}, *[later] * 9])
    model.watched = lambda: next(found)
    settings = config(updates=30, validate_every=10)
    options = {"directory": tmp_path, "progress": False}
    validation = {"validate": lambda model: Validation(1.0, 0.0)}
    if message is None:
        train(model, Windows(), settings, pause_after=25, **validation, **options)
    else:
        with pytest.raises(ValueError, match=rf"watched\(\): {message}"):
            train(model, Windows(), settings, **validation, **options)
    model.watched = lambda: {"a": 1.0}
    train(model, Windows(), settings, resume=True, **validation, **options)


def test_a_clock_that_is_put_back_does_not_make_a_run_unreadable(tmp_path):
    times = iter([5.0, 1.0] * 1000)
    options = {"validate": lambda model: Validation(1.0, 0.0), "directory": tmp_path}
    options |= {"clock": lambda: next(times), "progress": False}
    settings = config(updates=6, validate_every=2)
    train(Bigrams(), Windows(), settings, pause_after=4, **options)
    assert train(Bigrams(), Windows(), settings, resume=True, **options).seconds[-1] >= 0


@pytest.mark.parametrize(
    "given",
    [
        {"rate": np.float32(0.5), "clip": np.int64(2), "updates": np.int32(4)},
        {"rate": Fraction(1, 2), "betas": (np.float32(0.5), 0)},
        {"betas": np.array([0.5, 0.75]), "rate_factors": {"scores": np.float16(0.5)}},
    ],
)
def test_settings_may_be_any_numbers(tmp_path, given):
    """NumPy's ended training with "float32 is not JSON serializable"."""
    settings = TrainingConfig(**({"updates": 4, "validate_every": 2} | given))
    options = {"validate": lambda model: Validation(1.0, 0.0), "directory": tmp_path}
    train(Bigrams(), Windows(), settings, progress=False, pause_after=2, **options)
    train(Bigrams(), Windows(), settings, progress=False, resume=True, **options)
    json.dumps(asdict(settings))


def test_what_differs_from_another_run_is_named_with_the_defaults(tmp_path):
    """It said "betas was [0.9, 0.98], is None"."""
    options = {"validate": lambda model: Validation(1.0, 0.0), "directory": tmp_path}
    settings = config(updates=4, validate_every=2, betas=(0.9, 0.98), accumulate=2)
    train(Bigrams(), Windows(), settings, progress=False, pause_after=2, **options)
    settings = config(updates=4, validate_every=2)
    expected = r"\(accumulate was 2, is 1; betas was \[0.9, 0.98\], is \[0.9, 0.999\]\)"
    with pytest.raises(CheckpointError, match=expected):
        train(Bigrams(), Windows(), settings, progress=False, resume=True, **options)


@pytest.mark.parametrize(
    "shape",
    [
        RNNSeq2SeqConfig(8, 8, hidden=np.int64(8), dropout=np.float32(0.25)),
        TransformerConfig(8, 8, width=np.int32(8), heads=np.uint8(2), attention_dropout=np.half(0)),
        GridTransformerConfig(3, 7, width=np.int64(8), heads=2, rows=np.int64(2), columns=2),
        LanguageModelConfig(np.int64(9), width=8, layers=np.int64(1), heads=2),
    ],
    ids=lambda shape: type(shape).__name__,
)
def test_shapes_of_models_may_be_any_numbers(shape):
    """Training ended with "int64 is not JSON serializable"."""
    assert type(shape)(**json.loads(json.dumps(asdict(shape)))) == shape
