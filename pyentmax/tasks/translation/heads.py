"""What the heads of trained Transformers do on parallel text (Correia et al. 2019, §5).

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

The first model is the one that the others are compared with: softmax, if there is one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.analysis import (
    HeadMeasures,
    PerSentence,
    bootstrap_difference,
    corpus_attention,
    measure_heads,
    trajectory_statistics,
    word_clusters,
)
from pyentmax.data import DataError, Pair
from pyentmax.models.transformer import KINDS, Transformer, TransformerConfig
from pyentmax.tasks.model_files import best_of
from pyentmax.tasks.translation.bleu import bleu
from pyentmax.tasks.translation.parallel import SentencePair
from pyentmax.tasks.translation.translator import Translator
from pyentmax.training import LAST, read_history

MARKS = ("?",)
QUESTION_WORDS = (
    *("wer", "was", "wen", "wem", "wo", "wann", "wie", "warum", "welche", "welcher", "welches"),
    *("who", "what", "whom", "where", "when", "how", "why", "which"),
)
POSITIONAL = 0.8
"""A head with this confidence at an offset is counted as positional there."""


@dataclass(frozen=True)
class Measured:
    """A model and what was found of it.

    Attributes
    ----------
    label, path : str
        Its attention in words, and the file.
    translator : Translator
    heads : HeadMeasures
    watched : dict
        The α of its heads over the training, as `History.diagnostics`; empty if not followed.
    by_k : dict
        k → what `use_with_k` found.
    """

    label: str
    path: str
    translator: Translator
    heads: HeadMeasures
    watched: dict[str, Any]
    by_k: dict[str, dict[str, float]]


# --- measuring ------------------------------------------------------------------------------------
def measure(
    paths: Sequence[Path],
    pairs: Sequence[SentencePair],
    *,
    looking: Collection[str] = QUESTION_WORDS,
    marks: Collection[str] = MARKS,
    ks: Sequence[str] = (),
    translated: int = 0,
    progress: bool = False,
) -> list[Measured]:
    """Measure all models on the same sentence pairs.

    Parameters
    ----------
    paths : sequence of Path
        Checkpoints of Transformers, or folders of runs.
    pairs : sequence of SentencePair
    looking, marks : collections of str
        Tokens of the source whose weight on those marks is measured.
    ks : sequence of str
        Numbers of weights that heads may keep when used, or "all": see `use_with_k`.
    translated : int
        How many sentences are translated for each k, by greedy search.

    Raises
    ------
    DataError
        If a model is not a Transformer.
    """
    found = []
    for path in paths:
        translator = Translator.load(path)
        model = translator.model
        if not isinstance(model, Transformer):
            raise DataError(
                f"{path}: expected a Transformer, whose heads can be measured; got a recurrent "
                "network, which has one attention"
            )
        encoded = translator.pairs(pairs)
        pieces = [translator.segmenter.split(pair.source) for pair in pairs]
        heads = measure_heads(
            corpus_attention(model, encoded, progress=progress),
            clusters=[word_clusters(p) if _has_subwords(p) else [] for p in pieces],
            marked=[(_among(p, looking), _among(p, marks)) for p in pieces],
        )
        by_k = {k: use_with_k(translator, k, pairs, encoded, translated) for k in ks}
        found.append(Measured("", str(path), translator, heads, _alpha_trajectories(path), by_k))
    attentions = [attention_label(one.translator.model.config) for one in found]
    return [
        replace(one, label=label)
        if attentions.count(label) == 1
        else replace(one, label=f"{label} ({best_of(one.path).parent.name})")
        for one, label in zip(found, attentions, strict=True)
    ]


def use_with_k(
    translator: Translator,
    k: str,
    pairs: Sequence[SentencePair],
    encoded: Sequence[Pair],
    translated: int = 0,
) -> dict[str, float]:
    """How good a model is if each head keeps its k largest weights, or "all", in use.

    This is softmax over the k largest scores, also for heads that were trained with another
    mapping. Loss and share of right tokens are those of forced decoding.

    Returns
    -------
    dict
        ``loss``, ``accuracy`` and, if sentences are to be translated, ``bleu``.
    """
    model = translator.model
    choice = "softmax" if k == "all" else f"topk_softmax:{k}"
    config = replace(model.config, inference_attention=choice)
    other = type(model)(config, model.params, model.bos, model.eos)
    used = Translator(other, translator.source, translator.target, translator.segmenter)
    validation = used.validate(encoded)
    found = {"loss": validation.loss, "accuracy": validation.accuracy}
    if translated:
        some = pairs[:translated]
        translations = list(used.translate_all([pair.source for pair in some], beam=1))
        found["bleu"] = bleu(translations, [pair.target for pair in some]).score
    return found


def _has_subwords(pieces: Sequence[str]) -> bool:
    return any(piece.startswith("▁") for piece in pieces)


def _among(pieces: Sequence[str], tokens: Collection[str]) -> np.ndarray:
    return np.array([piece.removeprefix("▁") in tokens for piece in pieces])


def _alpha_trajectories(path: Path) -> dict[str, Any]:
    """The α of the heads over the training, if the model's run is there and learned them."""
    folder = best_of(path).parent
    diagnostics = read_history(folder).diagnostics if (folder / LAST).exists() else {}
    return diagnostics if all(kind in diagnostics for kind in KINDS) else {}


def attention_label(config: TransformerConfig) -> str:
    """The attention of a model in words.

    Examples
    --------
    >>> shape = {"source_size": 9, "target_size": 9}
    >>> [attention_label(TransformerConfig(**shape, attention=a)) for a in ("1", "1.5", "learned")]
    ['softmax', '1.5-entmax', 'α learned']
    """
    known = {"1": "softmax", "2": "sparsemax", "learned": "α learned"}
    name = config.attention
    if name.startswith("topk_softmax:"):
        return f"top {name.partition(':')[2]}"
    return known.get(name, f"{name}-entmax")


# --- numbers --------------------------------------------------------------------------------------
def numbers(found: Sequence[Measured]) -> dict[str, Any]:
    """All figures, as JSON can hold them; arrays are lists by layer, then by head."""
    first = found[0]
    gaps = {
        one.label: {
            kind: {
                name: _rounded(value)
                for name, value in bootstrap_difference(
                    one.heads.diversity[kind], first.heads.diversity[kind]
                )
                ._asdict()
                .items()
            }
            for kind in KINDS
        }
        for one in found[1:]
    }
    return {
        "sentences": len(first.heads.last_source.counts),
        "models": {one.label: _model_numbers(one) for one in found},
        f"diversity minus {first.label}": gaps,
    }


def _model_numbers(one: Measured) -> dict[str, Any]:
    heads, model = one.heads, one.translator.model
    numbers: dict[str, Any] = {
        "attention": model.config.attention,
        "alphas": {kind: _rounded(alpha) for kind, alpha in model.alphas().items()},
        "density": {kind: _rounded(x.mean) for kind, x in heads.density.items()},
        "diversity": {kind: _rounded(x.mean) for kind, x in heads.diversity.items()},
        "positional": {
            f"{kind} {offset:+d}": _rounded(x.mean)
            for (kind, offset), x in heads.positional.items()
        },
        "merging": {"words": int(heads.merging.counts.sum()), "score": _best(heads.merging)},
        "marked": {"tokens": int(heads.marked.counts.sum()), "mass": _best(heads.marked)},
        "last source token": _rounded(heads.last_source.mean),
        "choice of k": one.by_k,
    }
    if one.watched:
        paths = np.stack([np.asarray(one.watched[kind]) for kind in KINDS], axis=1)
        numbers["trajectory"] = trajectory_statistics(one.watched["update"], paths)._asdict()
    return numbers


def _best(measure: PerSentence) -> Any:
    return _rounded(measure.mean) if measure.counts.any() else None


def _rounded(values: Any) -> Any:
    return np.round(np.asarray(values, dtype=float), 4).tolist()


def describe(found: Sequence[Measured]) -> str:
    """The main figures as tables in Markdown, a column per model."""
    all_numbers = numbers(found)
    models = [all_numbers["models"][one.label] for one in found]
    gaps = all_numbers[f"diversity minus {found[0].label}"]
    rows: dict[str, list[str]] = {}
    for kind in KINDS:
        rows[f"density, {kind}: mean (least to most)"] = [_span(m["density"][kind]) for m in models]
    for kind in KINDS:
        rows[f"JS divergence, {kind}"] = [_span(m["diversity"][kind], 3) for m in models]
    if gaps:
        cells = ["–"]
        for gap in gaps.values():
            low, high = (np.array([gap[kind][end] for kind in KINDS]) for end in ("low", "high"))
            cells.append(f"{(low > 0).sum()} above, {(high < 0).sum()} below of {low.size}")
        rows[f"JS minus {found[0].label}, 95% bootstrap, layers"] = cells
    for title, name in (
        ("previous token, encoder", "encoder -1"),
        ("next token, encoder", "encoder +1"),
        ("own token, encoder", "encoder +0"),
        ("previous token, decoder", "decoder -1"),
    ):
        rows[f"{title}: best head, and how many ≥ {POSITIONAL:.0%}"] = [
            f"{np.max(m['positional'][name]):.1%}, "
            f"{np.count_nonzero(np.array(m['positional'][name]) >= POSITIONAL)}"
            for m in models
        ]
    for title, name, count, value in (
        ("joining pieces, best head", "merging", "words", "score"),
        ("weight on the mark, best head", "marked", "tokens", "mass"),
    ):
        rows[f"{title} ({models[0][name][count]:,} {count})"] = [
            "–" if m[name][value] is None else f"{np.max(m[name][value]):.1%}" for m in models
        ]
    for name, layer in (("bottom", 0), ("top", -1)):
        rows[f"context, {name} layer: weight on the last source token"] = [
            f"{np.mean(m['last source token'][layer]):.1%}" for m in models
        ]
    rows["α: below start after 10%, largest return, spread"] = [
        "{below_start:.0%}, {largest_return:.2f}, {spread:.2f}".format(**m["trajectory"])
        if "trajectory" in m
        else "–"
        for m in models
    ]
    tables = [_table("", [one.label for one in found], rows)]
    if found[0].by_k:
        by_k = {
            f"{one.label}: {name}": [f"{scores[name]:{digits}}" for scores in one.by_k.values()]
            for one in found
            for name, digits in (("accuracy", ".1%"), ("bleu", ".1f"))
            if all(name in scores for scores in one.by_k.values())
        }
        tables.append(_table("k in use", list(found[0].by_k), by_k))
    return "\n\n".join(tables)


def _table(corner: str, names: Sequence[str], rows: dict[str, list[str]]) -> str:
    lines = [
        [corner, *names],
        ["---"] * (len(names) + 1),
        *([name, *x] for name, x in rows.items()),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _span(values: Any, digits: int = 2) -> str:
    x = np.asarray(values, dtype=float)
    return f"{x.mean():.{digits}f} ({x.min():.{digits}f} to {x.max():.{digits}f})"


def write(found: Sequence[Measured], out: Path) -> Path:
    """Write ``heads.json``."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "heads.json"
    path.write_text(json.dumps(numbers(found), ensure_ascii=False, indent=1) + "\n", "utf-8")
    return path
