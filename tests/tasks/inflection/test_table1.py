"""Table 1 by command: what it trains, writes, skips, refuses, and goes on with."""

import csv
import json
import re

import numpy as np
import pytest

from pyentmax.analysis import levenshtein
from pyentmax.cli import main
from pyentmax.data import DataError
from pyentmax.tasks.inflection import read_examples
from pyentmax.tasks.inflection.experiments import cells, table1
from pyentmax.tasks.inflection.experiments.cells import Cell, finished_results, is_finished
from pyentmax.tasks.inflection.experiments.table1 import Settings
from pyentmax.tasks.inflection.experiments.table1_report import PAPER, format_table
from pyentmax.tasks.records import read_json, write_json
from pyentmax.training import load_checkpoint

STEMS = ["ama", "beka", "lodi", "piru", "sota", "tuli", "vena", "kosa"]
LANGUAGES = {"northish": "d", "southish": "nt"}


@pytest.fixture
def folder(tmp_path):
    """Two languages that differ in their suffix, laid out as the shared task has them."""
    task = tmp_path / "data" / "conll2018" / "task1"
    for place, (language, suffix) in zip(("all", "surprise"), LANGUAGES.items(), strict=True):
        (task / place).mkdir(parents=True)
        lines = [f"{stem}\t{stem}{suffix}\tV;PST\n" for stem in STEMS]
        (task / place / f"{language}-train-medium").write_text("".join(lines))
        # One language has fewer: a mean over languages is not a mean over examples.
        count = 6 if language == "northish" else 2
        (task / place / f"{language}-dev").write_text("".join(lines[:count]))
    return tmp_path / "data"


def arguments(folder, out, *more):
    options = (
        "--hidden 8 --layers 1 --batch-size 8 --rate 0.02 --epochs 6 --validate-every 3 --quiet"
    )
    return [
        "reproduce",
        "table1",
        "--data",
        str(folder),
        "--out",
        str(out),
        *options.split(),
        *more,
    ]


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_asked_for_twice_is_one_model():
    assert table1.grid(["1"], ["2"], [0, 0]) == [("1", "2", 0)]
    assert table1.grid(["1", "1"], ["2"], [0]) == [("1", "2", 0)]


def test_settings_of_another_kind_are_an_error_that_names_the_file(tmp_path):
    (tmp_path / "settings.json").write_text("[]")
    with pytest.raises(ValueError, match=r"settings\.json: expected the settings .* got \[\]"):
        table1.open_table(tmp_path, table1.Settings("low", ("english",)))


def test_the_command_trains_every_cell_and_writes_tables(folder, tmp_path, capsys):
    out = tmp_path / "table"
    assert (
        main(arguments(folder, out, "--loss", "1", "2", "--attention", "1.5", "--seed", "0", "1"))
        == 0
    )
    cells = rows(out / "cells.csv")
    assert [(r["loss"], r["seed"], r["models"]) for r in cells] == [
        ("1", "0", "1"),
        ("1", "1", "1"),
        ("1", "0 1", "2"),
        ("2", "0", "1"),
        ("2", "1", "1"),
        ("2", "0 1", "2"),
    ]
    # The numbers follow from the predictions, in the layout of the task's own files.
    task = folder / "conll2018" / "task1"
    for cell in cells:
        kind = "ensemble-2" if cell["models"] == "2" else f"seed-{cell['seed']}"
        predictions = out / f"loss-{cell['loss']}.attention-1.5.{kind}" / "predictions"
        accuracies, distances = [], []
        for language in LANGUAGES:
            wanted = [e.form for e in read_examples(next(task.glob(f"*/{language}-dev")))]
            # A model this young may write the empty form, which no example has.
            found = [
                line.split("\t")[1] for line in (predictions / language).read_text().splitlines()
            ]
            accuracies.append(100 * np.mean([a == b for a, b in zip(wanted, found, strict=True)]))
            distances.append(
                np.mean([levenshtein(a, b) for a, b in zip(wanted, found, strict=True)])
            )
        np.testing.assert_allclose(float(cell["accuracy"]), np.mean(accuracies), rtol=0, atol=0.006)
        np.testing.assert_allclose(
            float(cell["levenshtein"]), np.mean(distances), rtol=0, atol=6e-5
        )
    # Softmax never proves anything; both are told about.
    assert all(float(r["exact"]) == 0 for r in cells if r["loss"] == "1")
    languages = rows(out / "languages.csv")
    assert [r["language"] for r in languages[:2]] == ["northish", "southish"]
    assert [r["examples"] for r in languages[:2]] == ["6", "2"]
    said = capsys.readouterr().out
    assert "2 languages, 16 examples to learn from, 8 to measure on; 4 models" in said
    table = (out / "table.md").read_text()
    assert table in said
    assert "| 83.20 | 85.63 |" in table  # the paper's, for (1, 1.5) in medium
    assert "±" in table


def test_validations_read_the_first_words_of_each_language(folder, tmp_path, monkeypatch):
    from pyentmax.tasks.inflection import Inflector

    validate, seen = Inflector.validate, []

    def watched(self, examples, batch_size=128):
        seen.append([(example.language, example.lemma) for example in examples])
        return validate(self, examples, batch_size)

    monkeypatch.setattr(Inflector, "validate", watched)
    out, small = tmp_path / "table", ("--loss", "1", "--attention", "1")
    assert main(arguments(folder, out, *small, "--validate-on", "3")) == 0
    lemmas = {"northish": STEMS[:3], "southish": STEMS[:2]}
    assert seen == 2 * [[(language, w) for language in LANGUAGES for w in lemmas[language]]]
    # The result is that of all words.
    assert [r["examples"] for r in rows(out / "languages.csv")] == ["6", "2"]
    assert float(rows(out / "cells.csv")[0]["memory_mb"]) > 1
    with pytest.raises(ValueError, match="validate_on: expected at least 1, got 0"):
        Settings("medium", ("northish",), validate_on=0)


def test_a_report_trains_nothing_and_shows_unfinished_models(folder, tmp_path, monkeypatch, capsys):
    out, small = tmp_path / "table", ("--loss", "1", "--attention", "1")
    with monkeypatch.context() as patch:
        patch.setattr(table1, "_write_result", lambda *_: (_ for _ in ()).throw(RuntimeError))
        with pytest.raises(RuntimeError):
            main(arguments(folder, out, *small))
    capsys.readouterr()
    assert main(arguments(folder, out, *small, "--report")) == 0
    said = capsys.readouterr().out
    assert "| epoch | 1 / 1 |" in said
    assert "curves.png" in said
    assert [r["epoch"] for r in rows(out / "curves.csv")] == ["3", "6"]
    assert rows(out / "cells.csv") == []
    assert (out / "curves.png").stat().st_size > 1000


def test_a_table_from_before_a_setting_goes_on(folder, tmp_path):
    out = tmp_path / "table"
    command = arguments(folder, out, "--loss", "1", "--attention", "1")
    assert main(command) == 0
    settings = out / "settings.json"
    kept = read_json(settings)
    del kept["validate_on"]
    write_json(settings, kept)
    assert main(command) == 0


def test_a_setting_that_is_left_out_is_another(folder, tmp_path, capsys):
    """Cells whose best model was chosen on other words were put into one table."""
    out = tmp_path / "table"
    command = arguments(folder, out, "--loss", "1", "--attention", "1")
    assert main([*command, "--validate-on", "1"]) == 0
    assert main(command) == 1
    assert "begun with other settings (validate_on 1 there, None now)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_finished_cell_is_left_alone_and_others_can_be_added(folder, tmp_path):
    out = tmp_path / "table"
    small = ("--loss", "1.5", "--attention", "1")
    assert main(arguments(folder, out, *small)) == 0
    first = out / Cell("1.5", "1", 0).folder
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()}
    assert main(arguments(folder, out, "--loss", "1.5", "--attention", "1", "2")) == 0
    assert before == {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()}
    assert [r["attention"] for r in rows(out / "cells.csv")] == ["1", "2"]
    # All from one seed: no ensemble.
    assert not list(out.glob("*ensemble*"))


@pytest.mark.slow
def test_results_on_other_words_are_not_averaged(folder, tmp_path, capsys):
    out = tmp_path / "table"
    small = ("--loss", "1", "--attention", "1", "--epochs", "1", "--validate-every", "1")
    assert main(arguments(folder, out, *small)) == 0
    dev = folder / "conll2018" / "task1" / "all" / "northish-dev"
    whole = dev.read_text()
    dev.write_text("".join(whole.splitlines(True)[:3]))
    for seed in "01":
        assert main(arguments(folder, out, *small, "--seed", seed)) == 1
        message = r"results on other development examples \(8 examples, .*now 5 examples, .*--out"
        assert re.search(message, capsys.readouterr().err)
    assert not (out / Cell("1", "1", 1).folder).exists()
    # Results that come together in another way do not compare either; older ones do not tell.
    dev.write_text(whole)
    assert main(arguments(folder, out, *small, "--seed", "1")) == 0
    path = out / Cell("1", "1", 1).folder / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"dev": "5 examples, 0123"}))
    with pytest.raises(ValueError, match="5 examples, 0123; 8 examples, .* do not compare"):
        finished_results(out)
    path.write_text(json.dumps({k: x for k, x in result.items() if k != "dev"}))
    assert len(finished_results(out)) == 2
    assert main(arguments(folder, out, *small, "--report")) == 0


def test_results_of_a_model_that_learned_from_others_are_not_compared(folder, tmp_path, capsys):
    out = tmp_path / "table"
    small = ("--loss", "1", "--attention", "1", "--epochs", "1", "--validate-every", "1")
    assert main(arguments(folder, out, *small)) == 0
    train = folder / "conll2018" / "task1" / "all" / "northish-train-medium"
    train.write_text("".join(train.read_text().splitlines(True)[:5]))
    assert main(arguments(folder, out, *small, "--seed", "1")) == 1
    message = r"results on other training examples \(16 examples, .*now 13 examples, .*--out"
    assert re.search(message, capsys.readouterr().err)
    assert not (out / Cell("1", "1", 1).folder).exists()


@pytest.mark.slow
def test_the_result_of_another_model_is_told(folder, tmp_path, capsys):
    out = tmp_path / "table"
    small = ("--loss", "1", "2", "--attention", "1", "--epochs", "1", "--validate-every", "1")
    assert main(arguments(folder, out, *small, "--seed", "0", "1")) == 0
    results = {path.parent.name: path.read_text() for path in out.glob("*/result.json")}
    assert len(results) == 6  # four models and two ensembles
    there = {"loss-1.attention-1.seed-0", "loss-2.attention-1.ensemble-2"}
    for name in there:
        for other in results.keys() - {name}:
            (out / name / "result.json").write_text(results[other])
            assert main(arguments(folder, out, *small)) == 1
            said = capsys.readouterr().err
            assert f"{name}/result.json: expected the result of {name}, got that of {other}" in said
        (out / name / "result.json").write_text(results[name])
    assert main(arguments(folder, out, *small, "--report")) == 0


def test_an_ensemble_is_of_the_models_that_its_folders_trained(folder, tmp_path, capsys):
    """A best.npz from another row's folder was taken for that of the row."""
    out = tmp_path / "table"
    small = ("--loss", "1", "2", "--attention", "1", "--epochs", "1", "--validate-every", "1")
    assert main(arguments(folder, out, *small)) == 0
    model, other = (out / Cell(loss, "1", 0).folder / "best.npz" for loss in ("1", "2"))
    own = model.read_bytes()
    model.write_bytes(other.read_bytes())
    assert main(arguments(folder, out, *small, "--seed", "0", "1")) == 1
    assert f"{model}: expected the best parameters of the run in" in capsys.readouterr().err
    assert not list(out.glob("loss-1.*ensemble*"))
    model.write_bytes(own)
    assert main(arguments(folder, out, *small, "--seed", "0", "1")) == 0
    assert len(list(out.glob("*ensemble*/result.json"))) == 2


def test_results_without_settings_are_of_nobody_knows_which(folder, tmp_path, capsys):
    out = tmp_path / "table"
    small = ("--loss", "1", "--attention", "1", "--epochs", "1", "--validate-every", "1")
    assert main(arguments(folder, out, *small)) == 0
    (out / "settings.json").unlink()
    assert main(arguments(folder, out, *small, "--hidden", "4")) == 1
    assert "settings.json: not found, though " in capsys.readouterr().err
    assert not (out / "settings.json").exists()


@pytest.mark.parametrize("text", ["{}", "[1]", "3", '{"loss": 1}'])
def test_a_damaged_result_is_named(folder, tmp_path, capsys, text):
    """It ended in a KeyError or TypeError, with a traceback."""
    path = tmp_path / "table" / Cell("1", "1", 0).folder / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert main(arguments(folder, tmp_path / "table")) == 1
    assert capsys.readouterr().err == (
        f"pyentmax reproduce: {path}: expected the result of a model, got {str(json.loads(text))}\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "field",
    [{"accuracy": "x"}, {"levenshtein": None}, {"languages": {"northish": 3}}],
    ids=str,
)
def test_a_damaged_field_of_a_result_is_told_with_the_folder(folder, tmp_path, capsys, field):
    """Text in place of a number ended in "Unknown format code 'f'", and said nothing else."""
    assert main(arguments(folder, tmp_path / "table")) == 0
    path = tmp_path / "table" / Cell("1", "1", 0).folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | field))
    capsys.readouterr()
    assert main(arguments(folder, tmp_path / "table", "--report")) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / 'table'}: expected results as this command writes them" in said
    assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_an_ensemble_is_of_the_seeds_asked_for(folder, tmp_path):
    out = tmp_path / "table"
    small = ("--loss", "1.5", "--attention", "bisection:1.5", "--epochs", "1", "--seed")

    def ensembles():
        return [r["seed"] for r in rows(out / "cells.csv") if r["models"] == "2"]

    assert main(arguments(folder, out, *small, "0", "1")) == 0
    assert ensembles() == ["0 1"]
    [written] = out.glob("*ensemble-2/result.json")
    assert ":" not in written.parent.name  # not every file system allows it
    before = written.stat().st_mtime_ns
    assert main(arguments(folder, out, *small, "0", "1")) == 0
    assert written.stat().st_mtime_ns == before
    assert main(arguments(folder, out, *small, "1", "2")) == 0
    assert ensembles() == ["1 2"]


def test_a_cell_killed_midway_goes_on_to_the_same_numbers(folder, tmp_path, monkeypatch):
    settings = Settings(
        "medium",
        tuple(sorted(LANGUAGES)),
        epochs=6,
        validate_every=2,
        hidden=8,
        layers=1,
        batch_size=8,
        rate=0.02,
    )
    data = table1.read_data(folder, settings)
    cell = Cell("1.5", "1.5", 3)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert table1.run_cell(whole, cell, settings, data, progress=False)

    from pyentmax.tasks.inflection import Inflector

    validate, calls = Inflector.validate, []

    def dies_at_the_second(self, examples, batch_size=128):
        calls.append(None)
        if len(calls) == 2:
            raise RuntimeError("killed")
        return validate(self, examples, batch_size)

    monkeypatch.setattr(Inflector, "validate", dies_at_the_second)
    with pytest.raises(RuntimeError, match="killed"):
        table1.run_cell(killed, cell, settings, data, progress=False)
    assert not is_finished(killed, cell)
    assert table1.run_cell(killed, cell, settings, data, progress=False)
    # One validation before, the one that was killed again, and the last.
    assert len(calls) == 4
    histories = []
    for out in (whole, killed):
        _, meta = load_checkpoint(out / cell.folder / "last.npz", "training state")
        histories.append({**meta["history"], "seconds": None})
    assert histories[0] == histories[1]
    results = [finished_results(out)[0] for out in (whole, killed)]
    clocks = {"train_seconds": 0, "decode_seconds": 0, "memory_mb": 0}  # of this process
    assert results[0] | clocks == results[1] | clocks


def test_interrupted_training_is_told(folder, tmp_path, monkeypatch, capsys):
    from pyentmax.training import History

    out = tmp_path / "table"
    monkeypatch.setattr(cells, "train_cell", lambda *a, **k: (None, History(interrupted=True)))
    assert main(arguments(folder, out, "--loss", "1.5", "--attention", "1")) == 130
    assert "the same command continues" in capsys.readouterr().out
    assert not (out / "cells.csv").exists()


def test_other_settings_are_refused(folder, tmp_path, capsys):
    out = tmp_path / "table"
    command = arguments(folder, out, "--loss", "1.5", "--attention", "1")
    assert main(command) == 0
    assert main([*command, "--hidden", "16"]) == 1
    said = capsys.readouterr().err
    assert "hidden 8 there, 16 now" in said
    (out / "settings.json").write_text("{")
    assert main(command) == 1
    assert "settings.json: expected JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--languages", "klingon"], "unknown language 'klingon': known are northish southish"),
        (["--loss", "0.5"], "mapping: expected α ≥ 1"),
        (["--attention", "softermax"], "mapping: expected α ≥ 1"),
        (["--epochs", "0"], "epochs: expected at least 1, got 0"),
        (["--setting", "high"], "languages: expected at least one"),
        (["--beam", "1000001"], "beam: expected at most 1,000,000, got 1,000,001"),
        (["--hidden", "100000000"], "not enough memory"),
    ],
)
def test_bad_arguments_change_nothing(folder, tmp_path, capsys, more, said):
    out = tmp_path / "table"
    assert main(arguments(folder, out, *more)) == 1
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_without_the_task_is_named(tmp_path):
    with pytest.raises(DataError, match="conll2018/task1"):
        table1.read_data(tmp_path, Settings("medium", ("northish",)))


def test_defaults_are_the_papers():
    settings = Settings("medium", ("english",))
    assert (settings.hidden, settings.layers, settings.dropout) == (300, 2, 0.3)
    training = settings.training(examples=1000, seed=2)
    assert (training.rate, training.schedule, training.seed) == (1e-3, "halve", 2)
    # Every ten epochs in medium, every epoch in high.
    assert training.validate_every == 10 * 16
    assert Settings("high", ("english",)).training(10_000, 0).validate_every == 157
    with pytest.raises(ValueError, match="setting: expected one of high"):
        Settings("huge", ("english",))


def test_the_standard_error_and_the_ensemble_of_most_models():
    def result(seed, models, accuracy):
        return {
            "loss": "2",
            "attention": "1",
            "seed": seed,
            "models": models,
            "accuracy": accuracy,
            "levenshtein": 0.25,
            "single": 60.0,
            "exact": 80.0,
        }

    found = [result(0, 1, 80.0), result(1, 1, 84.0), result("0 1", 2, 85.5), result("0 1 2", 3, 86)]
    line = format_table(found, Settings("medium", ("english",))).splitlines()[-1]
    # The deviation of 80 and 84 is 2√2; over √2 that is 2.
    assert line == ("| 2 | 1 | 2 | 82.00 ± 2.00 | 0.250 | 60% | 80% | 86.00 (3) | 84.95 | 86.41 |")


def test_the_papers_ensembles_are_better_than_their_members():
    assert all(x.ensemble > x.average for pair in PAPER.values() for x in pair.values())
    assert all(list(pair) == ["high", "medium"] for pair in PAPER.values())
