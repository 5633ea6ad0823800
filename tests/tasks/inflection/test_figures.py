"""Figures 4 and 6 by command: what they train, write, draw, skip and refuse."""

from __future__ import annotations

import csv
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pyentmax.analysis import word_accuracy
from pyentmax.cli import main
from pyentmax.tasks.inflection import Inflector, read_examples
from pyentmax.tasks.inflection.experiments import cells, figure4, figure6, one_language, table1
from pyentmax.tasks.inflection.experiments.cells import finished_results
from pyentmax.training import LAST

pytest.importorskip("matplotlib", reason="figures need the extra: pip install pyentmax[models]")

STEMS = ["ama", "beka", "lodi", "piru", "sota", "tuli", "vena", "kosa"]
LINES = [f"{stem}\t{stem}d\tV;PST\n" for stem in STEMS]


@pytest.fixture
def folder(tmp_path):
    task = tmp_path / "data" / "conll2018" / "task1" / "all"
    task.mkdir(parents=True)
    (task / "northish-train-medium").write_text("".join(LINES))
    (task / "northish-dev").write_text("".join(LINES[:5]))
    return tmp_path / "data"


def reproduce(figure, folder, out, *more):
    small = "--language northish --setting medium --hidden 8 --layers 1 --batch-size 4 --quiet"
    options = f"--updates 6 --validations 3 --rate 0.02 {small}".split()
    return main(["reproduce", figure, "--data", str(folder), "--out", str(out), *options, *more])


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_figure_4_holds_each_alpha_in_each_role(folder, tmp_path, capsys):
    out = tmp_path / "f"
    assert reproduce("figure4", folder, out, "--alpha", "1.5", "2", "--seed", "0", "1") == 0
    found = [(r["loss"], r["attention"], r["seed"]) for r in rows(out / "figure4.csv")]
    pairs = [("1.5", "1.5"), ("1.5", "2"), ("2", "1.5")]
    assert found == [(*pair, seed) for pair in pairs for seed in "01"]
    assert (out / "figure4.png").stat().st_size > 1000
    assert "model 6 of 6" in capsys.readouterr().out

    # Its numbers are those of the model that lies there, after the last update.
    settings = one_language.Settings(**json.loads((out / "settings.json").read_text()))
    data = one_language.read_data(folder, settings)
    assert len(data.train) == 8
    assert data.dev == read_examples(folder / "conll2018" / "task1" / "all" / "northish-dev")
    result = json.loads((out / "loss-2.attention-1.5.seed-0" / "result.json").read_text())
    assert result["update"] == [2, 4, 6]
    assert sorted(result["seconds"]) == result["seconds"]

    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}
    assert len(before) == 12
    assert reproduce("figure4", folder, out, "--alpha", "2", "--seed", "0") == 0
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}
    assert "(finished)" in capsys.readouterr().out
    assert len(rows(out / "figure4.csv")) == 6

    assert reproduce("figure4", folder, out, "--updates", "7") == 1
    assert "other settings (updates 6 there, 7 now): give another --out" in capsys.readouterr().err


def test_backends_measured_on_other_words_are_not_drawn_together(
    folder, tmp_path, capsys, monkeypatch
):
    out, alone = tmp_path / "figure", ("--mapping", "1", "--seed", "0")
    names = iter(["kernels", "numpy"])
    monkeypatch.setattr(figure6, "backend", lambda: next(names))
    assert reproduce("figure6", folder, out, *alone) == 0
    dev = folder / "conll2018" / "task1" / "all" / "northish-dev"
    dev.write_text("".join(dev.read_text().splitlines(True)[:3]))
    assert reproduce("figure6", folder, out, *alone) == 1
    assert "holds results on other development examples" in capsys.readouterr().err
    assert not (out / "numpy").exists()


def test_the_result_is_that_of_the_last_update(folder, tmp_path, monkeypatch):
    # Validations that call the first the best: it must not be the one that is measured.
    validate = Inflector.validate
    accuracies = iter([0.9, 0.1])
    monkeypatch.setattr(
        Inflector,
        "validate",
        lambda self, dev: validate(self, dev)._replace(accuracy=next(accuracies)),
    )
    settings = one_language.Settings(
        "northish", hidden=16, layers=1, dropout=0.0, updates=100, batch_size=8, validations=2
    )
    data = one_language.read_data(folder, settings)
    [cell] = figure4.grid(["1.5"], [3])
    assert one_language.run_cell(tmp_path, cell, settings, data, progress=False)
    [result] = finished_results(tmp_path)
    inflector = Inflector.load(tmp_path / cell.folder)
    found = []
    with np.load(tmp_path / cell.folder / LAST) as last:
        for kept in ("best", "param"):
            for name in inflector.model.params:
                inflector.model.params[name] = last[f"{kept}.{name}"]
            forms = [inflector.form(r.best.tokens) for r in inflector.predict(data.dev)]
            found.append(100 * word_accuracy(forms, [e.form for e in data.dev]))
    assert result["accuracy"] == found[1]
    assert found[0] < found[1]
    assert result["accuracy_greedy"] == pytest.approx(10, rel=1e-15, abs=0)


def test_results_on_other_words_are_not_drawn_together(folder, tmp_path, capsys):
    out = tmp_path / "f"
    assert reproduce("figure4", folder, out, "--alpha", "1.5") == 0
    dev = folder / "conll2018" / "task1" / "all" / "northish-dev"
    dev.write_text("".join(LINES[:3]))
    assert reproduce("figure4", folder, out, "--alpha", "1.5", "2") == 1
    assert "results on other development examples (5 examples" in capsys.readouterr().err


def test_two_processes_train_a_cell_once(tmp_path, folder, monkeypatch):
    # Two threads are as good as two processes here: each opens the lock for itself.
    settings = one_language.Settings("northish", hidden=8, layers=1, updates=6, validations=1)
    data = one_language.read_data(folder, settings)
    [cell] = figure4.grid(["1.5"], [0])
    train_cell, calls = cells.train_cell, []

    def slowly(*args, **options):
        calls.append(1)
        time.sleep(0.2)
        return train_cell(*args, **options)

    monkeypatch.setattr(cells, "train_cell", slowly)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(one_language.run_cell, tmp_path, cell, settings, data, progress=False)
            for _ in range(2)
        ]
        assert [run.result() for run in runs] == [True, True]
    assert len(calls) == 1


def test_figure_4_takes_numbers_only(folder, tmp_path, capsys):
    assert reproduce("figure4", folder, tmp_path / "f", "--alpha", "fusedmax:1") == 1
    assert "alpha: expected numbers of 1 or more, got 'fusedmax:1'" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()
    for text in ("bisection:1.5", "entmax:1.5", "inf"):  # they were trained, and not to be drawn
        with pytest.raises(ValueError, match="alpha: expected numbers of 1 or more"):
            figure4.grid([text], [0])


def test_an_alpha_is_one_model_however_it_is_written():
    assert len(figure4.grid(["1.5", "1.50", "entmax15"], [0])) == 1
    assert len(figure6.grid(["1", "1.0", "softmax", "bisection:1.5"], [0])) == 2
    assert len(table1.grid(["2", "2.0"], ["1", "01", "learned"], [0])) == 2


@pytest.mark.parametrize(
    ("figure", "options", "message"),
    [
        (
            "figure6",
            ["--mapping", "1", "topk_softmax:3"],
            "output: expected a mapping with a Fench",
        ),
        ("figure6", ["--hidden", "9"], "hidden: expected an even number, got 9"),
        ("figure4", ["--updates", "0"], "updates: expected at least 1, got 0"),
        ("figure4", ["--batch-size", "0"], "batch_size: expected at least 1, got 0"),
        ("figure4", ["--seed", "0", "-1"], "seed: expected "),
    ],
)
def test_what_no_model_can_have_is_refused_before_there_is_a_folder(
    folder, tmp_path, capsys, figure, options, message
):
    """Otherwise the settings lie there, and the right command is told that others are."""
    assert reproduce(figure, folder, tmp_path / "f", *options) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


def test_figure_4_groups_seeds_by_alpha():
    results = [("2", {"accuracy": 50.0}), ("1", {"accuracy": 25.0}), ("2", {"accuracy": 75.0})]
    assert figure4.accuracies(results) == {1.0: [0.25], 2.0: [0.5, 0.75]}
    assert list(figure4.accuracies(results)) == [1.0, 2.0]


def test_figure_6_has_a_row_for_each_validation(folder, tmp_path):
    out = tmp_path / "f"
    assert reproduce("figure6", folder, out) == 0
    found = rows(out / "figure6.csv")
    assert [(r["mapping"], r["update"]) for r in found] == [
        (mapping, update) for mapping in figure6.MAPPINGS for update in "246"
    ]
    assert {r["backend"] for r in found} == {figure6.backend()}
    assert (out / "figure6.png").stat().st_size > 1000
    # The exact algorithm and bisection are one mapping: the courses of training agree but for
    # rounding.
    exact, bisected = (
        [float(r["dev_loss"]) for r in found if r["mapping"] == m] for m in figure6.MAPPINGS[1:]
    )
    np.testing.assert_allclose(exact, bisected, rtol=1e-3)


def test_interrupted_training_is_told(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(one_language, "run_cell", lambda *args, **options: False)
    assert reproduce("figure6", folder, tmp_path / "f") == 130
    assert "the same command continues" in capsys.readouterr().out


def test_more_validations_than_updates_are_one_for_each():
    settings = one_language.Settings(updates=2, validations=10**400)
    assert settings.training(0).validate_every == 1


def test_validations_are_counted_from_one():
    with pytest.raises(ValueError, match="validations: expected at least 1, got 0"):
        one_language.Settings(validations=0)
