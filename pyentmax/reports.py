"""What the commands print and draw about a search."""

from __future__ import annotations

from pathlib import Path

from .data import Example, source_tokens
from .decoding import BeamResult, HypothesisTree
from .inflection import Inflector

MOST_LISTED = 20


def describe(inflector: Inflector, lemma: str, tags: str, result: BeamResult) -> str:
    """The hypotheses as a tree with their probabilities, and what the search proves.

    A list that is not complete can be long: only the most probable hypotheses are shown then.
    """
    shown = result.hypotheses if result.exact else result.hypotheses[:MOST_LISTED]
    lines = [f"{lemma}  {tags}", ""]
    if shown:
        lines += ["  " + line for line in str(hypothesis_tree(inflector, shown)).splitlines()]
    if len(shown) < len(result.hypotheses):
        lines.append(f"  … and {len(result.hypotheses) - len(shown)} less probable ones")
    lines += ["", f"listed {len(shown)} with total probability {result.mass:.6f}", result.reason]
    return "\n".join(lines)


def hypothesis_tree(inflector: Inflector, hypotheses: tuple) -> HypothesisTree:
    """The tree of some hypotheses, with the model's characters."""
    return HypothesisTree.build(hypotheses, lambda token: inflector.target.tokens[token])


def draw(
    inflector: Inflector,
    lemma: str,
    tags: str,
    result: BeamResult,
    folder: Path,
    language: str | None = None,
) -> list[Path]:
    """Draw the tree of hypotheses and the best one's attention; returns the files."""
    from .plotting import plot_attention, plot_hypothesis_tree, save_figure

    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() else "_" for c in lemma)
    shown = result.hypotheses if result.exact else result.hypotheses[:MOST_LISTED]
    files = []

    ax = plot_hypothesis_tree(hypothesis_tree(inflector, shown))
    files.append(save_figure(ax.figure, folder / f"{name}-tree.png"))

    best = result.best
    source = source_tokens(Example(lemma, "", tuple(tags.split(";")), language))
    target = [inflector.target.tokens[t] for t in best.tokens] + ["</s>"] * best.finished
    ax = plot_attention(best.attention, source, target)
    files.append(save_figure(ax.figure, folder / f"{name}-attention.png"))
    return files
