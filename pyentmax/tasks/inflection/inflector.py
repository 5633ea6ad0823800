"""A model together with its vocabularies: created, validated, saved to one file and loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.data import BOS, EOS, Vocabulary, bucketed_batches, make_batch
from pyentmax.decoding import greedy_search
from pyentmax.models.ensemble import Ensemble
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.inflection.decoder import WordDecoder
from pyentmax.tasks.inflection.examples import Example, source_tokens, target_tokens
from pyentmax.tasks.model_files import best_of, described_model, reading
from pyentmax.training import (
    CheckpointError,
    Validation,
    load_checkpoint,
    save_checkpoint,
)

KIND = "inflection model"


class Inflector(WordDecoder):
    """A single sequence-to-sequence model of word forms, with its vocabularies.

    Parameters
    ----------
    model : RNNSeq2Seq
    source, target : Vocabulary
        Of tags and characters, and of the characters of forms.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.tasks.inflection import Example
    >>> verbs = [Example("play", "played", ("V", "PST")), Example("walk", "walked", ("V", "PST"))]
    >>> inflector = Inflector.untrained(verbs, np.random.default_rng(0), hidden=8)
    >>> len(inflector.source), len(inflector.target)
    (12, 12)
    """

    model: RNNSeq2Seq

    @classmethod
    @limit_blas()
    def untrained(
        cls, examples: Sequence[Example], rng: np.random.Generator, **config: Any
    ) -> Inflector:
        """A model with random parameters, and vocabularies of what occurs in the examples.

        Parameters
        ----------
        rng : numpy.random.Generator
            Draws the parameters.
        **config
            Fields of :class:`pyentmax.models.rnn_seq2seq.RNNSeq2SeqConfig` but for the two sizes.
        """
        source = Vocabulary.build(source_tokens(example) for example in examples)
        target = Vocabulary.build(target_tokens(example.form) for example in examples)
        shape = RNNSeq2SeqConfig(source_size=len(source), target_size=len(target), **config)
        model = RNNSeq2Seq.initialize(shape, rng, bos=BOS, eos=EOS)
        return cls(model, source, target)

    # --- training ---------------------------------------------------------------------------------
    @limit_blas()
    def validate(self, examples: Sequence[Example], batch_size: int = 128) -> Validation:
        """Mean loss per token, and share of forms that greedy search gets entirely right."""
        pairs = self.pairs(examples)
        loss: Any = 0.0
        tokens = right = 0.0
        for index in bucketed_batches(pairs, batch_size):
            batch = make_batch(pairs, index)
            mean = self.model.loss(self.model.params, batch)
            count = float(batch.target_mask.sum())
            loss = loss + count * mean.data.astype(np.float64)
            if not np.isfinite(float(loss)):  # nothing to decode
                return Validation(float(loss), 0.0)
            tokens += count
            greedy = greedy_search(self.model, batch.source, batch.source_mask)
            for i, found in zip(index, greedy, strict=True):
                # Compared as strings: a form with an unknown character is never right.
                right += self.form(found) == examples[i].form
        return Validation(float(loss) / tokens, right / len(pairs))

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """The model's configuration and vocabularies, in a form that JSON can hold."""
        return {
            "config": asdict(self.model.config),
            "source": self.source.to_json(),
            "target": self.target.to_json(),
        }

    def save(self, path: str | Path) -> None:
        """Write the model with its vocabularies to one ``.npz``, by `save_checkpoint`."""
        save_checkpoint(path, self.model.params, {"kind": KIND, **self.description()})

    @classmethod
    @limit_blas()
    def load(cls, path: str | Path) -> Inflector:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        path : str or Path
            The file, or the folder of a run that has a ``best.npz``.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        CheckpointError
            If the file is damaged, of another kind, its parts do not fit together, or a parameter
            is not finite.
        """
        path = best_of(path)
        params, meta = load_checkpoint(path, KIND)
        with reading(path):
            model, source, target = described_model(RNNSeq2Seq, RNNSeq2SeqConfig, params, meta)
        return cls(model, source, target)


def load_word_decoder(paths: Sequence[str | Path]) -> WordDecoder:
    """The model of one checkpoint, or the ensemble of several with the same vocabularies.

    Each path is as for :meth:`Inflector.load`.

    Raises
    ------
    CheckpointError
        If a file is damaged, or the models do not know the same characters, tags and languages in
        the same order, which models trained on the same examples do.
    ValueError
        If there is no path.
    """
    loaded = [Inflector.load(path) for path in paths]
    if len(loaded) == 1:
        return loaded[0]
    ensemble = Ensemble([inflector.model for inflector in loaded])
    first = loaded[0]
    for path, other in zip(paths, loaded, strict=True):
        for name in ("source", "target"):
            ours, theirs = (set(getattr(x, name).tokens) for x in (first, other))
            if getattr(first, name) != getattr(other, name):
                differ = " ".join(sorted(ours ^ theirs)) or "the order"
                raise CheckpointError(
                    f"{path}: its {name} vocabulary is not that of {paths[0]} ({differ}): expected "
                    "models trained on the same examples, to average their probabilities"
                )
    return WordDecoder(ensemble, first.source, first.target)
