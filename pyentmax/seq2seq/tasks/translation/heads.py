"""What the heads of trained Transformers do on parallel text (Correia et al. 2019, §5).

    OUT/heads.json     all numbers
    OUT/densities.png  mean density of every head, by layer (Figure 5)

The other figures of that section are made by `experiments/correia2019/head_pictures.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.seq2seq.analysis import PerSentence, corpus_attention, measure_heads
from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.models.transformer import KINDS, Transformer, TransformerConfig
from pyentmax.seq2seq.plotting import plot_head_densities
from pyentmax.seq2seq.tasks.model_files import best_of
from pyentmax.seq2seq.tasks.reports import save
from pyentmax.seq2seq.tasks.translation.parallel import SentencePair
from pyentmax.seq2seq.tasks.translation.translator import Translator

Numbers = dict[str, dict[str, Any]]
"""Label of a model → its figures, as JSON can hold them; arrays are lists by layer, then head."""


def measure(
    paths: Sequence[Path], pairs: Sequence[SentencePair], *, progress: bool = False
) -> Numbers:
    """Measure all models on the same sentence pairs.

    Parameters
    ----------
    paths : sequence of Path
        Checkpoints of Transformers, or folders of runs.
    pairs : sequence of SentencePair

    Raises
    ------
    DataError
        If a model is not a Transformer.
    """
    labels, measured = [], []
    for path in paths:
        translator = Translator.load(path)
        model = transformer_of(translator, path)
        heads = measure_heads(corpus_attention(model, translator.pairs(pairs), progress=progress))
        figures = {
            "attention": model.config.attention,
            "alphas": rounded(model.alphas()),
            "density": rounded(heads.density),
            "diversity": rounded(heads.diversity),
            "positional": rounded({f"{k} {n:+d}": x for (k, n), x in heads.positional.items()}),
            "last source token": rounded(heads.last_source),
        }
        labels.append(attention_label(model.config))
        measured.append(figures)
    return dict(zip(distinct(labels, paths), measured, strict=True))


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


def rows(models: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Title → a cell for each model, of its figures."""
    models = list(models)
    cells = {
        f"density, {kind}: mean (least to most)": [span(m["density"][kind]) for m in models]
        for kind in KINDS
    }
    for kind in KINDS:
        cells[f"JS divergence, {kind}"] = [span(m["diversity"][kind], 3) for m in models]
    for title, name in (
        ("previous token, encoder", "encoder -1"),
        ("next token, encoder", "encoder +1"),
        ("own token, encoder", "encoder +0"),
        ("previous token, decoder", "decoder -1"),
    ):
        cells[f"{title}: best head"] = [f"{np.max(m['positional'][name]):.1%}" for m in models]
    for name, layer in (("bottom", 0), ("top", -1)):
        cells[f"context, {name} layer: weight on the last source token"] = [
            f"{np.mean(m['last source token'][layer]):.1%}" for m in models
        ]
    cells["α (least to most)"] = [
        span(np.concatenate([np.ravel(x) for x in m["alphas"].values()])) if m["alphas"] else "–"
        for m in models
    ]
    return cells


def describe(numbers: Numbers) -> str:
    """The main figures as a table in Markdown, a column per model."""
    return table("", list(numbers), rows(numbers.values()))


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


def write(numbers: Numbers, out: Path) -> list[Path]:
    """Write ``heads.json`` and ``densities.png``."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "heads.json"
    path.write_text(json.dumps(numbers, ensure_ascii=False, indent=1) + "\n", "utf-8")
    densities = {label: model["density"] for label, model in numbers.items()}
    return [path, *save({"densities": plot_head_densities(densities)}, out)]
