"""Models from sequences to sequences: what inflection and translation share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pyentmax.seq2seq.data import Batch, Pair, Vocabulary, bucketed_batches, make_batch
from pyentmax.seq2seq.decoding import (
    Constrained,
    ForcedDecoding,
    Hypothesis,
    HypothesisTree,
    SearchResult,
    Truncated,
    beam_search,
    exact_search,
    forced_decoding,
)
from pyentmax.seq2seq.models.ensemble import Ensemble
from pyentmax.seq2seq.tasks.model_files import SavedModel
from pyentmax.seq2seq.training import CheckpointError, counting


class SequenceModel(SavedModel):
    """A network with its vocabularies; or an `Ensemble` with them, to decode with only.

    Parameters
    ----------
    model : RNNSeq2Seq, Transformer or Ensemble
    source, target : Vocabulary
    """

    separator: ClassVar[str] = ""
    """What stands between the tokens of a result."""
    noun: ClassVar[str] = "string"
    """What a result is called."""

    def __init__(self, model: Any, source: Vocabulary, target: Vocabulary) -> None:
        self.model = model
        self.source = source
        self.target = target

    def token(self, index: int) -> str:
        """The token of the target vocabulary that has this id."""
        return self.target.tokens[index]

    def tree(self, hypotheses: Sequence[Hypothesis]) -> HypothesisTree:
        """Hypotheses as a tree over the tokens of the target vocabulary."""
        return HypothesisTree.build(hypotheses, self.token, separator=self.separator)

    # --- decoding ---------------------------------------------------------------------------------
    def decode(
        self,
        ids: NDArray[np.int64],
        mask: NDArray[np.bool_] | None = None,
        *,
        search: str = "beam",
        beam: int = 5,
        n_best: int | None = None,
        budget: int = 1000,
        keep: str | None = None,
        min_length: int = 0,
        no_repeat_ngram: int | None = None,
        **options: Any,
    ) -> list[SearchResult]:
        """What the model finds possible for each source of a batch.

        Parameters
        ----------
        ids, mask : (batch, length) arrays
            Source tokens, and which of them are not padding: all, if there is no mask.
        search : {"beam", "exact"}
            `beam_search`, which may lose hypotheses and says so, or `exact_search`, which proves.
        beam : int, default 5
            Number of open prefixes that the beam keeps at each step.
        n_best : int, optional
            The exact search stops once this many hypotheses are proved the best, the beam once no
            open prefix can change them. If not given, they look for all.
        budget : int, default 1000
            Largest number of prefixes that the exact search expands.
        keep : str, optional
            A keep-set to truncate each step to, such as ``"min_p=0.05"``: `Truncated`.
        min_length, no_repeat_ngram : int, optional
            The fewest tokens of a result; how many of them do not repeat in order: `Constrained`.
        **options
            Others of the search: ``max_length``, ``keep_attention``, ``normalize``, ``prove``.

        Raises
        ------
        ValueError
            If there is no such search, or a number is below 1.
        """
        if mask is None:
            mask = np.ones_like(ids, bool)
        model: Any = self.model if keep is None else Truncated(self.model, keep)
        if constrains := bool(min_length or no_repeat_ngram is not None):
            model = Constrained(model, min_length, no_repeat_ngram)
        options["n_best"] = n_best
        if search == "beam":
            result = beam_search(model, ids, mask, beam=beam, **options)
        elif search == "exact":
            result = exact_search(model, ids, mask, budget=budget, **options)
        else:
            raise ValueError(f"search: expected 'beam' or 'exact', got {search!r}")
        return model.certified(result) if constrains else result

    def force_tokens(self, ids: NDArray[np.int64], target: NDArray[np.int64]) -> ForcedDecoding:
        """What the model finds possible at each step of a target, for one source."""
        return forced_decoding(self.model, ids[None], np.ones((1, len(ids)), bool), [target])[0]

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """Configuration and vocabularies, in a form that JSON can hold."""
        vocabularies = {"source": self.source.to_json(), "target": self.target.to_json()}
        return {"config": asdict(self.model.config), **vocabularies}

    def shared(self) -> dict[str, Any]:
        """What has to be the same in models whose probabilities are averaged."""
        return {"source vocabulary": self.source, "target vocabulary": self.target}

    @classmethod
    def load_ensemble(cls, paths: Sequence[str | Path]) -> Self:
        """The model of one checkpoint, or the ensemble of several.

        Raises
        ------
        CheckpointError
            If a file is damaged, or the models differ in what they have to share.
        ValueError
            If there is no path.
        """
        if not paths:
            raise ValueError("models: expected at least one checkpoint, got none")
        first, *others = loaded = [cls.load(path) for path in paths]
        for path, other in zip(paths[1:], others, strict=True):
            for name, value in other.shared().items():
                if value != first.shared()[name]:
                    raise CheckpointError(
                        f"{path}: its {name} is not that of {paths[0]}: expected models trained on "
                        "the same examples, to average their probabilities"
                    )
        if others:
            first.model = Ensemble([one.model for one in loaded])
        return first


def batches_of(
    pairs: Sequence[Pair], batch_size: int, unit: str, progress: bool
) -> Iterator[Batch]:
    """Batches of pairs of similar lengths, with a bar if asked for."""
    with counting(len(pairs), unit, progress) as advance:
        for index in bucketed_batches(pairs, batch_size):
            yield make_batch(pairs, index)
            advance(len(index))
