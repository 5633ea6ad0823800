"""Stages of single values of a parameter: with `[1, *slow(2, 3)]`, 2 and 3 are slow."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """These values, for the second stage; a tuple holds the values of several parameters."""
    return marked(pytest.mark.slow, values)


def sample(values: Any, step: int = 4) -> list[Any]:
    """Every step-th of these values for the first stage, the others for the second."""
    return [value if i % step == 0 else slow(value)[0] for i, value in enumerate(values)]


def deep(*values: Any) -> list[Any]:
    """These values, for `make check-deep`."""
    return marked(pytest.mark.deep, values)


def marked(mark: pytest.MarkDecorator, values: Any) -> list[Any]:
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark)
        for value in values
    ]
