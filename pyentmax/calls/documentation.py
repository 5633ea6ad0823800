"""The sections of a docstring that are the same for every function of one form."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence

_SECTIONS = """
Parameters
----------
{arrays}
{{others}} : as in {source}

Returns
-------
{returns}

Raises
------
ValueError, TypeError
    as in {source}{errors}
"""


def _derivative(v: str, what: str, returns: str) -> str:
    arrays = f"p, {v} : arrays of one shape\n    p is what `{{mapping}}` gave, {v} {what}"
    errors = f", and if p and {v} differ in shape"
    return _SECTIONS.format(arrays=arrays, source="`{mapping}`", returns=returns, errors=errors)


PRODUCT = _derivative("v", "a direction", "array of p's shape")
GRADIENT = _derivative("g", "a loss's gradient in p", "array of {parameter}'s shape")
VJPS = GRADIENT.replace("array of {parameter}'s shape", "arrays of p's and of {parameter}'s shape")
LOSS = _SECTIONS.format(
    arrays="z, y : scores; labels or distributions",
    source="`{mapping}` and `fenchel_young_loss`",
    returns="float, or array of the labels' shape for \"none\"; a gradient has z's shape",
    errors="",
)


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
    mapping = re.split("_(?:jvp|vjp|loss)", function.__name__)[0]
    added = sections.format(mapping=mapping, others=", ".join(others), parameter=others[0])
    function.__doc__ = f"{text.rstrip()}\n{added}\n{examples}{rest}"
