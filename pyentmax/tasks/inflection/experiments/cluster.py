"""The cells of Table 1 on a Dask cluster, each cell one task.

The workers need this library and the file system that ``out`` lies on: they write there what a run
on one machine writes. So all that a cluster can lose is in files. A cell whose worker dies is given
to another worker, which goes on from its last checkpoint, and a cell that was finished is not begun
again even if the news of it was lost.

A worker with several threads trains several cells at once, which share one Python: start workers
with one thread each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pyentmax.data.download import FOLDER_VARIABLE
from pyentmax.tasks.inflection.experiments.table1 import (
    Cell,
    Data,
    Settings,
    is_finished,
    read_data,
    run_cell,
)

CONNECT = 10  # seconds until a scheduler must have answered


class Outcome(NamedTuple):
    """What became of a cell: finished, if there is no error."""

    cell: Cell
    error: BaseException | None


def run_on_cluster(
    address: str,
    out: Path,
    cells: Sequence[Cell],
    settings: Settings,
    folder: Path | None = None,
    *,
    device: str = "cpu",
) -> Iterator[Outcome]:
    """Train cells on the workers of a Dask scheduler; yields each as soon as it is through.

    One that fails does not keep others from going on. Finished cells come at once.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``"tcp://192.168.0.1:8786"``.
    out : Path
        The folder of the table, on a file system that all workers share.
    cells, settings, device
        As for :func:`pyentmax.tasks.inflection.experiments.table1.run_cell`.
    folder : Path, optional
        Of the data, read by the workers; as for :func:`pyentmax.data.conll2018_files`.

    Raises
    ------
    ImportError
        If Dask is not installed.
    ConnectionError
        If no scheduler answers.
    """
    distributed = _distributed()
    out = out.resolve()
    place = folder or os.environ.get(FOLDER_VARIABLE)  # that of the workers may be another
    data = Path(place).resolve() if place else None
    with _connect(distributed, address) as client:
        futures = {}
        for cell in cells:
            # Named by its folder, so that two commands that ask for a cell ask for one task.
            key = f"table1-{out / cell.folder}"
            futures[client.submit(_train, out, cell, settings, data, device, key=key)] = cell
        for future in distributed.as_completed(futures):
            cell = futures[future]
            error = future.exception()
            if error is None and not is_finished(out, cell):
                error = FileNotFoundError(
                    f"no result in {out / cell.folder}: the scheduler is gone, or its workers see "
                    "another file system"
                )
            yield Outcome(cell, error)


def _train(out: Path, cell: Cell, settings: Settings, folder: Path | None, device: str) -> None:
    if not is_finished(out, cell):
        run_cell(out, cell, settings, _data(folder, settings), device=device, progress=False)


@lru_cache(maxsize=1)
def _data(folder: Path | None, settings: Settings) -> Data:
    """Read once by each worker: as an argument it would be sent with each cell."""
    return read_data(folder, settings)


def _connect(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=CONNECT)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {address!r} ({error}): start one with 'dask scheduler', "
            "and workers with 'dask worker ADDRESS --nthreads 1'"
        ) from error


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError(
            f"a Dask cluster needs dask.distributed ({error}): pip install 'pyentmax[distributed]'"
        ) from error
    return distributed
