"""The numbers that notebooks ship are those that the experiments measured, and few."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

DATA = Path(__file__).parents[1] / "notebooks" / "data"


def test_shipped_heads_are_the_measured_ones():
    spec = importlib.util.spec_from_file_location("notebooks_data_collect", DATA / "collect.py")
    assert spec is not None
    assert spec.loader is not None
    collect = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(collect)
    shipped = json.loads((DATA / "heads.json").read_text(encoding="utf-8"))
    assert shipped == collect.collect(), "run: python notebooks/data/collect.py"


def test_notebook_data_is_small():
    assert sum(path.stat().st_size for path in DATA.iterdir() if path.is_file()) < 300_000
