"""Checkpoints: arrays and a JSON description in one ``.npz`` file, without pickle."""

from __future__ import annotations

import errno
import json
import math
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.calls.devices import to_host
from pyentmax.calls.numbers import for_json
from pyentmax.system.files import replacing

_META = "__meta__"
_MOST_INFLATED = 1032  # bytes that deflate makes of one at most
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class CheckpointError(ValueError):
    """A file that is not a complete checkpoint, or not of the expected kind."""


def save_checkpoint(path: str | Path, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Write arrays and a description, replacing the file in one step.

    Whatever interrupts it, even a full disk, the file that was there before is still complete.

    Parameters
    ----------
    arrays : dict of arrays
        Those on a GPU are copied to the host first.
    meta : dict
        Anything that JSON can hold, with an entry "kind". Floats come back to the last digit.

    Raises
    ------
    OSError
        If the file cannot be written; the message names it.
    """
    named: dict[str, Any] = {
        _META: np.array(json.dumps(meta, ensure_ascii=False, default=for_json))
    }
    named |= {name: to_host(array) for name, array in arrays.items()}
    with replacing(path) as file:
        archive = zipfile.ZipFile(file, "w")
        try:
            for name, array in named.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            archive.close()
        except BaseException:
            # `np.savez` closes it then, and Ctrl-C in the middle of an array became another error.
            archive.fp = None
            raise


def load_checkpoint(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays, as NumPy's, and the description that :func:`save_checkpoint` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    OSError
        If it cannot be read.
    MemoryError
        If its arrays do not fit into memory.
    CheckpointError
        If the file is truncated or damaged, or its ``meta["kind"]`` is not *kind*.
    """
    path = Path(path)
    with _archive(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
        meta = _described(arrays.pop(_META))
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{name} is no array")
    if meta.get("kind") != kind:
        raise CheckpointError(f"{path}: expected {kind!r}, the file holds {meta.get('kind')!r}")
    return arrays, meta


def checkpoint_kind(path: str | Path) -> str:
    """What a checkpoint holds, as its description says; its arrays are not read.

    Errors are those of `load_checkpoint`, whose second argument this is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(f"{folder}/a.npz", {"x": np.zeros(3)}, {"kind": "example"})
    ...     checkpoint_kind(f"{folder}/a.npz")
    'example'
    """
    with _archive(Path(path)) as archive:
        return str(_described(archive[_META])["kind"])


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    """The open file; whatever is wrong with what is read of it is a CheckpointError.

    A file that cannot be read, or for which there is not enough memory, may be in order.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("one array, not an archive")
            if len(set(archive.files)) < len(archive.files):
                raise ValueError("two arrays of one name")
            yield archive
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise OSError(error.errno, error.strerror, str(path)) from error
        if isinstance(error, MemoryError) and not _claims_more_than_it_holds(path):
            raise MemoryError(f"{path}: {error or 'its arrays do not fit'}") from error
        # The damage may be in the zip, npy or JSON part, whose readers fail in a dozen ways.
        raise CheckpointError(
            f"{path} is not a complete checkpoint: it is truncated, damaged or something else "
            f"({type(error).__name__})"
        ) from error


def _claims_more_than_it_holds(path: Path) -> bool:
    """Whether an array's header asks for more memory than the file has numbers for."""
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    version = np.lib.format.read_magic(member)
                    shape, _, dtype = _READERS[version](member)
                claimed = math.prod(shape) * dtype.itemsize
                if claimed > min(info.file_size, _MOST_INFLATED * size):
                    return True
    except MemoryError:
        return False
    except Exception:  # as many kinds as above
        return True
    return False


def _described(description: Any) -> dict[str, Any]:
    meta = json.loads(str(description))
    if not isinstance(meta, dict):
        raise ValueError("the description is not an object")
    return meta


def with_prefix(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The same arrays with ``prefix.`` before their names."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def without_prefix(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays whose names begin with ``prefix.``, under the rest of their names."""
    start = f"{prefix}."
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}


def check_arrays(path: Any, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise a CheckpointError unless names, shapes and dtypes are these, and all numbers finite."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise CheckpointError(f"{path}: {name} is missing")
        if name not in expected:
            raise CheckpointError(f"{path}: {name} is not expected")
        a, b = found[name], expected[name]
        b = b if hasattr(b, "dtype") else np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            raise CheckpointError(
                f"{path}: {name}: expected {b.dtype} of shape {b.shape}, got {a.dtype} of shape "
                f"{a.shape}"
            )
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            raise CheckpointError(f"{path}: {name}: expected finite numbers, got NaN or infinity")


def differences(then: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between the identities of two runs, in words; what is missing is None."""
    found = []
    for key in now | then:
        a, b = then.get(key), now.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            inner = sorted(k for k in a.keys() | b.keys() if not _same(a.get(k), b.get(k)))
            found += [f"{k} {_was(a.get(k), b.get(k))}" for k in inner]
        elif not _same(a, b):
            short = all(isinstance(x, (str, int, float)) and len(str(x)) < 60 for x in (a, b))
            found.append(f"{key}: {_was(a, b)}" if short else f"{key}: not the same")
    return "; ".join(found[:3]) + (" …" if len(found) > 3 else "")


def _was(a: Any, b: Any) -> str:
    return f"was {a}, is {b}" if str(a) != str(b) else f"was {a!r}, is {b!r}"


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, and to JSON too, where true is not 1 (but 1.0 is)."""
    texts = [json.dumps(json.loads(json.dumps(x), parse_int=float), sort_keys=True) for x in (a, b)]
    return bool(a == b) and texts[0] == texts[1]


def check_number(name: str, value: Any, *, whole: bool = False) -> None:
    """Raise a ValueError unless a value of a description is a finite number, or a whole one.

    Examples
    --------
    >>> check_number("updates", 2.5, whole=True)
    Traceback (most recent call last):
        ...
    ValueError: updates: expected a whole number, got 2.5
    """
    if type(value) is int and (whole or abs(value) <= sys.float_info.max):
        return
    if whole or type(value) is not float or not math.isfinite(value):
        kind = "a whole number" if whole else "a finite number"
        raise ValueError(f"{name}: expected {kind}, got {str(value)[:60]}")


def restore_generator(rng: np.random.Generator, name: str, state: Any) -> None:
    """Put a generator of random numbers into the state that a description has under a name.

    NumPy takes 1.5 and true for 1: the ValueError is for a state that does not come back the same,
    or that PCG64 cannot have, whose increment is odd.
    """
    rng.bit_generator.state = state
    there, back = (json.dumps(x, sort_keys=True) for x in (state, rng.bit_generator.state))
    if there != back or state["has_uint32"] not in (0, 1) or state["state"]["inc"] % 2 == 0:
        raise ValueError(f"{name}: expected the state of a generator, got {there[:60]}")
