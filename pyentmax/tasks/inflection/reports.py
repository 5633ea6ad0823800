"""What the commands print and draw about a search or a forced form."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from pyentmax.decoding import ForcedDecoding, Hypothesis, HypothesisTree, SearchResult
from pyentmax.plotting._figures import drawable, warned_of_missing_characters
from pyentmax.system.files import cut_name
from pyentmax.tasks.inflection.decoder import WordDecoder
from pyentmax.tasks.inflection.examples import Example, source_tokens

MOST_LISTED = 20  # hypotheses of a list that is not complete
END = "</s>"


def describe(inflector: WordDecoder, word: Example, result: SearchResult) -> str:
    """The hypotheses as a tree with their probabilities, and what the search proves, as text.

    A list that is not complete can be long, so only its most probable hypotheses are shown.
    """
    shown = _shown(result)
    lines = [_title(word), ""]
    lines += [f"  {line}" for line in str(hypothesis_tree(inflector, shown)).splitlines()]
    finished = [h for h in shown if h.finished]
    count, mass = len(finished), sum(h.probability for h in finished)
    lines += ["", f"{count} string{'s' * (count != 1)}, total probability {mass:.6f}"]
    if more := len(result.hypotheses) - len(shown):
        lines.append(f"{more} less probable found but not shown")
    return "\n".join([*lines, textwrap.fill(result.reason, 88)])


def _shown(result: SearchResult) -> tuple[Hypothesis, ...]:
    return result.hypotheses if result.exact else result.hypotheses[:MOST_LISTED]


def _title(word: Example) -> str:
    return f"{word.lemma}  {';'.join(word.tags)}"


def hypothesis_tree(inflector: WordDecoder, hypotheses: Sequence[Hypothesis]) -> HypothesisTree:
    """The tree of some hypotheses, over the model's characters."""
    return HypothesisTree.build(hypotheses, lambda token: inflector.target.tokens[token])


def describe_forced(inflector: WordDecoder, word: Example, decoding: ForcedDecoding) -> str:
    """What was possible at each step of a word's forced form, as text."""
    steps = decoding.text(inflector.target.tokens.__getitem__, what="form")
    return f"{_title(word)}: {word.form}\n\n{steps}"


def draw_forced(
    inflector: WordDecoder, word: Example, decoding: ForcedDecoding, folder: Path
) -> list[Path]:
    """Draw the steps of a word's forced form and the attention at each; returns the files."""
    from pyentmax.plotting import plot_attention, plot_forced_decoding, save_figure

    folder.mkdir(parents=True, exist_ok=True)
    name = _file_name(word.lemma, ";".join(word.tags), word.form)
    with warned_of_missing_characters():
        ax = plot_forced_decoding(decoding, inflector.target.tokens.__getitem__)
        title = drawable(f"{_title(word)}: {word.form}")
        ax.set_title(title, fontsize=10, loc="left", parse_math=False)
        files = [save_figure(ax, folder / f"{name}-forced.png")]
        ax = plot_attention(decoding.attention, source_tokens(word), [*word.form, END])
        files.append(save_figure(ax, folder / f"{name}-forced-attention.png"))
    return files


def draw(inflector: WordDecoder, word: Example, result: SearchResult, folder: Path) -> list[Path]:
    """Draw the tree of hypotheses and the best one's attention; returns the files."""
    from pyentmax.plotting import plot_attention, plot_hypothesis_tree, save_figure

    folder.mkdir(parents=True, exist_ok=True)
    name = _file_name(word.lemma, ";".join(word.tags))
    shown = _shown(result)
    mass = sum(h.probability for h in shown if h.finished)
    claim = "complete" if result.exact else f"not proved complete, {mass:.4g} of the mass is shown"
    with warned_of_missing_characters():
        ax = plot_hypothesis_tree(hypothesis_tree(inflector, shown))
        title = drawable(f"{_title(word)}: {claim}")
        ax.set_title(title, fontsize=10, loc="left", parse_math=False)
        files = [save_figure(ax, folder / f"{name}-tree.png")]

        best = result.best
        if best.attention is None:
            raise ValueError("attention: the search was told not to keep it (keep_attention=False)")
        target = [inflector.target.tokens[t] for t in best.tokens] + [END] * best.finished
        ax = plot_attention(best.attention, source_tokens(word), target)
        files.append(save_figure(ax, folder / f"{name}-attention.png"))
    return files


def _file_name(*parts: str) -> str:
    """The parts without characters that file systems or shells treat specially."""
    return cut_name(re.sub(r"[\\/:*?\"<>|;\s\0\ud800-\udfff]+", ".", "-".join(parts)))
