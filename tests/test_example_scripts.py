"""The scripts in examples/ run from beginning to end, show their progress, and save their picture.

In a short setting, each in a process and a folder of its own, warnings being errors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyentmax

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SHORT = {  # arguments, and what is printed on the way
    "sklearn_pipeline": (["--folds", "2"], "grid search: "),
    "torch_classifier": (["--epochs", "1"], "  epoch   1: loss "),
    "torch_transformer": (["--epochs", "1"], "epoch   1: "),
}
NEEDED = {"sklearn": ["sklearn", "matplotlib"], "torch": ["torch", "sklearn", "matplotlib"]}


def test_every_example_is_tested_and_told_of() -> None:
    assert {path.stem for path in EXAMPLES} == set(SHORT)
    page = (ROOT / "docs" / "guide" / "examples.md").read_text(encoding="utf-8")
    for name in SHORT:
        assert f"examples/{name}.py" in page
        assert f"images/examples/{name}.png" in page
        assert (ROOT / "docs" / "images" / "examples" / f"{name}.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    for library in NEEDED[path.stem.partition("_")[0]]:
        pytest.importorskip(library, reason=f"{path.name} needs {library}, not installed here")
    arguments, printed = SHORT[path.stem]
    environment = os.environ | {
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(str(pyentmax.__file__)).parents[1]),
        "PYTHONUTF8": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(path), *arguments],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    assert f"saved {path.stem}.png" in done.stdout
    assert (tmp_path / f"{path.stem}.png").read_bytes().startswith(b"\x89PNG")
