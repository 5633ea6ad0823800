"""Figure 4 on the paper's own task: accuracy of translation against α (Peters et al. 2019).

What came out (Multi30k, German to English, 400 updates, one seed): over the loss's α from 38.6 to
48.7% of the dev tokens, best at 1.5; over the attention's from 45.0 to 49.1, best at 1. The loss's
α matters more, and beyond 2 both fall, as in the paper; the attention's side, which falls from
softmax on, goes the other way there. Two minutes a model on one core.

    python -m experiments.peters2019.figure4_translation --data FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.pictures import panels, points, save
from experiments.runner import Line
from experiments.tables import markdown, mean, values
from experiments.translation import ALPHAS, experiment, models

BOTH = [f"rnn-1.5-{alpha}" for alpha in ALPHAS], [f"rnn-{alpha}-1.5" for alpha in ALPHAS]
NAMES = ("output", "attention")


def report(lines: list[Line]) -> str:
    """Accuracy, BLEU and supports against α, for the loss and for the attention."""
    rows = []
    for alpha, *names in zip(ALPHAS, *BOTH, strict=True):
        cells = [alpha]
        for name, part in zip(names, ("output", "context"), strict=True):
            group = [line for line in lines if line["settings"]["row"] == name]
            cells.append(mean([100 * x for x in values(group, "dev_accuracy")]))
            cells += [mean(values(group, "bleu")), mean(values(group, "supports", part))]
        rows.append(cells)
    columns = ["α", "of the loss: dev token accuracy", "BLEU", "possible tokens"]
    columns += ["of the attention: dev token accuracy", "BLEU", "attended"]
    return markdown(columns, rows)


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw accuracy against α."""
    accuracies = {
        role: {
            float(alpha): [100 * x for x in values(group, "dev_accuracy")]
            for alpha, name in zip(ALPHAS, names, strict=True)
            if (group := [line for line in lines if line["settings"]["row"] == name])
        }
        for role, names in zip(NAMES, BOTH, strict=True)
    }
    axes = panels()
    points(axes[0], accuracies, "α", "dev token accuracy, %")
    return [save(axes, folder / "figure4_translation.png")]


ROWS = tuple(dict.fromkeys([*BOTH[0], *BOTH[1]]))
EXPERIMENT = experiment(
    "peters2019/figure4_translation", __doc__, ROWS, 400, runs=models, report=report, draw=draw
)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
