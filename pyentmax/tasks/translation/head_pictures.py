"""The pictures of `pyentmax.tasks.translation.heads`, made of what was measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyentmax.analysis import PerSentence, corpus_attention, word_clusters
from pyentmax.models.transformer import KINDS
from pyentmax.plotting import (
    AttentionPanel,
    plot_alpha_histograms,
    plot_alpha_trajectories,
    plot_attention_panels,
    plot_choice_of_k,
    plot_density_histograms,
    plot_head_densities,
    plot_head_diversity,
    plot_positional_confidence,
    save_figure,
)
from pyentmax.tasks.translation.heads import (
    MARKS,
    QUESTION_WORDS,
    Measured,
)
from pyentmax.tasks.translation.parallel import SentencePair

SHORTEST, LONGEST = 8, 13
"""Tokens of the sentences that are shown."""
OFFSET_NAMES = {-1: "previous", 0: "own", 1: "next"}
SPAN = 4
"""Of the fixed patterns that one token's heads are shown beside."""


def draw(
    found: Sequence[Measured],
    pairs: Sequence[SentencePair],
    out: Path,
    *,
    looking: Collection[str] = QUESTION_WORDS,
    marks: Collection[str] = MARKS,
) -> list[Path]:
    """Draw everything that the models and the corpus have something to show for.

    Parameters
    ----------
    found : sequence of Measured
    pairs : sequence of SentencePair
        Those that were measured.
    out : Path
    looking, marks : collections of str
        As for `measure`.

    Returns
    -------
    list of Path
    """
    out.mkdir(parents=True, exist_ok=True)
    pictures = {
        "alpha_trajectories": _trajectories(found),
        "alpha_histograms": _alphas(found),
        "density_histograms": plot_density_histograms(
            {one.label: {k: x.values for k, x in one.heads.density.items()} for one in found}
        ),
        "densities": plot_head_densities(
            {one.label: {k: x.mean for k, x in one.heads.density.items()} for one in found}
        ),
        "diversity": plot_head_diversity(
            {one.label: {k: x.mean for k, x in one.heads.diversity.items()} for one in found}
        ),
        "positional": plot_positional_confidence(
            {
                f"{kind}, {OFFSET_NAMES[offset]} token": {
                    one.label: one.heads.positional[kind, offset].mean for one in found
                }
                for kind, offset in found[0].heads.positional
            }
        ),
        "previous_token": _previous_token(found, pairs),
        "merging": _merging(found, pairs),
        "question": _question(found, pairs, looking, marks),
        "ambiguity": _ambiguity(found, pairs),
        "patterns": _patterns(found, pairs),
        "context": _context(found, pairs),
        "choice_of_k": _by_k(found),
    }
    return [save_figure(ax, out / f"{name}.png") for name, ax in pictures.items() if ax is not None]


def _trajectories(found: Sequence[Measured]) -> Any:
    followed = [one for one in found if one.watched]
    if not followed:
        return None
    watched = followed[-1].watched
    return plot_alpha_trajectories(watched["update"], {kind: watched[kind] for kind in KINDS})


def _alphas(found: Sequence[Measured]) -> Any:
    learned = [alphas for one in found if (alphas := one.translator.model.alphas())]
    return plot_alpha_histograms(learned[-1]) if learned else None


def _by_k(found: Sequence[Measured]) -> Any:
    if not found[0].by_k:
        return None
    scores = {one.label: {k: 100 * x["accuracy"] for k, x in one.by_k.items()} for one in found}
    return plot_choice_of_k(scores, "tokens right, %")


# --- single heads on single sentences -------------------------------------------------------------
class _Shown:
    """A model's attention on one sentence pair, with the labels of its axes."""

    def __init__(self, one: Measured, pair: SentencePair) -> None:
        translator = one.translator
        split = translator.segmenter.split
        encoded = translator.pairs([pair])
        self.weights = next(corpus_attention(translator.model, encoded)).weights
        source, target = split(pair.source), split(pair.target)
        read = [translator.target.tokens[translator.model.bos], *target]
        said = [*target, translator.target.tokens[translator.model.eos]]
        self.labels = {
            "encoder": (source, source),
            "decoder": (read, read),
            "context": (source, said),
        }

    def panel(self, title: str, kind: str, layer: int, head: int) -> AttentionPanel:
        """One head's map."""
        source, target = self.labels[kind]
        return AttentionPanel(title, self.weights[kind][layer, head], source, target)


def _best(mean: Any) -> tuple[int, int]:
    layer, head = np.unravel_index(np.argmax(mean), mean.shape)
    return int(layer), int(head)


def _named(kind: str, layer: int, head: int) -> str:
    return f"{kind} layer {layer + 1}, head {head + 1}"


def _alpha_of(one: Measured, kind: str, layer: int, head: int) -> str:
    alphas = one.translator.model.alphas()
    return f", α = {alphas[kind][layer, head]:.2f}" if alphas else ""


def _example(found: Sequence[Measured], pairs: Sequence[SentencePair], joined: bool) -> Any:
    """The first sentence of fitting length, with a word of several pieces if that is asked for."""
    split = found[0].translator.segmenter.split
    for pair in pairs:
        pieces = split(pair.source)
        subwords = any(piece.startswith("▁") for piece in pieces)
        if SHORTEST <= len(pieces) <= LONGEST and (
            not joined or (subwords and word_clusters(pieces))
        ):
            return pair
    return None if joined else pairs[0]


def _previous_token(found: Sequence[Measured], pairs: Sequence[SentencePair]) -> Any:
    pair = _example(found, pairs, joined=False)
    panels = []
    for one in found:
        kind = max(
            ("encoder", "decoder"), key=lambda kind: one.heads.positional[kind, -1].mean.max()
        )
        mean = one.heads.positional[kind, -1].mean
        place = _best(mean)
        alpha = _alpha_of(one, kind, *place)
        title = f"{one.label}{alpha}\n{_named(kind, *place)}: {mean[place]:.1%}"
        panels.append(_Shown(one, pair).panel(title, kind, *place))
    return plot_attention_panels(panels, columns=len(panels))


def _merging(found: Sequence[Measured], pairs: Sequence[SentencePair]) -> Any:
    pair = _example(found, pairs, joined=True)
    if pair is None or not found[0].heads.merging.counts.any():
        return None
    panels = []
    for one in found:
        mean = one.heads.merging.mean
        place = _best(mean)
        title = f"{one.label}{_alpha_of(one, 'encoder', *place)}\n"
        title += f"{_named('encoder', *place)}: {mean[place]:.1%}"
        panels.append(_Shown(one, pair).panel(title, "encoder", *place))
    return plot_attention_panels(panels, columns=len(panels))


def _question(
    found: Sequence[Measured],
    pairs: Sequence[SentencePair],
    looking: Collection[str],
    marks: Collection[str],
) -> Any:
    """The best head of each model on a sentence with the mark, and below on one without."""
    split = found[0].translator.segmenter.split

    def has(pair: SentencePair, tokens: Collection[str]) -> bool:
        return any(piece.removeprefix("▁") in tokens for piece in split(pair.source))

    looks = [pair for pair in pairs if has(pair, looking)]
    shown = [
        next((pair for pair in looks if has(pair, marks) == asks), None) for asks in (True, False)
    ]
    if shown[0] is None:
        return None
    panels = []
    for pair in shown:
        if pair is None:
            continue
        for one in found:
            mean = one.heads.marked.mean
            place = _best(mean)
            title = f"{one.label}{_alpha_of(one, 'encoder', *place)}\n"
            title += f"{_named('encoder', *place)}: {mean[place]:.1%}"
            panels.append(_Shown(one, pair).panel(title, "encoder", *place))
    return plot_attention_panels(panels, columns=len(found))


class Contrast(NamedTuple):
    """A head of the encoder on two sentences of one length, the sparsest and the densest."""

    gap: float
    place: tuple[int, int]  #: layer and head
    sentences: tuple[int, int]


def largest_contrast(density: PerSentence) -> Contrast | None:
    """Where densities differ most between sentences of as many tokens; None if nowhere.

    Parameters
    ----------
    density : PerSentence
        Of the encoder's heads, (sentences, layers, heads); their counts are the lengths.

    Examples
    --------
    >>> values = np.array([0.5, 1.0, 0.2]).reshape(3, 1, 1)
    >>> largest_contrast(PerSentence(values, np.array([9.0, 9.0, 10.0])))
    Contrast(gap=0.5, place=(0, 0), sentences=(0, 1))
    """
    most = Contrast(0.0, (0, 0), (0, 0))
    for length in range(SHORTEST, LONGEST + 1):
        chosen = np.flatnonzero(density.counts == length)
        if len(chosen) < 2:
            continue
        of_head = density.values[chosen]
        gap = of_head.max(axis=0) - of_head.min(axis=0)
        place = _best(gap)
        if gap[place] > most.gap:
            of_place = of_head[(slice(None), *place)]
            ends = int(chosen[of_place.argmin()]), int(chosen[of_place.argmax()])
            most = Contrast(float(gap[place]), place, ends)
    return most if most.gap else None


def _ambiguity(found: Sequence[Measured], pairs: Sequence[SentencePair]) -> Any:
    """Of all models, the head whose density differs most at one sentence length."""
    contrasts = [(one, largest_contrast(one.heads.density["encoder"])) for one in found]
    told = [(contrast.gap, i) for i, (_, contrast) in enumerate(contrasts) if contrast]
    if not told:
        return None
    one, contrast = contrasts[max(told)[1]]
    assert contrast is not None
    panels = []
    for i in contrast.sentences:
        density = one.heads.density["encoder"].values[(i, *contrast.place)]
        title = f"{one.label}{_alpha_of(one, 'encoder', *contrast.place)}\n"
        title += f"{_named('encoder', *contrast.place)}: density {density:.2f}"
        panels.append(_Shown(one, pairs[i]).panel(title, "encoder", *contrast.place))
    return plot_attention_panels(panels, columns=2)


def _patterns(found: Sequence[Measured], pairs: Sequence[SentencePair]) -> Any:
    """The heads of one decoder layer at one token, below patterns that no sentence changes."""
    one = max(found, key=lambda one: one.heads.density["decoder"].mean.std())
    shown = _Shown(one, _example(found, pairs, joined=False))
    densities = one.heads.density["decoder"].mean
    layer = int(np.argmax(densities.std(axis=1)))  # where the heads differ most
    weights = shown.weights["decoder"][layer]
    at = weights.shape[-1] - 2
    places = np.arange(at + 1)
    span = places > at - SPAN
    strided = span | (places % SPAN == SPAN - 1)
    rows = np.stack([strided / strided.sum(), span / span.sum(), *weights[:, at, : at + 1]])
    read = shown.labels["decoder"][0][: at + 1]
    alphas = [_alpha_of(one, "decoder", layer, head) for head in range(len(weights))]
    fixed = (f"strided, {SPAN}", f"span of {SPAN}")
    names = [f"head {head + 1}{alpha}" for head, alpha in enumerate(alphas)]
    # A no-break space: `plot_attention` shows the plain one as a token's own.
    labels = [x.replace(" ", "\N{NO-BREAK SPACE}") for x in (*fixed, *names)]
    title = f"{one.label}, decoder layer {layer + 1}, at “{read[-1]}”"
    return plot_attention_panels([AttentionPanel(title, rows, read, labels)])


def _context(found: Sequence[Measured], pairs: Sequence[SentencePair]) -> Any:
    """Context attention, mean of its heads, of the first model and one that cuts or is sparse."""
    if len(found) < 2:
        chosen = found
    else:
        cut = [one for one in found[1:] if one.label.startswith("top ")]
        chosen = [found[0], (cut or list(found[1:]))[-1]]
    pair = _example(found, pairs, joined=False)
    panels = []
    for name, layer in (("bottom", 0), ("top", -1)):
        for one in chosen:
            shown = _Shown(one, pair)
            last = one.heads.last_source.mean[layer].mean()
            title = f"{one.label}, {name} layer, mean of heads\nlast source token: {last:.1%}"
            weights = shown.weights["context"][layer].mean(axis=0)
            panels.append(AttentionPanel(title, weights, *shown.labels["context"]))
    return plot_attention_panels(panels, columns=len(chosen))
