"""Arrays whose entries are mapped one by one: how a call's arguments get there, and its result.

No axis makes rows here: every score is a problem of its own, and parameters broadcast to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.calls.devices import beside
from pyentmax.calls.dtypes import as_floating
from pyentmax.calls.lazy import check_known
from pyentmax.calls.parameters import PerRow
from pyentmax.calls.rows import check_mask, check_out, reduce_to


class EntryCall:
    """Scores z of one call, each for itself.

    Attributes
    ----------
    z : array
        the scores as they came, in the dtype to compute in
    mask : bool array like z, or None
    """

    __slots__ = ("_answer", "_out", "mask", "z")

    def __init__(self, z: Any, *, mask: Any = None, out: Any = None) -> None:
        self.z, self._answer = as_floating(z, "z")
        self._out = check_out(out, self.z, self._answer)
        if mask is not None:
            check_known(self.z, "z")
        self.mask = None if mask is None else check_mask(mask, self.z, "z")

    def values(self, parameter: PerRow, value: Any) -> Any:
        """A parameter's values in float64, checked, of a shape that broadcasts to the scores."""
        return entry_values(parameter, value, self.z)

    def beside(self, array: Any, name: str) -> Any:
        """Another array of the scores' shape, in the dtype to compute in."""
        array, answer = as_floating(array, name)
        array = beside(array, self.z, name)
        check_known(self.z, "z")
        check_known(array, name)
        if array.shape != self.z.shape:
            raise ValueError(f"{name} must have the shape of z, {self.z.shape}, got {array.shape}")
        compute = np.promote_types(self.z.dtype, array.dtype)
        self.z = self.z.astype(compute, copy=False)
        self._answer = np.promote_types(self._answer, answer)
        return array.astype(compute, copy=False)

    def restore(self, result: Any) -> Any:
        """The result in the caller's dtype and ``out``; 0 where masked."""
        if self.mask is not None:
            result = np.where(self.mask, result, 0)
        result = result.astype(self._answer, copy=False)
        if self._out is None:
            return result[()]
        self._out[...] = result
        return self._out

    def reduced(self, result: Any, shape: tuple[int, ...]) -> Any:
        """What each entry gives, summed to the shape of what they share; masked ones give 0."""
        if self.mask is not None:
            result = np.where(self.mask, result, 0)
        return reduce_to(result, shape).astype(self._answer, copy=False)[()]


def entry_values(parameter: PerRow, value: Any, z: Any) -> Any:
    """A parameter's values in float64, checked, of a shape that broadcasts to the array z."""
    check_broadcasts(parameter.name, value, z)
    return parameter.checked(value, z[..., None])


def check_broadcasts(name: str, value: Any, z: Any) -> None:
    """Raise a ValueError unless the value is a single one or broadcasts to the array z."""
    shape = np.shape(value)
    if shape:
        check_known(value, name)
        check_known(z, "z")
    try:
        fits = not shape or np.broadcast_shapes(shape, z.shape) == z.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} of shape {shape} does not broadcast to z, of shape {z.shape}")
