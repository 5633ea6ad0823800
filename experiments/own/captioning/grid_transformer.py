"""A Transformer whose source is a grid of features, such as the parts of an image.

    x_i = W f_i + (row of i, column of i)        for the features f_i of cell i

Then come the feed-forward networks of the encoder, each cell by itself, and the decoder of
`pyentmax.seq2seq.models.transformer` as it is, attending to the cells. The cells do not attend to
each other: what the decoder finds in a cell was in the image there, so that its attention says
where it looked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.engine.system.config import is_count, require
from pyentmax.seq2seq.autograd import Tensor, dropout
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.nn.initializers import Generator, Parameters
from pyentmax.seq2seq.nn.linear import init_linear, linear
from pyentmax.seq2seq.nn.positions import sinusoidal_positions


def grid_positions(rows: int, columns: int, width: int, dtype: Any = np.float32) -> Array:
    """Encodings (rows · columns, width) of a grid's cells, row by row: half the features of each
    encode the cell's row, the other half its column.

    Examples
    --------
    >>> grid_positions(2, 2, 4, np.float64).round(2)
    array([[0.  , 1.  , 0.  , 1.  ],
           [0.  , 1.  , 0.84, 0.54],
           [0.84, 0.54, 0.  , 1.  ],
           [0.84, 0.54, 0.84, 0.54]])
    """
    if width % 4:
        raise ValueError(f"width: expected a multiple of 4 for a grid, got {width}")
    row, column = np.divmod(np.arange(rows * columns), columns)
    halves = [sinusoidal_positions(place, width // 2, dtype) for place in (row, column)]
    return np.concatenate(halves, axis=-1)


@dataclass(frozen=True)
class GridTransformerConfig(TransformerConfig):
    """The sizes and mappings of a model that reads a grid.

    Parameters
    ----------
    source_size : int
        Features of a cell.
    rows, columns : int
        Of the grid.

    The others are those of `TransformerConfig`; ``layers`` are the networks of the encoder and the
    layers of the decoder. The width is a multiple of 4, half of it for the row, half for the
    column.

    Raises
    ------
    ValueError
        As for `TransformerConfig`, or if ``tied`` is "all": features have no vocabulary.
    """

    rows: int = 8
    columns: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "rows columns", is_count, "a whole number from 1 up")
        require(self, "width", lambda n: n % 4 == 0, "a multiple of 4 for a grid")
        if self.tied == "all":
            raise ValueError("tied: 'all' needs a vocabulary on both sides, and a grid has none")

    @property
    def encoder_attends(self) -> bool:
        """Whether the cells attend to each other: they do not."""
        return False

    @property
    def cells(self) -> int:
        """How many cells the grid has."""
        return self.rows * self.columns


class GridTransformer(Transformer):
    """A model: its configuration and a flat dict of parameter arrays.

    Sources are (batch, cells, features) arrays of floats, the cells row by row, and their masks
    (batch, cells), in all methods of `Transformer`.

    Examples
    --------
    >>> import numpy as np
    >>> config = GridTransformerConfig(3, 7, width=8, layers=1, heads=2, inner=8, rows=2, columns=2)
    >>> model = GridTransformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    >>> cells = np.ones((1, 4, 3), np.float32)
    >>> step, state = model.step(model.encode(cells, np.ones((1, 4), bool)), np.array([model.bos]))
    >>> step.log_prob.shape, step.attention.shape
    ((1, 7), (1, 4))
    """

    config: GridTransformerConfig

    @classmethod
    def _source_parameters(
        cls, config: TransformerConfig, rng: Generator, dtype: Any
    ) -> Parameters:
        return init_linear(rng, "cell", config.source_size, config.width, dtype=dtype)

    def _check_source(self, source: Array, mask: Array) -> None:
        expected = (self.config.cells, self.config.source_size)
        if source.ndim != 3 or source.shape[1:] != expected:
            raise ValueError(
                f"source: expected (batch, cells, features) = (batch, {expected[0]}, "
                f"{expected[1]}), got shape {source.shape}"
            )

    def _embed_source(self, params: Parameters, source: Array, rng: Generator | None) -> Tensor:
        config = self.config
        x = linear(params, "cell", source)
        places = grid_positions(config.rows, config.columns, config.width, x.dtype)
        return dropout(x + np.asarray(places), config.dropout, rng)
