"""Relative positions and memory: gradients, causality, distances, and that decoding agrees."""

import itertools
from functools import partial

import language_models
import numpy as np
import pytest
from finite_differences import assert_parameter_gradients
from language_models import CHECKS, TEXT

from experiments.language_model import MemorySegments, RelativeConfig, RelativeLanguageModel
from experiments.language_model.positions import init_relative_positions, relative_scores, shift
from experiments.language_model.relative import RememberedSegment
from experiments.tasks.writer import Text, Writer, train_writer
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.nn.attention import split_heads
from pyentmax.seq2seq.training import RunOptions, TrainingConfig

BATCH = RememberedSegment(TEXT[:, 2:5], TEXT[:, 3:], TEXT[:, :2])
small = partial(language_models.small, RelativeLanguageModel, RelativeConfig)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "learned", "length_scale": True},
        {"attention": "softmax", "memory": 2},
        {"attention": "1.5", "score": "bilinear", "norm": "post", "memory": 2},
        {"attention": "1.5", "dropout": 0.2, "attention_dropout": 0.1},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_gradient_of_every_parameter(changes):
    model = small(sharpness=3.0, **changes)
    memory = model.memory_of(BATCH.before) if model.config.memory else None

    def loss(params):
        rng = np.random.default_rng(5)
        if isinstance(params["embedding.weight"], Tensor):
            return model.loss(params, BATCH, rng)
        # What is remembered is a constant: its own dependence on the parameters has no gradient.
        scores = model.scores(params, BATCH.tokens_in, rng, memory)
        return model.output.loss(scores, BATCH.tokens_out)

    assert_parameter_gradients(model.params, loss)


def test_relative_scores_depend_on_distance_only():
    """A text that stands later, after nothing that is attended to, is read alike."""
    rng = np.random.default_rng(0)
    params = init_relative_positions(rng, "a", 4, np.float64)
    query = Tensor(np.repeat(rng.standard_normal((1, 1, 4)), 5, axis=1))
    query = split_heads(query, 2)
    scores = shift(relative_scores(params, "a", query, np.arange(7)[::-1], scale=1.0)).data
    for i, j in itertools.product(range(1, 5), range(1, 7)):
        if j <= i + 2:
            np.testing.assert_allclose(scores[..., i, j], scores[..., i - 1, j - 1], rtol=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_segments_with_memory_equal_the_whole_text(norm):
    """With one layer, what is remembered is exactly what would have been read."""
    model = small(layers=1, memory=4, norm=norm, sharpness=3.0)
    whole = model.scores(model.params, TEXT).data
    memory = model.memory_of(TEXT[:, :2])
    memory = model.memory_of(TEXT[:, 2:4], memory)
    assert [x.shape for x in memory] == [(2, 4, 4)]
    last = model.scores(model.params, TEXT[:, 4:], memory=memory).data
    np.testing.assert_allclose(last, whole[:, 4:], rtol=1e-10, atol=1e-12)


def test_memory_keeps_its_maximum_length():
    model = small(memory=3)
    memory = model.memory_of(TEXT)
    assert [x.shape for x in memory] == [(2, 3, 4)] * 2
    assert [x.shape for x in model.memory_of(TEXT[:, :2], memory)] == [(2, 3, 4)] * 2
    with pytest.raises(ValueError, match="memory above 0"):
        small().memory_of(TEXT)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("changes", [{"length_scale": True}, {"attention": "softmax"}], ids=str)
def test_what_holds_for_every_language_model(changes, check):
    CHECKS[check](small(sharpness=3.0, **changes))


def test_pieces_come_with_the_tokens_before_them():
    text = np.arange(60)
    for batch in MemorySegments(text, 6, 2, before=4).epoch(np.random.default_rng(0)):
        whole = np.concatenate([batch.before, batch.tokens_in], axis=1)
        np.testing.assert_array_equal(np.diff(whole), 1)
        np.testing.assert_array_equal(batch.tokens_out, batch.tokens_in + 1)
    with pytest.raises(DataError, match="tokens: expected at least 18 for a batch"):
        MemorySegments(np.arange(21), 6, 2, before=4)


def test_writer_with_a_memory_is_trained_and_comes_back(tmp_path):
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "positions": "relative", "memory": 4}
    text = Text("the cat sat on the mat\n" * 20, "the cat sat on the mat\n" * 4)
    options = RunOptions(tmp_path, progress=False)
    settings = TrainingConfig(updates=4)
    writer, _ = train_writer(text, settings, options, context=8, batch_size=2, **shape)
    loaded = Writer.load(tmp_path)
    assert isinstance(loaded.model, RelativeLanguageModel)
    assert loaded.model.config == writer.model.config
    assert loaded.write("the", 9, np.random.default_rng(0)) == writer.write(
        "the", 9, np.random.default_rng(0)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory": -1}, "memory: expected a whole number from 0 up"),
        ({"score": "dot"}, "score: expected 'scaled' or 'bilinear'"),
        ({"positions": "sinusoidal"}, "positions: expected 'relative'"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        RelativeConfig(**{"size": 6, "width": 4, "heads": 2} | changes)
