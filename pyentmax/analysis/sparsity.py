"""How sparse distributions are: sizes of supports, and their share of what was possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["density", "support_size"]


def support_size(p: ArrayLike, axis: int = -1) -> NDArray[np.int64]:
    """Number of entries above zero along ``axis``.

    Parameters
    ----------
    p : array
        Probabilities; or, where they may underflow inside the support, the boolean support itself.
    axis : int
        The axis that each distribution lies along.

    Returns
    -------
    int array of p's shape without ``axis``

    Examples
    --------
    >>> support_size([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    array([2, 1])
    """
    counts: NDArray[np.int64] = np.count_nonzero(np.asarray(p) > 0, axis=axis, keepdims=True)
    return np.squeeze(counts, axis=axis)


def density(p: ArrayLike, axis: int = -1, *, mask: ArrayLike | None = None) -> float:
    """Mean share of the allowed entries that are above zero, from 0 to 1.

    Parameters
    ----------
    p : array
        Probabilities such as attention weights, or their boolean support.
    axis : int
        The axis that each distribution lies along.
    mask : bool array, optional
        Broadcastable to ``p``; True where there may be probability. Distributions that are
        allowed nothing do not count.

    Raises
    ------
    ValueError
        If no distribution is allowed anything.

    References
    ----------
    Correia, Niculae and Martins (2019), Adaptively Sparse Transformers, §5.

    Examples
    --------
    >>> density([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    0.375
    >>> density([1.0, 0.0, 0.0], mask=[True, True, False])
    0.5
    """
    positive = np.asarray(p) > 0
    allowed = np.broadcast_to(
        True if mask is None else np.asarray(mask, dtype=bool), positive.shape
    )
    available = support_size(allowed, axis)
    counts = available > 0
    if not counts.any():
        raise ValueError(
            f"density needs a distribution with an allowed entry, but there is none in shape "
            f"{positive.shape} with this mask"
        )
    return float(np.mean(support_size(positive & allowed, axis)[counts] / available[counts]))
