"""The settings next to the checkpoints of a run, which are compared when it is resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyentmax.system.files import replacing
from pyentmax.training.checkpoint import CheckpointError

SETTINGS = "settings.json"


def fingerprint(data: Any) -> str:
    """A short text for anything that JSON can hold, such as a list of examples.

    Examples
    --------
    >>> fingerprint([("draw", "drawn")]) == fingerprint([("draw", "drawed")])
    False
    """
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


def write_settings(directory: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a run."""
    with replacing(directory / SETTINGS) as file:
        file.write(json.dumps(settings, indent=1, ensure_ascii=False).encode())


def read_settings(directory: Path) -> dict[str, Any]:
    """The settings of the run in a directory."""
    path = directory / SETTINGS
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: expected settings as JSON ({error})") from error


def check_settings(directory: Path, settings: dict[str, Any], *, extends: int | None) -> None:
    """Raise a CheckpointError unless the run in a directory was started with these settings.

    Parameters
    ----------
    extends : int or None
        A run whose number of updates is a multiple of this may be made longer.
    """
    then, now = dict(_flat(read_settings(directory))), dict(_flat(settings))
    updates, requested = then.get("training.updates", 0), now["training.updates"]
    if extends and updates < requested and updates % extends == 0:
        then["training.updates"] = requested
    if different := [
        f"{name} was {then.get(name)!r}, is {now.get(name)!r}"
        for name in now | then
        if then.get(name) != now.get(name)
    ]:
        raise CheckpointError(
            f"{directory}: belongs to another run ({'; '.join(different[:3])}); resume with the "
            "same settings, or start a new run in another folder"
        )


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of nested dicts under dotted names."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
