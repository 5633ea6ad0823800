"""Draw the pictures of annotated-paper.md: ``python -m docs.annotated_paper``.

It trains ``examples/seq2seq.py`` as that script does, about a minute, and draws Figures 1, 2 and 5
from this model, 3 from the mappings, and 4 and 6 from the results of the experiments. A model is
kept in FILE, and read from there if it is there. The list that the page quotes is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import runpy
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the matrices are small

import numpy as np  # noqa: E402

import pyentmax  # noqa: E402
from experiments.pictures import curves, panels, points, save
from pyentmax.seq2seq.decoding import ForcedDecoding, Hypothesis, HypothesisTree
from pyentmax.seq2seq.plotting import (
    plot_attention,
    plot_forced_decoding,
    plot_hypothesis_tree,
    plot_mapping_curves,
    save_figure,
)

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "images" / "annotated-paper"
RESULTS = ROOT / "experiments" / "peters2019" / "results"
WORD, TAGS, FORM = "draw", ["V", "V.PTCP", "PST"], "drawn"


def force(model: dict[str, Any], params: Any, source: list[int], form: list[int]) -> ForcedDecoding:
    """What the model finds possible, and where it looks, at each step of a form."""
    memory, state = model["encode"](params, np.array([source]))
    after = [*form, model["EOS"]]
    rows, attention = [], []
    for letter in [model["BOS"], *form]:
        z, state = model["decode"](params, memory, state, np.array([letter]))
        rows.append(z.data[0].astype(float))
        scores = memory.data[0] @ (state[0].data[0] @ params["attention"])
        attention.append(pyentmax.entmax15(scores.astype(float)))
    z = np.array(rows)
    support = pyentmax.entmax15.support(z)
    return ForcedDecoding(np.array(after), pyentmax.entmax15.log(z), support, np.array(attention))


def records(name: str) -> list[dict[str, Any]]:
    lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def figure4(folder: Path) -> None:
    """Accuracy against the α of the attention and of the output, on both tasks of the paper."""
    axes = panels(2, share_y=False)
    tasks = {
        "translation, tokens": ("figure4_translation", 400),
        "inflection, words": ("figure4", 1200),
    }
    for ax, (task, (name, updates)) in zip(axes, tasks.items(), strict=True):
        points_of: dict[str, Any] = {"attention": defaultdict(list), "output": defaultdict(list)}
        for line in records(f"{name}.jsonl"):
            settings, result = line["settings"], line["result"]
            if settings["updates"] != updates:  # longer, or it went on from another
                continue
            inflection = {"output": settings.get("loss"), "attention": settings.get("attention")}
            model = settings.get("model", inflection)
            accuracy = (
                100 * result["dev_accuracy"] if "dev_accuracy" in result else result["accuracy"]
            )
            for role, other in (("attention", "output"), ("output", "attention")):
                if float(model[other]) == 1.5:
                    points_of[role][float(model[role])].append(accuracy)
        points(ax, points_of, "α", f"right, % ({task})")
    save(axes, folder / "figure4.png")


def figure6(folder: Path) -> None:
    """Accuracy against seconds of training."""
    axes, lines = panels(), {}
    names = {"1": "softmax", "1.5": "1.5-entmax, exact", "bisection:1.5": "1.5-entmax, bisection"}
    for line in records("figure6.jsonl"):
        curve, mapping = line["result"]["curve"], line["settings"]["loss"]
        if mapping in names and line["settings"]["attention"] == mapping:
            accuracy = [100 * x for x in curve["dev_accuracy"]]
            lines[names[mapping]] = [(curve["seconds"], accuracy)]
    curves(axes[0], lines, "CPU seconds of training", "dev accuracy, %")
    axes[0].set_ylim(80, 96.5)
    save(axes, folder / "figure6.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="where the parameters are kept")
    parser.add_argument("--updates", type=int, default=1300)
    options = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    model = runpy.run_path(str(ROOT / "examples" / "seq2seq.py"))
    words = model["Words"](held_out=WORD)
    if options.model and options.model.exists():
        with np.load(options.model) as arrays:
            params = dict(arrays)
    else:
        params = model["train"](words, options.updates, np.random.default_rng(1))
        if options.model:
            np.savez(options.model, **params)

    source = words.source(WORD, TAGS)
    found, complete = model["beam_search"](params, source)
    hypotheses = [Hypothesis(x, math.log(p)) for p, x in found]
    print(f"{WORD} ({';'.join(TAGS)}):")
    for p, x in found:
        print(f"  {p:6.1%}  {words.text(x)}")
    print(f"complete: {complete}; sum: {sum(p for p, _ in found):.6f}")
    tree = HypothesisTree.build(hypotheses, words.letters.__getitem__)
    save_figure(plot_hypothesis_tree(tree), PICTURES / "figure1.png")

    decoding = force(model, params, source, [words.number[x] for x in FORM])
    ax = plot_forced_decoding(decoding, words.letters.__getitem__)
    save_figure(ax, PICTURES / "figure2.png")
    save_figure(plot_mapping_curves(), PICTURES / "figure3.png")
    figure4(PICTURES)
    figure6(PICTURES)
    ax = plot_attention(decoding.attention, [*TAGS, *WORD], [*FORM, "</s>"])
    save_figure(ax, PICTURES / "figure5.png")


if __name__ == "__main__":
    main()
