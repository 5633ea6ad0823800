"""How accurate, sparse, exact and calibrated a model is on given examples, in one report.

These are the statistics of Peters et al. (2019): the share of sources for which one sequence has
all the probability, the share for which beam search is exact (§4.1), and the support sizes of
attention and output (Table 3). In addition, the report says what exact search proves where beam
search proves nothing, and how well the listed probabilities are calibrated. Of the models of a run:

    python -m experiments.peters2019.sparsity_report MODEL --examples FILE --out DIR
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from experiments.analysis import Calibration, calibration, listed_predictions
from experiments.certainty import (
    ExactnessStatistics,
    SupportSizes,
    exactness_by_beam,
    exactness_statistics,
    smallest_exact_beam,
    support_sizes,
    word_accuracy,
)
from experiments.peters2019.inflection import first_words
from experiments.peters2019.sparsity_plots import (
    plot_exactness_by_beam,
    plot_reliability,
    plot_support_sizes,
)
from pyentmax.seq2seq.inflection import Example, Inflector
from pyentmax.seq2seq.inflection.commands import read_marked
from pyentmax.seq2seq.inflection.reports import save

PAPER_BEAM = 5


@dataclass(frozen=True)
class SparsityReport:
    """What `measure` found."""

    beam: int  #: width of the beam; all figures but the support sizes come from its search
    accuracy: float  #: share of examples whose best string is the reference
    exactness: ExactnessStatistics
    by_beam: dict[int, float]  #: width, up to ``beam``, → share of sources for which it is exact
    exact_beam: int  #: a beam's width: 5 as in the paper, or ``beam`` if that is smaller
    undecided: int  #: number of sources for which that beam is not exact
    proved: int  #: number of those for which exact search proves the most probable string
    missed: int  #: number of the latter for which ``beam`` listed another string first
    supports: SupportSizes  #: under forced decoding of the references
    calibration: dict[str, Calibration | None]
    #: of the "best" string of each source, and of all "listed" ones; None if no string ended


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
    # Exact search, where a beam as wide as the paper's is not exact.
    width = min(PAPER_BEAM, beam)
    needed = [smallest_exact_beam(result) for result in results]
    undecided = [i for i, n in enumerate(needed) if n is None or n > width]
    unsure = [examples[i] for i in undecided]
    searched = inflector.predict(
        unsure, batch_size, search="exact", budget=budget, progress=progress
    )
    proved = [(i, result) for i, result in zip(undecided, searched, strict=True) if result.proved]
    references = [example.form for example in examples]
    forms = [inflector.form(result.best.tokens) for result in results]
    calibrations = {}
    for name in ("best", "listed"):
        probabilities, right = listed_predictions(
            results, references, inflector.form, best_only=name == "best"
        )
        calibrations[name] = calibration(probabilities, right) if probabilities else None
    decodings = inflector.force_all(examples, batch_size, progress=progress)
    return SparsityReport(
        beam=beam,
        accuracy=word_accuracy(forms, references),
        exactness=exactness_statistics(results),
        by_beam=exactness_by_beam(results, range(1, beam + 1)),
        exact_beam=width,
        undecided=len(undecided),
        proved=len(proved),
        missed=sum(result.best.tokens != results[i].best.tokens for i, result in proved),
        supports=support_sizes(said for _, said in decodings),
        calibration=calibrations,
    )


def describe(report: SparsityReport) -> str:
    """The report as lines of text."""
    exactness, supports = report.exactness, report.supports
    proved = f"{report.proved:,}"
    if report.undecided:
        proved += f" ({report.proved / report.undecided:.1%})"
    attended = f"{supports.mean_attention:.2f} of {supports.source_lengths.mean():.2f}"
    errors = {
        name: "no string ended" if found is None else f"{found.error:.2%}"
        for name, found in report.calibration.items()
    }
    rows = {
        "examples": f"{exactness.count:,}",
        f"right, beam {report.beam}": f"{report.accuracy:.1%}",
        "one sequence holds all probability": f"{exactness.single:.1%}",
        "strings listed, mean": f"{exactness.mean_hypotheses:.2f}",
        "their total probability, mean": f"{exactness.mean_mass:.4f}",
        **{f"beam {k} is exact": f"{share:.1%}" for k, share in report.by_beam.items()},
        f"not exact with beam {report.exact_beam}": f"{report.undecided:,}",
        "  best string proved by exact search": proved,
        f"  and it is not the best of beam {report.beam}": f"{report.missed:,}",
        "source positions attended, mean": attended,
        "tokens possible next, mean": f"{supports.mean_output:.2f} of {supports.vocabulary}",
        "calibration error of the best string": errors["best"],
        "calibration error of all listed strings": errors["listed"],
    }
    width = max(map(len, rows))
    return "\n".join(f"  {name:{width}}  {value:>16}" for name, value in rows.items())


def write(report: SparsityReport, out: Path) -> list[Path]:
    """Write ``statistics.json``, all figures, and pictures; returns the files.

    The pictures are of exactness by beam, support sizes and, if a string ended, calibration.
    """
    supports = report.supports
    searched = {"sources": report.undecided, "proved": report.proved, "missed": report.missed}
    numbers = {
        "beam": report.beam,
        "accuracy": report.accuracy,
        "exactness": asdict(report.exactness),
        "exact_by_beam": report.by_beam,
        "exact_search": {"beam": report.exact_beam, **searched},
        "mean_source_length": float(supports.source_lengths.mean()),
        "mean_attention_support": supports.mean_attention,
        "mean_output_support": supports.mean_output,
        "vocabulary": supports.vocabulary,
        # How many positions have a support of 0, 1, 2, …
        "attention_supports": np.bincount(supports.attention).tolist(),
        "output_supports": np.bincount(supports.output).tolist(),
        "calibration": {
            name: found and {"error": found.error, "bins": [asdict(one) for one in found.bins]}
            for name, found in report.calibration.items()
        },
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / "statistics.json"
    path.write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
    pictures = {
        "exact_by_beam": plot_exactness_by_beam(report.by_beam, report.exactness.single),
        "support_sizes": plot_support_sizes(report.supports),
    }
    labels = {"best": "best string", "listed": "all listed"}
    if found := {labels[name]: one for name, one in report.calibration.items() if one is not None}:
        pictures["calibration"] = plot_reliability(found)
    return [path, *save(pictures, out)]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the report on models, whose probabilities are averaged; write it to a folder."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="MODEL")
    add("--examples", nargs="+", type=Path, metavar="DATA", required=True)
    add("--multilingual", action="store_true", help="mark examples with their file's language")
    add("--first", type=int, metavar="N", help="number of examples; all if not given")
    add("--beam", type=int, default=10, help="width of the search, the widest in the table")
    add("--budget", type=int, default=1000, help="of exact search where beam 5 is not exact")
    add("--out", type=Path, metavar="DIR", help="write numbers and pictures there")
    args = parser.parse_args(argv)
    examples = first_words(read_marked(args.examples, args.multilingual), args.first)
    inflector = Inflector.load_ensemble(args.models)
    report = measure(inflector, examples, beam=args.beam, budget=args.budget)
    print(describe(report))
    if args.out is not None:
        print(*(f"written: {path}" for path in write(report, args.out)), sep="\n")


if __name__ == "__main__":
    main()
