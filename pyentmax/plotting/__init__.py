"""Pictures: hypothesis trees, attention, forced decoding, sparsity, training and mapping curves.

Every function draws into the axes that it is given, or into a new figure of fitting size, and
returns the axes (``ax.figure`` is the figure). New figures never touch pyplot's state or backend,
so that the functions work in a notebook, in a script without a display, and in threads alike.
"""

from __future__ import annotations

from ._figures import BLUE as BLUE
from ._figures import EDGE as EDGE
from ._figures import GREEN as GREEN
from ._figures import GREY as GREY
from ._figures import INK as INK
from ._figures import ORANGE as ORANGE
from ._figures import PALE as PALE
from ._figures import PURPLE as PURPLE
from ._figures import RULE as RULE
from ._figures import VERMILION as VERMILION
from ._figures import save_figure
from .attention import plot_attention
from .comparisons import plot_accuracy_by_alpha, plot_time_and_accuracy
from .forced import plot_forced_decoding
from .mapping_curves import plot_mapping_curves
from .sparsity import plot_exactness_by_beam, plot_reliability, plot_support_sizes
from .training import plot_training_curve
from .tree import plot_hypothesis_tree

__all__ = [
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
    "save_figure",
]
