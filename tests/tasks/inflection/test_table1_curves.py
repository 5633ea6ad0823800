"""What `reproduce table1 --report` tells: curves of all models, and accuracies by family."""

import csv
from importlib.resources import files

import numpy as np
import pytest

from pyentmax.tasks.inflection.experiments import table1_curves, table1_report
from pyentmax.tasks.inflection.experiments.language_families import FAMILIES, FAMILY_OF
from pyentmax.tasks.inflection.experiments.table1 import Settings
from pyentmax.training import save_checkpoint

SETTINGS = Settings("medium", ("danish",), epochs=7, validate_every=2)


def write_run(out, folder, updates, seconds, accuracies):
    """What a run leaves behind, as far as curves are concerned."""
    count = len(accuracies)
    history = {
        "update": list(updates),
        "loss": [2.0] * count,
        "dev_loss": [1.5] * count,
        "dev_accuracy": list(accuracies),
        "seconds": list(seconds),
        "interrupted": False,
    }
    (out / folder).mkdir(parents=True)
    meta = {"kind": "training state", "updates": 65, "history": history}
    save_checkpoint(out / folder / "last.npz", {"param.w": np.zeros(2)}, meta)


@pytest.fixture
def out(tmp_path):
    """A finished model, two seeds of a faster one that got less far, and one without validation."""
    write_run(
        tmp_path,
        "loss-1.attention-1.seed-0",
        [20, 40, 60, 70],
        [3600, 7200, 10800, 12600],
        [0.1, 0.3, 0.5, 0.6],
    )
    for seed, last in ((0, 0.6), (1, 0.7)):
        folder = f"loss-1.5.attention-entmax15.seed-{seed}"
        write_run(tmp_path, folder, [20, 40, 60], [1800, 3600, 5400], [0.2, 0.4, last])
    write_run(tmp_path, "loss-2.attention-1.seed-0", [], [], [])
    (tmp_path / "loss-1.attention-1.ensemble-3").mkdir()
    return tmp_path


def test_curves_have_a_row_for_each_validation_of_each_model(out):
    table1_curves.write_curves(out, SETTINGS)
    with (out / "curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["epoch"] for r in rows] == ["2", "4", "6", "7", "2", "4", "6", "2", "4", "6"]
    assert {(r["loss"], r["attention"], r["seed"]) for r in rows} == {
        ("1", "1", "0"),
        ("1.5", "entmax15", "0"),
        ("1.5", "entmax15", "1"),
    }
    assert rows[3] == {
        "loss": "1",
        "attention": "1",
        "seed": "0",
        "epoch": "7",
        "update": "70",
        "seconds": "12600",
        "train_loss": "2.0000",
        "dev_loss": "1.5000",
        "dev_accuracy": "60.00",
        "updates_done": "65",
    }


def test_curves_name_mappings_as_the_table_does(out):
    """They had the name of the folder, which has no colon."""
    write_run(out, "loss-topk_softmax-4.attention-1.seed-0", [20], [60], [0.5])
    found = {curve.pair for curve in table1_curves.read_curves(out, SETTINGS)}
    assert found == {"1 / 1", "1.5 / entmax15", "2 / 1", "topk_softmax:4 / 1"}


def test_hours_of_a_short_run_have_digits_enough(tmp_path):
    """Those that looked alike in two digits were one row."""
    write_run(tmp_path, "loss-1.attention-1.seed-0", [20, 40], [10, 30], [0.1, 0.5])
    table = table1_curves.format_curves(table1_curves.read_curves(tmp_path, SETTINGS))
    rows = table.partition("same hours")[2].splitlines()[4:]
    assert [row.split(" | ")[1].strip("| ") for row in rows] == [
        "10.0",
        "18.0",
        "26.0",
        "34.0",
        "42.0",
        "50.0",
    ]


def test_losses_are_compared_at_equal_epochs_and_at_equal_hours(out):
    table = table1_curves.write_curves(out, SETTINGS)
    assert table == (out / "curves.md").read_text().rstrip("\n")
    epochs, hours = table.split("\n\n")[1::2]
    assert epochs.splitlines() == [
        "| epoch | 1 / 1 | 1.5 / entmax15 |",
        "| --- | --- | --- |",
        "| 2 | 10.0 | 20.0 |",
        "| 4 | 30.0 | 40.0 |",
        "| 6 | 50.0 | 65.0 |",
    ]
    # From the hour at which both have been validated to the one at which the faster one ends.
    lines = hours.splitlines()
    assert lines[2] == "| 1.00 | 10.0 | 40.0 |"
    assert lines[-1] == "| 1.50 | 20.0 | 65.0 |"


def test_a_table_without_validations_says_so(tmp_path):
    write_run(tmp_path, "loss-2.attention-1.seed-0", [], [], [])
    assert table1_curves.write_curves(tmp_path, SETTINGS) == "no validation yet"
    assert table1_curves.draw_curves(tmp_path, SETTINGS) is None


def test_the_picture_has_a_line_for_each_model_on_both_sides(out, monkeypatch):
    from pyentmax import plotting

    drawn = []

    def caught(ax, path):
        drawn.append(ax.figure)
        return path

    monkeypatch.setattr(plotting, "save_figure", caught)
    assert table1_curves.draw_curves(out, SETTINGS) == out / "curves.png"
    left, right = drawn[0].axes
    assert [list(line.get_xdata()) for line in left.lines] == [[2, 4, 6, 7], [2, 4, 6], [2, 4, 6]]
    assert list(right.lines[1].get_xdata()) == [0.5, 1.0, 1.5]
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert labels == ["1 / 1", "1.5 / entmax15"]


def test_the_whole_table_has_a_picture_whose_lines_differ(tmp_path):
    """With all nine pairs, the default, the command ended in an error after its last training."""
    pytest.importorskip("matplotlib", reason="pictures need the extra: pyentmax[models]")
    for n, (loss, attention) in enumerate(table1_report.PAPER):
        folder = f"loss-{loss}.attention-{attention}.seed-0"
        write_run(tmp_path, folder, [20, 40], [1800, 3600], [0.2, 0.4 + n / 100])
    assert table1_curves.draw_curves(tmp_path, SETTINGS) == tmp_path / "curves.png"


def test_more_pairs_than_can_be_told_apart_have_tables_only(tmp_path):
    for n in range(19):
        write_run(tmp_path, f"loss-1.{n}.attention-1.seed-0", [20], [1800], [0.2])
    assert len(table1_curves.write_curves(tmp_path, SETTINGS).splitlines()[2].split("|")) == 22
    assert table1_curves.draw_curves(tmp_path, SETTINGS) is None


def test_every_language_of_the_shared_task_has_one_family():
    listed = files("pyentmax.tasks.inflection").joinpath("conll2018_sha256.txt").read_text()
    names = {line.split("/")[-1] for line in listed.splitlines() if "-train-medium" in line}
    assert {name.removesuffix("-train-medium") for name in names} == set(FAMILY_OF)
    assert len(FAMILY_OF) == sum(map(len, FAMILIES.values())) == 102


def test_accuracy_by_family_is_a_mean_over_languages_and_seeds():
    def result(attention, models=1, **accuracies):
        languages = {name: {"accuracy": accuracy} for name, accuracy in accuracies.items()}
        return {"loss": "1.5", "attention": attention, "models": models, "languages": languages}

    results = [
        result("1", danish=50, dutch=70, zulu=10, klingon=1),
        result("1", danish=60, dutch=80, zulu=20, klingon=3),
        result("1", models=2, danish=99, dutch=99, zulu=99, klingon=99),
        result("2", danish=40, dutch=41, zulu=0, klingon=0),
    ]
    assert table1_report.format_families(results).splitlines() == [
        "| family | languages | 1.5 / 1 | 1.5 / 2 |",
        "| --- | --- | --- | --- |",
        "| Germanic | 2 | 65.0 | 40.5 |",
        "| Bantu | 1 | 15.0 | 0.0 |",
        "| other | 1 | 2.0 | 0.0 |",
    ]
