"""Pictures: hypothesis trees, attention, forced decoding, mappings.

Every function draws into the axes that it is given, or into a new figure of suitable size, and
returns the axes (``ax.figure`` is the figure). New figures never touch pyplot's state or backend,
so the functions work in a notebook, in a script without a display, and in threads. Without
Matplotlib they raise an ImportError that says what to install.
"""

from __future__ import annotations

from pyentmax.seq2seq.plotting._figures import save_figure
from pyentmax.seq2seq.plotting.attention import plot_attention
from pyentmax.seq2seq.plotting.forced import plot_forced_decoding
from pyentmax.seq2seq.plotting.mapping_curves import plot_mapping_curves
from pyentmax.seq2seq.plotting.tree import plot_hypothesis_tree

__all__ = [
    "plot_attention",
    "plot_forced_decoding",
    "plot_hypothesis_tree",
    "plot_mapping_curves",
    "save_figure",
]
