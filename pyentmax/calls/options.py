"""What all losses can be asked for, stated once."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypedDict, TypeVar

import numpy as np

REDUCTIONS = ("mean", "sum", "none")

F = TypeVar("F", bound=Callable[..., Any])


class LossOptions(TypedDict, total=False):
    """The keywords of every loss, for signatures: ``**options: Unpack[LossOptions]``.

    `pyentmax.fenchel_young_loss` says what they mean.
    """

    reduction: str
    weight: Any
    mask: Any
    ignore_index: int | None
    label_smoothing: float


@dataclass(frozen=True)
class Options:
    """The same with their defaults, checked."""

    reduction: str = "mean"
    weight: Any = None
    mask: Any = None
    ignore_index: int | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction must be one of {', '.join(REDUCTIONS)}, got {self.reduction!r}"
            )
        smoothing = self.label_smoothing
        if not isinstance(smoothing, (int, float, np.integer, np.floating)):
            raise TypeError(
                f"label_smoothing must be a number in [0, 1], got {type(smoothing).__name__}"
            )
        if not 0 <= smoothing <= 1:
            raise ValueError(f"label_smoothing must be in [0, 1], got {smoothing}")
        if self.ignore_index is not None:
            try:
                operator.index(self.ignore_index)
            except TypeError:
                raise TypeError(
                    f"ignore_index must be a whole number or None, got {self.ignore_index!r}"
                ) from None


def spelled_out(function: F) -> F:
    """Decorator: the signature that `help` shows of a loss has the options one by one.

    They stand in place of ``**options``, and before any other keywords.
    """
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "options"]
    parameters = sorted([*parameters, *_OPTIONS], key=lambda parameter: parameter.kind)
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


_OPTIONS = [
    inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
    )
    for field in fields(Options)
]
