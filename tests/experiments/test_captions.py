"""Captions: what images show, and what a model says of them."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.own.captioning import (
    Captioner,
    Scene,
    cells_of,
    draw_data,
    draw_images,
    draw_scenes,
    train_captioner,
)
from experiments.own.captioning.scenes import CELL, COLOURS, DISTRACTORS, GRID, RELATIONS, SHAPES
from pyentmax.seq2seq.data import EOS
from pyentmax.seq2seq.training import RunOptions, TrainingConfig

TINY = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "dropout": 0.0}


# --- images -------------------------------------------------------------------------------------
def test_scenes_hold_what_their_captions_say():
    scenes = draw_scenes(400, np.random.default_rng(3))
    fewest, most = DISTRACTORS
    for scene in scenes:
        first, second = (np.array(divmod(c, GRID)) for c in (scene.subject, scene.partner))
        assert (first == second).sum() == 1  # one row or one column
        colour, shape, *relation, colour2, shape2 = scene.caption.split()
        for cell, name in ((scene.subject, (colour, shape)), (scene.partner, (colour2, shape2))):
            kind = SHAPES.index(name[1]) * len(COLOURS) + list(COLOURS).index(name[0])
            assert scene.shapes.flat[cell] == kind
        down, right = RELATIONS[" ".join(relation)]
        assert tuple(np.sign(second - first)) == (down, right)
        assert fewest <= (scene.shapes >= 0).sum() - 2 <= most
        assert len(scene.sought()) == len(scene.caption.split())
    assert {r for s in scenes for r in RELATIONS if f" {r} " in s.caption} == set(RELATIONS)


def test_images_show_the_shapes_and_two_frames():
    shapes = np.full((GRID, GRID), -1)
    shapes[1, 2] = shapes[1, 5] = SHAPES.index("square") * len(COLOURS) + list(COLOURS).index("red")
    [image] = draw_images([Scene(shapes, GRID + 2, GRID + 5)])
    cells = image.reshape(GRID, CELL, GRID, CELL, 3).swapaxes(1, 2)
    red = np.rint(255 * np.array(COLOURS["red"]))
    np.testing.assert_array_equal(cells[1, 2, 1:-1, 1:-1], np.broadcast_to(red, (6, 6, 3)))
    assert (cells[1, 2, 0] == 255).all()
    assert 120 < cells[1, 5, 0].min() == cells[1, 5, 0].max() < 160
    empty = shapes < 0
    assert (cells[empty] == cells[0, 0, 0, 0, 0]).all()
    features = cells_of(image[None])
    np.testing.assert_array_equal(features[0, GRID + 2], features[0].reshape(8, 8, -1)[1, 2])
    assert (features[0, 0] == features[0, 0, 0]).all()


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
