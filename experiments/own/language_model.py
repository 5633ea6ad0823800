"""What does a small language model learn with each mapping in its heads? (Zhao et al. 2019, §4.3)

A decoder-only Transformer reads Tiny Shakespeare character by character: width 128, 4 layers, 4
heads, batches of 4 × 256 characters, 2,000 updates. Where a mapping can rule out what comes, the
measures are those of Martins et al. (2020), which stay finite.

What came out (held-out text, bits per character): softmax 2.795 ± 0.007, top-8 after a first half
as softmax 2.785 ± 0.010, 1.5-entmax after such a half 2.772 with 6 of 128 positions attended.
Relative positions are worth far more than any mapping (2.416). Table 3's own model, top-8 with
relative positions and memory, is 0.108 bits (95%: 0.104 to 0.114, three seeds) behind softmax after
400 updates, 0.060 (0.054 to 0.066) after 2,000, one seed. Models without memory are best read with
about the k that they were trained with, top-8 with memory with all weights. Five minutes a model on
one core.

    python -m experiments.own.language_model --data FOLDER --row softmax top8 --seed 0 1 2
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.analysis import PerSentence
from experiments.attention_start import StartConfig
from experiments.bootstrap import bootstrap_difference
from experiments.pictures import curves, panels, points, save
from experiments.runner import (
    Experiment,
    Line,
    Notes,
    Options,
    Settings,
    finished,
    run_options,
    speed,
)
from experiments.tables import grouped, markdown, mean, spread, values
from experiments.tasks.writer import Text, Writer, read_text, train_writer
from pyentmax.seq2seq.analysis import epsilon_perplexity, jensen_shannon, sparsemax_score
from pyentmax.seq2seq.data import DataError, cut
from pyentmax.seq2seq.models.language_model import LanguageModel
from pyentmax.seq2seq.training import Validation, fingerprint

SHAKESPEARE = Path("tinyshakespeare", "input.txt")
MODEL: Settings = {
    "width": 128,
    "layers": 4,
    "heads": 4,
    "inner": 512,
    "dropout": 0.1,
    "output": "1",
    "norm": "pre",
}
TRAINING: Settings = {
    "rate": 3e-3,
    "schedule": "inverse_sqrt",
    "warmup": 200,
    "clip": 1.0,
    "betas": [0.9, 0.98],
    "validate_every": 200,
}
CONTEXT, BATCH, UPDATES = 256, 4, 2000
KS = (1, 2, 4, 8, 16, 32, 64, 128)
LENGTHS = (256, 512, 1024)
TRACED = 4  # pieces of the held-out text on which attended positions are counted
STRETCH = 14  # neighbouring pieces that are resampled together
MEASURED = 64 * 256  # characters at its end on which other lengths and other k are tried
SCORES = (epsilon_perplexity, sparsemax_score, jensen_shannon)


class Row(NamedTuple):
    """A model of the table: how it differs from `MODEL` and `TRAINING`."""

    what: str
    model: dict[str, Any]
    training: dict[str, Any] = {}


def _row(what: str, attention: str, training: Any = None, **model: Any) -> Row:
    return Row(what, {"attention": attention, **model}, training or {})


_SLOW = {"rate_factors": {"query": 0.1, "key": 0.1}}
_LATE = {"first_attention": "1", "first_updates": 1000}
_RELATIVE = {"positions": "relative"}
_SCALED = {"length_scale": True}

ROWS: dict[str, Row] = {
    "softmax": _row("softmax", "1"),
    "1.5": _row("1.5-entmax from the start", "1.5"),
    "1.5-slow": _row("1.5, a tenth of the rate for queries and keys", "1.5", _SLOW),
    "1.5-late": _row("softmax for 1,000 updates, then 1.5", "1.5", _LATE),
    "1.5-later": _row(
        "softmax for 2,000 updates, then 1.5", "1.5", _LATE | {"first_updates": 2000}
    ),
    "learned": _row("α per head learned from the start", "learned"),
    "learned-slow": _row("α per head learned, a tenth of the rate", "learned", _SLOW),
    "learned-late": _row("softmax for 1,000 updates, then α learned", "learned", _LATE),
    **{f"top{k}": _row(f"the {k} largest of softmax", f"topk_softmax:{k}") for k in KS},
    "top8-late": _row("softmax for 1,000 updates, then top-8", "topk_softmax:8", _LATE),
    "softmax-scaled": _row("softmax, scores scaled by length", "1", **_SCALED),
    "1.5-late-scaled": _row("1.5-late, scores scaled by length", "1.5", _LATE, **_SCALED),
    "relative": _row("softmax, relative positions", "1", **_RELATIVE),
    "relative-1.5-late": _row("1.5-late, relative positions", "1.5", _LATE, **_RELATIVE),
    "relative-scaled": _row("relative, scaled by length", "1", **_RELATIVE, **_SCALED),
    "relative-1.5-late-scaled": _row(
        "relative-1.5-late, scaled by length", "1.5", _LATE, **_RELATIVE, **_SCALED
    ),
    "memory": _row("softmax, relative positions, memory", "1", **_RELATIVE, memory=256),
    "relative-top8": _row("top-8, relative positions", "topk_softmax:8", **_RELATIVE),
    **{
        f"memory-top{k}": _row(
            f"top-{k}, relative positions, memory", f"topk_softmax:{k}", **_RELATIVE, memory=256
        )
        for k in (4, 8, 16, 32)
    },
    "never": _row("softmax heads, output and loss of 1.5-entmax", "1", output="1.5"),
}
"""Name → row."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add(
        "--row",
        nargs="+",
        default=["softmax", "top8"],
        choices=ROWS,
        metavar="NAME",
        help=", ".join(ROWS),
    )
    add("--seed", nargs="+", type=int, default=[0], metavar="N", help="one model each")
    add("--updates", type=int, default=UPDATES, help="a finished run goes on to more")


def settings_of(name: str, seed: int, updates: int = UPDATES) -> Settings:
    """The settings of a row."""
    return {
        "row": name,
        "seed": seed,
        "updates": updates,
        "context": CONTEXT,
        "batch_size": BATCH,
        "model": {**MODEL, **ROWS[name].model},
        "training": {**TRAINING, **ROWS[name].training},
    }


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """Each row with each seed."""
    return [[settings_of(row, seed, args.updates) for seed in args.seed for row in args.row]]


def read_shakespeare(options: Options) -> Text:
    """The text known as Tiny Shakespeare: 1.1 million characters of his plays."""
    folder = options.data_folder(str(SHAKESPEARE))
    for path in (folder / SHAKESPEARE.name, folder / SHAKESPEARE):
        if path.exists():
            return read_text(path)
    raise DataError(f"{folder}: expected {SHAKESPEARE.name} or {SHAKESPEARE}")


# --- a run ----------------------------------------------------------------------------------------
def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model, and measure the best of its validations on the held-out text."""
    text = read_shakespeare(options)
    notes = Notes(folder)
    writer, history = train_writer(
        text,
        StartConfig(updates=settings["updates"], seed=settings["seed"], **settings["training"]),
        run_options(folder, options),
        context=settings["context"],
        batch_size=settings["batch_size"],
        on_validation=partial(_note, notes, text.held_out),
        **settings["model"],
    )
    finished(history)
    held_out = writer.encode(text.held_out)
    bits, scores = _scores(writer, held_out)
    context, memory = settings["context"], settings["model"].get("memory", 0)
    result = {
        "bits": bits,
        "attended": attended(writer, held_out).round(2).tolist(),
        "scores": scores,
        **speed(history),
        "data": fingerprint(list(text)),
        "curve": notes.curve(history),
    }
    if memory:  # each piece is read with what the memory would hold of the text before
        pieces = character_bits(writer, held_out, context + memory, context)
        result["pieces"] = pieces.reshape(-1, context).mean(axis=1).round(4).tolist()
    alphas = writer.model.alphas()
    if alphas:
        result["alphas"] = alphas["self"].round(3).tolist()
    if bits is not None:
        result["by_length"] = {
            str(n): round(bits_of(writer, held_out, n, LENGTHS[0], MEASURED), 4) for n in LENGTHS
        }
        if settings["model"]["attention"].partition(":")[0] in ("1", "topk_softmax"):
            tried = {str(k): f"topk_softmax:{k}" for k in KS} | {"all": "softmax"}
            result["by_k"] = {
                name: round(bits_of(read_with(writer, choice), held_out, limit=MEASURED), 4)
                for name, choice in tried.items()
            }
    return result


def _note(notes: Notes, held_out: str, writer: Writer, validation: Validation) -> None:
    """How much the heads attend to on some pieces; the loss in bits, if it is cross-entropy."""
    note = {"attended": round(float(attended(writer, writer.encode(held_out)).mean()), 2)}
    if not writer.model.output_is_sparse:
        note["bits"] = round(validation.loss / math.log(2), 4)
    notes.add(validation.loss, note)


def attended(writer: Writer, tokens: np.ndarray) -> np.ndarray:
    """Mean number of positions with a weight above zero, by layer and head, on some pieces."""
    pieces = cut(tokens, np.arange(TRACED) * writer.context, writer.context).tokens_in
    weights = writer.model.attention_weights(pieces)
    return np.array([(x > 0).sum(axis=-1).mean(axis=(0, 2)) for x in weights])


def _scores(writer: Writer, tokens: np.ndarray) -> tuple[float | None, dict[str, float]]:
    """Bits per character, None where one was impossible; and measures that allow for it."""
    predictions = list(writer.predictions(tokens))
    p = np.concatenate([part.probabilities for part in predictions])
    labels = np.concatenate([part.labels for part in predictions])
    impossible = float((np.take_along_axis(p, labels[:, None], axis=1) == 0).mean())
    scores = {score.__name__: round(score(p, labels), 4) for score in SCORES}
    scores["possible"] = round(float((p > 0).sum(axis=-1).mean()), 2)
    scores["ruled_out"] = round(impossible, 5)
    return None if impossible else round(bits_of(writer, tokens), 4), scores


def bits_of(
    writer: Writer,
    tokens: np.ndarray,
    context: int | None = None,
    counted: int | None = None,
    limit: int | None = None,
) -> float:
    """Mean −log₂ p per character, of the last ``limit`` ones that `Writer.predictions` gives.

    It is ∞ where the model finds a character impossible.
    """
    if limit is not None:  # as much of the text as it takes
        tokens = tokens[-(limit + (context or writer.context) + 1) :]
    return float(character_bits(writer, tokens, context, counted)[-(limit or 0) :].mean())


def character_bits(
    writer: Writer, tokens: np.ndarray, context: int | None = None, counted: int | None = None
) -> np.ndarray:
    """−log₂ p of each character that `Writer.predictions` gives."""
    p = [
        np.take_along_axis(part.probabilities, part.labels[:, None], axis=1)[:, 0]
        for part in writer.predictions(tokens, context, counted)
    ]
    with np.errstate(divide="ignore"):
        return -np.log2(np.concatenate(p).astype(np.float64))


def read_with(writer: Writer, attention: str) -> Writer:
    """The same parameters, with another mapping in every head where the model is used."""
    model = writer.model
    config = replace(model.config, inference_attention=attention)
    other = LanguageModel(config, model.params, model.bos, model.eos)
    return Writer(other, writer.vocabulary, writer.context)


# --- tables and pictures --------------------------------------------------------------------------
def report(lines: list[Line]) -> str:
    """The table, bits by k in use, and bits by the length of the text."""
    parts = [table(lines)]
    for name, what in (
        ("by_k", "Bits of the last 16,384 characters, read with the k largest weights:"),
        ("by_length", "The same characters, read in pieces of each length:"),
    ):
        if means := _means(lines, name):
            keys = list(next(iter(means.values())))
            rows = [[row, *(f"{bits[key]:.3f}" for key in keys)] for row, bits in means.items()]
            parts += [what, markdown(["row", *keys], rows)]
    if rows := memory_rows(lines):
        what = (
            "Read with the 256 characters before each piece; 95% by bootstrap over stretches of "
            f"{STRETCH} pieces of the text, since neighbours have their topic in common:"
        )
        columns = ["row", "seeds", "updates", "bits per character", "minus softmax (95%)"]
        parts += [what, markdown(columns, rows)]
    return "\n\n".join(parts)


def memory_rows(lines: Sequence[Line]) -> list[list[Any]]:
    """Models with a memory, read with it: a row each, compared with softmax of the same seeds."""
    found = []
    for (updates,), at in grouped(lines, "updates").items():
        pieces = {
            row: {one["settings"]["seed"]: np.array(one["result"]["pieces"]) for one in group}
            for (row,), group in grouped(at, "row").items()
            if values(group, "pieces")
        }
        dense = pieces.get("memory", {})
        for row, by_seed in pieces.items():
            mean_bits = [float(bits.mean()) for bits in by_seed.values()]
            both = [seed for seed in by_seed if seed in dense and row != "memory"]
            cells = [row, len(by_seed), f"{updates:,}", spread(mean_bits, 3)]
            if both:
                ours, theirs = (np.mean([x[s] for s in both], axis=0) for x in (by_seed, dense))
                gap = bootstrap_difference(_stretches(ours), _stretches(theirs))
                each = ", ".join(f"{(by_seed[s] - dense[s]).mean():+.3f}" for s in both)
                cells.append("{:+.3f} ({:+.3f} to {:+.3f}); ".format(*map(float, gap)) + each)
            found.append([*cells, "–"][:5])
    return found


def _stretches(pieces: Any) -> PerSentence:
    """Neighbouring pieces together, which are no independent draws."""
    parts = np.split(pieces, range(STRETCH, len(pieces), STRETCH))
    return PerSentence(np.array([part.mean() for part in parts]), np.array(list(map(len, parts))))


def table(lines: Sequence[Line]) -> str:
    """A line for each row and length of training, seeds averaged."""
    columns = "row, what, seeds, updates, bits per character, attended, ε-perplexity, "
    columns += "sparsemax score, Jensen-Shannon"
    rows = []
    for (name, updates), group in grouped(lines, "row", "updates").items():
        bits = values(group, "bits")
        rows.append(
            [
                name,
                ROWS[name].what,
                len(group),
                f"{updates:,}",
                spread(bits, 3) if bits else "∞",
                mean([float(np.mean(x)) for x in values(group, "attended")]),
                *(mean(values(group, "scores", score.__name__), 3) for score in SCORES),
            ]
        )
    return markdown(columns.split(", "), rows)


def _means(lines: Sequence[Line], name: str) -> dict[str, dict[str, float]]:
    """One entry of the results that have it, by row, the mean of the seeds."""
    means = {}
    for (row,), group in grouped(_longest(lines), "row").items():
        if entries := values(group, name):
            means[row] = {key: float(np.mean([e[key] for e in entries])) for key in entries[0]}
    return means


PICTURES = {  # rows of each picture of curves
    "curves": ("softmax", "1.5-slow", "1.5-late", "learned-late", "top8", "top8-late"),
    "positions": (
        "softmax",
        "softmax-scaled",
        "1.5-late-scaled",
        "relative",
        "relative-1.5-late",
        "memory",
    ),
}


def _longest(lines: Sequence[Line]) -> list[Line]:
    """Of each row, the lines after its most updates."""
    rows = grouped(lines, "row").values()
    longest = [max(line["settings"]["updates"] for line in row) for row in rows]
    return [
        line
        for row, updates in zip(rows, longest, strict=True)
        for line in row
        if line["settings"]["updates"] == updates
    ]


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw bits against updates, by mapping and by positions, and bits against k."""
    files = []
    for name, rows in PICTURES.items():
        axes = panels()
        runs_by_row = {}
        for row in rows:
            group = [line for line in _longest(lines) if line["settings"]["row"] == row]
            bits = [c["bits"] for c in values(group, "curve") if "bits" in c]
            if bits:
                update = values(group, "curve")[0]["update"]
                runs_by_row[row] = [(update, [float(x) for x in np.mean(bits, axis=0)])]
        curves(axes[0], runs_by_row, "update", "bits per character")
        files.append(save(axes, folder / f"{name}.png"))
    if by_k := _means(lines, "by_k"):
        trained_once = ["softmax", "top8", "top8-late"]
        chosen = {row: by_k[row] for row in trained_once if row in by_k}
        if {"softmax", *(f"top{k}" for k in KS)} <= set(by_k):
            trained = {str(k): by_k[f"top{k}"][str(k)] for k in KS}
            chosen["trained with that k"] = {**trained, "all": by_k["softmax"]["all"]}
        axes = panels()
        at: dict[str, dict[float, list[float]]] = {
            name: {_place(k): [x] for k, x in line.items()} for name, line in chosen.items()
        }
        points(axes[0], at, "k", "bits per character")
        ticks = [str(k) for k in KS] + ["all"]
        axes[0].set_xscale("log", base=2)
        axes[0].set_xticks([_place(k) for k in ticks], ticks)
        files.append(save(axes, folder / "k.png"))
    return files


def _place(k: str) -> int:
    """Where k stands on the axis; all 256 are "all"."""
    return CONTEXT if k == "all" else int(k)


EXPERIMENT = Experiment(
    "own/language_model", __doc__, runs, work, report, draw, add_options, "updates"
)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
