"""What the commands print and draw about a search."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path

from .data import Example, source_tokens
from .decoding import BeamResult, Hypothesis, HypothesisTree
from .inflection import WordDecoder

MOST_LISTED = 20


def describe(inflector: WordDecoder, lemma: str, tags: str, result: BeamResult) -> str:
    """The hypotheses as a tree with their probabilities, and what the search proves.

    A list that is not complete can be long: only the most probable hypotheses are shown then.
    """
    shown = _shown(result)
    lines = [f"{lemma}  {tags}", ""]
    lines += [f"  {line}" for line in str(hypothesis_tree(inflector, shown)).splitlines()]
    finished = [h for h in shown if h.finished]
    lines += ["", f"{_strings(len(finished))}, total probability {_total(finished)}"]
    if more := len(result.hypotheses) - len(shown):
        lines.append(f"{more} less probable found but not shown")
    return "\n".join([*lines, textwrap.fill(result.reason, 88)])


def _shown(result: BeamResult) -> tuple[Hypothesis, ...]:
    return result.hypotheses if result.exact else result.hypotheses[:MOST_LISTED]


def _strings(count: int) -> str:
    return f"{count} string{'' if count == 1 else 's'}"


def _total(hypotheses: Sequence[Hypothesis]) -> str:
    return f"{sum(h.probability for h in hypotheses):.6f}"


def hypothesis_tree(inflector: WordDecoder, hypotheses: Sequence[Hypothesis]) -> HypothesisTree:
    """The tree of some hypotheses, with the model's characters."""
    return HypothesisTree.build(hypotheses, lambda token: inflector.target.tokens[token])


def draw(
    inflector: WordDecoder,
    lemma: str,
    tags: str,
    result: BeamResult,
    folder: Path,
    language: str | None = None,
) -> list[Path]:
    """Draw the tree of hypotheses and the best one's attention; returns the files."""
    from .plotting import plot_attention, plot_hypothesis_tree, save_figure

    folder.mkdir(parents=True, exist_ok=True)
    # What no file system takes in a name, and ; for the shell's sake.
    name = re.sub(r"[\\/:*?\"<>|;\s]+", ".", f"{lemma}-{tags}")
    shown = _shown(result)
    mass = sum(h.probability for h in shown if h.finished)
    claim = "complete" if result.exact else f"not proved complete, {mass:.4g} of the mass is shown"
    files = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ax = plot_hypothesis_tree(hypothesis_tree(inflector, shown))
        ax.set_title(f"{lemma}  {tags}: {claim}", fontsize=10, loc="left")
        files.append(save_figure(ax, folder / f"{name}-tree.png"))

        best = result.best
        if best.attention is None:
            raise ValueError("attention: the search was told not to keep it (keep_attention=False)")
        source = source_tokens(Example(lemma, "", tuple(tags.split(";")), language))
        target = [inflector.target.tokens[t] for t in best.tokens] + ["</s>"] * best.finished
        ax = plot_attention(best.attention, source, target)
        files.append(save_figure(ax, folder / f"{name}-attention.png"))
    if any("missing from font" in str(warning.message) for warning in caught):
        print("the pictures lack some characters: Matplotlib's font does not have them")
    return files
