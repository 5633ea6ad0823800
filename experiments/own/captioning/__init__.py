"""Captions: images that the library draws, models that say what they show, and where they look."""

from experiments.own.captioning.captioner import Captioned, Captioner, train_captioner
from experiments.own.captioning.scenes import (
    CaptionData,
    Pictures,
    Scene,
    cells_of,
    draw_data,
    draw_images,
    draw_scenes,
)

__all__ = [
    "CaptionData",
    "Captioned",
    "Captioner",
    "Pictures",
    "Scene",
    "cells_of",
    "draw_data",
    "draw_images",
    "draw_scenes",
    "train_captioner",
]
