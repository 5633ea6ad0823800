"""The sections of a docstring that are the same for every function of a kind."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

PRODUCT = """
Parameters
----------
p, v : arrays of one shape
    p is what `{mapping}` gave, v a direction
{others} : as in `{mapping}`

Returns
-------
array of p's shape

Raises
------
ValueError, TypeError
    as in `{mapping}`, and if p and v differ in shape
"""
GRADIENT = """
Parameters
----------
p, g : arrays of one shape
    p is what `{mapping}` gave, g a loss's gradient in p
{others} : as in `{mapping}`

Returns
-------
array of {parameter}'s shape

Raises
------
ValueError, TypeError
    as in `{mapping}`, and if p and g differ in shape
"""
VJPS = GRADIENT.replace("array of {parameter}'s shape", "arrays of p's and of {parameter}'s shape")
LOSS = """
Parameters
----------
z, y : scores; labels or distributions
{others} : as in `{mapping}` and `fenchel_young_loss`

Returns
-------
float, or array of the labels' shape for "none"; a gradient has z's shape

Raises
------
ValueError, TypeError
    as in `{mapping}` and `fenchel_young_loss`
"""


def with_sections(function: Callable[..., Any], sections: str, others: Sequence[str]) -> None:
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
    added = textwrap.dedent(sections).format(
        mapping=mapping, others=", ".join(others), parameter=others[0]
    )
    function.__doc__ = f"{text.rstrip()}\n{added}\n{examples}{rest}"
