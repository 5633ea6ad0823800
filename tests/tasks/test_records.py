"""Results in files: who reports on them, and what is said of damaged ones."""

import errno
import os
import threading
from dataclasses import asdict

import pytest

from pyentmax.data import DataError
from pyentmax.tasks.inflection.examples import read_examples
from pyentmax.tasks.language_model import read_text
from pyentmax.tasks.records import of_results, read_json, write_json, write_text
from pyentmax.tasks.runs import Run, check_recorded, read_result, speed, training_state
from pyentmax.tasks.translation.configuration import read_experiment
from pyentmax.tasks.translation.parallel import read_parallel
from pyentmax.training import LAST, TRAINING_STATE, CheckpointError, History, save_checkpoint


def test_reports_on_a_folder_are_written_one_after_the_other(tmp_path):
    """Who had read the results before another row ended could replace the table that has it."""
    pytest.importorskip("fcntl", reason="files cannot be locked here")
    has_read, may_write = threading.Event(), threading.Event()

    @of_results
    def report(out, wait):
        rows = sorted(path.name for path in out.glob("*.json"))
        if wait:
            has_read.set()
            assert may_write.wait(60)
        write_text(out / "table.md", " ".join(rows))

    (tmp_path / "a.json").touch()
    first = threading.Thread(target=report, args=(tmp_path, True))
    first.start()
    assert has_read.wait(60)
    (tmp_path / "b.json").touch()
    second = threading.Thread(target=report, args=(tmp_path, False))
    second.start()
    second.join(0.2)  # time in which it would have written, if nothing held it up
    may_write.set()
    for thread in (first, second):
        thread.join(60)
    assert (tmp_path / "table.md").read_text() == "a.json b.json"


@pytest.mark.parametrize(
    "error", [KeyError("bits"), ValueError("could not convert string"), OverflowError("too large")]
)
def test_a_result_of_another_form_is_told_with_the_folder(tmp_path, error):
    @of_results
    def report(out):
        raise error

    with pytest.raises(ValueError, match="expected results as this command writes them") as caught:
        report(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_the_result_of_another_run_is_named(tmp_path):
    folder = tmp_path / Run("softmax", 3).folder
    folder.mkdir()
    for name, value in (("row", "sparsemax"), ("row", None), ("seed", 4), ("seed", 3.0)):
        result = {"row": "softmax", "seed": 3, "updates": 5}
        write_json(folder / "result.json", result)
        assert read_result(folder) == result
        write_json(folder / "result.json", result | {name: value})
        with pytest.raises(ValueError, match=rf"expected the result of softmax.seed-3, got {name}"):
            read_result(folder)


@pytest.mark.parametrize("meta", [(0, 0), (5, 0), (10**400, 1.0), ("5", 1.0)])
def test_a_speed_that_no_run_has_is_named(meta):
    with pytest.raises(ValueError, match=r"last.npz: expected a count and the seconds"):
        speed(dict(zip(("count", "seconds"), meta, strict=True)))


HISTORY = asdict(History(watched={"update": [0], "alpha": [1.5]}))


@pytest.mark.parametrize(
    "history",
    [None, [], {}, "x", 3, HISTORY | {"update": None}, HISTORY | {"watched": 3}, {"update": []}],
)
def test_a_history_that_no_run_has_is_named(tmp_path, history):
    """The commands that read it ended in errors of all kinds."""
    save_checkpoint(tmp_path / LAST, {}, {"kind": TRAINING_STATE, "history": HISTORY})
    assert training_state(tmp_path)["history"] == HISTORY
    save_checkpoint(tmp_path / LAST, {}, {"kind": TRAINING_STATE, "history": history})
    with pytest.raises(CheckpointError, match=r"last.npz: .*history: expected"):
        training_state(tmp_path)
    save_checkpoint(tmp_path / LAST, {}, {"kind": TRAINING_STATE})
    with pytest.raises(CheckpointError, match=r"last.npz: .*'history'"):
        training_state(tmp_path)


def test_an_error_that_names_a_file_stays_as_it_is(tmp_path):
    @of_results
    def report(out, error):
        raise error

    for error in (ValueError(f"{tmp_path}/result.json: expected JSON"), DataError("no corpus")):
        with pytest.raises(type(error)) as caught:
            report(tmp_path, error)
        assert caught.value is error


@pytest.mark.parametrize("text", ["{", "[" * 30_000, "1" * 5_000, "\ufeff[]"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"result\.json: expected JSON, as this command writes it"):
        read_json(path)


def test_a_report_on_a_folder_that_is_not_there_makes_none(tmp_path):
    @of_results
    def report(out):
        raise ValueError(f"{out}: nothing there")

    with pytest.raises(ValueError, match="nothing there"):
        report(tmp_path / "none")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "read",
    [
        read_json,
        read_text,
        lambda path: read_parallel(path, path),
        lambda path: read_examples([path]),
        lambda path: read_experiment(path, "rnn"),
    ],
)
def test_an_error_in_the_middle_of_a_file_names_it(read, monkeypatch, tmp_path):
    """To open a file names it, to read it does not: the message was "Input/output error"."""

    def broken(path, *args, **options):
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "data.txt"
    path.write_text("a\tb\tV\n")
    for name in ("read_text", "read_bytes"):
        monkeypatch.setattr(type(path), name, broken)
    with pytest.raises(OSError, match="Input/output error: .*data.txt"):
        read(path)


def test_a_folder_that_cannot_be_read_is_not_said_to_hold_no_run(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with pytest.raises(ValueError, match="there are no runs in it"):
        check_recorded(tmp_path)
    monkeypatch.setattr(os, "listdir", refused)  # by which Path.iterdir looks
    monkeypatch.setattr(os, "scandir", refused)  # or by this, as of Python 3.14
    with pytest.raises(PermissionError, match=tmp_path.name):
        check_recorded(tmp_path)
