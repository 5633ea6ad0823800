"""Every script of the experiments: its smallest run, and the table of the lines that are kept."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import translation
from experiments.own import captions, language_model, speeds, two_ways
from experiments.runner import HOME, read_lines
from experiments.tasks.translation import toy_german
from experiments.vasylenko2025 import length
from pyentmax.seq2seq.inflection import english_verbs

TABLE1 = "--attention 1 --epochs 1 --languages welsh english --hidden 8"
SCRIPTS = {
    "peters2019.table1": f"--loss 1.5 --seed 0 1 {TABLE1}",
    "peters2019.figure4": "--alpha 1.5 2 --updates 2 --hidden 8",
    "peters2019.figure6": "--mapping 1 bisection:1.5 --updates 2 --validations 1 --hidden 8",
    "peters2019.english": "--setting no-draw-1-3100 --loss 1.5 --seed 0 --updates 2",
    "peters2019.sparsity": "--alpha 1.5 --updates 2 --beam 2 --hidden 8",
    "peters2019.table2": "--row rnn-1.5-1.5 rnn-1.5-1.5-bpe rnn-1.5-1.5-separate --updates 2",
    "peters2019.figure4_translation": "--row rnn-1-1.5 rnn-1.5-1 --updates 2 --switch 1 2 --more 1",
    "correia2019.table1": "--row transformer-1 transformer-learned-late --updates 2",
    "correia2019.heads": "--row transformer-1 transformer-learned-late --updates 2",
    "correia2019.figure7": "--row softmax learned-late --updates 2 --windows 4",
    "zhao2019.table5": "--row transformer-1 transformer-top8 --updates 2 --k 1 all --translate 2 "
    "--by-layer",
    "zhao2019.table4": "--row transformer-1 transformer-top8 --updates 2",
    "own.starts": "--row transformer-1 transformer-1.5-switch --updates 2",
    "own.language_model": "--row softmax never learned-late memory --updates 2",
    "own.captions": "--row softmax top4 --updates 2 --images 20",
    "own.pytorch": "--updates 2",
    "own.speeds": "--rounds 1 --tokens 100 --context 16 --positions 16",
    "own.implementations": "--package scipy",
    "own.clients": "--client xarray",
    "own.update_share": "--hidden 16 --layers 1 --rounds 2",
    "own.small_table": f"--loss 2 {TABLE1}",
    "own.two_ways": "--row softmax 1.5-entmax --seed 0 --updates 8",
    "own.what_it_saves": "--row 1,000 --seconds 0",
    "vasylenko2025.length": "--task sort --row ASEntmax --seed 0 --updates 2",
}
"""Script → options of its smallest run."""
MODELS = {
    "correia2019.heads": "correia2019.table1",
    "correia2019.figure7": "own.language_model",
    "zhao2019.table5": "zhao2019.table4",
}
"""Script that measures models → the one that trains them, before it."""


def script(name):
    """The module of a script."""
    return importlib.import_module(f"experiments.{name}")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of data with a few words of each corpus."""
    folder = tmp_path_factory.mktemp("data")
    task = folder / "conll2018" / "task1" / "all"
    task.mkdir(parents=True)
    verbs = english_verbs()[:24]
    lines = [f"{verb.lemma}\t{verb.form}\t{';'.join(verb.tags)}\n" for verb in verbs]
    lines += [f"{word}\t{word}n\tV;V.PTCP;PST\n" for word in ("draw", "redraw", "wrarp")]
    for language in ("english", "welsh"):
        for split, words in (("train-medium", lines), ("train-high", lines), ("dev", lines[:4])):
            (task / f"{language}-{split}").write_text("".join(words), "utf-8")
    pairs = toy_german()[:76]
    for split, chosen in (("train", pairs[:70]), ("val", pairs[70:])):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in chosen)
            (folder / f"{split}.lc.norm.tok.{language}").write_text(text, "utf-8")
    shakespeare = folder / "tinyshakespeare"
    shakespeare.mkdir()
    (shakespeare / "input.txt").write_text("To be, or not to be.\n" * 700, "utf-8")
    return folder


@pytest.fixture
def small(monkeypatch):
    """Models of a few hundred parameters, where a script has no options for them."""
    monkeypatch.setattr("experiments.tasks.translation.parallel.MULTI30K_DEV", 10)
    monkeypatch.setattr(translation, "SUBWORDS", 60)
    transformer = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "tied": "output"}
    models = {"transformer": transformer, "rnn": {"hidden": 8}}
    monkeypatch.setattr(translation, "MODELS", models)
    sizes = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    monkeypatch.setattr(language_model, "MODEL", {**language_model.MODEL, **sizes})
    monkeypatch.setattr(language_model, "MEASURED", 256)
    monkeypatch.setattr(speeds, "VOCABULARY", 60)
    monkeypatch.setattr(speeds, "SENTENCES", 2)
    monkeypatch.setattr(two_ways, "VOCABULARY", 60)
    monkeypatch.setattr(two_ways, "CONTEXT", 16)
    monkeypatch.setattr(two_ways, "SHAPE", {"width": 8, "heads": 2, "layers": 1})
    monkeypatch.setattr(captions, "SHAPE", {**captions.SHAPE, **sizes})
    decoder = {"model": {"width": 8, "heads": 2, "layers": 1}, "tests": {"64": 2}}
    monkeypatch.setitem(length.SIZES, "small", {**length.SIZES["small"], **decoder})


def test_every_script_has_a_smoke_test():
    files = [path for path in HOME.glob("*/*.py") if "EXPERIMENT = " in path.read_text("utf-8")]
    assert {f"{path.parent.name}.{path.stem}" for path in files} == set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in MODELS.values()])
def test_smallest_run_ends_with_a_table(name, data, small, tmp_path, capsys):
    if name in ("own.pytorch", "own.two_ways", "own.what_it_saves", "vasylenko2025.length"):
        pytest.importorskip("torch")
    where = ["--out", str(tmp_path), "--data", str(data), "--quiet"]
    for one in filter(None, (MODELS.get(name), name)):
        pictures = ["--pictures", str(tmp_path / "p")] if script(one).EXPERIMENT.draw else []
        assert script(one).main([*SCRIPTS[one].split(), *where, *pictures]) == 0
        assert "| --- |" in capsys.readouterr().out
    lines = read_lines(tmp_path / "results.jsonl")
    assert script(name).main([*SCRIPTS[name].split(), *where]) == 0
    assert read_lines(tmp_path / "results.jsonl") == lines, "nothing was run anew"


@pytest.mark.parametrize("name", SCRIPTS)
def test_kept_lines_make_the_table(name, capsys):
    experiment = script(name).EXPERIMENT
    for line in read_lines(experiment.recorded):
        assert all("date" in session for session in line["made_from"])
    assert experiment.main(["--report"]) == 0
    assert "| --- |" in capsys.readouterr().out


@pytest.mark.slow
def test_finished_run_is_made_longer(data, small, tmp_path, monkeypatch):
    training = {**language_model.TRAINING, "validate_every": 2}
    monkeypatch.setattr(language_model, "TRAINING", training)
    where = ["--out", str(tmp_path), "--data", str(data), "--quiet", "--row", "softmax"]
    for updates in ("2", "4"):
        assert script("own.language_model").main([*where, "--updates", updates]) == 0
    short, long = read_lines(tmp_path / "results.jsonl")
    assert (short["result"]["curve"]["update"], long["result"]["curve"]["update"]) == ([2], [2, 4])
    assert len(list(tmp_path.glob("*/last.npz"))) == 1


@pytest.mark.slow
def test_killed_run_is_resumed_to_the_last_bit(data, tmp_path):
    words = "--alpha 1.5 --updates 60 --validations 6 --hidden 8 --layers 1 --quiet --data"
    command = [sys.executable, "-m", "experiments.peters2019.figure4", *words.split(), str(data)]
    environment = {**os.environ, "PYENTMAX_BACKEND": "reference"}

    def run(out):
        return subprocess.Popen([*command, "--out", str(out)], cwd=HOME.parent, env=environment)

    cut = run(tmp_path / "cut")
    started = time.monotonic()
    while not list(Path(tmp_path, "cut").glob("*/last.npz")):
        assert cut.poll() is None, "ended without a checkpoint"
        assert time.monotonic() < started + 120
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    cut.wait()
    assert not (tmp_path / "cut" / "results.jsonl").exists(), "ended before it was killed"
    found = []
    for out in (tmp_path / "cut", tmp_path / "whole"):
        assert run(out).wait() == 0
        [line] = read_lines(out / "results.jsonl")
        for name in ("cpu_seconds", "decode_seconds"):
            del line["result"][name]
        del line["result"]["curve"]["seconds"]
        found.append(json.dumps(line["result"]))
    assert found[0] == found[1]
