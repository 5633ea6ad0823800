"""The scripts in examples/ run from beginning to end, each in a process and a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyentmax

ROOT = Path(__file__).parents[1]
SHORT = {  # those that save a picture: arguments, and what is printed on the way
    "sklearn_pipeline": (["--folds", "2"], "grid search: "),
    "sparse_gpt": (["--updates", "3"], " characters possible at a place"),
    "torch_classifier": (["--epochs", "1"], "  epoch   1: loss "),
    "torch_softmax_to_sparse": (["--updates", "2"], "slow queries and keys "),
    "torch_transformer": (["--epochs", "1"], "epoch   1: "),
    "truncated_policy_gradient": (["--updates", "3"], "log p on the set "),
    "transformers_sparse": (["--updates", "4"], "trained with softmax "),
}
MOST_LINES = {"pico": 80, "seq2seq": 250, "sparse_gpt": 200, "translate": 150, "write": 150}
NEEDED = {
    "sklearn": ["sklearn", "matplotlib"],
    "sparse": ["torch", "matplotlib"],
    "torch": ["torch", "sklearn", "matplotlib"],
    "transformers": ["torch", "transformers", "matplotlib"],
    "truncated": ["matplotlib"],
}


def run(folder: Path, name: str, *arguments: str, lines: str = "") -> str:
    """What an example prints in the folder, given lines; warnings of its users are errors."""
    environment = os.environ | {
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(str(pyentmax.__file__)).parents[1]),
        "PYTHONUTF8": "1",
    }
    path = ROOT / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(path), *arguments],
        cwd=folder, env=environment, capture_output=True, encoding="utf-8", input=lines,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested_and_on_its_page() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert names == SHORT.keys() | MOST_LINES.keys()
    page = (ROOT / "docs" / "guide" / "examples.md").read_text(encoding="utf-8")
    for name in names:
        assert f"examples/{name}.py" in page
    for name in SHORT:
        assert f"images/examples/{name}.png" in page
        assert (ROOT / "docs" / "images" / "examples" / f"{name}.png").is_file()


@pytest.mark.parametrize("name", MOST_LINES)
def test_one_page_models_stay_short(name: str) -> None:
    lines = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES[name]


@pytest.mark.slow
def test_pico_learns_to_sort(tmp_path: Path) -> None:
    printed = run(tmp_path, "pico")
    assert printed.count("by a finite difference") == 6
    [share] = re.findall(r"([0-9.]+)% of 1,000 new rows sorted", printed)
    assert float(share) > 98


@pytest.mark.slow
def test_seq2seq_learns_the_rule(tmp_path: Path) -> None:
    printed = run(tmp_path, "seq2seq", "--updates", "300")
    [first] = re.findall(r"PST\):\n +([0-9.]+)%  drawed\n", printed)
    assert float(first) > 50


@pytest.mark.slow
def test_translate_is_saved_and_answers_lines(tmp_path: Path) -> None:
    run(tmp_path, "translate", "--train", str(ROOT / "examples" / "toy_german.tsv"))
    sentence = "die frau hat die alte bank gemalt"
    answers = run(tmp_path, "translate", lines=f"{sentence}\n\n{sentence}\n").split("\n")
    assert answers[:3] == ["the woman has painted the old bank", "", answers[0]]
    listed = run(tmp_path, "translate", "--list", lines=sentence)
    assert "the woman has painted the old bench" in listed
    assert "complete: no possible continuation" in listed
    forced = run(tmp_path, "translate", lines=f"{sentence}\tthe woman has seen the old bank")
    assert re.search(r"4 +seen +impossible here +painted", forced)


@pytest.mark.slow
def test_write_is_saved_and_continues_lines(tmp_path: Path) -> None:
    song = "".join(f"one dog sees {whom}.\n" for whom in ("two cats", "six owls", "one owl") * 40)
    (tmp_path / "song.txt").write_text(song, "utf-8")
    small = "--width=32 --layers=1 --heads=2 --inner=32 --context=32 --updates=300".split()
    run(tmp_path, "write", "--train", "song.txt", *small)
    written = run(tmp_path, "write", lines="one dog\n€\none\n").splitlines()
    assert [line[:3] for line in written] == ["one", "one"]
    assert set(written) <= {*song.splitlines()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_an_example_saves_its_picture(name: str, tmp_path: Path) -> None:
    for library in NEEDED[name.partition("_")[0]]:
        pytest.importorskip(library, reason=f"{name}.py needs {library}, not installed here")
    arguments, progress = SHORT[name]
    printed = run(tmp_path, name, *arguments)
    assert progress in printed
    assert f"saved {name}.png" in printed
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
