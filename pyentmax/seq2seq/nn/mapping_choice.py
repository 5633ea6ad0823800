"""A mapping chosen by name, in a configuration or on a command line."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq.autograd import Tensor, fenchel_young_loss, linear_loss
from pyentmax.seq2seq.autograd.mappings import on_tape
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.label_smoothing import smoothed_label_loss

RECORDS: dict[str, Mapping] = dict(MAPPINGS)
"""Name → mapping, of those that a configuration can name. A mapping of one's own is added here."""

_OF_ALPHA = {1.0: "softmax", 1.5: "entmax15", 2.0: "sparsemax"}
_operation = cache(on_tape)


class ChosenMapping(NamedTuple):
    """A mapping with its parameters filled in.

    Attributes
    ----------
    name : str
    params : tuple of float
        The values of the mapping's parameters, in their order.
    """

    name: str
    params: tuple[float, ...]

    @property
    def record(self) -> Mapping:
        """The mapping itself."""
        return RECORDS[self.name]

    @property
    def alpha(self) -> float | None:
        """α if the mapping is an α-entmax, otherwise None."""
        alphas = {name: alpha for alpha, name in _OF_ALPHA.items()}
        return self.params[0] if self.name == "entmax" else alphas.get(self.name)

    @property
    def proves_zeros(self) -> bool:
        """Whether the mapping can give zeros that can be proved, as certificates ask.

        So it is for α-entmax with α > 1, sparsemax, normmax and the two top-k
        mappings. Where scores are smoothed first (fusedmax, oscarmax), or bounded, no proof is
        known.
        """
        dense = self.alpha is not None and self.alpha <= 1
        return self.record.sparse and not dense and self.record.doubtful is not None

    def __call__(self, z: Tensor, *, mask: Array | None = None) -> Tensor:
        """p = π(z) over the last axis, on the tape."""
        return _operation(self.record)(z, *self.params, mask=mask)

    def probabilities(self, z: Array) -> tuple[Array, Array]:
        """p = π(z) over the last axis of an array, and its support as the mapping defines it."""
        return self.record(z, *self.params), self.record.support(z, *self.params)

    def log_probabilities(self, z: Array) -> tuple[np.ndarray, np.ndarray]:
        """log p over the last axis, −∞ where p is 0, and the support."""
        if self.record.log.is_defined:  # it tells the support
            log_p = self.record.log(z, *self.params)
            return log_p, log_p > -np.inf
        p, support = self.probabilities(z)
        # Not p > 0: a NaN has to stay one.
        return np.where(p == 0, -np.inf, np.log(np.where(p == 0, 1, p))), support

    def certified(self, z: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """log p, where p may be above 0, and an upper bound where p underflows.

        What the mapping's own support leaves out may be there because of rounding. Here an entry is
        ruled out only if that is proved, or never where it cannot be (see `proves_zeros`). The last
        array is the logarithm of a probability per row, None if nothing is hidden.

        Examples
        --------
        >>> log_p, possible, most = choose_mapping(2).certified(np.array([[1.0, 1e-30, 0.0]]))
        >>> print(log_p, possible, most < -34)
        [[  0. -inf -inf]] [[ True  True False]] [ True]
        """
        log_p, support = self.log_probabilities(z)
        support = support | (log_p > -np.inf)  # the two may round the threshold differently
        doubtful = self.record.doubtful
        doubt = doubtful and doubtful(z, support, *self.params)
        if not doubt:
            return log_p, support, None
        most = np.log(np.maximum(doubt.most, np.finfo(log_p.dtype).tiny))
        return log_p, support | doubt.where, most

    def loss(self, z: Tensor, y: Array, *, label_smoothing: float = 0.0, **options: Any) -> Tensor:
        """The mapping's Fenchel-Young loss for labels y, on the tape; options as of that."""
        smooth = label_smoothing and self.alpha is not None
        function = smoothed_label_loss if smooth else fenchel_young_loss
        options |= self._named()
        return function(z, y, self.record, label_smoothing=label_smoothing, **options)

    def linear_loss(self, x: Any, rows: Any, bias: Any, y: Array, **options: Any) -> Tensor:
        """The mean of `loss` for the scores x Wᵀ + b, of W (classes, d), without all of these."""
        return linear_loss(x, rows, y, self.record, bias=bias, **options, **self._named())

    def _named(self) -> dict[str, float]:
        return dict(zip(self.record.parameters, self.params, strict=True))


def choose_mapping(choice: str | float) -> ChosenMapping:
    """The mapping that a name or an α stands for.

    Parameters
    ----------
    choice : str or float
        α > 0, as a number or as text: 1 is softmax, 1.5 entmax15 and 2 sparsemax, which have exact
        algorithms of their own. Or a name in :data:`pyentmax.MAPPINGS`, its parameters separated by
        colons (``"entmax:1.25"``).

    Returns
    -------
    ChosenMapping

    Raises
    ------
    ValueError
        If there is no such mapping, or its parameters are missing, too many or no numbers that it
        takes.

    Examples
    --------
    >>> choose_mapping(1.5)
    ChosenMapping(name='entmax15', params=())
    >>> choose_mapping("1.25")
    ChosenMapping(name='entmax', params=(1.25,))
    >>> choose_mapping("softmax")
    ChosenMapping(name='softmax', params=())
    """
    name, *words = str(choice).split(":")
    try:
        params = tuple(map(float, words))
        if name not in RECORDS:
            if words or not float(name) > 0:
                raise ValueError
            params = (float(name),)
            name = _OF_ALPHA.get(params[0], "entmax")
            params = params if name == "entmax" else ()
    except ValueError:
        expected = f"α > 0 or one of {', '.join(sorted(RECORDS))}"
        raise ValueError(f"mapping: expected {expected}; got {choice!r}") from None
    record, names = RECORDS[name], RECORDS[name].parameters
    if len(params) != len(names):
        form = ":".join((name, *(parameter.upper() for parameter in names)))
        numbers = "numbers in place of the capitals" if names else "without numbers"
        raise ValueError(f"mapping: expected {form}, {numbers}; got {choice!r}")
    try:
        if not {"upper", "budget"} & set(names):
            record(np.zeros(1), *params)
        elif not params[0] >= 0:  # the most depends on how many scores
            raise ValueError(f"{names[0]} must be at least 0, got {params[0]}")
    except ValueError as error:
        raise ValueError(f"mapping: {error}, in {choice!r}") from None
    return ChosenMapping(name, params)
