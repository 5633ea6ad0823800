"""Attention over the cells of an image, drawn on the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyentmax.plotting._figures import axes_or_new, drawable, require_matplotlib
from pyentmax.plotting._inputs import mapping, numbers, sequence, whole, words
from pyentmax.plotting._palette import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_attended_cells(
    image: ArrayLike, weights: ArrayLike, ax: Axes | None = None, *, sought: int | None = None
) -> Axes:
    """Draw an image as dark as its cells are left out, with an outline where there is any weight.

    Parameters
    ----------
    image : (height, width, 3) array
        Bytes, or numbers from 0 to 1.
    weights : (rows, columns) array
        Of the cells of a grid over the image, as attention gives them.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    sought : int, optional
        A cell, counted row by row from 0, to be marked by a cross: where the model should look.

    Raises
    ------
    ValueError
        If the weights are no grid that divides the image, some weight is negative or not finite, or
        there is no such cell.
    TypeError
        If the image or the weights are no numbers.

    Examples
    --------
    >>> ax = plot_attended_cells(np.ones((4, 4, 3)), [[0.0, 0.75], [0.25, 0.0]])
    >>> len(ax.patches)
    2
    """
    image = _checked_image(image)
    weights = _checked_grid(weights, image)
    if sought is not None:
        sought = whole(sought, "sought", 0, weights.size - 1)
    ax = axes_or_new(ax, 2.2, 2.2)
    from matplotlib.patches import Rectangle

    height, width = np.floor_divide(image.shape[:2], weights.shape)
    seen = np.repeat(np.repeat(weights, height, axis=0), width, axis=1)
    light = 0.22 + 0.78 * (seen / max(weights.max(), 1e-12)) ** 0.5
    shown = image / 255 if image.dtype.kind in "iu" else image
    ax.imshow(shown * light[..., None], interpolation="nearest")
    for row, column in np.argwhere(weights > 0):
        corner = (column * width - 0.5, row * height - 0.5)
        share = weights[row, column] / weights.max()
        ax.add_patch(
            Rectangle(corner, width, height, fc="none", ec="#FFD54A", lw=0.5 + 1.5 * share)
        )
    if sought is not None:
        row, column = divmod(sought, weights.shape[1])
        place = ((column + 0.5) * width - 0.5, (row + 0.5) * height - 0.5)
        ax.plot(*place, "x", color="white", ms=6, mew=2.4)
        ax.plot(*place, "x", color=INK, ms=5, mew=1.0)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def plot_captions(
    image: ArrayLike,
    captions: Mapping[str, tuple[Sequence[str], ArrayLike]],
    sought: Sequence[int] = (),
) -> Axes:
    """Draw where models look as they write the caption of an image: a row each, a panel per word.

    Parameters
    ----------
    image : (height, width, 3) array
    captions : mapping
        Label → the words, and the weights (words, rows, columns) of each. A model that says nothing
        has the image alone in its row.
    sought : sequence of int
        For each word, the cell where it can be read; −1 where there is none.

    Raises
    ------
    ValueError, TypeError
        If there is no caption, or one does not have a grid of weights, as `plot_attended_cells`
        takes it, for each word.

    Returns
    -------
    matplotlib Axes
        The first, in a new figure; ``ax.figure.axes`` has all.

    Examples
    --------
    >>> looks = {"top-1": (["red", "ring"], np.eye(4).reshape(4, 2, 2)[:2])}
    >>> ax = plot_captions(np.ones((4, 4, 3)), looks, sought=[0, 1])
    >>> [axes.get_title() for axes in ax.figure.axes]
    ['red', 'ring']
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    image = _checked_image(image)
    checked = {
        label: _checked_caption(caption, f"captions[{label!r}]", image)
        for label, caption in mapping(captions, "captions").items()
    }
    cells = min((grids[0].size for _, grids in checked.values()), default=0)
    sought = [whole(cell, "sought", -1, cells - 1) for cell in sequence(sought, "sought")]
    longest = max(len(spoken) for spoken, _ in checked.values())
    figure = Figure(figsize=(1.65 * longest + 0.3, 1.95 * len(captions)), layout="constrained")
    panels = figure.subplots(len(captions), longest, squeeze=False)
    for row, (label, (spoken, weights)) in zip(panels, checked.items(), strict=True):
        for place, ax in enumerate(row):
            if place >= len(spoken):
                ax.remove()
                continue
            cell = sought[place] if place < len(sought) else -1
            plot_attended_cells(image, weights[place], ax, sought=cell if cell >= 0 else None)
            ax.set_title(drawable(spoken[place]), fontsize=10, parse_math=False)
        row[0].set_ylabel(label, fontsize=10, parse_math=False)
    first: Axes = panels[0, 0]
    return first


def _checked_image(image: ArrayLike) -> NDArray[Any]:
    """The image as an array in its own dtype."""
    numbers(image, "image", ndim=3)
    image = np.asarray(image)
    if image.shape[-1] != 3:
        raise ValueError(f"image must have shape (height, width, 3), got {image.shape}")
    return image


def _checked_grid(
    weights: ArrayLike, image: NDArray[Any], name: str = "weights"
) -> NDArray[np.float64]:
    """Weights of cells that divide the image evenly."""
    grid = numbers(weights, name, empty=True)
    if grid.ndim != 2 or 0 in grid.shape or np.any(np.mod(image.shape[:2], grid.shape)):
        raise ValueError(
            f"{name} must be a grid that divides an image of shape {image.shape}, not an array of "
            f"shape {grid.shape}"
        )
    if (grid < 0).any():
        raise ValueError(f"{name} must be at least 0, got {grid.min():g}")
    return grid


def _checked_caption(
    caption: tuple[Sequence[str], ArrayLike], name: str, image: NDArray[Any]
) -> tuple[list[str], list[NDArray[np.float64]]]:
    """The words of a caption and a grid for each; of no words the image alone."""
    if len(sequence(caption, name)) != 2:
        raise ValueError(f"{name} must be words and their weights, got {len(caption)} of these")
    spoken, weights = words(caption[0], f"the words of {name}", empty=True), caption[1]
    of = f"the weights of {name}"
    grids = numbers(weights, of, ndim=3, empty=True)
    if not spoken:
        return ["(no word)"], [_checked_grid(np.zeros(grids.shape[1:]), image, of)]
    if len(grids) != len(spoken):
        raise ValueError(f"{of} must have a grid for each of {len(spoken)} words, got {len(grids)}")
    checked = [_checked_grid(grid, image, of) for grid in grids]
    return spoken, checked
