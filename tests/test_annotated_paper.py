"""The annotated paper shows the example as it is, and its pictures are drawn from the results."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from test_docs_pages import blocks

ROOT = Path(__file__).parents[1]


def definitions(source: str) -> dict[str, str]:
    """The functions and classes of some code, as they are written."""
    nodes = ast.parse(source).body
    found = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {node.name: ast.get_source_segment(source, node) or "" for node in found}


def test_annotated_code_is_the_example():
    page = (ROOT / "docs" / "annotated-paper.md").read_text("utf-8")
    shown: dict[str, str] = {}
    for block in blocks(page):
        if block.language == "python" and ">>>" not in block.code:
            shown |= definitions(block.code)
    example = definitions((ROOT / "examples" / "seq2seq.py").read_text("utf-8"))
    del example["main"]
    assert {name: shown.get(name) for name in example} == example


@pytest.mark.slow
def test_annotated_pictures_are_drawn_from_results(tmp_path):
    pytest.importorskip("matplotlib")
    from docs import annotated_paper

    for draw in (annotated_paper.figure4, annotated_paper.figure6):
        draw(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure4.png", "figure6.png"]
