"""What plots ask of their arguments, before anything is drawn."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = (Real, np.number, Decimal)


def numbers(
    values: Any, name: str, *, ndim: int | None = None, empty: bool = False
) -> NDArray[np.float64]:
    """The values as an array of numbers. NaN is one, and None stands for it: a gap in a picture.

    Parameters
    ----------
    values : array or nested sequences
    name : str
        What errors call it.
    ndim : int, optional
        How many axes it must have.
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
        raise ValueError(f"{name} must have rows of equal length, got {shown(values)}") from None
    if array.dtype.kind == "O" and all(x is None or isinstance(x, _NUMBERS) for x in array.flat):
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf" and array.size:
        raise TypeError(f"{name} must hold real numbers, got {shown(values)}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(
            f"{name} must be an array of {ndim} dimensions, got {array.ndim}, of shape "
            f"{array.shape}"
        )
    if not array.size and not empty:
        raise ValueError(f"{name} must hold one number at least, got shape {array.shape}")
    return array.astype(np.float64)


def words(values: Any, name: str, *, empty: bool = False) -> list[str]:
    """Tokens or labels, one at least unless they may be `empty`; a text is its characters.

    >>> words("ab", "source")
    ['a', 'b']
    """
    found = list(values) if isinstance(values, Iterable) else None
    if found is None or not all(isinstance(value, str) for value in found):
        raise TypeError(f"{name} must be a sequence of texts, got {shown(values)}")
    if not found and not empty:
        raise ValueError(f"{name} must have one token at least, got none")
    return found


def is_mapping(values: Any) -> bool:
    """Whether names lead to values: a dict, or what is like one, such as a pandas DataFrame.

    >>> is_mapping({"a": 1}), is_mapping([1])
    (True, False)
    """
    return isinstance(values, Mapping) or hasattr(values, "keys")


def shown(value: Any) -> str:
    """The beginning of a value in one line.

    >>> shown(np.eye(2))
    'array([[1., 0.], [0., 1.]])'
    """
    return " ".join(repr(value)[:400].split())[:60]


def mapping(values: Any, name: str) -> Mapping[Any, Any]:
    """A mapping that is not empty.

    >>> mapping([1], "shares")
    Traceback (most recent call last):
    TypeError: shares must be a mapping, got [1]
    """
    if not is_mapping(values):
        raise TypeError(f"{name} must be a mapping, got {shown(values)}")
    if not len(values):
        raise ValueError(f"{name}: expected something to draw, got nothing")
    found: Mapping[Any, Any] = values
    return found


def sequence(values: Any, name: str) -> list[Any]:
    """What is listed, in whatever that is no text.

    >>> sequence((x for x in "ab"), "panels")
    ['a', 'b']
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence, got {shown(values)}")
    return list(values)


def instance(value: Any, kind: type, name: str) -> None:
    """Raise a TypeError unless the value is of that kind.

    >>> instance("a", dict, "tree")
    Traceback (most recent call last):
    TypeError: tree must be of type dict, got 'a'
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, got {shown(value)}")


def whole(value: Any, name: str, least: int, most: int | None = None) -> int:
    """A whole number within bounds.

    >>> whole(2.5, "columns", 1)
    Traceback (most recent call last):
    TypeError: columns must be a whole number, got 2.5
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {shown(value)}") from None
    if number < least or (most is not None and number > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {bound}, got {number}")
    return number


def by_name(
    values: Any, name: str, ndim: int | None = None, names: Iterable[Any] | None = None
) -> dict[Any, NDArray[np.float64]]:
    """A mapping to arrays of numbers; all of `names`, if given, have to be in it.

    >>> by_name({"context": 1}, "densities", names=["encoder"])
    Traceback (most recent call last):
    ValueError: densities must have 'encoder', got ['context']
    """
    given = mapping(values, name)
    # A pandas Series lists its values, not its keys.
    for wanted in given.keys() if names is None else names:
        if wanted not in given:
            raise ValueError(f"{name} must have {wanted!r}, got {shown(list(given))}")
    return {key: numbers(value, f"{name}[{key!r}]", ndim=ndim) for key, value in given.items()}
