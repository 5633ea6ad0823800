"""Models with all that it takes to use them: trained, saved, loaded, searched.

What each task builds on: `SavedModel` of any model, `SequenceModel` from sequences to sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pyentmax.seq2seq.data import Batch, Pair, Vocabulary, bucketed_batches, make_batch
from pyentmax.seq2seq.decoding import (
    ForcedDecoding,
    Hypothesis,
    HypothesisTree,
    SearchResult,
    beam_search,
    exact_search,
    forced_decoding,
)
from pyentmax.seq2seq.models.ensemble import Ensemble
from pyentmax.seq2seq.training import (
    BEST,
    LAST,
    CheckpointError,
    counting,
    load_checkpoint,
    save_checkpoint,
)


def best_of(path: str | Path) -> Path:
    """The file of a model, given itself or the folder of a run.

    Raises
    ------
    FileNotFoundError
        If the run has not been validated yet, so that there is no best model.
    """
    path = Path(path)
    if not path.is_dir():
        return path
    if not (path / BEST).exists() and (path / LAST).exists():
        raise FileNotFoundError(
            f"no {BEST} in {path}: the first validation writes it; continue the training with "
            "--resume"
        )
    return path / BEST


class SavedModel:
    """A model with all that it takes to use it, saved to one file.

    A subclass names its ``kind`` of checkpoint, describes itself and restores itself from that
    description.
    """

    kind: ClassVar[str]
    model: Any

    def description(self) -> dict[str, Any]:
        """Configuration and vocabularies, in a form that JSON can hold."""
        raise NotImplementedError

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these arrays and this description."""
        raise NotImplementedError

    def arrays(self) -> dict[str, Any]:
        """Arrays that are saved in addition to the description: the parameters."""
        return dict(self.model.params)

    def save(self, path: str | Path) -> None:
        """Write the model with all that belongs to it to one ``.npz``, by `save_checkpoint`."""
        save_checkpoint(path, self.arrays(), {"kind": self.kind, **self.description()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote, from the file or from the folder of a run.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        CheckpointError
            If the file is damaged, of another kind, or its parts do not fit together.
        """
        path = best_of(path)
        arrays, description = load_checkpoint(path, cls.kind)
        try:
            loaded = cls.restore(arrays, description)
            loaded.model.check_parameters()
        except (KeyError, TypeError, ValueError, MemoryError) as error:
            raise CheckpointError(
                f"{path}: parts are missing or do not fit together ({error}); was it written by "
                "another version?"
            ) from error
        return loaded


def saved_config(description: dict[str, Any]) -> dict[str, Any]:
    """The configuration in a description, without options of earlier models that were not used."""
    gone = ("fertility", "embedding_std", "start")
    return {k: x for k, x in description["config"].items() if x is not None or k not in gone}


class SequenceModel(SavedModel):
    """A network with its vocabularies; or an `Ensemble` with them, to decode with only.

    Parameters
    ----------
    model : RNNSeq2Seq, Transformer or Ensemble
    source, target : Vocabulary
    """

    separator: ClassVar[str] = ""
    """Text between the tokens of a result."""
    noun: ClassVar[str] = "string"
    """Word for a result, in messages."""

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
        **options: Any,
    ) -> list[SearchResult]:
        """Outputs that the model finds possible, for each source of a batch.

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
        options["n_best"] = n_best
        if search == "beam":
            return beam_search(self.model, ids, mask, beam=beam, **options)
        if search == "exact":
            return exact_search(self.model, ids, mask, budget=budget, **options)
        raise ValueError(f"search: expected 'beam' or 'exact', got {search!r}")

    def force_tokens(self, ids: NDArray[np.int64], target: NDArray[np.int64]) -> ForcedDecoding:
        """Tokens that the model finds possible at each step of a target, for one source."""
        return forced_decoding(self.model, ids[None], np.ones((1, len(ids)), bool), [target])[0]

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """Configuration and vocabularies, in a form that JSON can hold."""
        vocabularies = {"source": self.source.to_json(), "target": self.target.to_json()}
        return {"config": asdict(self.model.config), **vocabularies}

    def shared(self) -> dict[str, Any]:
        """The parts that must be equal in models whose probabilities are averaged."""
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
