"""The table of what is there, the curves towards it, and pictures of a trained model.

    OUT/table.md            all runs, finished or not, seeds averaged
    OUT/differences.json    BLEU of each run minus that of softmax, by paired bootstrap
    OUT/starts.png          accuracy and supports against updates, for each way to start

All of it comes from the small JSON files of the runs; only the bootstrap needs the translations and
the references, and keeps its figures where they are not at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyentmax.analysis import merging_scores, word_clusters
from pyentmax.calls.devices import to_host
from pyentmax.tasks.records import of_results, read_json, write_json, write_text
from pyentmax.tasks.runs import CURVE, Run, read_curve, read_result, recorded_runs
from pyentmax.tasks.translation.experiments.measures import paired_bootstrap
from pyentmax.tasks.translation.experiments.rows import ROWS, directed, row
from pyentmax.tasks.translation.experiments.runs import TRANSLATIONS
from pyentmax.tasks.translation.multi30k import read_multi30k
from pyentmax.tasks.translation.translator import Translator

DIFFERENCES = "differences.json"
POINTS = (400, 800, 1200, 1600, 2400, 3200)
"""Updates at which the accuracies of the runs are put side by side."""
PARTS = ("encoder", "decoder", "context", "output")
STARTS = (
    "transformer-1",
    "transformer-1.5",
    "transformer-1.5-third",
    "transformer-1.5-slow",
    "transformer-1.5-switch",
    "transformer-1.5-late",
)


class Recorded(NamedTuple):
    """What the files of a run tell: its curve, and its result if it is finished."""

    run: Run
    curve: list[dict[str, Any]]
    result: dict[str, Any] | None

    @property
    def updates(self) -> int:
        """How far the run is."""
        return int(self.result["updates"] if self.result else self.curve[-1]["update"])

    @property
    def accuracy(self) -> float:
        """The best dev token accuracy so far, in percent; of a finished run, until then."""
        # The curve of a run that is being made longer goes on.
        until = [entry for entry in self.curve if entry["update"] <= self.updates]
        return max(float(entry["dev_token_accuracy"]) for entry in until)


def recorded(out: Path) -> list[Recorded]:
    """All runs that have been validated once, in the order of the rows."""
    rows = [directed(name, reverse=reverse) for name in ROWS for reverse in (False, True)]
    found = [
        Recorded(run, read_curve(out / run.folder), read_result(out / run.folder))
        for run in recorded_runs(out, rows, CURVE)
    ]
    return [entry for entry in found if entry.curve]


@of_results
def write_report(out: Path, data: Path | None = None) -> str:
    """Write ``table.md`` and the differences; returns the table."""
    runs = recorded(out)
    differences = _differences(out, runs, data)
    parts = (format_table(runs, differences), format_curves(runs))
    text = "\n\n".join(part for part in parts if part)
    write_text(out / "table.md", text + "\n")
    return text


def format_table(
    runs: Sequence[Recorded], differences: dict[str, dict[str, float]] | None = None
) -> str:
    """One line for each row and length, seeds averaged; unfinished runs have lines of their own."""
    lines = [
        "| row | what | seeds | updates | dev token accuracy | BLEU `val` | minus softmax (95%) | "
        "attended encoder / decoder / context | possible tokens | tokens/s |",
        "| --- " * 10 + "|",
    ]
    groups: dict[tuple[str, int, bool], list[Recorded]] = defaultdict(list)
    for entry in runs:
        groups[entry.run.row, entry.updates, entry.result is not None].append(entry)
    for (name, updates, _), group in groups.items():
        results = [entry.result for entry in group if entry.result]
        measured = [r["supports"] for r in results] or [entry.curve[-1] for entry in group]
        attended = " / ".join(_number([m[p] for m in measured if p in m]) for p in PARTS[:3])
        found = [
            differences[e.run.folder] for e in group if differences and e.run.folder in differences
        ]
        difference = "; ".join(
            f"{d['difference']:+.1f} ({d['low']:+.1f} to {d['high']:+.1f})" for d in found
        )
        cells = [
            name,
            row(name).what,
            str(len(group)),
            f"{updates:,}",
            _spread([entry.accuracy for entry in group]),
            _spread([r["bleu"] for r in results]),
            difference or "–",
            attended,
            _number([m["output"] for m in measured]),
            _number([r["tokens_per_second"] for r in results], 0),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if signatures := sorted({e.result["signature"] for e in runs if e.result}):
        lines += ["", f"BLEU: sacrebleu, {'; '.join(signatures)}."]
    return "\n".join(lines)


def format_curves(runs: Sequence[Recorded]) -> str:
    """Dev token accuracy after the same updates; "" before the first of them.

    The mean of the seeds that are as far as any of their row: the same ones all along a line.
    """
    furthest: dict[str, int] = defaultdict(int)
    for entry in runs:
        furthest[entry.run.row] = max(furthest[entry.run.row], entry.curve[-1]["update"])
    at: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in runs:
        if entry.curve[-1]["update"] == furthest[entry.run.row]:
            for point in entry.curve:
                at[entry.run.row][point["update"]].append(point["dev_token_accuracy"])
    points = [p for p in POINTS if any(p in curve for curve in at.values())]
    if not points:
        return ""
    lines = [
        "Dev token accuracy after so many updates:",
        "",
        f"| row | {' | '.join(f'{p:,}' for p in points)} |",
        "| --- " * (len(points) + 1) + "|",
    ]
    for name, curve in at.items():
        cells = [_number(curve.get(p, []), 1) for p in points]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(values: Sequence[float], digits: int = 1) -> str:
    return f"{np.mean(values):,.{digits}f}" if len(values) else "–"


def _spread(values: Sequence[float]) -> str:
    """The mean, with the standard error over several seeds."""
    if len(values) < 2:
        return _number(values)
    return f"{_number(values)} ± {np.std(values, ddof=1) / len(values) ** 0.5:.1f}"


def _differences(
    out: Path, runs: Iterable[Recorded], data: Path | None
) -> dict[str, dict[str, float]]:
    """BLEU of each finished run minus that of softmax, same seed, direction and updates.

    One that is there already stays where the translations are not at hand, as long as both runs
    have not been made longer.
    """
    path = out / DIFFERENCES
    there: dict[str, dict[str, float]] = read_json(path) if path.exists() else {}
    every = {entry.run: entry for entry in runs}  # one that is being made longer may have no result
    for run, entry in every.items():
        pair = entry, every.get(Run(_softmax_row(run.row), run.seed), entry)
        told = there.get(run.folder, {}).get("updates", entry.updates)
        if any(one.updates != told for one in pair):
            there.pop(run.folder, None)
    finished = {run: entry for run, entry in every.items() if entry.result}
    for run, entry in finished.items():
        dense = finished.get(Run(_softmax_row(run.row), run.seed))
        files = [out / r.folder / TRANSLATIONS for r in (run, dense.run)] if dense else []
        if (
            dense is None
            or dense.run == run
            or dense.updates != entry.updates
            or not all(file.exists() for file in files)
        ):
            continue
        ours, theirs = (file.read_text("utf-8").splitlines() for file in files)
        val = read_multi30k(data, reverse=row(run.row).reverse).val
        found = paired_bootstrap(ours, theirs, [pair.target for pair in val])
        figures = {name: round(x, 2) for name, x in found._asdict().items()}
        there[run.folder] = figures | {"updates": entry.updates}
    if there or path.exists():
        write_json(path, there)
    return there


def _softmax_row(name: str) -> str:
    """The row of softmax of the same architecture and direction."""
    dense = {"transformer": "transformer-1", "rnn": "rnn-1-1"}[row(name).architecture]
    return dense + (".reversed" if row(name).reverse else "")


# --- pictures -------------------------------------------------------------------------------------
@of_results
def draw_starts(out: Path, seed: int = 0) -> Path | None:
    """Draw ``starts.png``: the ways to start a sparse Transformer; None if there is no run."""
    from pyentmax.plotting import plot_starts, save_figure

    curves = {
        row(entry.run.row).what: entry.curve
        for entry in recorded(out)
        if entry.run.row in STARTS and entry.run.seed == seed
    }
    return save_figure(plot_starts(curves), out / "starts.png") if curves else None


def draw_pictures(out: Path, run: Run, data: Path | None, sentence: int) -> list[Path]:
    """Draw what a trained model finds possible in a dev sentence, and the head that joins words.

    Forced decoding of the reference (Peters et al. 2019, Figure 2) with the attention of a
    recurrent network (Figure 5), and of a Transformer the encoder's head that puts most weight
    within words of several pieces (Correia et al. 2019, Figure 8).
    """
    from pyentmax.plotting import plot_attention, plot_forced_decoding, save_figure

    dev = read_multi30k(data, reverse=row(run.row).reverse).dev
    if not 0 <= sentence < len(dev):
        raise ValueError(
            f"pictures: expected a dev sentence from 0 to {len(dev) - 1}, got {sentence}"
        )
    pair = dev[sentence]
    translator = Translator.load(out / run.folder)
    forced = translator.force(*pair)
    folder = out / run.folder
    split = translator.segmenter.split
    ax = plot_forced_decoding(forced, lambda token: translator.target.tokens[token])
    files = [save_figure(ax, folder / "forced.png")]
    if row(run.row).architecture == "rnn":
        target = [translator.target.tokens[token] for token in forced.tokens]
        ax = plot_attention(forced.attention, split(pair.source), target)
        return [*files, save_figure(ax, folder / "attention.png")]
    layer, head, score = merging_head(translator, [p.source for p in dev[:200]])
    pieces = split(pair.source)
    weights = _encoder_weights(translator, pair.source)[layer][head]
    ax = plot_attention(weights, pieces, pieces)
    ax.set_title(
        f"encoder layer {layer + 1}, head {head + 1}: {score:.2f} within words", fontsize=10
    )
    return [*files, save_figure(ax, folder / "merging.png")]


def merging_head(translator: Translator, sentences: Iterable[str]) -> tuple[int, int, float]:
    """Layer and head of the encoder that join the pieces of words most, with their score."""
    scores: Any = 0.0
    counts = 0
    for sentence in sentences:
        clusters = word_clusters(translator.segmenter.split(sentence))
        if clusters:
            weights = _encoder_weights(translator, sentence)
            scores = scores + len(clusters) * np.stack(
                [merging_scores(layer[None], [clusters]) for layer in weights]
            )
            counts += len(clusters)
    if not counts:
        raise ValueError("sentences: expected one with a word of several pieces, got none")
    mean = np.asarray(scores) / counts
    layer, head = np.unravel_index(mean.argmax(), mean.shape)
    return int(layer), int(head), float(mean[layer, head])


def _encoder_weights(translator: Translator, sentence: str) -> list[np.ndarray]:
    """The weights of the encoder on one sentence, (heads, T, T) of each layer."""
    source = translator.source_ids(sentence)[None]
    read = np.array([[translator.model.bos]])
    weights = translator.model.attention_weights(source, np.ones_like(source, bool), read)
    return [to_host(layer)[0] for layer in weights["encoder"]]
