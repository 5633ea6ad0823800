"""The rows of the table on a Dask cluster, a task per row and seed.

See :mod:`pyentmax.tasks.cluster`, which says what workers need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pyentmax.tasks.cluster import Outcome, Training, run_on_workers
from pyentmax.tasks.runs import Run
from pyentmax.tasks.translation.experiments.runs import do_run, is_finished
from pyentmax.tasks.translation.multi30k import data_folder


def run_on_cluster(
    address: str,
    out: Path,
    runs: Sequence[Run],
    data: Path | None,
    *,
    updates: int | None = None,
    device: str = "cpu",
) -> Iterator[Outcome]:
    """Train runs on the workers of a Dask scheduler; yields each one's outcome as it ends.

    Parameters
    ----------
    address : str
        The scheduler's.
    out : Path
        The folder of the table, on a file system that all workers share.
    runs, data, updates, device
        As for :func:`pyentmax.tasks.translation.experiments.runs.do_run`.

    Raises
    ------
    DataError
        If no folder of data is given.
    ImportError, ConnectionError
        As :func:`pyentmax.tasks.cluster.run_on_workers`.
    """
    out, folder = out.resolve(), data_folder(data).resolve()  # the workers' may be others
    trainings = {
        run: Training(
            _train,
            (out, run, folder, updates, device),
            out / run.folder,
            partial(is_finished, out, run, updates),
        )
        for run in runs
    }
    yield from run_on_workers(address, f"translation-{updates}", trainings)


def _train(out: Path, run: Run, data: Path, updates: int | None, device: str) -> None:
    do_run(out, run, data, updates=updates, device=device, progress=False)
