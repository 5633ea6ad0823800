"""Checkpoints: arrays and a JSON description in one ``.npz`` file, without pickle."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.engine.system.config import for_json
from pyentmax.engine.system.files import replacing

_META = "__meta__"


class CheckpointError(ValueError):
    """A file that is not a complete checkpoint, or not of the expected kind."""


def save_checkpoint(path: str | Path, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Write arrays and a description, replacing the file in one step.

    Whatever interrupts it, even a full disk, an earlier file remains complete.

    Parameters
    ----------
    arrays : dict of arrays
    meta : dict
        Anything that JSON can hold, with an entry "kind". Floats come back to the last digit.

    Raises
    ------
    OSError
        If the file cannot be written; the message names it.
    """
    description = np.array(json.dumps(meta, ensure_ascii=False, default=for_json))
    named = {_META: description} | {name: np.asarray(x) for name, x in arrays.items()}
    # Not np.savez: before NumPy 2.2 it may pickle, and no array could be called "file".
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in named.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def load_checkpoint(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays, as NumPy's, and the description that :func:`save_checkpoint` wrote.

    Raises
    ------
    OSError
        If there is no such file, or it cannot be read.
    CheckpointError
        If the file is truncated or damaged, or its ``meta["kind"]`` is not *kind*.
    """
    with _opened(Path(path)) as archive:
        arrays = {name: _native(archive[name]) for name in archive.files}
        meta: dict[str, Any] = dict(json.loads(str(arrays.pop(_META))))
    if meta.get("kind") != kind:
        raise CheckpointError(f"{path}: expected {kind!r}, the file holds {meta.get('kind')!r}")
    return arrays, meta


def _native(array: np.ndarray) -> np.ndarray:
    """The array in this machine's byte order: a file may come from another."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The open file; damage found while it is read is a CheckpointError."""
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                if any(member.compress_type for member in archive.zip.infolist()):
                    raise ValueError("its members are compressed")
                yield archive
        except Exception as error:
            # The damage may be in the zip, npy or JSON part, whose readers fail in a dozen ways.
            raise CheckpointError(
                f"{path} is not a complete checkpoint: it is truncated, damaged or something else "
                f"({type(error).__name__}: {error})"
            ) from error
