"""How accurate, sparse, exact and calibrated a model is on given examples, in one report.

These are the statistics of Peters et al. (2019): the share of sources for which one sequence has
all the probability, the share for which beam search is exact (§4.1), and the support sizes of
attention and output (Table 3). In addition, the report says what exact search proves where beam
search proves nothing, and how well the listed probabilities are calibrated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pyentmax.analysis import (
    Calibration,
    ExactnessStatistics,
    SupportSizes,
    calibration,
    exactness_by_beam,
    exactness_statistics,
    listed_predictions,
    smallest_exact_beam,
    support_sizes,
    word_accuracy,
)
from pyentmax.tasks.inflection.examples import Example
from pyentmax.tasks.inflection.inflector import Inflector

PAPER_BEAM = 5


@dataclass(frozen=True)
class ExactSearchGain:
    """What exact search adds where beam search is not exact."""

    beam: int  #: width of the beam: 5 as in the paper, or the report's own if that is smaller
    sources: int  #: number of sources for which this beam is not exact
    proved: int  #: number of those for which exact search proves the most probable string
    missed: int  #: number of the latter for which the report's beam listed another string first


@dataclass(frozen=True)
class SparsityReport:
    """What `measure` found."""

    beam: int  #: width of the beam; all figures but the support sizes come from its search
    accuracy: float  #: share of examples whose best string is the reference
    exactness: ExactnessStatistics
    by_beam: dict[int, float]  #: width, up to ``beam``, → share of sources for which it is exact
    gain: ExactSearchGain
    supports: SupportSizes  #: under forced decoding of the references
    best: Calibration | None  #: of the best string of each source; None if no string ended
    listed: Calibration | None  #: of all listed strings; None if no string ended


def measure(
    inflector: Inflector,
    examples: Sequence[Example],
    *,
    beam: int = 10,
    budget: int = 1000,
    batch_size: int = 64,
    progress: bool = False,
) -> SparsityReport:
    """Compute all statistics of a model on some examples.

    This takes one beam search, an exact search where that is not exact, and one forced decoding.
    The options are those of `Inflector.predict`. A ValueError says that there is no example, or
    that ``beam`` or ``budget`` is below 1.
    """
    if not examples:
        raise ValueError("examples: expected at least one, got none")
    results = inflector.predict(examples, batch_size, beam=beam, progress=progress)
    decodings = inflector.force_all(examples, batch_size, progress=progress)
    # Exact search, where a beam as wide as the paper's is not exact.
    width = min(PAPER_BEAM, beam)
    needed = [smallest_exact_beam(result) for result in results]
    undecided = [i for i, n in enumerate(needed) if n is None or n > width]
    found = inflector.predict(
        [examples[i] for i in undecided],
        batch_size=batch_size,
        search="exact",
        budget=budget,
        progress=progress,
    )
    proved = [(i, result) for i, result in zip(undecided, found, strict=True) if result.proved]
    missed = sum(result.best.tokens != results[i].best.tokens for i, result in proved)
    references = [example.form for example in examples]
    forms = [inflector.form(result.best.tokens) for result in results]
    calibrations = []
    for best_only in (True, False):
        predictions = listed_predictions(results, references, inflector.form, best_only=best_only)
        calibrations.append(calibration(*predictions) if predictions[0] else None)
    return SparsityReport(
        beam=beam,
        accuracy=word_accuracy(forms, references),
        exactness=exactness_statistics(results),
        by_beam=exactness_by_beam(results, range(1, beam + 1)),
        gain=ExactSearchGain(width, len(undecided), len(proved), missed),
        supports=support_sizes(said for _, said in decodings),
        best=calibrations[0],
        listed=calibrations[1],
    )


def describe(report: SparsityReport) -> str:
    """The report as lines of text."""
    exactness, supports, gain = report.exactness, report.supports, report.gain
    rows = [
        ("examples", f"{exactness.count:,}"),
        (f"right, beam {report.beam}", f"{report.accuracy:.1%}"),
        ("one sequence holds all probability", f"{exactness.single:.1%}"),
        ("strings listed, mean", f"{exactness.mean_hypotheses:.2f}"),
        ("their total probability, mean", f"{exactness.mean_mass:.4f}"),
    ]
    rows += [(f"beam {k} is exact", f"{share:.1%}") for k, share in report.by_beam.items()]
    rows += [
        (f"not exact with beam {gain.beam}", f"{gain.sources:,}"),
        ("  best string proved by exact search", _share(gain.proved, gain.sources)),
        (f"  and it is not the best of beam {report.beam}", f"{gain.missed:,}"),
        (
            "source positions attended, mean",
            f"{supports.mean_attention:.2f} of {supports.source_lengths.mean():.2f}",
        ),
        ("tokens possible next, mean", f"{supports.mean_output:.2f} of {supports.vocabulary}"),
        ("calibration error of the best string", _error(report.best)),
        ("calibration error of all listed strings", _error(report.listed)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:{width}}  {value:>16}" for name, value in rows)


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if whole else "–"


def _error(found: Calibration | None) -> str:
    return "no string ended" if found is None else f"{found.error:.2%}"


def write(report: SparsityReport, out: Path) -> Path:
    """Write ``statistics.json``: all figures, and the data of the pictures."""
    supports = report.supports
    numbers = {
        "beam": report.beam,
        "accuracy": report.accuracy,
        "exactness": asdict(report.exactness),
        "exact_by_beam": report.by_beam,
        "exact_search": asdict(report.gain),
        "mean_source_length": float(supports.source_lengths.mean()),
        "mean_attention_support": supports.mean_attention,
        "mean_output_support": supports.mean_output,
        "vocabulary": supports.vocabulary,
        # How many positions have a support of 0, 1, 2, …
        "attention_supports": np.bincount(supports.attention).tolist(),
        "output_supports": np.bincount(supports.output).tolist(),
        "calibration": {
            name: found and {"error": found.error, "bins": [asdict(one) for one in found.bins]}
            for name, found in (("best", report.best), ("listed", report.listed))
        },
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / "statistics.json"
    path.write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
    return path


def draw(report: SparsityReport, out: Path) -> list[Path]:
    """Draw exactness by beam, support sizes and, if a string ended, calibration."""
    from pyentmax.plotting import (
        plot_exactness_by_beam,
        plot_reliability,
        plot_support_sizes,
        save_figure,
    )

    out.mkdir(parents=True, exist_ok=True)
    ax = plot_exactness_by_beam(report.by_beam, report.exactness.single)
    files = [save_figure(ax, out / "exact_by_beam.png")]
    files.append(save_figure(plot_support_sizes(report.supports), out / "support_sizes.png"))
    labelled = {"best string": report.best, "all listed": report.listed}
    if found := {label: one for label, one in labelled.items() if one is not None}:
        files.append(save_figure(plot_reliability(found), out / "calibration.png"))
    return files
