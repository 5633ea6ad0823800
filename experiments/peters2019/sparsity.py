"""§4 and Table 3 on inflection: how sparse, how exact and how calibrated models are, by α.

The models of `figure4.py`, at the better of two validations.

What came out (English, medium, seed 0, 1,000 words): from α = 1.25 to 2 of the output the share of
words with one sequence rises from 1 to 39%, that with an exact beam of 5 from 6 to 75%; α of the
attention changes the positions attended (11.05 to 1.8), and hardly the output. The paper's shares,
66 and 79% in the medium setting, are of larger models. A minute a model on one core.
`sparsity_report.py` measures and draws the same for any model.

    python -m experiments.peters2019.sparsity --data FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from experiments.peters2019 import figure4, sparsity_report
from experiments.peters2019.inflection import small_run
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import grouped, markdown, mean, values

BEAMS = (1, 5, 10)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    figure4.add_options(parser)
    parser.set_defaults(beam=10)


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Train a model, and measure the best of its validations."""
    inflector, dev, run = small_run(settings, folder, options, keep="best")
    statistics = sparsity_report.measure(inflector, dev, beam=settings["beam"])
    supports = statistics.supports
    return {
        "accuracy": run["accuracy"],
        "single": 100 * statistics.exactness.single,
        "mean_hypotheses": statistics.exactness.mean_hypotheses,
        "exact_by_beam": {str(beam): 100 * share for beam, share in statistics.by_beam.items()},
        "undecided": statistics.undecided,
        "proved": statistics.proved,
        "missed": statistics.missed,
        "attended": supports.mean_attention,
        "source_length": float(supports.source_lengths.mean()),
        "possible": supports.mean_output,
        "vocabulary": supports.vocabulary,
        **{
            f"calibration_{name}": found and 100 * found.error
            for name, found in statistics.calibration.items()
        },
    }


def report(lines: list[Line]) -> str:
    """A row for each pair of α, seeds averaged."""
    columns = ["α, output", "α, attention", "right", "one sequence"]
    columns += [f"beam {beam} exact" for beam in BEAMS]
    columns += ["positions attended", "tokens possible", "ECE, best", "ECE, all listed"]
    rows = []
    for pair, group in grouped(lines, "loss", "attention").items():
        shares = [values(group, "accuracy"), values(group, "single")]
        shares += [values(group, "exact_by_beam", str(beam)) for beam in BEAMS]
        means = [mean(values(group, name), 2) for name in ("attended", "possible")]
        errors = [values(group, f"calibration_{name}") for name in ("best", "listed")]
        percent = [f"{mean(share)}%" for share in (*shares, *errors)]
        rows.append([*pair, *percent[:5], *means, *percent[5:]])
    return markdown(columns, rows)


EXPERIMENT = Experiment(
    "peters2019/sparsity", __doc__, figure4.runs, work, report, None, add_options
)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
