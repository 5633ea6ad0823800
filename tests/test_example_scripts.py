"""The scripts in examples/ run from beginning to end, each in a process and a folder of its own."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
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
MOST_LINES = {
    "micro": 200,
    "pico": 80,
    "seq2seq": 250,
    "sparse_gpt": 200,
    "translate": 150,
    "write": 150,
}
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


@pytest.fixture
def micro() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("micro", ROOT / "examples" / "micro.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights(module: Any, seed: int) -> dict[str, list[list[Any]]]:
    """Random weights of the model in micro.py."""
    rng = np.random.default_rng(seed)
    return {
        name: [[module.Node(x) for x in row] for row in rng.uniform(-a, a, (m, n)).tolist()]
        for name, (m, n, a) in module.SHAPES.items()
    }


def test_micro_mapping_and_loss_agree_with_the_library(micro: Any) -> None:
    rng = np.random.default_rng(0)
    for scale, size in itertools.product((0.1, 1.0, 10.0, 1e3), (1, 2, 7, 27)):
        z, y = rng.standard_normal(size) * scale, int(rng.integers(size))
        nodes = [micro.Node(float(x)) for x in z]
        weight = rng.standard_normal(size)
        p = micro.attention(nodes)
        np.testing.assert_allclose([x.value for x in p], pyentmax.entmax15(z), rtol=0, atol=1e-12)
        for node, slope in zip(p, weight, strict=True):
            node.gradient = slope
        micro.backward(micro.Node.tape)
        expected = pyentmax.entmax15.jacobian(pyentmax.entmax15(z)) @ weight
        np.testing.assert_allclose([x.gradient for x in nodes], expected, rtol=0, atol=1e-10)
        for node in nodes:
            node.gradient = 0.0
        loss = micro.entmax15_loss(nodes, y)
        loss.gradient = 1.0
        micro.backward(micro.Node.tape)
        value, gradient = pyentmax.entmax15.loss_and_grad(z, y)
        np.testing.assert_allclose(loss.value, value, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose([x.gradient for x in nodes], gradient, rtol=0, atol=1e-12)


def test_micro_gradients_of_all_weights(micro: Any) -> None:
    w = weights(micro, seed=1)
    micro.add_gradient(w, "cry", 1.0)
    rng = np.random.default_rng(2)
    for name, rows in w.items():
        nodes = [node for row in rows for node in row]
        slope = np.array([node.gradient for node in nodes])
        before, direction = [node.value for node in nodes], rng.standard_normal(len(nodes))
        losses = []
        for h in (1e-6, -1e-6):
            for node, x, d in zip(nodes, before, direction, strict=True):
                node.value = x + h * d
            losses.append(micro.add_gradient(w, "cry", 0.0))
        for node, x in zip(nodes, before, strict=True):
            node.value = x
        difference = (losses[0] - losses[1]) / 2e-6
        np.testing.assert_allclose(slope @ direction, difference, rtol=1e-5, err_msg=name)
        assert np.abs(slope).max() > 1e-3


def test_micro_lists_all_possible_strings(micro: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(micro, "LETTERS", ".ab")
    sizes, stopped = [], 0
    for seed in range(8):
        w = weights(micro, seed)
        w["embed"] = w["embed"][:3]
        found, complete = micro.forms(w, "ab", most=60)
        if not complete:
            stopped += 1
            continue
        strings = ["".join(x) for n in range(8) for x in itertools.product("ab", repeat=n)]
        following = {}  # the probabilities of what may follow a string
        for string in strings:
            z = np.array([node.value for node in micro.scores(w, "ab", string)])
            following[string] = dict(zip(".ab", pyentmax.entmax15(z), strict=True))
        p = {
            x: math.prod(following[x[:t]][letter] for t, letter in enumerate(x + "."))
            for x in strings
        }
        expected = {string: p[string] for string in strings if p[string] > 0}
        assert {form: x for x, form in found} == pytest.approx(expected, rel=1e-9, abs=0)
        assert sum(expected.values()) == pytest.approx(1, rel=0, abs=1e-12)
        sizes.append(len(found))
    assert max(sizes) > 3
    assert stopped > 0


def test_micro_prints_the_checksums_of_its_page(micro: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(micro.forms, "__defaults__", (5,))  # little is impossible at first
    micro.main(seeds=[2], updates=30, new=["blog"])
    printed = capsys.readouterr().out.splitlines()
    page = (ROOT / "docs" / "guide" / "examples.md").read_text(encoding="utf-8").splitlines()
    start = page.index(printed[0])
    assert page[start : start + 4] == printed[:4]
    assert page[start + 4] != printed[4]  # it has learned less


@pytest.mark.slow
def test_micro_learns_the_rules(tmp_path: Path) -> None:
    printed = run(tmp_path, "micro")
    right = [int(count) for count in re.findall(r"(\d+) of 60 unseen verbs are right", printed)]
    assert len(right) == 3
    assert sum(right) >= 0.8 * 180
    page = (ROOT / "docs" / "guide" / "examples.md").read_text(encoding="utf-8")
    assert printed[printed.index("seed 2") : printed.index("seed 3")] in page


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
