"""The cells of Table 1 on a Dask cluster, one task per cell.

The workers need this library and the file system of ``out``, where they write what a run on one
machine writes. All results are in files, so that the cluster itself has nothing to lose. A cell
whose worker dies is given to another worker, which resumes it from its last checkpoint. A finished
cell is not started again, even if the message that it was finished got lost.

A worker with several threads would train several cells at once, which share one Python interpreter
and one BLAS: start workers with one thread each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pyentmax.data.download import FOLDER_VARIABLE
from pyentmax.tasks.inflection.experiments.cells import Cell, Data, is_finished
from pyentmax.tasks.inflection.experiments.table1 import Settings, read_data, run_cell

CONNECT = 10  # seconds within which a scheduler must answer


class Outcome(NamedTuple):
    """The outcome of a cell, which is finished if there is no error."""

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
    """Train cells on the workers of a Dask scheduler; yields each one's outcome as it ends.

    A cell that fails does not stop the others. Cells that were finished before are yielded at once.

    Parameters
    ----------
    address : str
        The scheduler's, such as ``"tcp://192.168.0.1:8786"``.
    out : Path
        The folder of the table, on a file system that all workers share.
    cells, settings, device
        As for :func:`pyentmax.tasks.inflection.experiments.table1.run_cell`.
    folder : Path, optional
        The data folder, read by the workers; as for
        :func:`pyentmax.tasks.inflection.conll2018_files`.

    Raises
    ------
    ImportError
        If Dask is not installed.
    ConnectionError
        If no scheduler answers.
    """
    distributed = _distributed()
    out = out.resolve()
    place = folder or os.environ.get(FOLDER_VARIABLE)  # the workers' may have another value
    data = Path(place).resolve() if place else None
    with _connect(distributed, address) as client:
        futures = {}
        for cell in cells:
            # The key is the cell's folder: two commands that request a cell share one task.
            key = f"table1-{out / cell.folder}"
            futures[client.submit(_train, out, cell, settings, data, device, key=key)] = cell
        for future in distributed.as_completed(futures):
            cell = futures[future]
            error = future.exception()
            if error is None and not is_finished(out, cell):
                error = FileNotFoundError(
                    f"no result in {out / cell.folder}: the scheduler has stopped, or its workers "
                    "see another file system"
                )
            yield Outcome(cell, error)


def _train(out: Path, cell: Cell, settings: Settings, folder: Path | None, device: str) -> None:
    if not is_finished(out, cell):
        run_cell(out, cell, settings, _data(folder, settings), device=device, progress=False)


@lru_cache(maxsize=1)
def _data(folder: Path | None, settings: Settings) -> Data:
    """The data, read once by each worker: as an argument it would be sent with each cell."""
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
