"""Captions: what images show, and what a model says of them."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.own.captioning import (
    Captioner,
    draw_data,
    draw_images,
    draw_scenes,
    train_captioner,
)
from pyentmax.seq2seq.data import EOS
from pyentmax.seq2seq.training import RunOptions, TrainingConfig

TINY = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "dropout": 0.0}


# --- images -------------------------------------------------------------------------------------
def test_the_data_depend_on_the_seed_alone():
    one, again, other = draw_data(20), draw_data(20), draw_data(20, seed=1)
    np.testing.assert_array_equal(one.train.images, again.train.images)
    assert [s.caption for s in one.test.scenes] == [s.caption for s in again.test.scenes]
    assert (one.train.images != other.train.images).any()
    with pytest.raises(ValueError, match="count: expected at least 3 images, got 2"):
        draw_data(2)


# --- models -------------------------------------------------------------------------------------
def test_words_end_where_the_model_ends_them():
    captioner = Captioner.untrained(np.random.default_rng(0), **TINY)
    images = draw_images(draw_scenes(3, np.random.default_rng(1)))
    captioner.model.params["output.bias"][EOS] = 100
    assert [said.words for said in captioner.caption(images)] == [()] * 3
    captioner.model.params["output.bias"][EOS] = -100
    for said in captioner.caption(images, batch_size=2):
        assert len(said.words) == len(said.attention) == 8
        np.testing.assert_allclose(said.attention.sum(axis=1), 1, rtol=0, atol=1e-5)


def test_a_resumed_training_gives_the_same_numbers(tmp_path):
    data = draw_data(40)
    config = TrainingConfig(updates=6, validate_every=2, schedule="halve")
    options = {"batch_size": 8, **TINY}
    begun = RunOptions(tmp_path, progress=False)
    rest = RunOptions(tmp_path, progress=False, resume=True)
    whole, _ = train_captioner(data, config, RunOptions(progress=False), **options)
    train_captioner(data, replace(config, updates=4), begun, **options)  # into the second epoch
    resumed, history = train_captioner(data, config, rest, **options)
    assert history.update == [2, 4, 6]
    for name, x in whole.model.params.items():
        np.testing.assert_array_equal(resumed.model.params[name], x)
