"""Images that the library draws itself, with the captions that they ask for.

An image is a grid of 8 × 8 cells of 8 × 8 pixels. Some cells hold a coloured shape. One of them,
the subject, has a white frame, and another in its row or column, the partner, a grey one. The
caption names the subject, where it is seen from the partner, and the partner:

    red circle left of blue square

All other shapes are distractors, and noise lies over every pixel. So it is known where each word of
a caption can be read, which no photograph tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GRID = 8
"""Cells per side of an image."""
CELL = 8
"""Pixels per side of a cell."""
NOISE = 0.06
"""Standard deviation of the noise on each pixel, of values between 0 and 1."""
DISTRACTORS = (6, 14)
"""The fewest and the most shapes in addition to the two that the caption names."""

COLOURS = {
    "red": (0.90, 0.15, 0.15),
    "green": (0.10, 0.70, 0.25),
    "blue": (0.15, 0.35, 0.95),
    "yellow": (0.95, 0.85, 0.15),
    "purple": (0.65, 0.25, 0.80),
    "orange": (1.00, 0.55, 0.05),
}
_PICTURES = {
    "circle": (".####.", "######", "######", "######", "######", ".####."),
    "square": ("######", "######", "######", "######", "######", "######"),
    "triangle": ("..##..", "..##..", ".####.", ".####.", "######", "######"),
    "diamond": ("..##..", ".####.", "######", "######", ".####.", "..##.."),
    "cross": ("##..##", "######", ".####.", ".####.", "######", "##..##"),
    "ring": (".####.", "##..##", "#....#", "#....#", "##..##", ".####."),
}
SHAPES = tuple(_PICTURES)
RELATIONS = {
    "left of": (0, 1),
    "right of": (0, -1),
    "above": (1, 0),
    "below": (-1, 0),
}
"""Where the subject is, seen from the partner → the rows and columns from it to the partner."""
FEATURES = CELL * CELL * 3
"""Numbers that a cell consists of: its pixels' red, green and blue."""
_GROUND, _WHITE, _GREY = 0.12, 1.0, 0.55


@dataclass(frozen=True)
class Scene:
    """What an image shows.

    Attributes
    ----------
    shapes : (8, 8) int array
        Which shape and colour each cell holds, as place of the shape in `SHAPES` times the number
        of colours plus that of the colour in `COLOURS`; −1 where there is none.
    subject, partner : int
        Cells, counted row by row from 0.
    """

    shapes: NDArray[np.int64]
    subject: int
    partner: int

    @property
    def caption(self) -> str:
        """What is to be said of it.

        Examples
        --------
        >>> shapes = np.full((8, 8), -1)
        >>> shapes[0, :2] = 0, 8  # a red circle, a blue square
        >>> Scene(shapes, subject=0, partner=1).caption
        'red circle left of blue square'
        """
        way = np.sign(np.subtract(divmod(self.partner, GRID), divmod(self.subject, GRID)))
        relation = next(name for name, step in RELATIONS.items() if step == tuple(way))
        return f"{self._named(self.subject)} {relation} {self._named(self.partner)}"

    def sought(self) -> list[int]:
        """For each word of the caption, the cell where it can be read, −1 for the relation.

        Examples
        --------
        >>> shapes = np.full((8, 8), -1)
        >>> shapes[0, :2] = 0, 8
        >>> Scene(shapes, subject=0, partner=1).sought()
        [0, 0, -1, -1, 1, 1]
        """
        between = len(self.caption.split()) - 4
        return [self.subject] * 2 + [-1] * between + [self.partner] * 2

    def _named(self, cell: int) -> str:
        shape, colour = divmod(int(self.shapes.flat[cell]), len(COLOURS))
        return f"{list(COLOURS)[colour]} {SHAPES[shape]}"


def draw_scenes(count: int, rng: np.random.Generator) -> list[Scene]:
    """Scenes whose subject, partner and distractors are drawn from ``rng``.

    Examples
    --------
    >>> [scene] = draw_scenes(1, np.random.default_rng(0))
    >>> scene.caption
    'yellow square right of orange cross'
    """
    return [_scene(rng) for _ in range(count)]


def _scene(rng: np.random.Generator) -> Scene:
    row, column = place = rng.integers(GRID, size=2)
    subject, axis = int(row * GRID + column), int(rng.integers(2))
    place[axis] = rng.choice(np.delete(np.arange(GRID), place[axis]))
    partner = int(place[0] * GRID + place[1])
    fewest, most = DISTRACTORS
    others = np.delete(np.arange(GRID * GRID), [subject, partner])
    others = rng.choice(others, size=rng.integers(fewest, most + 1), replace=False)
    shapes = np.full((GRID, GRID), -1)
    cells = [subject, partner, *others]
    shapes.flat[cells] = rng.integers(len(SHAPES) * len(COLOURS), size=len(cells))
    return Scene(shapes, subject, partner)


def draw_images(
    scenes: Sequence[Scene], rng: np.random.Generator | None = None
) -> NDArray[np.uint8]:
    """The images of some scenes, (scenes, 64, 64, 3); ``rng`` lays noise over them.

    Examples
    --------
    >>> draw_images(draw_scenes(2, np.random.default_rng(0))).shape
    (2, 64, 64, 3)
    """
    tiles = _tiles()
    images = np.empty((len(scenes), GRID * CELL, GRID * CELL, 3), np.uint8)
    for image, scene in zip(images, scenes, strict=True):
        cells = tiles[scene.shapes]  # −1 is the last tile, the empty one
        for framed, brightness in ((scene.subject, _WHITE), (scene.partner, _GREY)):
            frame = cells[divmod(framed, GRID)]
            frame[[0, -1]] = frame[:, [0, -1]] = brightness
        pixels = cells.swapaxes(1, 2).reshape(image.shape)
        if rng is not None:
            pixels = pixels + NOISE * rng.standard_normal(image.shape)
        image[...] = np.rint(255 * pixels.clip(0, 1))
    return images


class Pictures(NamedTuple):
    """Scenes and their images."""

    scenes: Sequence[Scene]
    images: NDArray[np.uint8]


class CaptionData(NamedTuple):
    """What to learn from, to choose by, and to report."""

    train: Pictures
    dev: Pictures
    test: Pictures


def draw_data(count: int, seed: int = 0) -> CaptionData:
    """Draw images, the same ones for the same seed; a tenth to choose by, a tenth to report.

    Examples
    --------
    >>> [len(part.scenes) for part in draw_data(20)]
    [16, 2, 2]
    """
    if count < 3:
        raise ValueError(f"count: expected at least 3 images, got {count}")
    rng = np.random.default_rng(seed)
    scenes = draw_scenes(count, rng)
    images = draw_images(scenes, rng)
    tenth = max(count // 10, 1)
    ends = (0, count - 2 * tenth, count - tenth, count)
    return CaptionData(*(Pictures(scenes[i:j], images[i:j]) for i, j in pairwise(ends)))


def cells_of(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The features of an image's cells, row by row: (n, 64, 192) from (n, 64, 64, 3), around 0.

    Examples
    --------
    >>> images = draw_images(draw_scenes(1, np.random.default_rng(0)))
    >>> bool(np.isclose(cells_of(images)[0, 9, 0] + 0.5, images[0, 8, 8, 0] / 255, atol=1e-6))
    True
    """
    grid = images.reshape(-1, GRID, CELL, GRID, CELL, 3).swapaxes(2, 3)
    cells: NDArray[np.float32] = grid.reshape(len(images), GRID * GRID, FEATURES).astype(np.float32)
    cells /= 255
    return cells - np.float32(0.5)


def _tiles() -> NDArray[np.float64]:
    """What a cell may show, (kinds + 1, 8, 8, 3); the last one is empty."""
    bitmaps = np.array([[[c == "#" for c in line] for line in _PICTURES[name]] for name in SHAPES])
    tiles = np.full((len(SHAPES), len(COLOURS), CELL, CELL, 3), _GROUND)
    inside = tiles[:, :, 1:-1, 1:-1]
    colours = np.array(list(COLOURS.values()))[:, None, None]
    inside[...] = np.where(bitmaps[:, None, ..., None], colours, _GROUND)
    empty = np.full((1, CELL, CELL, 3), _GROUND)
    return np.concatenate([tiles.reshape(-1, CELL, CELL, 3), empty])
