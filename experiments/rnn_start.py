"""How a recurrent network starts: embeddings of another deviation, and PyTorch's initial values.

With a vocabulary of thousands, embeddings of deviation 1 learn faster by far than those of 1/√n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyentmax.engine.system.config import is_positive, require
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.nn.initializers import Generator, Parameters, uniform


@dataclass(frozen=True)
class StartedConfig(RNNSeq2SeqConfig):
    """`RNNSeq2SeqConfig`, and how the model starts.

    Parameters
    ----------
    embedding_std : float, optional
        Standard deviation of the embeddings' entries at the start, 1/√hidden unless given.
    start : {"uniform"}, optional
        How all but the embeddings starts: "uniform" draws weights and biases from ±1/√n for n
        inputs, n units in an encoder, as PyTorch's layers do. Unless given, it starts as it does in
        the library.
    """

    embedding_std: float | None = None
    start: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        std = "embedding_std"
        require(self, std, lambda x: x is None or is_positive(x), "a finite number above 0")
        require(self, "start", lambda x: x in (None, "uniform"), "'uniform' or none")


class StartedRNN(RNNSeq2Seq):
    """An `RNNSeq2Seq` with that start."""

    @classmethod
    def initialize(
        cls, config: Any, rng: Generator, bos: int, eos: int, dtype: Any = np.float32
    ) -> StartedRNN:
        """A model with random parameters drawn from ``rng``."""
        params, n = super().initialize(config, rng, bos, eos, dtype).params, config.hidden
        if config.embedding_std is not None:
            for side in ("source", "target"):
                params[f"{side}_embedding.weight"] *= config.embedding_std * n**0.5
        if config.start == "uniform":
            params |= uniform_start(rng, params, n)
        return cls(config, params, bos, eos)


def uniform_start(rng: Generator, params: Parameters, hidden: int) -> Parameters:
    """All parameters but the embeddings and α, drawn anew from ±1/√n."""
    inputs = {"encoder": hidden // 2, "decoder": hidden, "combine": 2 * hidden}
    started: Parameters = {}
    for name, x in params.items():
        layer = name.partition(".")[0]
        if layer.endswith("_embedding") or name == "attention.alpha_logit":
            continue
        n = inputs.get(layer, hidden)
        if layer == "decoder" and name != "decoder.0.weight" and not name.endswith(".bias"):
            n *= 2  # what comes from below and the state before stand side by side
        started[name] = uniform(rng, x.shape, n**-0.5, x.dtype)
    return started
