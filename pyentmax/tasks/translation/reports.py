"""What the commands print and draw about a translation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from pyentmax.decoding import (
    ForcedDecoding,
    Hypothesis,
    HypothesisGraph,
    HypothesisTree,
    SearchResult,
)
from pyentmax.plotting._figures import drawable, warned_of_missing_characters
from pyentmax.system.files import cut_name, distinct_names
from pyentmax.system.notes import note
from pyentmax.tasks.translation.translator import SentenceDecoder

MOST_LISTED = 20  # hypotheses of a list that is not complete
END = "</s>"


def describe(decoder: SentenceDecoder, sentence: str, result: SearchResult) -> str:
    """The translations as a tree with their probabilities, and what the search proves, as text.

    A list that is not complete can be long, so only its most probable translations are shown.
    """
    shown = _shown(result)
    lines = [sentence, "", *(f"  {line}" for line in str(_tree(decoder, shown)).splitlines())]
    finished = [h for h in shown if h.finished]
    count, mass = len(finished), sum(h.probability for h in finished)
    lines += ["", f"{count} translation{'s' * (count != 1)}, total probability {mass:.6f}"]
    if more := len(result.hypotheses) - len(shown):
        lines.append(f"{more} less probable found but not shown")
    return "\n".join([*lines, textwrap.fill(result.reason, 88)])


@warned_of_missing_characters(say=note)
def draw(
    decoder: SentenceDecoder,
    sentence: str,
    result: SearchResult,
    folder: Path,
    name: str | None = None,
) -> list[Path]:
    """Draw the translations as a tree and as a graph, and the best one's attention.

    Returns the files. Their names begin with that of the sentence in `picture_names`, unless
    another is given.
    """
    from pyentmax.plotting import (
        plot_attention,
        plot_hypothesis_graph,
        plot_hypothesis_tree,
        save_figure,
    )

    folder.mkdir(parents=True, exist_ok=True)
    name = _file_name(sentence) if name is None else name
    shown = _shown(result)
    ax = plot_hypothesis_tree(_tree(decoder, shown))
    ax.set_title(drawable(sentence), fontsize=10, loc="left", parse_math=False)
    files = [save_figure(ax, folder / f"{name}-tree.png")]
    ax = plot_hypothesis_graph(
        HypothesisGraph.build(shown, decoder.target.tokens.__getitem__, separator=" ")
    )
    ax.set_title(drawable(sentence), fontsize=10, loc="left", parse_math=False)
    files.append(save_figure(ax, folder / f"{name}-graph.png"))
    best = result.best
    if best.attention is None:
        raise ValueError("attention: the search was told not to keep it (keep_attention=False)")
    target = [decoder.target.tokens[t] for t in best.tokens] + [END] * best.finished
    ax = plot_attention(best.attention, decoder.segmenter.split(sentence), target)
    files.append(save_figure(ax, folder / f"{name}-attention.png"))
    return files


def describe_forced(decoder: SentenceDecoder, sentence: str, decoding: ForcedDecoding) -> str:
    """What was possible at each step of a given translation, as text."""
    steps = decoding.text(decoder.target.tokens.__getitem__, what="translation")
    return f"{sentence}\n\n{steps}"


@warned_of_missing_characters(say=note)
def draw_forced(
    decoder: SentenceDecoder, sentence: str, decoding: ForcedDecoding, folder: Path
) -> list[Path]:
    """Draw the steps of a given translation, and the attention at each; returns the files.

    Peters et al. (2019), Figures 2 and 5.
    """
    from pyentmax.plotting import plot_attention, plot_forced_decoding, save_figure

    folder.mkdir(parents=True, exist_ok=True)
    tokens = decoder.target.tokens
    name = _file_name(sentence)
    ax = plot_forced_decoding(decoding, tokens.__getitem__)
    ax.set_title(drawable(sentence), fontsize=10, loc="left", parse_math=False)
    files = [save_figure(ax, folder / f"{name}-forced.png")]
    target = [tokens[token] for token in decoding.tokens[:-1]] + [END]
    ax = plot_attention(decoding.attention, decoder.segmenter.split(sentence), target)
    return [*files, save_figure(ax, folder / f"{name}-forced-attention.png")]


def picture_names(sentences: Iterable[str]) -> list[str]:
    """What the names of each sentence's pictures begin with; no two are the same.

    Examples
    --------
    >>> picture_names(["ein hund ?", "ein hund .", "ein mann"])
    ['ein.hund', 'ein.hund-2', 'ein.mann']
    """
    return distinct_names(map(_file_name, sentences))


def _file_name(sentence: str) -> str:
    """The sentence without characters that file systems or shells treat specially."""
    return cut_name(re.sub(r"[\\/:*?\"<>|;\s\0\ud800-\udfff]+", ".", sentence).strip(".")[:80])


def _shown(result: SearchResult) -> tuple[Hypothesis, ...]:
    return result.hypotheses if result.exact else result.hypotheses[:MOST_LISTED]


def _tree(decoder: SentenceDecoder, hypotheses: tuple[Hypothesis, ...]) -> HypothesisTree:
    return HypothesisTree.build(hypotheses, decoder.target.tokens.__getitem__, separator=" ")
