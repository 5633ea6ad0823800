"""What the heads of trained Transformers do on parallel text, all of §5 (Correia et al. 2019)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.analysis import HeadMeasures, PerSentence, corpus_attention, measure_heads
from experiments.bootstrap import bootstrap_difference
from experiments.correia2019.clusters import word_clusters
from experiments.correia2019.trajectories import trajectory_statistics
from experiments.tasks.translation.bleu import bleu
from experiments.tasks.translation.parallel import SentencePair
from experiments.tasks.translation.segmentation import Words
from experiments.tasks.translation.translator import Translator
from pyentmax.seq2seq.data import DataError, Pair
from pyentmax.seq2seq.inflection.saved_model import best_of
from pyentmax.seq2seq.models.transformer import KINDS, Transformer, TransformerConfig
from pyentmax.seq2seq.training import LAST, read_history

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
    label : str
        Its attention in words.
    translator : Translator
    heads : HeadMeasures
    watched : dict
        The α of its heads over the training, as `History.diagnostics`; empty if not followed.
    by_k : dict
        k → what `use_with_k` found.
    """

    label: str
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
    measured = []
    for path in paths:
        translator = Translator.load(path)
        model, split = transformer_of(translator, path), translator.segmenter.split
        encoded = translator.pairs(pairs)
        pieces = [split(pair.source) for pair in pairs]
        whole_words = isinstance(translator.segmenter, Words)
        heads = measure_heads(
            corpus_attention(model, encoded, progress=progress),
            clusters=[[] if whole_words else word_clusters(p) for p in pieces],
            marked=[(_among(p, looking), _among(p, marks)) for p in pieces],
        )
        by_k = {k: use_with_k(translator, k, pairs, encoded, translated) for k in ks}
        label, watched = attention_label(model.config), _alpha_trajectories(path)
        measured.append(Measured(label, translator, heads, watched, by_k))
    labels = distinct([one.label for one in measured], paths)
    return [replace(one, label=label) for one, label in zip(measured, labels, strict=True)]


def keeping(translator: Translator, k: str) -> Translator:
    """The same model, each head of which keeps its k largest weights, or "all", in use."""
    model = translator.model
    choice = "softmax" if k == "all" else f"topk_softmax:{k}"
    config = replace(model.config, inference_attention=choice)
    return translator.with_model(type(model)(config, model.params, model.bos, model.eos))


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
    used = keeping(translator, k)
    validation = used.validate(encoded)
    figures = {"loss": validation.loss, "accuracy": validation.accuracy}
    if translated:
        some = pairs[:translated]
        translations = list(used.translate_all([pair.source for pair in some], beam=1))
        figures["bleu"] = bleu(translations, [pair.target for pair in some]).score
    return figures


def _among(pieces: Sequence[str], tokens: Collection[str]) -> np.ndarray:
    return np.array([piece.removeprefix("▁") in tokens for piece in pieces])


def _alpha_trajectories(path: Path) -> dict[str, Any]:
    """The α of the heads over the training, if the model's run is there and learned them."""
    folder = best_of(path).parent
    diagnostics = read_history(folder).diagnostics if (folder / LAST).exists() else {}
    return diagnostics if all(kind in diagnostics for kind in KINDS) else {}


# --- numbers --------------------------------------------------------------------------------------
def numbers(measured: Sequence[Measured]) -> dict[str, Any]:
    """All figures, as JSON can hold them; arrays are lists by layer, then by head."""
    first = measured[0]
    gaps = {
        one.label: {
            kind: rounded(
                bootstrap_difference(
                    one.heads.diversity[kind], first.heads.diversity[kind]
                )._asdict()
            )
            for kind in KINDS
        }
        for one in measured[1:]
    }
    return {
        "sentences": len(first.heads.last_source.counts),
        "models": {one.label: _model_numbers(one) for one in measured},
        f"diversity minus {first.label}": gaps,
    }


def _model_numbers(one: Measured) -> dict[str, Any]:
    heads, model = one.heads, one.translator.model
    figures: dict[str, Any] = {
        "attention": model.config.attention,
        "alphas": rounded(model.alphas()),
        "density": rounded(heads.density),
        "diversity": rounded(heads.diversity),
        "positional": rounded({f"{kind} {n:+d}": x for (kind, n), x in heads.positional.items()}),
        "merging": {"words": int(heads.merging.counts.sum()), "score": rounded(heads.merging)},
        "marked": {"tokens": int(heads.marked.counts.sum()), "mass": rounded(heads.marked)},
        "last source token": rounded(heads.last_source),
        "choice of k": one.by_k,
    }
    if one.watched:
        paths = np.stack([np.asarray(one.watched[kind]) for kind in KINDS], axis=1)
        figures["trajectory"] = trajectory_statistics(one.watched["update"], paths)._asdict()
    return figures


def describe(measured: Sequence[Measured]) -> str:
    """The main figures as tables in Markdown, a column per model."""
    tables = [table("", [one.label for one in measured], rows(numbers(measured)))]
    if measured[0].by_k:
        by_k = {
            f"{one.label}: {name}": [f"{scores[name]:{digits}}" for scores in one.by_k.values()]
            for one in measured
            for name, digits in (("accuracy", ".1%"), ("bleu", ".1f"))
            if all(name in scores for scores in one.by_k.values())
        }
        tables.append(table("k in use", list(measured[0].by_k), by_k))
    return "\n\n".join(tables)


def rows(result: dict[str, Any]) -> dict[str, list[str]]:
    """Title → a cell for each model, of what `numbers` gave."""
    models = list(result["models"].values())
    first, *others = result["models"]
    cells: dict[str, list[str]] = {}
    for kind in KINDS:
        cells[f"density, {kind}: mean (least to most)"] = [span(m["density"][kind]) for m in models]
    for kind in KINDS:
        cells[f"JS divergence, {kind}"] = [span(m["diversity"][kind], 3) for m in models]
    if others:
        title = f"JS minus {first}, 95% bootstrap, layers"
        cells[title] = ["–"]
        for gap in result[f"diversity minus {first}"].values():
            low, high = (np.array([gap[kind][end] for kind in KINDS]) for end in ("low", "high"))
            cells[title].append(f"{(low > 0).sum()} above, {(high < 0).sum()} below of {low.size}")
    for title, name in (
        ("previous token, encoder", "encoder -1"),
        ("next token, encoder", "encoder +1"),
        ("own token, encoder", "encoder +0"),
        ("previous token, decoder", "decoder -1"),
    ):
        heads = [np.array(m["positional"][name]) for m in models]
        cells[f"{title}: best head, and how many ≥ {POSITIONAL:.0%}"] = [
            f"{x.max():.1%}, {np.count_nonzero(x >= POSITIONAL)}" for x in heads
        ]
    for title, name, count, value in (
        ("joining pieces, best head", "merging", "words", "score"),
        ("weight on the mark, best head", "marked", "tokens", "mass"),
    ):
        cells[f"{title} ({models[0][name][count]:,} {count})"] = [
            "–" if m[name][value] is None else f"{np.max(m[name][value]):.1%}" for m in models
        ]
    for name, layer in (("bottom", 0), ("top", -1)):
        cells[f"context, {name} layer: weight on the last source token"] = [
            f"{np.mean(m['last source token'][layer]):.1%}" for m in models
        ]
    cells["α: below start after 10%, largest return, spread"] = [
        "{below_start:.0%}, {largest_return:.2f}, {spread:.2f}".format(**m["trajectory"])
        if "trajectory" in m
        else "–"
        for m in models
    ]
    return cells


def write(measured: Sequence[Measured], out: Path) -> Path:
    """Write ``heads.json``."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "heads.json"
    path.write_text(json.dumps(numbers(measured), ensure_ascii=False, indent=1) + "\n", "utf-8")
    return path


# --- labels and cells -----------------------------------------------------------------------------
def transformer_of(translator: Translator, path: Path) -> Transformer:
    """The model, if it is a Transformer; a DataError names the file otherwise."""
    if not isinstance(translator.model, Transformer):
        raise DataError(
            f"{path}: expected a Transformer, whose heads can be measured; got a recurrent "
            "network, which has one attention"
        )
    return translator.model


def distinct(labels: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """The labels; those of several models get the names of the folders."""
    return [
        label if labels.count(label) == 1 else f"{label} ({best_of(path).parent.name})"
        for label, path in zip(labels, paths, strict=True)
    ]


def attention_label(config: TransformerConfig) -> str:
    """The attention of a model in words.

    Examples
    --------
    >>> shape = {"source_size": 9, "target_size": 9}
    >>> [attention_label(TransformerConfig(**shape, attention=a)) for a in ("1", "1.5", "learned")]
    ['softmax', '1.5-entmax', 'α learned']
    """
    known = {"1": "softmax", "2": "sparsemax", "learned": "α learned"}
    name, _, k = config.attention.partition(":")
    if name == "topk_softmax":
        return f"top {k}"
    return known.get(config.attention, f"{config.attention}-entmax")


def rounded(values: Any) -> Any:
    """Arrays, the means of measures, or those in a dict, rounded; None if nothing was counted."""
    if isinstance(values, dict):
        return {name: rounded(value) for name, value in values.items()}
    if isinstance(values, PerSentence):
        return rounded(values.mean) if values.counts.any() else None
    return np.round(np.asarray(values, dtype=float), 4).tolist()


def table(corner: str, names: Sequence[str], cells: dict[str, list[str]]) -> str:
    """A table in Markdown; `cells` has a title and the cells of each row."""
    lines = [
        [corner, *names],
        ["---"] * (len(names) + 1),
        *([name, *x] for name, x in cells.items()),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def span(values: Any, digits: int = 2) -> str:
    """Mean, least and largest value."""
    x = np.asarray(values, dtype=float)
    return f"{x.mean():.{digits}f} ({x.min():.{digits}f} to {x.max():.{digits}f})"
