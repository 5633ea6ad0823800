"""Pictures: hypothesis trees, attention, forced decoding, sparsity, training and mapping curves.

Every function draws into the axes that it is given, or into a new figure of fitting size, and
returns the axes (``ax.figure`` is the figure). New figures never touch pyplot's state or backend,
so that the functions work in a notebook, in a script without a display, and in threads alike.
"""

from __future__ import annotations

from ._figures import (
    BLUE,
    EDGE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    RULE,
    VERMILION,
    require_matplotlib,
    save_figure,
)
from .attention import plot_attention
from .comparisons import plot_accuracy_by_alpha, plot_time_and_accuracy
from .forced import plot_forced_decoding
from .mapping_curves import plot_mapping_curves
from .sparsity import plot_exactness_by_beam, plot_reliability, plot_support_sizes
from .training import plot_training_curve
from .tree import plot_hypothesis_tree

__all__ = [
    "BLUE",
    "EDGE",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "PALE",
    "PURPLE",
    "RULE",
    "VERMILION",
    "plot_accuracy_by_alpha",
    "plot_attention",
    "plot_exactness_by_beam",
    "plot_forced_decoding",
    "plot_hypothesis_tree",
    "plot_mapping_curves",
    "plot_reliability",
    "plot_support_sizes",
    "plot_time_and_accuracy",
    "plot_training_curve",
    "require_matplotlib",
    "save_figure",
]
