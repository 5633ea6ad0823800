"""Text and plots of the commands, for a search or for a target that is forced."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyentmax.seq2seq.data.text_files import printable
from pyentmax.seq2seq.decoding import ForcedDecoding, Hypothesis, SearchResult
from pyentmax.seq2seq.inflection.saved_model import SequenceModel

N_LISTED = 20  # hypotheses of a list that is not complete
END = "</s>"

Result = SearchResult | ForcedDecoding


def describe(model: SequenceModel, title: str, result: Result) -> str:
    """A result as text: hypotheses and what the search proves, or the steps of a target.

    Hypotheses are a tree with their probabilities. A list that is not complete can be long: only
    its most probable hypotheses are shown.
    """
    if isinstance(result, ForcedDecoding):
        return printable(f"{title}\n\n{result.text(model.token, what=model.noun)}")
    shown = _shown(result)
    lines = [title, "", *(f"  {line}" for line in str(model.tree(shown)).splitlines())]
    finished = [h for h in shown if h.finished]
    count, mass = len(finished), sum(h.probability for h in finished)
    lines += ["", f"{count} {model.noun}{'s' * (count != 1)}, total probability {mass:.6f}"]
    if more := len(result.hypotheses) - len(shown):
        lines.append(f"{more} less probable found but not shown")
    lines.append(textwrap.fill(result.reason, 88))
    if not (result.exact or result.proved):
        lines.append("--search exact (--budget N) proves the best one; a larger --beam loses less.")
    return printable("\n".join(lines))


def draw(
    model: SequenceModel,
    title: str,
    source: Sequence[str],
    result: Result,
    folder: Path,
    name: str,
) -> list[Path]:
    """Draw a result and its attention; returns the files.

    Of a search, the tree of hypotheses and the best one's attention; of a forced target, its steps
    and the attention at each (Peters et al. 2019, Figures 2 and 5).

    Parameters
    ----------
    source : sequence of str
        The tokens that the model read.
    name : str
        What the names of the files begin with.
    """
    from pyentmax.seq2seq.plotting import (
        plot_attention,
        plot_forced_decoding,
        plot_hypothesis_tree,
    )

    if isinstance(result, ForcedDecoding):
        pictures = {"forced": plot_forced_decoding(result, model.token)}
        attention, kind = result.attention, "forced-attention"
        written = [*map(model.token, result.tokens[:-1]), END]
    else:
        shown, best = _shown(result), result.best
        if best.attention is None:
            raise ValueError("attention: expected a search with keep_attention=True")
        pictures = {"tree": plot_hypothesis_tree(model.tree(shown))}
        mass = sum(h.probability for h in shown if h.finished)
        claim = f"not proved complete, {mass:.4g} of the mass is shown"
        title += f": {'complete' if result.exact else claim}"
        attention, kind = best.attention, "attention"
        written = [model.token(t) for t in best.tokens] + [END] * best.finished
    for ax in pictures.values():
        ax.set_title(title, fontsize=10, loc="left", parse_math=False)
    pictures[kind] = plot_attention(attention, source, written)
    return save(pictures, folder, f"{name}-")


def save(pictures: dict[str, Any], folder: Path, prefix: str = "") -> list[Path]:
    """Save pictures by their names, in a folder that is made if need be; returns the files.

    A PNG is 1472 pixels wide at most, twice a page of the documentation, or has 100 an inch.
    """
    from pyentmax.seq2seq.plotting import save_figure

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, ax in pictures.items():
        dpi = min(200.0, max(100.0, 1472 / ax.figure.get_figwidth()))
        files.append(save_figure(ax, folder / f"{prefix}{name}.png", dpi=dpi))
    return files


def show(
    model: SequenceModel,
    title: str,
    source: Sequence[str],
    result: Result,
    folder: Path | None,
    name: str,
) -> None:
    """Print what `describe` says, and the files that `draw` writes if there is a folder."""
    print(describe(model, title, result))
    if folder is not None:
        for path in draw(model, title, source, result, folder, name):
            print(f"picture: {path}")


def _shown(result: SearchResult) -> tuple[Hypothesis, ...]:
    return result.hypotheses if result.exact else result.hypotheses[:N_LISTED]
