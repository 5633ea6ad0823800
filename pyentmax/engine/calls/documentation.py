"""The sections of docstrings that all functions of one form share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _derivative(v: str, what: str, returns: str) -> str:
    return f"""
Parameters
----------
p, {v} : arrays of one shape
    p is what `{{mapping}}` gave, {v} {what}
{{others}} : as in `{{mapping}}`

Returns
-------
{returns}

Raises
------
ValueError
    if p and {v} differ in shape or are empty along the axis, or another argument is out of its
    range or does not fit
TypeError
    if an array is complex, of objects, or a masked array
"""


def _at_scores(v: str, what: str) -> str:
    return f"""
Parameters
----------
z : as in `{{mapping}}`
{v} : array of z's shape
    {what}
{{others}} : as in `{{mapping}}`

Returns
-------
array of z's shape

Raises
------
ValueError, TypeError
    as in `{{mapping}}`
"""


AT_SCORES = {
    "v": _at_scores("v", "a direction"),
    "g": _at_scores("g", "a loss's gradient in the output"),
}
PRODUCT = _derivative("v", "a direction", "array of p's shape")
GRADIENT = _derivative("g", "a loss's gradient in p", "array of {parameter}'s shape")
VJPS = GRADIENT.replace("array of {parameter}'s shape", "arrays of p's and of {parameter}'s shape")
SUPPORT = """
Parameters
----------
{others} : as in `{mapping}`

Returns
-------
bool array of z's shape
"""
JACOBIAN = """
Parameters
----------
p : array of probabilities
    what `{mapping}` gave
{others} : as in `{mapping}`

Returns
-------
array of p's shape without the axis, and (d, d)

Raises
------
ValueError
    if p is 0-dimensional or empty along the axis, or another argument does not fit
TypeError
    if p is complex, of objects, or a masked array
"""
LOSS = """
Parameters
----------
z : array of scores
y : integer labels (shape of z without the axis) or distributions (shape of z)
{others} : as in `LossOptions` and `{mapping}`

Returns
-------
float, or array of the labels' shape for "none"; a gradient has z's shape

Raises
------
ValueError
    if y is neither labels nor distributions that fit z, or another argument is out of its range or
    does not fit
TypeError
    if an array is not of real numbers or is a masked array, or an option is of the wrong kind
"""


def with_sections(function: Callable[..., object], sections: str, others: Sequence[str]) -> None:
    """Add sections to a function's docstring before its examples, unless it has its own.

    Parameters
    ----------
    function : callable
        named after its mapping, as in ``softmax_jvp``
    sections : str
    others : sequence of str
        its parameters that the sections do not name themselves
    """
    text, examples, rest = (inspect.getdoc(function) or "").partition("Examples\n--------\n")
    if "Parameters\n" in text:
        return
    mapping = re.split("_(?:jvp|vjp|loss|support|jacobian)", function.__name__)[0]
    added = sections.format(mapping=mapping, others=", ".join(others), parameter=others[0])
    function.__doc__ = f"{text.rstrip()}\n{added}\n{examples}{rest}"
