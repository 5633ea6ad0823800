"""The base of all models: configuration, parameters, output mapping, and their checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from pyentmax.engine.system.config import is_count, is_number, require, store_python_numbers
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.models.protocol import Step
from pyentmax.seq2seq.nn.attention import LEARNED
from pyentmax.seq2seq.nn.initializers import Generator, Outline, Parameters
from pyentmax.seq2seq.nn.mapping_choice import ChosenMapping, choose_mapping


class EncoderDecoder(ABC):
    """A model: its configuration and a flat dict of parameter arrays.

    An architecture adds ``initialize``, the loss and scores of training, ``advance``, and the other
    methods of :class:`pyentmax.seq2seq.models.protocol.Decodable`.

    Parameters
    ----------
    config : RNNSeq2SeqConfig, TransformerConfig or another
        With the output mapping as ``output``.
    params : dict of arrays
        As ``initialize`` makes them.
    bos, eos : int
        Ids of the target tokens that begin and end a sequence.
    """

    def __init__(self, config: Any, params: Parameters, bos: int, eos: int) -> None:
        self.config: Any = config
        self.params: Parameters = params
        self.bos = bos
        self.eos = eos
        self.output: ChosenMapping = choose_mapping(config.output)

    @classmethod
    @abstractmethod
    def initialize(
        cls, config: Any, rng: Generator, bos: int, eos: int, dtype: Any = np.float32
    ) -> EncoderDecoder:
        """A model with random parameters drawn from ``rng``."""

    def check_parameters(self) -> None:
        """Raise a ValueError unless the parameters fit the configuration and are finite."""
        params = self.params
        # Nothing larger than what is there is made; some parameters are drawn twice.
        outline = Outline(2 * sum(x.size for x in params.values()))
        expected = self.initialize(self.config, outline, self.bos, self.eos).params
        for name in sorted(expected.keys() | params.keys()):
            shapes = [p[name].shape if name in p else "none" for p in (expected, params)]
            if shapes[0] != shapes[1]:
                raise ValueError(f"parameter {name}: expected shape {shapes[0]}, got {shapes[1]}")
            if not np.isfinite(params[name]).all():
                raise ValueError(f"parameter {name}: expected finite numbers, got NaN or infinity")
        dtypes = {str(x.dtype) for x in params.values()}
        if dtypes not in ({"float32"}, {"float64"}):
            raise ValueError(
                f"parameters: expected all float32 or all float64, got {', '.join(sorted(dtypes))}"
            )

    @abstractmethod
    def advance(self, state: Any, tokens: Array) -> tuple[Array, Array, Any]:
        """Read one token per row; return the scores of the next, the attention, the new state."""

    def step(self, state: Any, tokens: Array, prove: bool = True) -> tuple[Step, Any]:
        """Read one token per row; return what may come next, and the new state."""
        scores, attention, state = self.advance(state, tokens)
        if not prove:
            log_prob, support = self.output.log_probabilities(scores)
            return Step(log_prob, support, attention), state
        log_prob, support, unseen = self.output.certified(scores)
        return Step(log_prob, support, attention, unseen), state

    @property
    def output_is_sparse(self) -> bool:
        """Whether the output mapping can give a token the probability 0, and this is proved."""
        return self.output.proves_zeros


def check_config(config: Any, sizes: str, rates: str) -> None:
    """Raise a ValueError unless sizes are positive, rates below 1, the output a distribution.

    The fields have their names separated by spaces. NumPy's numbers become Python's.
    """
    store_python_numbers(config)
    require(config, sizes, is_count, "a whole number from 1 up")
    require(config, rates, lambda x: is_number(x) and 0 <= x < 1, "a rate in [0, 1)")
    if config.output == LEARNED:
        raise ValueError(
            "output: expected a fixed α or a mapping's name; only the attention's α can be "
            f"{LEARNED!r}, since the loss L_α falls as α grows, whatever the scores, so that "
            "training would only drive α to its bound"
        )
    check_distribution(choose_mapping(config.output))


def check_distribution(mapping: ChosenMapping) -> None:
    """Raise a ValueError unless what the mapping gives sums to 1, as chances do."""
    if not (mapping.record.on_simplex or mapping.params == (1.0,)):
        raise ValueError(
            f"output: expected a mapping to probabilities that sum to 1, got {mapping.name} with "
            f"a sum of {mapping.params[0]}"
        )


def check_sources(source: Array, mask: Array, size: int) -> None:
    """Refuse an empty source, and ids that a vocabulary of this size does not have."""
    source, mask = np.asarray(source), np.asarray(mask, bool)
    if not mask.any(axis=1).all():
        empty = int(np.flatnonzero(~mask.any(axis=1))[0])
        raise ValueError(f"source_mask: row {empty} has no token to attend to")
    strange = mask & ((source < 0) | (source >= size))
    if strange.any():
        raise ValueError(
            f"source: expected token ids from 0 to {size - 1}, got {source[strange][0]}"
        )
