"""How the attention starts: first mappings, factors of the rate, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.attention_start import StartConfig, with_attention
from experiments.tasks.writer import Text, Writer, train_writer
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.nn.optim import Adam
from pyentmax.seq2seq.training import CheckpointError, RunOptions

LINES = "the cat sat on the mat\n" * 20
TEXT = Text(LINES, LINES)
SMALL = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "dropout": 0.0}
SIZES = {"context": 8, "batch_size": 2}
QUIET = RunOptions(progress=False)


def model_of(attention="1.5"):
    config = TransformerConfig(9, 9, **SMALL, attention=attention)
    return Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)


def changed(name, training, **model):
    """By how much a training moves a parameter from where it starts."""
    rng = np.random.default_rng(training.seed)
    start = Writer.untrained(LINES + LINES, rng, 8, **SMALL, **model).model.params[name]
    writer, _ = train_writer(TEXT, training, QUIET, **SIZES, **SMALL, **model)
    return np.abs(writer.model.params[name] - start).max()


def test_first_updates_have_another_attention_with_the_same_parameters():
    model, optimizer = model_of(), Adam({})
    start = StartConfig(first_attention="1", first_updates=2, anneal_updates=2)
    models = [start.before_update(model)(updates, optimizer) for updates in range(5)]
    assert [one.config.attention for one in models] == ["1", "1", "1.25", "1.5", "1.5"]
    assert all(one.params is model.params for one in models)
    assert models[-1] is model
    used = Transformer(replace(model.config, inference_attention="1"), model.params, 1, 2)
    assert with_attention(used, "2").config.inference_attention is None


def test_named_parameters_learn_more_slowly():
    query, value = "layer.0.self.query.weight", "layer.0.self.value.weight"
    held = StartConfig(updates=3, rate_factors={"query": 0.0})
    slow = StartConfig(updates=3, rate_factors={"query": 0.5, "self": 0.2})
    plain = StartConfig(updates=3)
    assert changed(query, held) == 0
    assert 0 < changed(query, slow) < 0.2 * changed(query, plain)
    assert changed(value, held) > 0.5 * changed(value, plain)


def test_initial_queries_and_keys_are_scaled():
    model, before = model_of(), model_of().params
    start = StartConfig(query_key_scale=0.5).before_update(model)
    for updates in (0, 1, 2):  # before the first alone
        start(updates, Adam({}))
    scaled = {name for name, x in model.params.items() if not np.array_equal(x, before[name])}
    assert scaled == {name for name in before if ".query.weight" in name or ".key.weight" in name}
    for name in scaled:
        np.testing.assert_array_equal(model.params[name], before[name] * 0.5)


def test_another_start_is_another_run(tmp_path):
    start = StartConfig(updates=4, first_attention="1", first_updates=2)
    train_writer(TEXT, start, RunOptions(tmp_path, progress=False), **SIZES, **SMALL)
    resumed = RunOptions(tmp_path, resume=True, progress=False)
    with pytest.raises(CheckpointError, match="training.first_updates was 2, is 3"):
        train_writer(TEXT, replace(start, first_updates=3), resumed, **SIZES, **SMALL)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first_attention": "1"}, "first_attention, first_updates: expected both or neither"),
        ({"first_updates": 5}, "first_attention, first_updates: expected both or neither"),
        ({"first_attention": "1", "first_updates": 0}, "first_updates: expected a whole number"),
        ({"first_attention": "soft", "first_updates": 5}, "mapping: expected"),
        ({"query_key_scale": 0.0}, "query_key_scale: expected a number above 0, got 0.0"),
        ({"anneal_updates": 5}, "anneal_updates: expected α-entmax as first_attention"),
        ({"rate_factors": {"query": -1.0}}, "rate_factors: expected names with a factor from 0 up"),
        ({"rate_factors": {"qurey": 0.1}}, "rate_factors: expected part of .*; got 'qurey'"),
    ],
)
def test_bad_starts_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        StartConfig(**fields).before_update(model_of())
