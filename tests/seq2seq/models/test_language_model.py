"""The decoder-only Transformer: gradients, causality, and that decoding agrees."""

from dataclasses import replace

import numpy as np
import pytest
from finite_differences import assert_parameter_gradients

from pyentmax.seq2seq.data import Segment
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig

TEXT = np.array([[3, 4, 5, 3, 2, 4], [5, 5, 4, 3, 3, 2]])
BATCH = Segment(TEXT[:, 2:5], TEXT[:, 3:])
DROPOUTS = {"dropout": 0.2, "attention_dropout": 0.1, "inner_dropout": 0.15}


def small(seed=0, dtype=np.float64, sharpness=1.0, **changes):
    """A model of two layers; its heads and output are sharper the larger ``sharpness``."""
    options = {"size": 6, "width": 4, "layers": 2, "heads": 2, "inner": 6, "dropout": 0.0}
    rng = np.random.default_rng(seed)
    config = LanguageModelConfig(**options | changes)
    model = LanguageModel.initialize(config, rng, bos=1, eos=2, dtype=dtype)
    for name, x in model.params.items():
        # Zeros and ones would hide a wrong factor.
        if any(part in name for part in ("bias", "gain", "length")):
            x += rng.normal(0, 0.3, x.shape).astype(dtype)
        if "query.weight" in name or name.startswith("output"):
            x *= sharpness
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": "learned", "norm": "post", "tied": True},
        {"attention": "topk_softmax:2", "output": "1.5", "label_smoothing": 0.1},
        {"attention": "1.5", "length_scale": True, "alpha_per": "model"},
        {"attention": "1.5", "score": "bilinear", "norm": "post"},
        {"attention": "2", "output": "2"} | DROPOUTS,
    ],
    ids=lambda changes: "-".join(map(str, changes.values())) or "defaults",
)
def test_gradient_of_every_parameter(changes):
    model = small(sharpness=3.0, **changes)
    seed = 5 if "dropout" in changes else None

    def loss(params):
        return model.loss(params, BATCH, None if seed is None else np.random.default_rng(seed))

    assert_parameter_gradients(model.params, loss)


@pytest.mark.parametrize("changes", [{}, {"length_scale": True}], ids=str)
def test_tokens_do_not_see_later_ones(changes):
    model = small(sharpness=3.0, **changes)
    scores = model.scores(model.params, TEXT).data
    for t in range(1, TEXT.shape[1]):
        changed = TEXT.copy()
        changed[:, t:] = (changed[:, t:] + 1) % 6
        other = model.scores(model.params, changed).data
        np.testing.assert_allclose(other[:, :t], scores[:, :t], rtol=1e-12, atol=1e-13)
        assert np.abs(other[:, t:] - scores[:, t:]).max() > 1e-3


def test_scores_are_scaled_by_length():
    model = small(layers=1, attention="softmax", length_scale=True)
    params = {name: x for name, x in model.params.items() if ".length_" not in name}
    plain = LanguageModel(replace(model.config, length_scale=False), params, bos=1, eos=2)
    scaled, unscaled = (m.attention_weights(TEXT)[0] for m in (model, plain))
    logit, power = (model.params[f"layer.0.self.length_{x}"] for x in ("logit", "power"))
    for t in range(1, TEXT.shape[1]):
        factor = 1 + np.exp(logit) * np.log(t + 1) ** power
        one, other = (np.diff(np.log(x[:, :, t, : t + 1])) for x in (scaled, unscaled))
        np.testing.assert_allclose(one, factor[:, None] * other, rtol=1e-10, atol=1e-12)


def test_positions_matter():
    model = small()
    one, other = (model.scores(model.params, np.array([t])).data for t in ([3, 4, 5], [4, 3, 5]))
    assert np.abs(one[0, -1] - other[0, -1]).max() > 1e-4


# --- decoding -------------------------------------------------------------------------------------
CASES = [
    {},
    {"attention": "learned", "norm": "post"},
    {"attention": "topk_softmax:2", "output": "1.5"},
    {"length_scale": True},
]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_cached_steps_equal_scores_of_whole_texts(changes):
    model = small(sharpness=3.0, **changes)
    expected, _ = model.output.log_probabilities(model.scores(model.params, TEXT).data)
    source = TEXT[:, :2]
    state = model.encode(source, np.ones_like(source, bool))
    tokens = np.array([model.bos, model.bos])  # which is not read
    for t in range(1, TEXT.shape[1]):
        step, state = model.step(state, tokens)
        assert step.attention.shape == source.shape
        np.testing.assert_allclose(step.log_prob, expected[:, t], rtol=1e-10, atol=1e-12)
        tokens = TEXT[:, t + 1] if t + 1 < TEXT.shape[1] else tokens


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_a_beginning_of_one_token(changes):
    model = small(sharpness=3.0, **changes)
    source = TEXT[:, :1]
    step, _ = model.step(model.encode(source, np.ones_like(source, bool)), np.array([1, 1]))
    expected, _ = model.output.log_probabilities(model.scores(model.params, source).data[:, 0])
    np.testing.assert_allclose(step.log_prob, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_texts_of_several_lengths_continue_as_alone(changes):
    model = small(sharpness=3.0, **changes)
    source = np.array([[3, 4, 5, 3], [5, 0, 0, 0], [4, 4, 0, 0]])
    state = model.encode(source, source > 0)
    rows = np.array([2, 0, 1, 0])
    state = model.select(model.join([state, model.select(state, np.array([0]))]), rows)
    for tokens in ([1, 1, 1, 1], [3, 4, 5, 3], [5, 5, 5, 4]):
        step, state = model.step(state, np.array(tokens))
    for row, (which, read) in enumerate(zip(rows, [[3, 5], [4, 5], [5, 5], [3, 4]], strict=True)):
        text = np.array([[*source[which][source[which] > 0], *read]])
        scores = model.scores(model.params, text).data[0, -1]
        expected, _ = model.output.log_probabilities(scores)
        np.testing.assert_allclose(step.log_prob[row], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": 0}, "size: expected a whole number from 1 up"),
        ({"width": 6, "heads": 4}, "heads: expected a divisor"),
        ({"output": "learned"}, "output: expected a fixed"),
    ],
)
def test_bad_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        LanguageModelConfig(**{"size": 6, "width": 4, "heads": 2} | changes)
