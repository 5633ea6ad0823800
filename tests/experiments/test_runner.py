"""The runner of experiments: skip, resume, whole lines, several processes, a cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from experiments import runner
from experiments.runner import Experiment, Options, add_line, read_lines, run_all
from pyentmax.seq2seq.training import History

RUNS = [{"row": row, "seed": seed, "updates": 4} for row in ("a", "b") for seed in (0, 1)]


def count(settings, folder, options):
    """A run that notes in its folder how often it was begun."""
    folder.mkdir(exist_ok=True)
    with (folder / "begun").open("a") as file:
        file.write("x")
    return {"begun": (folder / "begun").stat().st_size}


def stop_once(settings, folder, options):
    """A run that is stopped the first time."""
    found = count(settings, folder, options)
    if found["begun"] == 1:
        raise KeyboardInterrupt
    return found


def diverge(settings, folder, options):
    """A run of which one row diverges."""
    if settings["row"] == "a":
        raise FloatingPointError("the loss is not finite")
    return {}


def begun(lines):
    """How often each run was begun."""
    return [line["result"]["begun"] for line in lines]


def test_finished_runs_are_skipped(tmp_path, capsys):
    assert begun(run_all(tmp_path, count, RUNS[:2])) == [1, 1]
    assert begun(run_all(tmp_path, count, RUNS)) == [1, 1, 1, 1]
    assert begun(run_all(tmp_path, count, RUNS)) == [1, 1, 1, 1]
    assert len(read_lines(tmp_path / "results.jsonl")) == 4


def test_lines_name_settings_commit_and_libraries(tmp_path):
    [line] = run_all(tmp_path, count, RUNS[:1])
    assert line["settings"] == RUNS[0]
    [session] = line["made_from"]
    assert session["commit"] == runner.commit()
    assert {"date", "machine", "numpy", "blas", "python", "pyentmax"} <= session.keys()


def test_interrupted_run_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_all(tmp_path, stop_once, RUNS[:1])
    assert not (tmp_path / "results.jsonl").exists()
    assert begun(run_all(tmp_path, stop_once, RUNS[:1])) == [2]


def test_diverged_run_does_not_stop_others(tmp_path, capsys):
    lines = run_all(tmp_path, diverge, RUNS)
    assert [line["settings"]["row"] for line in lines] == ["b", "b"]
    assert "the loss is not finite" in capsys.readouterr().out


def test_line_replaces_one_of_the_same_settings(tmp_path):
    path = tmp_path / "lines.jsonl"
    for value in (1, 2):
        add_line(path, {"settings": {"a": 1}, "result": value, "made_from": []})
    add_line(path, {"settings": {"a": 2}, "result": 3, "made_from": []})
    assert [line["result"] for line in read_lines(path)] == [2, 3]


def test_failed_write_leaves_the_lines_as_they_were(tmp_path):
    path = tmp_path / "lines.jsonl"
    add_line(path, {"settings": {"a": 1}, "result": 1, "made_from": []})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        add_line(path, {"settings": {"a": 2}, "result": float("nan"), "made_from": []})
    assert path.read_bytes() == before


def test_damaged_line_is_named(tmp_path):
    path = tmp_path / "lines.jsonl"
    add_line(path, {"settings": {"a": 1}, "result": 1, "made_from": []})
    path.write_text(path.read_text() + '{"settings": {')
    with pytest.raises(ValueError, match=r"lines\.jsonl, line 2: expected a result"):
        read_lines(path)


def test_run_is_not_resumed_on_another_blas(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run_all(tmp_path, stop_once, RUNS[:1])
    monkeypatch.setattr(runner, "_blas", lambda: "another")
    with pytest.raises(ValueError, match="set OPENBLAS_CORETYPE as it was"):
        run_all(tmp_path, stop_once, RUNS[:1])


def _hold(out, started):
    def work(settings, folder, options):
        started.set()
        time.sleep(600)
        return {}

    run_all(out, work, RUNS[:1])


def test_run_of_another_process_is_left_until_that_process_is_dead(tmp_path, capsys):
    context = multiprocessing.get_context("fork")
    started = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, started))
    other.start()
    try:
        assert started.wait(60)
        assert begun(run_all(tmp_path, count, RUNS[:2])) == [1]  # the second of the two
        assert "another process is at it" in capsys.readouterr().out
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.join()
    assert begun(run_all(tmp_path, count, RUNS[:2])) == [1, 1]


def _report(lines):
    return f"{len(lines)} lines"


EXPERIMENT = Experiment("own/nothing", __doc__, lambda args: [RUNS[:2], RUNS[2:]], count, _report)


def test_script_runs_what_is_missing_and_reports(tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    assert EXPERIMENT.main([*out, "--report"]) == 0
    assert capsys.readouterr().out == ""
    assert EXPERIMENT.main(out) == 0
    assert capsys.readouterr().out.endswith("\n\n4 lines\n")
    assert EXPERIMENT.main([*out, "--report"]) == 0
    assert capsys.readouterr().out == "\n4 lines\n"


@pytest.mark.slow
def test_cluster_does_the_runs(tmp_path, capsys):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        options = Options()
        address = cluster.scheduler_address
        assert begun(run_all(tmp_path, count, RUNS, options, scheduler=address)) == [1, 1, 1, 1]
        assert len(run_all(tmp_path / "b", diverge, RUNS, options, scheduler=address)) == 2
    assert "the loss is not finite" in capsys.readouterr().out


def test_notes_of_a_killed_run_belong_to_their_validations(tmp_path):
    notes, history = runner.Notes(tmp_path / "run"), History([2, 4], [0.5] * 2, [0.3, 0.1])
    history.dev_accuracy, history.seconds = [0.6, 0.8], [1.0, 2.0]
    notes.add(0.3, {"context": 5.0})
    notes.add(0.1, {"context": 4.0})
    with notes.path.open("a") as file:
        file.write('\n{"loss": 0.1, "cont')
    notes.add(0.1, {"context": 4.0})
    assert notes.curve(history)["context"] == [5.0, 4.0]
