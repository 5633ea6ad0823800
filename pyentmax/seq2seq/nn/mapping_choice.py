"""A mapping chosen by name, in a configuration or on a command line."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq.autograd import MAPPING_OPS, Tensor, fenchel_young_loss, linear_loss
from pyentmax.seq2seq.autograd.mappings import on_tape
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.bisection import bisection
from pyentmax.seq2seq.nn.label_smoothing import smoothed_label_loss

_RECORDS = MAPPINGS | {bisection.name: bisection}
_OPS = MAPPING_OPS | {bisection.name: on_tape(bisection)}


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
    def proves_zeros(self) -> bool:
        """Whether the mapping can give zeros that can be proved, as certificates ask.

        So it is for α-entmax with α > 1 by any algorithm, sparsemax, normmax and the two top-k
        mappings. Where scores are smoothed first (fusedmax, oscarmax), or bounded, no proof is
        known.
        """
        record = _RECORDS[self.name]
        dense = self.alpha is not None and self.alpha <= 1
        return record.sparse and not dense and record.doubtful is not None

    @property
    def alpha(self) -> float | None:
        """α if the mapping is an α-entmax, otherwise None."""
        if _RECORDS[self.name].regularizer is MAPPINGS["entmax"].regularizer:
            return self.params[0]
        return {name: alpha for alpha, name in _OF_ALPHA.items()}.get(self.name)

    def __call__(self, z: Tensor, *, mask: Array | None = None) -> Tensor:
        """p = π(z) over the last axis, on the tape."""
        return _OPS[self.name](z, *self.params, mask=mask)

    def probabilities(self, z: Array) -> tuple[Array, Array]:
        """p = π(z) over the last axis of an array, and its support as the mapping defines it."""
        record = _RECORDS[self.name]
        return record(z, *self.params), record.support(z, *self.params)

    def log_probabilities(self, z: Array) -> tuple[np.ndarray, np.ndarray]:
        """log p over the last axis, −∞ where p is 0, and the support."""
        log = _RECORDS[self.name].log
        if log.is_defined:  # it tells the support
            log_p = log(z, *self.params)
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
        doubtful = _RECORDS[self.name].doubtful
        log_p, support = self.log_probabilities(z)
        support = support | (log_p > -np.inf)  # the two may round the threshold differently
        doubt = doubtful and doubtful(z, support, *self.params)
        if not doubt:
            return log_p, support, None
        most = np.log(np.maximum(doubt.most, np.finfo(log_p.dtype).tiny))
        return log_p, support | doubt.where, most

    def require_distribution(self) -> None:
        """Raise a ValueError unless what the mapping gives sums to 1, as chances do."""
        if not (_RECORDS[self.name].on_simplex or self.params == (1.0,)):
            raise ValueError(
                f"output: expected a mapping to probabilities that sum to 1, got {self.name} with "
                f"a sum of {self.params[0]}"
            )

    def loss(
        self,
        z: Tensor,
        y: Array,
        *,
        weight: Array | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """The mapping's Fenchel-Young loss for labels y, on the tape."""
        record = _RECORDS[self.name]
        options: Any = {"weight": weight, "reduction": reduction}
        options |= dict(zip(record.parameters, self.params, strict=True))
        if label_smoothing and self.alpha is not None:
            return smoothed_label_loss(z, y, record, label_smoothing, **options)
        return fenchel_young_loss(z, y, record, label_smoothing=label_smoothing, **options)

    def linear_loss(self, x: Any, rows: Any, bias: Any, y: Array, **options: Any) -> Tensor:
        """The mean of `loss` for the scores x Wᵀ + b, of W (classes, d), without all of these."""
        record = _RECORDS[self.name]
        options |= dict(zip(record.parameters, self.params, strict=True))
        return linear_loss(x, rows, y, record, bias=bias, **options)


_OF_ALPHA = {1.0: "softmax", 1.5: "entmax15", 2.0: "sparsemax"}


def choose_mapping(choice: str | float) -> ChosenMapping:
    """The mapping that a name or an α stands for.

    Parameters
    ----------
    choice : str or float
        α > 0, as a number or as text: 1 is softmax, 1.5 entmax15 and 2 sparsemax, which have exact
        algorithms of their own. Or a name in :data:`pyentmax.MAPPINGS`, its parameters separated by
        colons (``"entmax:1.25"``). Or ``"bisection:1.5"`` for :mod:`pyentmax.seq2seq.nn.bisection`.

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
    expected = f"α > 0 or one of {', '.join(sorted(_RECORDS))}"
    name, *rest = str(choice).split(":")
    try:
        params = tuple(float(word) for word in rest)
        if name not in _RECORDS:
            alpha = float(name)
            if rest or not alpha > 0:
                raise ValueError
            if alpha in _OF_ALPHA:
                return ChosenMapping(_OF_ALPHA[alpha], ())
            return ChosenMapping("entmax", (alpha,))
    except ValueError:
        raise ValueError(f"mapping: expected {expected}; got {choice!r}") from None
    names = _RECORDS[name].parameters
    if len(params) != len(names):
        form = ":".join((name, *(parameter.upper() for parameter in names)))
        numbers = "numbers in place of the capitals" if names else "without numbers"
        raise ValueError(f"mapping: expected {form}, {numbers}; got {choice!r}")
    _check_values(choice, name, params)
    return ChosenMapping(name, params)


def _check_values(choice: str | float, name: str, params: tuple[float, ...]) -> None:
    """Refuse numbers that the mapping would refuse, before there is a model with it."""
    record = _RECORDS[name]
    try:
        if {"upper", "budget"} & set(record.parameters):  # the most depends on how many scores
            if not params[0] >= 0:
                raise ValueError(f"{record.parameters[0]} must be at least 0, got {params[0]}")
        else:
            record(np.zeros(1), *params)
    except ValueError as error:
        raise ValueError(f"mapping: {error}, in {choice!r}") from None
