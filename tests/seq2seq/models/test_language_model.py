"""The decoder-only Transformer: gradients, causality, and that decoding agrees."""

from dataclasses import replace
from functools import partial

import language_models
import numpy as np
import pytest
from finite_differences import assert_parameter_gradients
from language_models import CHECKS, TEXT

from pyentmax.seq2seq.data import Segment
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig

BATCH = Segment(TEXT[:, 2:5], TEXT[:, 3:])
DROPOUTS = {"dropout": 0.2, "attention_dropout": 0.1, "inner_dropout": 0.15}
small = partial(language_models.small, LanguageModel, LanguageModelConfig)


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


CASES = [
    {},
    {"attention": "learned", "norm": "post"},
    {"attention": "topk_softmax:2", "output": "1.5"},
    {"length_scale": True},
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("changes", CASES, ids=str)
def test_what_holds_for_every_language_model(changes, check):
    CHECKS[check](small(sharpness=3.0, **changes))


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
