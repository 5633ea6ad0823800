"""What docstrings say once for many functions: sections for a form, and references written out."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
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

_HEADING = re.compile(r"^(Parameters|Returns|Raises|Examples|Notes|Attributes)\n-+\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\S.*)\n((?: {4}.*\n|\n(?= {4}))*)", re.MULTILINE)
_REFERENCE = re.compile(r"(else )?as in `(?:\w+\.)*(\w+)`")
_REFERENCES = re.compile(r"as in `[\w.]+`(?: and `[\w.]+`)*")

# Function → section → what an entry of it is about → the entry.
_written: dict[str, dict[str, dict[str, str]]] = {}


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


def explained(function: F) -> F:
    """Write out "as in `NAME`" in a docstring's sections, from that of NAME, explained before.

    It may stand for the description of parameters, for all that is returned, and, in an error's
    description, for the other reasons for it.

    >>> def first(a):
    ...     '''First.
    ...
    ...     Parameters
    ...     ----------
    ...     a : int
    ...     '''
    >>> def second(a):
    ...     '''Second.
    ...
    ...     Parameters
    ...     ----------
    ...     a : as in `first`
    ...         but odd
    ...     '''
    >>> print(explained(second).__doc__ if explained(first) else "")
    Second.
    <BLANKLINE>
    Parameters
    ----------
    a : int;
        but odd
    """
    if sys.flags.optimize > 1:  # there are no docstrings
        return function
    text, *parts = _HEADING.split(inspect.getdoc(function) or "")
    known: dict[str, dict[str, str]] = {}
    for section, body in zip(parts[::2], parts[1::2], strict=True):
        if section in ("Parameters", "Returns", "Raises"):
            write = _error if section == "Raises" else _entry
            entries = known[section] = {}
            for header, lines in _ENTRY.findall(f"{body}\n"):
                entries.update(write(section, header, lines))
            body = "".join(dict.fromkeys(entries.values())) + "\n"
        text += f"{section}\n{'-' * len(section)}\n{body}"
    _written[function.__name__] = known
    function.__doc__ = text.rstrip()
    return function


def _entry(section: str, header: str, lines: str) -> dict[str, str]:
    """An entry for each name that its header lists."""
    names, _, what = header.partition(" : ")
    if _REFERENCE.fullmatch(header):
        return _written[_REFERENCE.findall(header)[0][1]][section]
    if not _REFERENCES.fullmatch(what):
        return dict.fromkeys(names.split(", "), f"{header}\n{lines}")
    sources = re.findall(r"(\w+)`", what)
    listed = [_written[source][section] for source in sources]
    found = {n: next(x[n] for x in listed if n in x) for n in names.split(", ")}
    if lines:
        last = names.rpartition(", ")[2]
        found[last] = f"{found[last].rstrip()};\n{lines}"
    return found


def _error(section: str, header: str, lines: str) -> dict[str, str]:
    """An entry for each error that its header lists."""
    reference = _REFERENCE.search(" ".join(lines.split()))
    if reference is None:
        return {header: f"{header}\n{lines}"}
    found = {}
    for kind in header.split(", "):
        reasons = _written[reference[2]][section].get(kind, "").partition("\n")[2]
        instead = " ".join((f"or {reasons}" if reference[1] else reasons).split())
        text = reference.string.replace(reference[0], instead)
        found[kind] = f"{kind}\n{textwrap.indent(textwrap.fill(text, 92), '    ')}\n"
    return found
