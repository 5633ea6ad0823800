"""Training a model of captions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyentmax.data import Batch
from pyentmax.tasks.captions.captioner import Captioner
from pyentmax.tasks.captions.scenes import Scene, draw_images, draw_scenes
from pyentmax.training import History, RunOptions, TrainingConfig

COUNT = 5000
"""Images in all. The last 1,000 are held out: 500 to choose by, 500 to report."""
HELD_OUT = 500
MODEL: dict[str, Any] = {
    "width": 64,
    "layers": 2,
    "heads": 4,
    "inner": 128,
    "dropout": 0.0,
    "norm": "pre",
}
TRAINING: dict[str, Any] = {"updates": 1200, "rate": 2e-3, "validate_every": 200}


class Pictures(NamedTuple):
    """Scenes and their images."""

    scenes: Sequence[Scene]
    images: NDArray[np.uint8]

    def part(self, start: int | None, stop: int | None) -> Pictures:
        """Those from one to before another."""
        return Pictures(self.scenes[start:stop], self.images[start:stop])

    def fingerprint(self) -> str:
        """A text that is the same only for the same images and captions in the same order."""
        digest = hashlib.sha256(self.images.tobytes())
        for scene in self.scenes:
            digest.update(scene.caption.encode())
        return digest.hexdigest()


class CaptionData(NamedTuple):
    """What to learn from, to choose by, and to report."""

    train: Pictures
    dev: Pictures
    test: Pictures


def draw_data(count: int = COUNT, held_out: int = HELD_OUT, seed: int = 0) -> CaptionData:
    """Draw the images of the experiment: the same ones for the same seed.

    Examples
    --------
    >>> [len(part.scenes) for part in draw_data(8, held_out=2)]
    [4, 2, 2]
    """
    if not 0 < 2 * held_out < count:
        raise ValueError(
            f"count: expected more than {2 * held_out} images, twice those held out, got {count}"
        )
    rng = np.random.default_rng(seed)
    scenes = draw_scenes(count, rng)
    every = Pictures(scenes, draw_images(scenes, rng))
    learned = count - 2 * held_out
    last = count - held_out
    return CaptionData(every.part(0, learned), every.part(learned, last), every.part(last, None))


class ImageBatches:
    """Batches of images with their captions, in a new order in each epoch.

    It is a :class:`pyentmax.training.BatchSource`.
    """

    unit = "images"

    def __init__(self, captioner: Captioner, pictures: Pictures, batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
        self.captioner, self.pictures, self.batch_size = captioner, pictures, batch_size

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
    device: str = "cpu",
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
        Where and how to run, as for :func:`pyentmax.training.train`, whose errors may come.
    batch_size : int
        Images per update.
    device : {"cpu", "cuda"}
        Where to compute.
    **model
        Fields of `GridTransformerConfig` but for the sizes.
    """
    captioner = Captioner.untrained(np.random.default_rng(config.seed), **model)
    history = captioner.fit(
        ImageBatches(captioner, data.train, batch_size),
        config,
        lambda: captioner.validate(*data.dev),
        options,
        data={
            "train": data.train.fingerprint(),
            "dev": data.dev.fingerprint(),
            "batch_size": batch_size,
        },
        device=device,
    )
    return captioner, history
