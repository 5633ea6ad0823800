"""The annotated paper shows the example as it is, and its pictures are drawn from the results."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_annotated_paper_shows_the_whole_example():
    page = (ROOT / "docs" / "annotated-paper.md").read_text("utf-8")
    shown = re.findall(
        r"^```{literalinclude} \.\./examples/seq2seq\.py\n.*\n:pyobject: (\w+)$", page, re.MULTILINE
    )
    example = ast.parse((ROOT / "examples" / "seq2seq.py").read_text("utf-8")).body
    names = [node.name for node in example if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert sorted(shown) == sorted(set(names) - {"main"})


@pytest.mark.slow
def test_annotated_pictures_are_drawn_from_results(tmp_path):
    pytest.importorskip("matplotlib")
    from docs import annotated_paper

    for draw in (annotated_paper.figure4, annotated_paper.figure6):
        draw(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure4.png", "figure6.png"]
