"""Table 1 on a Dask cluster: workers that die, cells that fail, what is there already."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.tasks.inflection import Inflector
from pyentmax.tasks.inflection.experiments import cells, cluster, table1
from pyentmax.tasks.inflection.experiments.cells import Cell, finished_results
from pyentmax.tasks.inflection.experiments.table1 import Settings
from pyentmax.training import load_checkpoint

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow

VERBS = ["ama", "beka", "lodi", "piru", "sota", "tuli", "vena", "kosa"]
SETTINGS = Settings(
    "low", ("northish",), epochs=20, validate_every=2, hidden=8, layers=1, batch_size=4, rate=0.02
)
CELLS = [Cell("1.5", "learned", 0), Cell("1.5", "2", 0), Cell("2", "1.5", 0), Cell("2", "1", 0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    task = folder / "conll2018" / "task1" / "all"
    task.mkdir(parents=True)
    for split in ("train-low", "dev"):
        lines = (f"{verb}\t{verb}d\tV;PST\n" for verb in VERBS)
        (task / f"northish-{split}").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def client():
    """A scheduler with two worker processes."""
    options = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as local,
        distributed.Client(local) as client,
    ):
        yield client


def die_at_the_third_validation(out: Path, seen: Path) -> None:
    """In a worker: keep what the cells' checkpoints are then, and die as if by a power cut."""
    validate, count = Inflector.validate, 0

    def counted(self, examples, batch_size=128):
        nonlocal count
        count += 1
        if count == 3:
            for path in out.glob("*/last.npz"):
                (seen / path.parent.name).mkdir(parents=True)
                shutil.copy(path, seen / path.parent.name)
            os.kill(os.getpid(), signal.SIGKILL)
        return validate(self, examples, batch_size)

    Inflector.validate = counted


def refuse_to_train(*_, **__):
    raise AssertionError("this one should train")


def write_nothing(*_, **__):
    pass


def checkpoint(out: Path, cell: Cell) -> dict:
    return load_checkpoint(out / cell.folder / "last.npz", "training state")[1]


def without_clocks(results: list[dict]) -> list[dict]:
    clocks = {"train_seconds", "decode_seconds", "date", "memory_mb"}
    return [{k: v for k, v in result.items() if k not in clocks} for result in results]


def test_a_worker_killed_midway_loses_nothing_and_nothing_is_trained_twice(
    client, folder, tmp_path
):
    out, seen = tmp_path / "out", tmp_path / "seen"
    victim = min(client.nthreads())
    client.run(die_at_the_third_validation, out, seen, workers=[victim])
    address = client.scheduler.address
    outcomes = list(cluster.run_on_cluster(address, out, CELLS, SETTINGS, folder))
    assert sorted(cell for cell, _ in outcomes) == sorted(CELLS)
    assert [error for _, error in outcomes] == [None] * len(CELLS)

    # Each cell that had begun went on from its checkpoint: the clock of a run is in its history,
    # and no second training would have shown the same times.
    unfinished = 0
    for cell in CELLS:
        if not (seen / cell.folder / "last.npz").exists():
            continue
        then, now = (checkpoint(root, cell)["history"]["seconds"] for root in (seen, out))
        assert now[: len(then)] == then
        unfinished += 0 < len(then) < len(now)
        assert len(now) == 10
    assert unfinished, "nobody was killed midway"

    # The numbers are those of a run on one machine.
    alone = tmp_path / "alone"
    data = table1.read_data(folder, SETTINGS)
    for cell in CELLS:
        assert table1.run_cell(alone, cell, SETTINGS, data, progress=False)
        one, other = (checkpoint(root, cell)["history"]["loss"] for root in (alone, out))
        np.testing.assert_allclose(other, one, rtol=1e-6)
    one, other = (without_clocks(finished_results(root)) for root in (alone, out))
    assert one == other


def test_without_workers_it_says_that_it_waits(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pyentmax.tasks.cluster.LOOK", 0.1)
    options = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=0, threads_per_worker=1, **options) as local:
        threading.Timer(2, local.scale, [1]).start()
        address = local.scheduler_address
        outcomes = list(cluster.run_on_cluster(address, tmp_path, CELLS[:1], SETTINGS, folder))
    assert outcomes == [(CELLS[0], None)]
    assert capsys.readouterr().err.count(f"no worker is at {address}: waiting for one") == 1


def arguments(folder, out, address, *more):
    shape = "--setting low --hidden 8 --layers 1 --batch-size 4 --epochs 2 --validate-every 1"
    places = ["--data", str(folder), "--out", str(out), "--scheduler", address]
    return ["reproduce", "table1", *places, *shape.split(), *more]


def test_the_command(client, folder, tmp_path, capsys):
    out = tmp_path / "out"
    command = arguments(folder, out, client.scheduler.address, "--loss", "2", "--seed", "0", "1")
    assert main([*command, "--attention", "1"]) == 0
    said = capsys.readouterr().out
    assert "loss 2, attention 1, seed 1 finished" in said
    assert (out / "table.md").read_text() in said
    assert len(list(out.glob("*/result.json"))) == 3  # two models and their ensemble
    # Asked for more, it trains only what is missing; one that fails does not stop the others.
    client.run(setattr, cells, "train_cell", refuse_to_train)
    assert main([*command, "--attention", "1", "2"]) == 1
    said = capsys.readouterr().out
    assert said.count(" finished") == 2
    assert said.count("failed: this one should train") == 2
    assert "2 of 4 models failed; the same command tries them again" in said
    assert len(list(out.glob("*/result.json"))) == 3


def test_a_result_that_is_not_there_is_no_result(client, folder, tmp_path, capsys):
    client.run(setattr, cluster, "run_cell", write_nothing)
    one = ["--loss", "2", "--attention", "1"]
    assert main(arguments(folder, tmp_path / "out", client.scheduler.address, *one)) == 1
    assert "workers see another file system" in capsys.readouterr().out


def test_nobody_answers(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pyentmax.tasks.cluster.CONNECT", 0.5)
    assert main(arguments(folder, tmp_path / "out", "tcp://127.0.0.1:1")) == 1
    said = capsys.readouterr().err
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:1'" in said
    assert "'dask worker ADDRESS --nthreads 1'" in said


def test_what_to_install(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(arguments(folder, tmp_path / "out", "tcp://127.0.0.1:1")) == 1
    assert "pip install 'pyentmax[distributed]'" in capsys.readouterr().err
