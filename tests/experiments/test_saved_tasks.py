"""The files of translators and writers: what is written comes back."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.tasks.translation import Subwords, Translator, Words, toy_german
from experiments.tasks.writer import Writer
from pyentmax.seq2seq.training import CheckpointError, load_checkpoint, save_checkpoint

PAIRS = toy_german()[:100]
SMALL = {"width": 8, "layers": 1, "heads": 2, "inner": 8}


def translator(architecture="transformer", segmenter=None, target_segmenter=None, **changes):
    shape = {"rnn": {"hidden": 8}, "transformer": SMALL}[architecture] | changes
    rng = np.random.default_rng(0)
    segmenters = (segmenter or Words(), rng, target_segmenter)
    return Translator.untrained(architecture, PAIRS, *segmenters, **shape)


def subwords():
    return Subwords.learn((side for pair in PAIRS for side in pair), 110)


MODELS = {
    "rnn": lambda: translator("rnn"),
    "transformer": lambda: translator(attention="learned"),
    "language model": lambda: Writer.untrained(
        "to be or not", np.random.default_rng(0), 8, **SMALL
    ),
}


@pytest.fixture(params=MODELS)
def saved(request, tmp_path):
    """A model and its file."""
    model, path = MODELS[request.param](), tmp_path / "best.npz"
    model.save(path)
    return model, path


def test_model_comes_back_from_file_or_folder(saved):
    model, path = saved
    for place in (path, path.parent):
        loaded = type(model).load(place)
        assert loaded.description() == model.description()
        for name, x in model.model.params.items():
            np.testing.assert_array_equal(loaded.model.params[name], x)


@pytest.mark.parametrize("separate", [False, True])
def test_subwords_come_back_with_their_model(tmp_path, separate):
    model = translator(segmenter=subwords(), target_segmenter=Words() if separate else None)
    model.save(tmp_path / "best.npz")
    loaded = Translator.load(tmp_path)
    assert loaded.segmenter_states() == model.segmenter_states()
    assert (loaded.target_segmenter is loaded.segmenter) == (not separate)
    assert loaded.pairs(PAIRS[:1])[0][1].tolist() == model.pairs(PAIRS[:1])[0][1].tolist()
    assert loaded.segmenter.split(PAIRS[0].source) == model.segmenter.split(PAIRS[0].source)


def test_parts_that_are_missing_are_named(saved):
    model, path = saved
    arrays, description = load_checkpoint(path, model.kind)
    for changed, described in (
        (arrays, {name: x for name, x in description.items() if name != "config"}),
        (arrays, description | {"config": description["config"] | {"unheard_of": 1}}),
        ({name: x for name, x in arrays.items() if name != "output.bias"}, description),
        (arrays | {"output.bias": arrays["output.bias"][1:]}, description),
    ):
        save_checkpoint(path, changed, described)
        with pytest.raises(CheckpointError, match="best.npz: parts are missing or do not fit"):
            type(model).load(path)


def test_ensemble_of_sentences_mixes_architectures(tmp_path):
    paths = [tmp_path / f"{name}.npz" for name in ("rnn", "transformer")]
    for path in paths:
        translator(path.stem, output="softmax").save(path)
    together = Translator.load_ensemble(paths).force(*PAIRS[0])
    members = [np.exp(Translator.load(path).force(*PAIRS[0]).log_prob) for path in paths]
    np.testing.assert_allclose(
        np.exp(together.log_prob), np.mean(members, axis=0), rtol=1e-5, atol=1e-8
    )
    one = Translator.load(paths[0])
    Translator(one.model, one.source, one.target, subwords()).save(paths[1])
    with pytest.raises(CheckpointError, match="its way to cut sentences is not that of"):
        Translator.load_ensemble(paths)
