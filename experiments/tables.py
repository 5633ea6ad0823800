"""Tables in Markdown, made of the lines of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.runner import Line


def markdown(columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown.

    Examples
    --------
    >>> print(markdown(["loss", "accuracy"], [["1.5", 95.2]]))
    | loss | accuracy |
    | --- | --- |
    | 1.5 | 95.2 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)


def mean(values: Sequence[float], digits: int = 1) -> str:
    """The mean, a dash if there is nothing to average.

    Examples
    --------
    >>> mean([2000, 3000], 0), mean([])
    ('2,500', '–')
    """
    return f"{np.mean(values):,.{digits}f}" if len(values) else "–"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The mean with its standard error, where there are several values.

    Examples
    --------
    >>> spread([94.0, 96.0]), spread([94.0])
    ('95.0 ± 1.0', '94.0')
    """
    if len(values) < 2:
        return mean(values, digits)
    return f"{mean(values, digits)} ± {np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"


def grouped(lines: Iterable[Line], *names: str) -> dict[tuple[Any, ...], list[Line]]:
    """Lines by the values of some settings, in the order of their first occurrence."""
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(line["settings"].get(name) for name in names), []).append(line)
    return groups


def values(lines: Iterable[Line], *path: str) -> list[Any]:
    """One entry of each result that has it; several names lead into nested entries.

    Examples
    --------
    >>> lines = [{"result": {"supports": {"encoder": 4.5}}}, {"result": {}}]
    >>> values(lines, "supports", "encoder")
    [4.5]
    """
    entries = []
    for line in lines:
        value: Any = line["result"]
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            entries.append(value)
    return entries


def between(bounds: Sequence[float], form: str) -> str:
    """A mean with the bounds of its interval.

    Examples
    --------
    >>> between([0.5, 0.4, 0.6], ".0%")
    '50% (40% to 60%)'
    """
    mean, low, high = (f"{x:{form}}" for x in bounds)
    return f"{mean} ({low} to {high})"
