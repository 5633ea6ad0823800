"""The cells of Table 1 on a Dask cluster, one task per cell; see :mod:`pyentmax.tasks.cluster`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from pyentmax.data.download import FOLDER_VARIABLE
from pyentmax.tasks.cluster import Outcome, Training, run_on_workers
from pyentmax.tasks.inflection.experiments.cells import Cell, Data, is_finished
from pyentmax.tasks.inflection.experiments.table1 import Settings, read_data, run_cell


def run_on_cluster(
    address: str,
    out: Path,
    cells: Sequence[Cell],
    settings: Settings,
    folder: Path | None = None,
    *,
    device: str = "cpu",
) -> Iterator[Outcome]:
    """Train cells on the workers of a Dask scheduler; yields each one's outcome as it ends.

    Parameters
    ----------
    address : str
        The scheduler's.
    out : Path
        The folder of the table, on a file system that all workers share.
    cells, settings, device
        As for :func:`pyentmax.tasks.inflection.experiments.table1.run_cell`.
    folder : Path, optional
        The data folder, read by the workers; as for
        :func:`pyentmax.tasks.inflection.conll2018_files`.

    Raises
    ------
    ImportError, ConnectionError
        As :func:`pyentmax.tasks.cluster.run_on_workers`.
    """
    out = out.resolve()
    place = folder or os.environ.get(FOLDER_VARIABLE)  # the workers' may have another value
    data = Path(place).resolve() if place else None
    trainings = {
        cell: Training(
            _train,
            (out, cell, settings, data, device),
            out / cell.folder,
            partial(is_finished, out, cell),
        )
        for cell in cells
    }
    yield from run_on_workers(address, "table1", trainings)


def _train(out: Path, cell: Cell, settings: Settings, folder: Path | None, device: str) -> None:
    if not is_finished(out, cell):
        run_cell(out, cell, settings, _data(folder, settings), device=device, progress=False)


@lru_cache(maxsize=1)
def _data(folder: Path | None, settings: Settings) -> Data:
    """The data, read once by each worker: as an argument it would be sent with each cell."""
    return read_data(folder, settings)
