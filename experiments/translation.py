"""Models of translation on Multi30k with each attention and loss: what the papers' scripts share.

The last 1,000 training pairs are *dev*, for every choice; *val* is translated once, by the finished
run. The joint vocabulary has 4,000 sub-words. Trained models and translations stay next to the run:
Multi30k's captions are not ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.attention_start import StartConfig
from experiments.peters2019.bisection import bisection
from experiments.runner import (
    Experiment,
    Line,
    Notes,
    Options,
    Settings,
    Unready,
    finished,
    folder_of,
    run_options,
    speed,
)
from experiments.tables import grouped, markdown, mean, spread, values
from experiments.tasks.translation import Translator, train_translator
from experiments.tasks.translation.bleu import bleu
from experiments.tasks.translation.parallel import Multi30k, read_multi30k
from experiments.tasks.translation.segmentation import learn_subwords
from pyentmax.engine.system.files import replacing
from pyentmax.seq2seq.data import Pair, bucketed_batches, make_batch
from pyentmax.seq2seq.decoding import forced_decoding
from pyentmax.seq2seq.models.transformer import KINDS, Transformer
from pyentmax.seq2seq.training import Validation, fingerprint

BEAM, SUBWORDS = 5, 4000
TRACED = 200  # dev pairs on which supports are measured at each validation
POINTS = (400, 800, 1200, 1600, 2400, 3200)  # updates at which curves are compared
PARTS = ("encoder", "decoder", "context")

_AVERAGED = {"average": 5, "average_every": 20}  # alone, the last batches decide lengths
_SHARED = {"schedule": "inverse_sqrt", "betas": [0.9, 0.98], "clip": 1.0, **_AVERAGED}
MODELS: dict[str, Settings] = {
    "transformer": {
        "width": 128,
        "layers": 3,
        "heads": 4,
        "inner": 512,
        "norm": "pre",
        "dropout": 0.3,
        "attention": "1",
        "output": "1",
        "tied": "output",
    },
    "rnn": {"hidden": 256, "layers": 1, "dropout": 0.3},
}
TRAININGS: dict[str, Settings] = {
    "transformer": {"rate": 5e-3, "warmup": 400, "validate_every": 200, **_SHARED},
    "rnn": {"rate": 2e-3, "warmup": 200, "validate_every": 100, **_SHARED},
}
UPDATES = {"transformer": 3200, "rnn": 1200}


class Row(NamedTuple):
    """A model of a table: how it differs from `MODELS` and `TRAININGS`."""

    architecture: str
    what: str
    model: dict[str, Any]
    training: dict[str, Any] = {}
    pieces: dict[str, Any] = {}  # how sub-words are learned, if otherwise
    data: dict[str, int] = {}  # number of sub-words and size of batches, if otherwise
    beside: str = ""  # the row that it is compared with; softmax of its architecture if not named


def transformer(what: str, attention: str, training: Any = None, **model: Any) -> Row:
    """A Transformer with that mapping in its heads."""
    return Row("transformer", what, {"attention": attention, **model}, training or {})


PYTORCH_START = {"start": "uniform", "embedding_std": 1.0}


def recurrent(
    attention: str, output: str, start: Any = PYTORCH_START, change: str = "", **changes: Any
) -> Row:
    """A recurrent network; it starts as PyTorch's layers do, unless another start is given."""
    what = f"attention {attention}, loss {output}{change}"
    return Row("rnn", what, {"attention": attention, "output": output, **start}, **changes)


# Peters et al.: Adam as it is, halved when the validation loss has risen; no mean of models.
PAPER_RATE = {"rate": 1e-3, "schedule": "halve", "warmup": None, "betas": [0.9, 0.999]}
PAPER_RATE |= {"clip": 5.0, "average": 1, "average_every": None}
# Transformer-Base, whose rate is width^−½ · warmup^−½ where the paper gives none.
BASE = {"width": 512, "layers": 6, "heads": 8, "inner": 2048, "norm": "post", "dropout": 0.1}
BASE |= {"tied": "none"}
BASE_RATE = {"clip": 5.0, "average": 1, "average_every": None, "validate_every": 5000}
SWITCH = {"first_attention": "1", "first_updates": 400}
LATE = {"first_attention": "1", "first_updates": 1200}
ANNEAL = {"first_attention": "1", "first_updates": 200, "anneal_updates": 600}
SLOW = {"rate_factors": {"query": 0.1, "key": 0.1}}
THIRD = {"rate_factors": {"query": 0.3, "key": 0.3}}
ALPHAS = ("1", "1.25", "1.5", "1.75", "2", "2.5")
KS = (4, 8, 16, 32)

ROWS: dict[str, Row] = {
    "transformer-1": transformer("softmax", "1"),
    "transformer-1.5": transformer("1.5-entmax from the start", "1.5"),
    "transformer-1.5-switch": transformer("softmax for 400 updates, then 1.5", "1.5", SWITCH),
    "transformer-1.5-late": transformer("softmax for 1,200 updates, then 1.5", "1.5", LATE),
    "transformer-1.5-anneal": transformer("α = 1 for 200 updates, up to 1.5 in 600", "1.5", ANNEAL),
    "transformer-1.5-slow": transformer("1.5, 0.1 of the rate for queries and keys", "1.5", SLOW),
    "transformer-1.5-third": transformer("1.5, 0.3 of the rate for queries and keys", "1.5", THIRD),
    "transformer-1.5-slow-anneal": transformer(
        "1.5, 0.1 of the rate, and that α", "1.5", SLOW | ANNEAL
    ),
    "transformer-1-slow": transformer("softmax, 0.1 of the rate", "1", SLOW),
    "transformer-1.5-small": transformer(
        "1.5, queries and keys of a third at first", "1.5", {"query_key_scale": 0.33}
    ),
    "transformer-1.5-post": transformer("1.5, post-norm", "1.5", norm="post"),
    "transformer-1-post": transformer("softmax, post-norm", "1", norm="post"),
    "transformer-learned": transformer("α per head learned from the start", "learned"),
    "transformer-learned-switch": transformer(
        "softmax for 400 updates, then α per head learned", "learned", SWITCH
    ),
    "transformer-learned-late": transformer(
        "softmax for 1,200 updates, then α per head learned", "learned", LATE
    ),
    "transformer-learned-late-even": transformer(
        "softmax for 1,200 updates, then α learned from 1.5 in each head",
        "learned",
        LATE,
        alpha_std=0.0,
    ),
    "transformer-learned-slow": transformer("α learned, 0.1 of the rate", "learned", SLOW),
    "transformer-2": transformer("sparsemax from the start", "2"),
    "transformer-2-late": transformer("softmax for 1,200 updates, then sparsemax", "2", LATE),
    "transformer-2-slow": transformer("sparsemax, 0.1 of the rate", "2", SLOW),
    **{
        f"transformer-top{k}": transformer(f"the {k} largest of softmax", f"topk_softmax:{k}")
        for k in KS
    },
    "transformer-top8-late": transformer(
        "softmax for 1,200 updates, then its 8 largest", "topk_softmax:8", LATE
    ),
    **{f"rnn-{alpha}-1.5": recurrent(alpha, "1.5") for alpha in ALPHAS},
    **{f"rnn-1.5-{alpha}": recurrent("1.5", alpha) for alpha in ALPHAS},
    "rnn-1-1": recurrent("1", "1"),
    "rnn-2-2": recurrent("2", "2"),
    "rnn-bisection": recurrent(*2 * [f"{bisection.name}:1.5"]),  # for training time (Figure 6)
    # Glorot's start, with the deviation of embeddings that suits each: 1, or 1/√hidden.
    "rnn-1-1-glorot": recurrent("1", "1", {"embedding_std": 1.0}),
    "rnn-1.5-1.5-glorot": recurrent("1.5", "1.5", {}),
    **{
        f"rnn-1.5-1.5-{name}": recurrent(
            "1.5", "1.5", change=f", {what}", beside="rnn-1.5-1.5", **changes
        )
        for name, what, changes in (
            ("bpe", "byte-pair encoding", {"pieces": {"algorithm": "bpe"}}),
            ("separate", "4,000 sub-words a side", {"pieces": {"separate": True}}),
            ("halve", "the paper's optimiser", {"training": PAPER_RATE}),
        )
    },
    # The papers' own settings, for corpora of their size and many days: there 32,000 sub-words of
    # the first two. With --updates 2 they run.
    "rnn-published": Row(
        "rnn",
        "settings of Peters et al., 100,000 updates",
        {"hidden": 500, "layers": 2, "attention": "1.5", "output": "1.5"},
        PAPER_RATE | {"validate_every": 5000},
        {"algorithm": "bpe"},
        {"subwords": 10_000, "batch_size": 64},
    ),
    "transformer-learned-published": Row(
        "transformer",
        "settings of Correia et al., until the validation's accuracy has converged",
        BASE | {"attention": "learned"},
        BASE_RATE | {"rate": 3.1e-4, "warmup": 20_000, "patience": 5},
        {"algorithm": "bpe"},
        {"subwords": 10_000, "tokens": 8192},
    ),
    "transformer-top8-published": Row(
        "transformer",
        "settings of Zhao et al., 22,500 updates, the mean of the last ten epochs",
        BASE | {"attention": "topk_softmax:8"},
        {"rate": 7e-4, "warmup": 4000, "clip": 5.0, "accumulate": 4, "validate_every": 250}
        | {"average": 10, "average_every": 250},
        {"algorithm": "bpe"},
        {"subwords": 10_000, "tokens": 4096},
    ),
}
"""Name → row. Of a recurrent network the first number is the attention's α, then the loss's."""


def settings_of(
    name: str, seed: int, updates: int | None = None, *, reverse: bool = False
) -> Settings:
    """The settings of a row."""
    row = ROWS[name]
    pieces = {"pieces": row.pieces} if row.pieces else {}
    return {
        "row": name,
        "seed": seed,
        "updates": UPDATES[row.architecture] if updates is None else updates,
        "direction": "en-de" if reverse else "de-en",
        "subwords": SUBWORDS,
        **pieces,
        "tokens": 1200,
        **row.data,
        "architecture": row.architecture,
        "model": {**MODELS[row.architecture], **row.model},
        "training": {**TRAININGS[row.architecture], **row.training},
    }


def add_options(
    parser: argparse.ArgumentParser, rows: Sequence[str], updates: int | None = None
) -> None:
    """Options of all experiments on translation, with the rows that one trains by default."""
    add = parser.add_argument
    add("--row", nargs="+", default=rows, choices=ROWS, metavar="NAME", help=", ".join(ROWS))
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    default = "3,200 of a Transformer, 1,200 of a recurrent network" if updates is None else updates
    add("--updates", type=int, default=updates, help=f"{default} if not given; can be raised later")
    add("--direction", choices=("de-en", "en-de"), default="de-en")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """All rows, then the difference in BLEU of each from its `compared_with` of the same seed."""
    reverse = args.direction == "en-de"
    models = [
        settings_of(row, seed, args.updates, reverse=reverse)
        for seed in args.seed
        for row in args.row
    ]
    differences = [
        {"row": one["row"], "minus": other, **{k: one[k] for k in ("seed", "updates", "direction")}}
        for one in models
        if (other := compared_with(one["row"])) != one["row"] and other in args.row
    ]
    return [models, differences]


def models(args: argparse.Namespace) -> list[list[Settings]]:
    """All rows, compared with none."""
    return runs(args)[:1]


def experiment(
    name: str, doc: str | None, rows: Sequence[str], updates: int | None = None, **changes: Any
) -> Experiment:
    """A table of translation: what is trained by default, and what differs from the others."""
    table = Experiment(
        name,
        doc or "",
        runs,
        work,
        report,
        add_options=partial(add_options, rows=rows, updates=updates),
        grows="updates",
    )
    return replace(table, **changes)


def compared_with(name: str) -> str:
    """The row that a row names, or that of softmax of the same architecture."""
    dense = {"transformer": "transformer-1", "rnn": "rnn-1-1"}
    return ROWS[name].beside or dense[ROWS[name].architecture]


# --- a run ----------------------------------------------------------------------------------------
def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model and translate with the best of its validations; or compare two models."""
    if "minus" in settings:
        return _difference(settings, folder, options)
    translator, data, result = train(settings, folder, options)
    started = time.perf_counter()
    sources = [pair.source for pair in data.val]
    translations = list(translator.translate_all(sources, beam=BEAM, progress=not options.quiet))
    seconds = time.perf_counter() - started
    with replacing(_translations(folder, settings)) as file:
        file.write("".join(f"{line}\n" for line in translations).encode())
    score = bleu(translations, [pair.target for pair in data.val])
    val = translator.pairs(data.val)
    return result | {
        "bleu": round(score.score, 2),
        "signature": score.signature,
        "beam": BEAM,
        "decode_seconds": round(seconds, 1),
        "supports": {name: round(x, 3) for name, x in supports(translator, val).items()},
    }


def read_data(options: Options, direction: str) -> Multi30k:
    """Multi30k, from German or into it."""
    folder = options.data_folder("multi30k/tok")
    return read_multi30k(folder, reverse=direction == "en-de")


def _translations(folder: Path, settings: Settings) -> Path:
    return folder.with_name(f"{folder.name}.{settings['updates']}.translations.txt")


def train(settings: Settings, folder: Path, options: Options) -> tuple[Translator, Multi30k, Any]:
    """Train or resume a model; returns it, the sentences and what the training found."""
    data = read_data(options, settings["direction"])
    learned = {"seed": settings["seed"], "normalization": "nmt_nfkc", **settings.get("pieces", {})}
    notes = Notes(folder)
    translator, history = train_translator(
        settings["architecture"],
        data.train,
        data.dev,
        StartConfig(updates=settings["updates"], seed=settings["seed"], **settings["training"]),
        run_options(folder, options),
        **learn_subwords(data.train, settings["subwords"], **learned),
        tokens=settings["tokens"],
        batch_size=settings.get("batch_size"),
        on_validation=partial(_note, notes, data),
        **settings["model"],
    )
    finished(history)
    result = {
        "dev_accuracy": max(history.dev_accuracy),
        **speed(history),
        "data": fingerprint(data),
        "curve": notes.curve(history),
        **_alphas(translator),
    }
    if history.diagnostics:
        result["diagnostics"] = history.diagnostics
    return translator, data, result


def _note(notes: Notes, data: Multi30k, translator: Translator, validation: Validation) -> None:
    """How much the attention sees on some dev sentences."""
    seen = supports(translator, translator.pairs(data.dev[:TRACED]))
    notes.add(validation.loss, {n: round(x, 3) for n, x in seen.items()} | _alphas(translator))


def _alphas(translator: Translator) -> dict[str, Any]:
    """The learned α of each head, if there are any."""
    if not isinstance(translator.model, Transformer):
        return {}
    alphas = translator.model.alphas()
    return {"alphas": {kind: x.round(3).tolist() for kind, x in alphas.items()}} if alphas else {}


def supports(
    translator: Translator, pairs: Sequence[Pair], batch_size: int = 64
) -> dict[str, float]:
    """Mean number of positions with a weight above zero, and of possible tokens, per query.

    The model reads the references (forced decoding). Of a Transformer's attentions, "encoder",
    "decoder" and "context", the mean goes over all heads and layers; a recurrent network has
    "context" only. "output" counts the tokens of the vocabulary.
    """
    sums: dict[str, list[float]] = {}
    for index in bucketed_batches(pairs, batch_size):
        batch = make_batch(pairs, index)
        if isinstance(translator.model, Transformer):
            counts = _transformer_supports(translator.model, batch)
        else:
            targets = [pairs[i][1] for i in index]
            forced = forced_decoding(translator.model, batch.source, batch.source_mask, targets)
            counts = {
                "context": np.concatenate([(f.attention > 0).sum(axis=-1) for f in forced]),
                "output": np.concatenate([f.support.sum(axis=-1) for f in forced]),
            }
        for name, count in counts.items():
            total = sums.setdefault(name, [0.0, 0.0])
            total[0] += float(count.sum())
            total[1] += count.size
    return {name: total / number for name, (total, number) in sums.items()}


def _transformer_supports(model: Transformer, batch: Any) -> dict[str, np.ndarray]:
    weights = model.attention_weights(batch.source, batch.source_mask, batch.target_in)
    queries = dict.fromkeys(KINDS, batch.target_mask) | {"encoder": batch.source_mask}
    supports = {}
    for kind, layers in weights.items():
        counts = [(layer > 0).sum(axis=-1) for layer in layers]  # (B, H, T) each
        supports[kind] = np.stack(counts, axis=-1).swapaxes(1, 2)[queries[kind]]
    arrays = batch.source, batch.source_mask, batch.target_in
    _, support = model.output.probabilities(model.scores(model.params, *arrays).data)
    supports["output"] = support.sum(axis=-1)[batch.target_mask]
    return supports


# --- differences in BLEU --------------------------------------------------------------------------
def _difference(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """BLEU of a row minus that of another, with a 95% interval by paired bootstrap."""
    reverse = settings["direction"] == "en-de"
    translated = []
    for row in (settings["row"], settings["minus"]):
        one = settings_of(row, settings["seed"], settings["updates"], reverse=reverse)
        path = _translations(folder_of(folder.parent, one, "updates"), one)
        if not path.exists():
            raise Unready(f"{row} is not trained")
        translated.append(path.read_text("utf-8").splitlines())
    val = read_data(options, settings["direction"]).val
    names = ("difference", "low", "high")
    ours, theirs = translated
    interval = paired_bootstrap(ours, theirs, [pair.target for pair in val])
    return dict(zip(names, (round(x, 2) for x in interval), strict=True))


def paired_bootstrap(
    first: Sequence[str], second: Sequence[str], references: Sequence[str], samples: int = 1000
) -> tuple[float, float, float]:
    """BLEU of the first system minus the second's, and bounds of its 95% interval (Koehn 2004).

    Examples
    --------
    >>> references = ["a dog sees a cat .", "the old man sleeps ."] * 20
    >>> worse = ["a dog sees a cat .", "the man sleeps well ."] * 20
    >>> difference, low, high = paired_bootstrap(references, worse, references)
    >>> 0 < low < difference < high
    True
    """
    counts = np.stack([_counts(system, references) for system in (first, second)])
    rng = np.random.default_rng(0)
    n = len(references)
    drawn = [rng.integers(n, size=n) for _ in range(samples)]
    scores = [[_bleu_of(system[i]) for system in counts] for i in drawn]
    low, high = np.percentile([a - b for a, b in scores], [2.5, 97.5])
    return _bleu_of(counts[0]) - _bleu_of(counts[1]), float(low), float(high)


def _counts(translations: Iterable[str], references: Iterable[str]) -> np.ndarray:
    """Per sentence: matching n-grams, all n-grams, and both lengths."""
    from sacrebleu import BLEU

    # Only counts are used; with its usual order sacrebleu would warn of short sentences.
    metric = BLEU(tokenize="none", force=True, effective_order=True)
    rows = []
    for translation, reference in zip(translations, references, strict=True):
        score = metric.sentence_score(translation, [reference])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows)


def _bleu_of(counts: np.ndarray) -> float:
    from sacrebleu import BLEU

    totals = [int(x) for x in counts.sum(axis=0)]
    right, total, lengths = totals[:4], totals[4:8], (totals[8], totals[9])
    # `corpus_score` smooths like this where an order has no match; this function does not unasked.
    return float(BLEU.compute_bleu(right, total, *lengths, smooth_method="exp").score)


# --- tables ---------------------------------------------------------------------------------------
def report(lines: list[Line]) -> str:
    """The table of all rows, and the accuracies on the way."""
    differences = [line for line in lines if "minus" in line["settings"]]
    models = [line for line in lines if "minus" not in line["settings"]]
    parts = [table(models, differences), by_update(models)]
    if signatures := sorted(set(values(models, "signature"))):
        parts.insert(1, f"BLEU: sacrebleu, {'; '.join(signatures)}.")
    return "\n\n".join(parts)


def label(name: str, direction: str) -> str:
    """The name of a row, with its direction unless it is German to English."""
    return name if direction == "de-en" else f"{name}, {direction}"


def table(models: Sequence[Line], differences: Sequence[Line] = ()) -> str:
    """A line for each row, direction and length, seeds averaged."""
    columns = (
        "row, what, seeds, updates, dev token accuracy, BLEU `val`, minus softmax or row (95%), "
        "attended encoder / decoder / context, possible tokens"
    ).split(", ")
    names = ("row", "direction", "updates")
    minus = grouped(differences, *names)
    rows = []
    for key, group in grouped(models, *names).items():
        name, direction, updates = key
        differences_of_row = [line["result"] for line in minus.get(key, [])]
        difference = [
            f"{d['difference']:+.1f} ({d['low']:+.1f} to {d['high']:+.1f})"
            for d in differences_of_row
        ]
        if difference and ROWS[name].beside:
            difference.append(ROWS[name].beside)
        seen = {part: _seen(group, part) for part in (*PARTS, "output")}
        rows.append(
            [
                label(name, direction),
                ROWS[name].what,
                len(group),
                f"{updates:,}",
                spread([100 * x for x in values(group, "dev_accuracy")]),
                spread(values(group, "bleu")),
                "; ".join(difference) or "–",
                " / ".join(mean(seen[part]) for part in PARTS),
                mean(seen["output"]),
            ]
        )
    return markdown(columns, rows)


def _seen(group: Sequence[Line], part: str) -> list[float]:
    """Mean supports on val, of a run that translated nothing those of its last validation."""
    curves = [curve[part][-1] for curve in values(group, "curve") if part in curve]
    return values(group, "supports", part) or curves


def by_update(models: Sequence[Line]) -> str:
    """Dev token accuracy after the same updates, the mean of a row's seeds."""
    rows = []
    for (name, direction, _), group in grouped(models, "row", "direction", "updates").items():
        at: dict[int, list[float]] = {}
        for curve in values(group, "curve"):
            for update, accuracy in zip(curve["update"], curve["dev_accuracy"], strict=True):
                at.setdefault(update, []).append(100 * accuracy)
        rows.append([label(name, direction), *(mean(at.get(point, [])) for point in POINTS)])
    return markdown(["dev token accuracy after", *(f"{point:,}" for point in POINTS)], rows)
