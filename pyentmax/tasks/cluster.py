"""Trainings on a Dask cluster, one task per model.

The workers need this library and the file system of the folder of results, where they write what a
run on one machine writes. All results are in files, so that the cluster itself has nothing to lose.
A model whose worker dies is given to another worker, which resumes it from its last checkpoint. A
finished one is not started again, even if the message that it was finished got lost.

A worker with several threads would train several models at once, which share one Python interpreter
and one BLAS: start workers with one thread each.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

CONNECT = 10  # seconds within which a scheduler must answer
LOOK = 5  # seconds between looks at whether it has workers


class Outcome(NamedTuple):
    """The outcome of a model, which is finished if there is no error."""

    model: Any
    error: BaseException | None


class Training(NamedTuple):
    """What a worker does for a model: a call, and where it writes.

    Attributes
    ----------
    train : callable
        A function of a module, which workers can import.
    arguments : tuple
    folder : Path
        Of the model. It is the task's key: two commands that request a model share one task.
    is_finished : callable
        Whether the result is there, asked where the command runs.
    """

    train: Callable[..., None]
    arguments: tuple[Any, ...]
    folder: Path
    is_finished: Callable[[], bool]


def run_on_workers(
    address: str, purpose: str, trainings: Mapping[Any, Training]
) -> Iterator[Outcome]:
    """Train models on the workers of a Dask scheduler; yields each one's outcome as it ends.

    One that fails does not stop the others. Those finished before are yielded at once.

    Parameters
    ----------
    address : str
        The scheduler's, such as ``"tcp://192.168.0.1:8786"``.
    purpose : str
        Begins the keys of the tasks.
    trainings : dict
        Model → its training.

    Raises
    ------
    ImportError
        If Dask is not installed.
    ConnectionError
        If no scheduler answers.
    """
    distributed = _distributed()
    with _connect(distributed, address) as client:
        futures = {}
        for model, training in trainings.items():
            key = f"{purpose}-{training.folder}"
            futures[client.submit(training.train, *training.arguments, key=key)] = model
        with _says_when_alone(client, address):
            for future in distributed.as_completed(futures):
                model = futures[future]
                error = future.exception()
                if error is None and not trainings[model].is_finished():
                    error = FileNotFoundError(
                        f"no result in {trainings[model].folder}: the scheduler has stopped, or "
                        "its workers see another file system"
                    )
                yield Outcome(model, error)


@contextmanager
def _says_when_alone(client: Any, address: str) -> Iterator[None]:
    """Meanwhile, tell once each time that no worker is left: nothing would be heard otherwise."""
    over = threading.Event()

    def watch() -> None:
        alone = False
        while not over.wait(LOOK):
            before = alone
            with suppress(
                OSError, RuntimeError
            ):  # the scheduler is going, which the trainings tell
                alone = client.status == "running" and not client.ncores()
            if alone and not before:
                print(
                    f"no worker is at {address}: waiting for one, 'dask worker {address} "
                    "--nthreads 1'; Ctrl-C ends this, and the same command goes on",
                    file=sys.stderr,
                )

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(LOOK)


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
