"""How right, sparse, exact and calibrated a model is on given examples, in one report.

These are the statistics of Peters et al. (2019): the share of sources where one sequence holds all
probability and the share for which beam search is exact (§4.1), the sizes of the supports of
attention and output (Table 3); and besides, whether the listed probabilities mean what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis import (
    Calibration,
    ExactnessStatistics,
    SupportSizes,
    calibration,
    exactness_by_beam,
    exactness_statistics,
    listed_claims,
    support_sizes,
    word_accuracy,
)
from ..data import Example
from ..inflection import WordDecoder
from ._records import write_csv, write_json


@dataclass(frozen=True)
class SparsityReport:
    """What `measure` found.

    Attributes
    ----------
    beam : int
        Width of the beam that everything but the support sizes comes from.
    accuracy : float
        Share of examples whose best string is the reference.
    exactness : ExactnessStatistics
    by_beam : dict
        Width, up to ``beam``, → share of sources for which a beam of that width is exact.
    supports : SupportSizes
        Under forced decoding of the references.
    best, listed : Calibration or None
        Of the best string of each source, and of all listed strings; None if none ended.
    """

    beam: int
    accuracy: float
    exactness: ExactnessStatistics
    by_beam: dict[int, float]
    supports: SupportSizes
    best: Calibration | None
    listed: Calibration | None


def measure(
    decoder: WordDecoder,
    examples: Sequence[Example],
    *,
    beam: int = 10,
    batch_size: int = 64,
    progress: bool = False,
) -> SparsityReport:
    """All statistics of a model on some examples, by one beam search and one forced decoding.

    Raises
    ------
    ValueError
        If there is no example, or ``beam`` is under 1.
    """
    if not examples:
        raise ValueError("examples: expected at least one, got none")
    results = decoder.predict(examples, beam, batch_size, progress=progress)
    decodings = decoder.force_all(examples, batch_size, progress=progress)
    references = [example.form for example in examples]
    forms = [decoder.form(result.best.tokens) for result in results]
    calibrations = []
    for best_only in (True, False):
        claims = listed_claims(results, references, decoder.form, best_only=best_only)
        calibrations.append(calibration(*claims) if claims[0] else None)
    return SparsityReport(
        beam=beam,
        accuracy=word_accuracy(forms, references),
        exactness=exactness_statistics(results),
        by_beam=exactness_by_beam(results, range(1, beam + 1)),
        supports=support_sizes(said for _, said in decodings),
        best=calibrations[0],
        listed=calibrations[1],
    )


def describe(report: SparsityReport) -> str:
    """The report as lines of text."""
    exactness, supports = report.exactness, report.supports
    rows = [
        ("examples", f"{exactness.count:,}"),
        (f"right, beam {report.beam}", f"{report.accuracy:.1%}"),
        ("one sequence holds all probability", f"{exactness.single:.1%}"),
        ("strings listed, mean", f"{exactness.mean_hypotheses:.2f}"),
        ("their total probability, mean", f"{exactness.mean_mass:.4f}"),
    ]
    rows += [(f"beam {k} is exact", f"{share:.1%}") for k, share in report.by_beam.items()]
    rows += [
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


def _error(found: Calibration | None) -> str:
    return "no string ended" if found is None else f"{found.error:.2%}"


def write(report: SparsityReport, out: Path) -> list[Path]:
    """Write ``statistics.json`` and the tables behind the pictures as CSV; returns the files."""
    supports = report.supports
    summary: dict[str, Any] = {
        "beam": report.beam,
        "accuracy": report.accuracy,
        **asdict(report.exactness),
        "target_positions": len(supports.output),
        "mean_attention_support": supports.mean_attention,
        "mean_source_length": float(supports.source_lengths.mean()),
        "mean_output_support": supports.mean_output,
        "vocabulary": supports.vocabulary,
        "calibration_error_best": None if report.best is None else report.best.error,
        "calibration_error_listed": None if report.listed is None else report.listed.error,
    }
    write_json(out / "statistics.json", summary)
    shares = [{"beam": k, "exact": f"{share:.6f}"} for k, share in report.by_beam.items()]
    write_csv(out / "exact_by_beam.csv", ["beam", "exact"], shares)
    counts = {name: np.bincount(getattr(supports, name)) for name in ("attention", "output")}
    sizes = [
        {"size": n, **{name: int(c[n]) if n < len(c) else 0 for name, c in counts.items()}}
        for n in range(max(map(len, counts.values())))
    ]
    write_csv(out / "support_sizes.csv", ["size", "attention", "output"], sizes)
    bins = [
        {"claims": name} | {key: f"{value:.6g}" for key, value in asdict(one).items()}
        for name, found in (("best", report.best), ("listed", report.listed))
        if found is not None
        for one in found.bins
    ]
    columns = ["claims", "low", "high", "count", "probability", "right"]
    write_csv(out / "calibration.csv", columns, bins)
    names = ("statistics.json", "exact_by_beam.csv", "support_sizes.csv", "calibration.csv")
    return [out / name for name in names]


def draw(report: SparsityReport, out: Path) -> list[Path]:
    """Draw exactness by beam, support sizes and, if a string ended, reliability."""
    from ..plotting import (
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
