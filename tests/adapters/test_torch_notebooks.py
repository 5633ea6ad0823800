"""What a notebook ends with, the same in PyTorch, runs and prints what stands under it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

from test_docs_pages import Block, blocks, run_python  # noqa: E402

FOLDER = Path(__file__).parents[2] / "notebooks"
NEEDS = frozenset({"torch"})


def torch_blocks(path: Path) -> list[Block]:
    """The blocks of PyTorch in a notebook's Markdown cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return [block for block in blocks(text) if block.needs == NEEDS]


NOTEBOOKS = {
    path.name.partition("_")[0]: path for path in sorted(FOLDER.glob("[0-9][0-9]*_*.ipynb"))
}


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_torch_blocks_of_a_notebook(number: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    found = torch_blocks(NOTEBOOKS[number])
    assert found
    for block in found:
        run_python(block, NOTEBOOKS[number].name, namespace)
