"""What plots ask of their arguments, before anything is drawn."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyentmax.calls.numbers import is_number


def numbers(
    values: Any, name: str, *, ndim: int | None = None, gaps: bool = False, empty: bool = False
) -> NDArray[np.float64]:
    """The values as an array of finite numbers.

    Parameters
    ----------
    values : array or nested sequences
    name : str
        What errors call it.
    ndim : int, optional
        How many axes it must have.
    gaps : bool
        Whether NaN and infinities are taken, where a line is to have a gap.
    empty : bool
        Whether it may be empty.

    Raises
    ------
    TypeError, ValueError
        that say what was expected and what came

    Examples
    --------
    >>> numbers([[1, 2]], "weights", ndim=2)
    array([[1., 2.]])
    >>> numbers([1, "2"], "weights")
    Traceback (most recent call last):
    TypeError: weights must hold real numbers, got [1, '2']
    """
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{name} must have rows of equal length, got {values!r:.60}") from None
    if array.dtype.kind == "O" and array.size and all(map(is_number, array.flat)):
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf" and array.size:
        raise TypeError(f"{name} must hold real numbers, got {values!r:.60}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(
            f"{name} must be an array of {ndim} dimensions, got {array.ndim}, of shape "
            f"{array.shape}"
        )
    if not array.size and not empty:
        raise ValueError(f"{name} must hold one number at least, got shape {array.shape}")
    array = array.astype(np.float64)
    finite = np.isfinite(array)
    if not gaps and not finite.all():
        raise ValueError(f"{name} must hold finite numbers, got {array[~finite].flat[0]}")
    return array


def words(values: Any, name: str, *, empty: bool = False) -> list[str]:
    """Tokens or labels, one at least unless they may be `empty`; a text is its characters.

    >>> words("ab", "source")
    ['a', 'b']
    """
    found = list(values) if isinstance(values, Iterable) else None
    if found is None or not all(isinstance(value, str) for value in found):
        raise TypeError(f"{name} must be a sequence of texts, got {values!r:.60}")
    if not found and not empty:
        raise ValueError(f"{name} must have one token at least, got none")
    return found


def mapping(values: Any, name: str) -> Mapping[Any, Any]:
    """A mapping that is not empty.

    >>> mapping([1], "shares")
    Traceback (most recent call last):
    TypeError: shares must be a mapping, got [1]
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping, got {values!r:.60}")
    if not values:
        raise ValueError(f"{name}: expected something to draw, got nothing")
    return values


def sequence(values: Any, name: str) -> Any:
    """A list or a tuple, or what is like them and no text."""
    if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)):
        raise TypeError(f"{name} must be a sequence, got {values!r:.60}")
    return values


def instance(value: Any, kind: type, name: str) -> None:
    """Raise a TypeError unless the value is of that kind.

    >>> instance("a", dict, "tree")
    Traceback (most recent call last):
    TypeError: tree must be of type dict, got 'a'
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, got {value!r:.60}")


def whole(value: Any, name: str, least: int, most: int | None = None) -> int:
    """A whole number within bounds.

    >>> whole(2.5, "columns", 1)
    Traceback (most recent call last):
    TypeError: columns must be a whole number, got 2.5
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r:.60}") from None
    if number < least or (most is not None and number > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {bound}, got {number}")
    return number


def by_name(
    values: Any, name: str, ndim: int | None = None, names: Iterable[Any] | None = None
) -> dict[Any, NDArray[np.float64]]:
    """A mapping to arrays of finite numbers; all of `names`, if given, have to be in it.

    >>> by_name({"context": 1}, "densities", names=["encoder"])
    Traceback (most recent call last):
    ValueError: densities must have 'encoder', got ['context']
    """
    given = mapping(values, name)
    for wanted in given if names is None else names:
        if wanted not in given:
            raise ValueError(f"{name} must have {wanted!r}, got {list(given)!r:.60}")
    return {key: numbers(value, f"{name}[{key!r}]", ndim=ndim) for key, value in given.items()}


def entries(curve: Any, key: str, name: str, *, gaps: bool = False) -> NDArray[np.float64]:
    """What each validation of a curve found under a key.

    >>> entries([{"update": 1}], "bits", "curves['a']")
    Traceback (most recent call last):
    ValueError: curves['a'][0] must have 'bits', got ['update']
    """
    for i, entry in enumerate(sequence(curve, name)):
        if key not in mapping(entry, f"{name}[{i}]"):
            raise ValueError(f"{name}[{i}] must have {key!r}, got {list(entry)!r:.60}")
    return numbers([entry[key] for entry in curve], f"{key!r} of {name}", ndim=1, gaps=gaps)
