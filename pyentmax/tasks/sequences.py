"""Decoding with a model from sequences to sequences: what inflection and translation share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyentmax.data import Vocabulary
from pyentmax.decoding import (
    ForcedDecoding,
    Hypothesis,
    HypothesisTree,
    JoinableDecodable,
    SearchResult,
    beam_search,
    exact_search,
    forced_decoding,
)
from pyentmax.models.ensemble import Ensemble
from pyentmax.tasks.model_files import SavedModel
from pyentmax.training import CheckpointError


class SequenceDecoder:
    """A model, one network or an ensemble, with its vocabularies.

    Parameters
    ----------
    model : JoinableDecodable
    source, target : Vocabulary
    """

    separator: ClassVar[str] = ""
    """What stands between the tokens of a result."""
    noun: ClassVar[str] = "string"
    """What a result is called."""

    def __init__(
        self, model: JoinableDecodable[Any], source: Vocabulary, target: Vocabulary
    ) -> None:
        self.model = model
        self.source, self.target = source, target

    def token(self, index: int) -> str:
        """The token of the target vocabulary that has this id."""
        return self.target.tokens[index]

    def tree(self, hypotheses: Sequence[Hypothesis]) -> HypothesisTree:
        """Hypotheses as a tree over the tokens of the target vocabulary."""
        return HypothesisTree.build(hypotheses, self.token, separator=self.separator)

    def decode(
        self,
        ids: NDArray[np.int64],
        mask: NDArray[np.bool_] | None = None,
        *,
        search: str = "beam",
        beam: int = 5,
        n_best: int | None = None,
        budget: int = 1000,
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
        **options
            Others of the search: ``max_length``, ``keep_attention``, ``normalize``, ``prove``.

        Raises
        ------
        ValueError
            If there is no such search, or a number is below 1.
        """
        if mask is None:
            mask = np.ones_like(ids, bool)
        if search == "beam":
            return beam_search(self.model, ids, mask, beam=beam, n_best=n_best, **options)
        if search == "exact":
            return exact_search(self.model, ids, mask, n_best=n_best, budget=budget, **options)
        raise ValueError(f"search: expected 'beam' or 'exact', got {search!r}")

    def force_tokens(self, ids: NDArray[np.int64], target: NDArray[np.int64]) -> ForcedDecoding:
        """What the model finds possible at each step of a target, for one source."""
        return forced_decoding(self.model, ids[None], np.ones((1, len(ids)), bool), [target])[0]


class SavedDecoder(SequenceDecoder, SavedModel):
    """A single network with its vocabularies, saved to one file."""

    def description(self) -> dict[str, Any]:
        """Vocabularies, in a form that JSON can hold; a subclass adds its configuration."""
        return {"source": self.source.to_json(), "target": self.target.to_json()}

    def shared(self) -> dict[str, Any]:
        """What has to be the same in models whose probabilities are averaged."""
        return {"source vocabulary": self.source, "target vocabulary": self.target}


Saved = TypeVar("Saved", bound=SavedDecoder)


def load_ensemble(saved: type[Saved], paths: Sequence[str | Path]) -> tuple[Any, Saved]:
    """The network of one checkpoint, or the ensemble of several, and the first of the models.

    Raises
    ------
    CheckpointError
        If a file is damaged, or the models differ in what they have to share.
    ValueError
        If there is no path.
    """
    if not paths:
        raise ValueError("models: expected at least one checkpoint, got none")
    loaded = [saved.load(path) for path in paths]
    first = loaded[0]
    for path, other in zip(paths, loaded, strict=True):
        for name, value in other.shared().items():
            if value != first.shared()[name]:
                raise CheckpointError(
                    f"{path}: its {name} is not that of {paths[0]}: expected models trained on the "
                    "same examples, to average their probabilities"
                )
    if len(loaded) == 1:
        return first.model, first
    return Ensemble([one.model for one in loaded]), first
