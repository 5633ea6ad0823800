"""The code in README.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[int, str]]:
    """Each Python block of the README with the line that it starts on."""
    text = README.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in BLOCK.finditer(text)]


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks()
    assert found, f"{README.name} has no ```python block: the ten-line example is missing"
    monkeypatch.chdir(tmp_path)  # what an example writes must not land in the repository
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in found:
        # The blank lines in front make tracebacks name the README's own line numbers.
        exec(compile("\n" * (line - 1) + code, str(README), "exec"), namespace)
