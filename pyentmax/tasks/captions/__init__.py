"""Captions: images that the library draws, models that say what they show, and where they look."""

from pyentmax.tasks.captions.captioner import Captioned, Captioner
from pyentmax.tasks.captions.scenes import Scene, cells_of, draw_images, draw_scenes
from pyentmax.tasks.captions.training import (
    CaptionData,
    ImageBatches,
    Pictures,
    draw_data,
    train_captioner,
)

__all__ = [
    "CaptionData",
    "Captioned",
    "Captioner",
    "ImageBatches",
    "Pictures",
    "Scene",
    "cells_of",
    "draw_data",
    "draw_images",
    "draw_scenes",
    "train_captioner",
]
