"""The Transformer over a grid: its gradients, who sees what, and what it refuses."""

import numpy as np
import pytest
from finite_differences import assert_parameter_gradients

from experiments.own.captioning.grid_transformer import (
    GridTransformer,
    GridTransformerConfig,
    grid_positions,
)
from pyentmax.seq2seq.data import Batch
from pyentmax.seq2seq.nn.positions import sinusoidal_positions

TARGET_IN = np.array([[1, 3, 4], [1, 5, 0]])
TARGET_OUT = np.array([[3, 4, 2], [5, 2, 0]])
CELLS = np.random.default_rng(7).normal(size=(2, 6, 3))
MASK = np.ones((2, 6), bool)
BATCH = Batch(CELLS, MASK, TARGET_IN, TARGET_OUT, TARGET_OUT > 0, np.arange(2))
ATOL_STEP = 1e-12  # the same sums in another order, of numbers of size 1


def small(seed=0, **changes):
    sizes = {"width": 8, "layers": 2, "heads": 2, "inner": 6, "rows": 2, "columns": 3}
    config = GridTransformerConfig(3, 6, **{"dropout": 0.0} | sizes | changes)
    rng = np.random.default_rng(seed)
    return GridTransformer.initialize(config, rng, bos=1, eos=2, dtype=np.float64)


@pytest.mark.parametrize("changes", [{}, {"attention": "learned", "norm": "pre"}])
def test_gradient_of_every_parameter(changes):
    model = small(**{"layers": 1} | changes)
    assert_parameter_gradients(model.params, lambda params: model.loss(params, BATCH))


def test_steps_equal_training_scores():
    model = small()
    scores = model.scores(model.params, CELLS, MASK, TARGET_IN).data
    state = model.encode(CELLS, MASK)
    for place in range(3):
        step, state = model.step(state, TARGET_IN[:, place])
        expected, *_ = model.output.certified(scores[:, place])
        seen = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(step.log_prob), seen)
        np.testing.assert_allclose(
            step.log_prob[seen], expected[seen], rtol=0, atol=1e3 * ATOL_STEP
        )


def test_cells_are_encoded_independently():
    # So what the decoder reads in a cell was in the image there.
    model = small()
    changed = CELLS.copy()
    changed[:, 4] += 1
    before, after = (model.encode(x, MASK).shared.part[-1] for x in (CELLS, changed))
    for a, b in zip(before, after, strict=True):
        differs = np.abs(a - b).max(axis=(0, 2)) > ATOL_STEP
        np.testing.assert_array_equal(differs, np.arange(6) == 4)
    assert not [name for name in model.params if name.startswith("encoder") and "self" in name]
    assert small(attention="learned").alphas().keys() == {"decoder", "context"}


def test_grid_position_changes_the_encoding():
    model = small()
    same = np.broadcast_to(CELLS[:, :1], CELLS.shape)
    keys = model.encode(same, MASK).shared.part[-1][0]
    assert min(np.abs(keys[0, i] - keys[0, j]).max() for i in range(6) for j in range(i)) > 1e-3


def test_grid_cells_are_encoded_by_row_and_column():
    found = grid_positions(3, 5, 8, np.float64).reshape(3, 5, 8)
    line = sinusoidal_positions(np.arange(5), 4, np.float64)
    for row, column in np.ndindex(3, 5):
        np.testing.assert_array_equal(found[row, column, :4], line[row])
        np.testing.assert_array_equal(found[row, column, 4:], line[column])
    with pytest.raises(ValueError, match="width: expected a multiple of 4 for a grid, got 6"):
        grid_positions(2, 2, 6)
