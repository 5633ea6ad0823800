"""Condense what was measured of trained heads: ``python notebooks/data/collect.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXPERIMENTS = HERE.parents[1] / "experiments"
KINDS = ("encoder", "context", "decoder")


def lines(name: str) -> list[dict[str, Any]]:
    """What an experiment measured, a dictionary for each run."""
    page = (EXPERIMENTS / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in page.splitlines()]


def trajectories() -> dict[str, Any]:
    """The α of every head of each training that learned them, at its validations from the start."""
    found = {}
    for line in lines("correia2019/results/table1") + lines("own/results/starts"):
        settings, curve = line["settings"], line["result"].get("curve", {})
        if "alphas" not in curve or "alpha_std" in settings["model"]:  # not drawn, but all at 1.5
            continue
        softmax_until = settings["training"].get("first_updates", 0)
        start = f"softmax until {softmax_until:,}" if softmax_until else "α from the start"
        name = f"{settings['direction']}, {start}, seed {settings['seed']}"
        used = [i for i, update in enumerate(curve["update"]) if update >= softmax_until]
        found[name] = {
            "update": [curve["update"][i] for i in used],
            **{kind: [curve["alphas"][i][kind] for i in used] for kind in KINDS},
        }
    return found


def collect() -> dict[str, Any]:
    """Everything that notebook 12 reads."""
    [measured] = [
        line
        for line in lines("correia2019/results/heads")
        if line["settings"]["updates"] == 3200 and line["settings"]["direction"] == "de-en"
    ]
    kept = "alphas", "density", "diversity", "positional", "merging"
    models = measured["result"]["models"]
    return {
        "trajectories": trajectories(),
        "heads": {label: {name: model[name] for name in kept} for label, model in models.items()},
        "diversity minus softmax": measured["result"]["diversity minus softmax"],
    }


def main() -> None:
    """Write heads.json."""
    text = json.dumps(collect(), ensure_ascii=False, separators=(",", ":"))
    (HERE / "heads.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
