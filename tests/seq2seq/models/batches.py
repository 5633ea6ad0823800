"""The batch that models of sequences are tested on."""

import numpy as np

from pyentmax.seq2seq.data import Batch

SOURCE = np.array([[4, 5, 6, 7], [5, 4, 3, 0], [6, 6, 0, 0]])
SOURCE_MASK = SOURCE > 0
TARGET_IN = np.array([[1, 3, 4], [1, 4, 0], [1, 5, 3]])
TARGET_OUT = np.array([[3, 4, 2], [4, 2, 0], [5, 3, 2]])
TARGET_MASK = TARGET_OUT > 0
BATCH = Batch(SOURCE, SOURCE_MASK, TARGET_IN, TARGET_OUT, TARGET_MASK, np.arange(3))


def loss_of(model, params, seed=None):
    rng = None if seed is None else np.random.default_rng(seed)
    return model.loss(params, BATCH, rng)
