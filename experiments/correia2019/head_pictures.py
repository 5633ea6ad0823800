"""All figures of §5 for any trained Transformers, side by side (Correia et al. 2019).

    OUT/heads.json              all numbers
    OUT/alpha_trajectories.png  α of every head over a training that followed it (Figure 2)
    OUT/alpha_histograms.png    what α the heads learned, by kind of attention (Figure 3)
    OUT/density_histograms.png  density of every head on every sentence (Figure 4)
    OUT/densities.png           mean densities, by layer (Figure 5)
    OUT/diversity.png           Jensen-Shannon divergence between heads, by layer (Figure 6)
    OUT/positional.png          confidence at −1, 0 and +1, all heads
    OUT/previous_token.png      the best previous-token head of each model (Figure 7)
    OUT/merging.png             the head that joins pieces of words best (Figure 8)
    OUT/question.png            the head that looks for the mark most (Figure 9)
    OUT/ambiguity.png           a head on two sentences of like length (Figure 10)
    OUT/patterns.png            one token's heads compared with fixed patterns (Figure 1)
    OUT/context.png             context attention of bottom and top layer (Explicit, Figure 4)
    OUT/choice_of_k.png         accuracy by the k of use (Explicit, Figure 3)

    python -m experiments.correia2019.head_pictures RUN [RUN …] --examples DATA --out DIR

The first model is the one that the others are compared with: softmax, if there is one. DATA is
a file of source TAB target, two files of parallel text, ``toy-german``, or a folder with Multi30k.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.analysis import PerSentence, corpus_attention
from experiments.correia2019.clusters import word_clusters
from experiments.correia2019.head_plots import (
    plot_alpha_histograms,
    plot_alpha_trajectories,
    plot_choice_of_k,
    plot_density_histograms,
    plot_head_diversity,
    plot_positional_confidence,
)
from experiments.correia2019.measured_heads import (
    MARKS,
    QUESTION_WORDS,
    Measured,
    describe,
    measure,
    write,
)
from experiments.plots import AttentionPanel, plot_attention_panels, plot_head_densities
from experiments.tasks.translation.parallel import SentencePair, read_pairs
from pyentmax.seq2seq.inflection.reports import save
from pyentmax.seq2seq.models.transformer import KINDS

SHORTEST, LONGEST = 8, 13
"""Tokens of the sentences that are shown."""
OFFSET_NAMES = {-1: "previous", 0: "own", 1: "next"}
SPAN = 4
"""Of the fixed patterns that one token's heads are compared with."""


def draw(
    measured: Sequence[Measured],
    pairs: Sequence[SentencePair],
    out: Path,
    *,
    looking: Collection[str] = QUESTION_WORDS,
    marks: Collection[str] = MARKS,
) -> list[Path]:
    """Draw everything that the models and the corpus have something to show for.

    Parameters
    ----------
    measured : sequence of Measured
    pairs : sequence of SentencePair
        Those that were measured.
    out : Path
    looking, marks : collections of str
        As for `measure`.

    Returns
    -------
    list of Path
    """
    split = measured[0].translator.segmenter.split
    fitting = (pair for pair in pairs if SHORTEST <= len(split(pair.source)) <= LONGEST)
    example = next(fitting, pairs[0])
    pictures = _corpus_pictures(measured) | {
        "previous_token": _best_heads(measured, [example], _previous_token),
        "merging": _merging(measured, pairs),
        "question": _question(measured, pairs, looking, marks),
        "ambiguity": _ambiguity(measured, pairs),
        "patterns": _patterns(measured, example),
        "context": _context(measured, example),
    }
    return save({name: ax for name, ax in pictures.items() if ax is not None}, out)


def _corpus_pictures(measured: Sequence[Measured]) -> dict[str, Any]:
    """The pictures of measures over the whole corpus."""

    def by_kind(measure: str, part: str) -> dict[str, Any]:
        return {
            one.label: {k: getattr(x, part) for k, x in getattr(one.heads, measure).items()}
            for one in measured
        }

    positional = {
        f"{kind}, {OFFSET_NAMES[offset]} token": {
            one.label: one.heads.positional[kind, offset].mean for one in measured
        }
        for kind, offset in measured[0].heads.positional
    }
    pictures = {
        "density_histograms": plot_density_histograms(by_kind("density", "values")),
        "densities": plot_head_densities(by_kind("density", "mean")),
        "diversity": plot_head_diversity(by_kind("diversity", "mean")),
        "positional": plot_positional_confidence(positional),
    }
    if watched := [one.watched for one in measured if one.watched]:
        paths = {kind: watched[-1][kind] for kind in KINDS}
        pictures["alpha_trajectories"] = plot_alpha_trajectories(watched[-1]["update"], paths)
    if learned := [alphas for one in measured if (alphas := one.translator.model.alphas())]:
        pictures["alpha_histograms"] = plot_alpha_histograms(learned[-1])
    if measured[0].by_k:
        scores = {
            one.label: {k: 100 * x["accuracy"] for k, x in one.by_k.items()} for one in measured
        }
        pictures["choice_of_k"] = plot_choice_of_k(scores, "tokens right, %")
    return pictures


# --- single heads on single sentences -------------------------------------------------------------
class _Shown:
    """A model's attention on one sentence pair, with the labels of its axes."""

    def __init__(self, one: Measured, pair: SentencePair) -> None:
        translator, self.one = one.translator, one
        name = translator.token
        self.weights = next(corpus_attention(translator.model, translator.pairs([pair]))).weights
        source = translator.segmenter.split(pair.source)
        target = translator.target_segmenter.split(pair.target)
        read = [name(translator.model.bos), *target]
        self.labels = {
            "encoder": (source, source),
            "decoder": (read, read),
            "context": (source, [*target, name(translator.model.eos)]),
        }

    def panel(self, kind: str, place: tuple[int, int], value: str) -> AttentionPanel:
        """One head's map, at layer and head, with a value in its title."""
        layer, head = place
        title = f"{self.one.label}{_alpha_title(self.one, kind, place)}\n"
        title += f"{kind} layer {layer + 1}, head {head + 1}: {value}"
        return AttentionPanel(title, self.weights[kind][place], *self.labels[kind])


def _best(mean: Any) -> tuple[int, int]:
    layer, head = np.unravel_index(np.argmax(mean), mean.shape)
    return int(layer), int(head)


def _alpha_title(one: Measured, kind: str, place: tuple[int, int]) -> str:
    alphas = one.translator.model.alphas()
    return f", α = {alphas[kind][place]:.2f}" if alphas else ""


def _best_heads(
    measured: Sequence[Measured],
    pairs: Sequence[SentencePair],
    measure: Callable[[Measured], tuple[str, Any]],
) -> Any:
    """The best head of each model on each sentence; ``measure`` gives its kind and the means."""
    panels = []
    for pair in pairs:
        for one in measured:
            kind, mean = measure(one)
            place = _best(mean)
            panels.append(_Shown(one, pair).panel(kind, place, f"{mean[place]:.1%}"))
    return plot_attention_panels(panels, columns=len(measured)) if panels else None


def _previous_token(one: Measured) -> tuple[str, Any]:
    means = {kind: one.heads.positional[kind, -1].mean for kind in ("encoder", "decoder")}
    return max(means.items(), key=lambda item: item[1].max())


def _merging(measured: Sequence[Measured], pairs: Sequence[SentencePair]) -> Any:
    """On a sentence with a word of several pieces, if there is one; rather a short one."""
    if not measured[0].heads.merging.counts.any():
        return None
    split = measured[0].translator.segmenter.split
    joined = [pair for pair in pairs if word_clusters(split(pair.source))]
    joined.sort(key=lambda pair: not SHORTEST <= len(split(pair.source)) <= LONGEST)
    return _best_heads(measured, joined[:1], lambda one: ("encoder", one.heads.merging.mean))


def _question(
    measured: Sequence[Measured],
    pairs: Sequence[SentencePair],
    looking: Collection[str],
    marks: Collection[str],
) -> Any:
    """On a sentence with the mark, and below on one without."""
    split = measured[0].translator.segmenter.split

    def has(pair: SentencePair, tokens: Collection[str]) -> bool:
        return any(piece.removeprefix("▁") in tokens for piece in split(pair.source))

    with_words = [pair for pair in pairs if has(pair, looking)]
    asking = [pair for pair in with_words if has(pair, marks)][:1]
    stating = [pair for pair in with_words if not has(pair, marks)][:1]
    if not asking:
        return None
    return _best_heads(measured, asking + stating, lambda one: ("encoder", one.heads.marked.mean))


class Contrast(NamedTuple):
    """A head of the encoder on two sentences of one length, the sparsest and the densest."""

    gap: float
    place: tuple[int, int]  #: layer and head
    sentences: tuple[int, int]


def largest_contrast(density: PerSentence) -> Contrast | None:
    """Where densities differ most between sentences of one length; None if nowhere.

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
        gap = np.ptp(density.values[chosen], axis=0)
        place = _best(gap)
        if gap[place] > most.gap:
            values = density.values[(chosen, *place)]
            ends = int(chosen[values.argmin()]), int(chosen[values.argmax()])
            most = Contrast(float(gap[place]), place, ends)
    return most if most.gap else None


def _ambiguity(measured: Sequence[Measured], pairs: Sequence[SentencePair]) -> Any:
    """Of all models, the head whose density differs most at one sentence length."""
    contrasts = [(one, largest_contrast(one.heads.density["encoder"])) for one in measured]
    differing = [(contrast, one) for one, contrast in contrasts if contrast is not None]
    if not differing:
        return None
    contrast, one = max(differing, key=lambda item: item[0].gap)
    density = one.heads.density["encoder"].values
    panels = [
        _Shown(one, pairs[i]).panel(
            "encoder", contrast.place, f"density {density[(i, *contrast.place)]:.2f}"
        )
        for i in contrast.sentences
    ]
    return plot_attention_panels(panels, columns=2)


def _patterns(measured: Sequence[Measured], example: SentencePair) -> Any:
    """The heads of one decoder layer at one token, below patterns that no sentence changes."""
    one = max(measured, key=lambda one: one.heads.density["decoder"].mean.std())
    shown = _Shown(one, example)
    layer = int(np.argmax(one.heads.density["decoder"].mean.std(axis=1)))  # where heads differ most
    weights = shown.weights["decoder"][layer]
    at = weights.shape[-1] - 2
    places = np.arange(at + 1)
    span = places > at - SPAN
    strided = span | (places % SPAN == SPAN - 1)
    rows = np.stack([strided / strided.sum(), span / span.sum(), *weights[:, at, : at + 1]])
    read = shown.labels["decoder"][0][: at + 1]
    names = [f"strided, {SPAN}", f"span of {SPAN}"]
    names += [
        f"head {h + 1}{_alpha_title(one, 'decoder', (layer, h))}" for h in range(len(weights))
    ]
    # A no-break space: `plot_attention` shows the plain one as a token's own.
    labels = [name.replace(" ", "\N{NO-BREAK SPACE}") for name in names]
    title = f"{one.label}, decoder layer {layer + 1}, at “{read[-1]}”"
    return plot_attention_panels([AttentionPanel(title, rows, read, labels)])


def _context(measured: Sequence[Measured], example: SentencePair) -> Any:
    """Context attention, mean of its heads, of the first model and of a top-k or the last one."""
    chosen = [measured[0]]
    if len(measured) > 1:
        chosen.append(
            ([one for one in measured[1:] if one.label.startswith("top ")] or measured)[-1]
        )
    panels = []
    for name, layer in (("bottom", 0), ("top", -1)):
        for one in chosen:
            shown = _Shown(one, example)
            last = one.heads.last_source.mean[layer].mean()
            title = f"{one.label}, {name} layer, mean of heads\nlast source token: {last:.1%}"
            weights = shown.weights["context"][layer].mean(axis=0)
            panels.append(AttentionPanel(title, weights, *shown.labels["context"]))
    return plot_attention_panels(panels, columns=len(chosen))


# --- the command ----------------------------------------------------------------------------------
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, write numbers and pictures."""
    parser = argparse.ArgumentParser("head_pictures", description=str(__doc__).partition("\n")[0])
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="RUN")
    add("--examples", nargs="+", type=Path, metavar="DATA", required=True)
    add("--out", type=Path, metavar="DIR", required=True)
    add("--first", type=int, metavar="N", help="number of sentence pairs; all if not given")
    add("--reverse", action="store_true", help="swap source and target of the data")
    add("--looking", nargs="+", metavar="WORD", default=QUESTION_WORDS, help="source tokens")
    add("--marks", nargs="+", metavar="WORD", default=MARKS, help="whose weight they are given")
    add("--k", nargs="+", metavar="K", default=(), help="weights that heads keep in use, or all")
    add("--translate", type=int, default=0, metavar="N", help="and BLEU of N sentences, greedy")
    add("--quiet", action="store_true", help="no progress bar")
    args = parser.parse_args(arguments)
    if wrong := [k for k in args.k if k != "all" and not (k.isdecimal() and int(k) > 0)]:
        parser.error(f"--k: expected numbers from 1 up, or 'all', got {wrong[0]!r}")
    pairs = read_pairs(args.examples, reverse=args.reverse)[: args.first]
    words = {"looking": set(args.looking), "marks": set(args.marks)}
    measured = measure(
        args.models,
        pairs,
        **words,
        ks=args.k,
        translated=args.translate,
        progress=not args.quiet,
    )
    print(describe(measured))
    files = [write(measured, args.out), *draw(measured, pairs, args.out, **words)]
    print(*(f"written: {path}" for path in files), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
