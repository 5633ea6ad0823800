"""What the commands print and draw about a search, or about a target that is forced."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyentmax.decoding import ForcedDecoding, Hypothesis, HypothesisGraph, SearchResult
from pyentmax.tasks.sequences import SequenceDecoder

N_LISTED = 20  # hypotheses of a list that is not complete
END = "</s>"


def describe(decoder: SequenceDecoder, title: str, result: SearchResult) -> str:
    """The hypotheses as a tree with their probabilities, and what the search proves, as text.

    A list that is not complete can be long: only its most probable hypotheses are shown.
    """
    shown = _shown(result)
    lines = [title, "", *(f"  {line}" for line in str(decoder.tree(shown)).splitlines())]
    finished = [h for h in shown if h.finished]
    count, mass = len(finished), sum(h.probability for h in finished)
    lines += ["", f"{count} {decoder.noun}{'s' * (count != 1)}, total probability {mass:.6f}"]
    if more := len(result.hypotheses) - len(shown):
        lines.append(f"{more} less probable found but not shown")
    return "\n".join([*lines, textwrap.fill(result.reason, 88)])


def draw(
    decoder: SequenceDecoder,
    title: str,
    source: Sequence[str],
    result: SearchResult,
    folder: Path,
    name: str,
    *,
    graph: bool = False,
) -> list[Path]:
    """Draw the tree of hypotheses and the best one's attention; returns the files.

    Parameters
    ----------
    source : sequence of str
        The tokens that the model read.
    name : str
        What the names of the files begin with.
    graph : bool
        Whether to draw the hypotheses as a graph, too, in which shared beginnings and endings
        stand once.
    """
    from pyentmax.plotting import (
        plot_attention,
        plot_hypothesis_graph,
        plot_hypothesis_tree,
        save_figure,
    )

    shown, best = _shown(result), result.best
    if best.attention is None:
        raise ValueError("attention: expected a search with keep_attention=True")
    pictures = {"tree": plot_hypothesis_tree(decoder.tree(shown))}
    if graph:
        pictures["graph"] = plot_hypothesis_graph(
            HypothesisGraph.build(shown, decoder.token, separator=decoder.separator)
        )
    mass = sum(h.probability for h in shown if h.finished)
    claim = "complete" if result.exact else f"not proved complete, {mass:.4g} of the mass is shown"
    for ax in pictures.values():
        ax.set_title(f"{title}: {claim}", fontsize=10, loc="left", parse_math=False)
    written = [decoder.token(t) for t in best.tokens] + [END] * best.finished
    pictures["attention"] = plot_attention(best.attention, source, written)
    folder.mkdir(parents=True, exist_ok=True)
    return [save_figure(ax, folder / f"{name}-{kind}.png") for kind, ax in pictures.items()]


def describe_forced(decoder: SequenceDecoder, title: str, decoding: ForcedDecoding) -> str:
    """What was possible at each step of a forced target, as text."""
    return f"{title}\n\n{decoding.text(decoder.token, what=decoder.noun)}"


def draw_forced(
    decoder: SequenceDecoder,
    title: str,
    source: Sequence[str],
    decoding: ForcedDecoding,
    folder: Path,
    name: str,
) -> list[Path]:
    """Draw the steps of a forced target and the attention at each; returns the files.

    Peters et al. (2019), Figures 2 and 5. Parameters as for `draw`.
    """
    from pyentmax.plotting import plot_attention, plot_forced_decoding, save_figure

    ax = plot_forced_decoding(decoding, decoder.token)
    ax.set_title(title, fontsize=10, loc="left", parse_math=False)
    written = [*map(decoder.token, decoding.tokens[:-1]), END]
    attention = plot_attention(decoding.attention, source, written)
    folder.mkdir(parents=True, exist_ok=True)
    return [
        save_figure(ax, folder / f"{name}-forced.png"),
        save_figure(attention, folder / f"{name}-forced-attention.png"),
    ]


def print_search(
    decoder: SequenceDecoder,
    title: str,
    source: Sequence[str],
    result: SearchResult,
    folder: Path | None,
    name: str,
    **options: Any,
) -> None:
    """Print what `describe` says, and the files that `draw` writes if there is a folder."""
    print(describe(decoder, title, result))
    if folder is not None:
        _print_files(draw(decoder, title, source, result, folder, name, **options))


def print_forced(
    decoder: SequenceDecoder,
    title: str,
    source: Sequence[str],
    decoding: ForcedDecoding,
    folder: Path | None,
    name: str,
) -> None:
    """Print what `describe_forced` says, and the files that `draw_forced` writes."""
    print(describe_forced(decoder, title, decoding))
    if folder is not None:
        _print_files(draw_forced(decoder, title, source, decoding, folder, name))


def _print_files(paths: Sequence[Path]) -> None:
    for path in paths:
        print(f"picture: {path}")


def _shown(result: SearchResult) -> tuple[Hypothesis, ...]:
    return result.hypotheses if result.exact else result.hypotheses[:N_LISTED]
