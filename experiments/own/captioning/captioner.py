"""A model of captions with its vocabulary: trained, saved, loaded, and asked what it sees."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from experiments.own.captioning.grid_transformer import GridTransformer, GridTransformerConfig
from experiments.own.captioning.scenes import (
    COLOURS,
    FEATURES,
    GRID,
    RELATIONS,
    SHAPES,
    CaptionData,
    Pictures,
    Scene,
    cells_of,
)
from experiments.tasks import fit
from pyentmax.seq2seq.data import BOS, EOS, SPECIALS, Batch, Vocabulary, make_batch
from pyentmax.seq2seq.inflection.saved_model import SavedModel
from pyentmax.seq2seq.models.transformer import Transformer
from pyentmax.seq2seq.training import History, RunOptions, TrainingConfig, Validation, fingerprint

LONGEST = 8
"""Words after which a caption is cut off; none has more than six."""


class Captioned(NamedTuple):
    """What a model says of an image, and where it looks.

    Attributes
    ----------
    words : tuple of str
        The most probable word at each step.
    attention : (words, 64) array
        For each word, the weights of the cells in the last layer, the mean of its heads.
    """

    words: tuple[str, ...]
    attention: NDArray[np.floating[Any]]


class Captioner(SavedModel):
    """A Transformer over the cells of an image, with the vocabulary of its captions.

    Examples
    --------
    >>> from experiments.own.captioning.scenes import draw_images, draw_scenes
    >>> rng = np.random.default_rng(0)
    >>> captioner = Captioner.untrained(rng, width=8, layers=1, heads=2, inner=8)
    >>> [found] = captioner.caption(draw_images(draw_scenes(1, rng)))
    >>> found.attention.shape == (len(found.words), 64)
    True
    """

    kind = "caption model"

    def __init__(self, model: Transformer, vocabulary: Vocabulary) -> None:
        self.model = model
        self.vocabulary = vocabulary

    @classmethod
    def untrained(cls, rng: np.random.Generator, **config: Any) -> Self:
        """A model with random parameters; ``config`` are fields of `GridTransformerConfig`."""
        words = [*COLOURS, *SHAPES, *" ".join(RELATIONS).split()]
        vocabulary = Vocabulary((*SPECIALS, *sorted(set(words))))
        shape = GridTransformerConfig(FEATURES, len(vocabulary), rows=GRID, columns=GRID, **config)
        return cls(GridTransformer.initialize(shape, rng, bos=BOS, eos=EOS), vocabulary)

    def caption(self, images: NDArray[np.uint8], batch_size: int = 128) -> list[Captioned]:
        """The most probable caption of each image, word by word."""
        found = []
        for start in range(0, len(images), batch_size):
            cells = cells_of(images[start : start + batch_size])
            state = self.model.encode(cells, np.ones(cells.shape[:2], bool))
            tokens = np.full(len(cells), self.model.bos)
            written, looked = [], []
            for _ in range(LONGEST):
                step, state = self.model.step(state, tokens)
                tokens = step.log_prob.argmax(axis=1)
                written.append(tokens)
                looked.append(step.attention)
            for ids, attention in zip(np.stack(written, 1), np.stack(looked, 1), strict=True):
                ends = np.flatnonzero(ids == self.model.eos)
                length = int(ends[0]) if len(ends) else LONGEST
                words = self.vocabulary.decode(ids[:length])
                found.append(Captioned(tuple(words), attention[:length]))
        return found

    def validate(
        self, scenes: Sequence[Scene], images: NDArray[np.uint8], batch_size: int = 128
    ) -> Validation:
        """Mean loss per word, and the share of captions that are right in every word."""
        loss, words = 0.0, 0
        for batch in self.batches(scenes, images, batch_size):
            count = int(batch.target_mask.sum())
            loss += count * float(self.model.loss(self.model.params, batch).data)
            words += count
        right = [
            " ".join(said.words) == scene.caption
            for said, scene in zip(self.caption(images, batch_size), scenes, strict=True)
        ]
        return Validation(loss / words, float(np.mean(right)))

    def batches(
        self,
        scenes: Sequence[Scene],
        images: NDArray[np.uint8],
        batch_size: int,
        order: NDArray[np.int64] | None = None,
    ) -> Iterator[Batch]:
        """Batches of images with their captions, in their order or another one."""
        order = np.arange(len(scenes)) if order is None else order
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            words = [scenes[i].caption.split() for i in chosen]
            pairs = [(np.arange(GRID * GRID), self.vocabulary.encode(caption)) for caption in words]
            batch = make_batch(pairs, np.arange(len(pairs)))
            yield replace(batch, source=cells_of(images[chosen]), index=chosen)

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """Configuration and vocabulary, in a form that JSON can hold."""
        return {"config": asdict(self.model.config), "words": self.vocabulary.to_json()}

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these parameters and this description."""
        config = GridTransformerConfig(**description["config"])
        vocabulary = Vocabulary.from_json(description["words"])
        return cls(GridTransformer(config, arrays, BOS, EOS), vocabulary)


class ImageBatches:
    """Batches of images with their captions, in a new order in each epoch.

    It is a :class:`pyentmax.seq2seq.training.BatchSource`.
    """

    unit = "images"

    def __init__(self, captioner: Captioner, pictures: Pictures, batch_size: int) -> None:
        self.captioner = captioner
        self.pictures = pictures
        self.batch_size = batch_size

    def epoch(self, rng: np.random.Generator) -> Iterator[Batch]:
        """The batches of one epoch, in an order that *rng* draws."""
        order = rng.permutation(len(self.pictures.scenes))
        return self.captioner.batches(*self.pictures, self.batch_size, order)

    def count(self, batch: Batch) -> int:
        """The number of images."""
        return len(batch)


def train_captioner(
    data: CaptionData,
    config: TrainingConfig,
    options: RunOptions | None = None,
    *,
    batch_size: int = 64,
    **model: Any,
) -> tuple[Captioner, History]:
    """Train a model of captions; returns it with its history.

    Parameters
    ----------
    data : CaptionData
        Such as :func:`draw_data` makes. The best model is that with the most dev captions right.
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    options : RunOptions, optional
        Where and how to run, as for :func:`pyentmax.seq2seq.training.train`, whose errors may come.
    batch_size : int
        Images per update.
    **model
        Fields of `GridTransformerConfig` but for the sizes.
    """
    captioner = Captioner.untrained(np.random.default_rng(config.seed), **model)
    history = fit(
        captioner,
        ImageBatches(captioner, data.train, batch_size),
        config,
        lambda: captioner.validate(*data.dev),
        options,
        data={
            "train": _fingerprint(data.train),
            "dev": _fingerprint(data.dev),
            "batch_size": batch_size,
        },
    )
    return captioner, history


def _fingerprint(pictures: Pictures) -> str:
    captions = [scene.caption for scene in pictures.scenes]
    return fingerprint([captions, hashlib.sha256(pictures.images.tobytes()).hexdigest()])
