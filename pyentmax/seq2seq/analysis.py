"""The quality of predictions with zeros: measures that stay finite.

Perplexity is infinite as soon as one token gets probability zero. Three measures that are finite
(Martins, Marinho & Martins 2020, §4), for distributions p_t over V tokens and the observed tokens
x_t:

    ε-perplexity      exp(−1/T Σ_t log (p_t(x_t) + ε)/(1 + εV))
    sparsemax score   1/T Σ_t p_t(x_t) + (1 − ‖p_t‖²)/2
    Jensen-Shannon    1/T Σ_t JS(p_t, one-hot of x_t)

References
----------
Martins, Marinho and Martins (2020), Sparse Text Generation, arXiv 2004.02644.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def epsilon_perplexity(probabilities: ArrayLike, labels: ArrayLike, epsilon: float = 1e-6) -> float:
    """Perplexity of distributions that are mixed with a little of the uniform one.

    Parameters
    ----------
    probabilities : (…, V) array
    labels : (…) int array
    epsilon : float
        Above 0; as it goes to 0, the result goes to the perplexity, which may be infinite.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, or epsilon is not above 0.

    Examples
    --------
    Half the time certain and right, half the time certain and wrong:

    >>> p = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> round(epsilon_perplexity(p, [0, 1], epsilon=0.01), 3)  # √(1.02² / (1.01 · 0.01))
    10.149
    >>> epsilon_perplexity(np.full((5, 4), 0.25), [0, 1, 2, 3, 0])
    4.0
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon: expected a number above 0, got {epsilon}")
    p, p_label = _label_probabilities(probabilities, labels)
    size = p.shape[-1]
    return float(np.exp(-np.log((p_label + epsilon) / (1 + epsilon * size)).mean()))


def sparsemax_score(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean of p(x) + (1 − ‖p‖²)/2: 1 if all mass is on the observed token, 0 if it is on another.

    It is one minus the loss of sparsemax at scores p (for which π(p) = p), and uses all of p.

    Examples
    --------
    >>> p = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    >>> [sparsemax_score(p[t], label) for t, label in [(0, 0), (1, 1), (2, 0)]]
    [1.0, 0.0, 0.75]
    """
    p, p_label = _label_probabilities(probabilities, labels)
    return float((p_label + (1 - (p * p).sum(axis=-1)) / 2).mean())


def jensen_shannon(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean Jensen-Shannon divergence between p and the observed token, in nats: from 0 to log 2.

    With the mean m of p and the one-hot distribution of the label, JS = H(m) − H(p)/2.

    Examples
    --------
    >>> p = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> jensen_shannon(p[0], 0), round(jensen_shannon(p[1], 1), 6)  # log 2
    (0.0, 0.693147)
    """
    p, p_label = _label_probabilities(probabilities, labels)
    # All entries of m but the label's are halves of p's: their terms add up to (1 − p_y)/2 log 2.
    rest = 1 - p_label
    mixed = (1 + p_label) / 2
    divergence = rest / 2 * np.log(2) - mixed * np.log(mixed) + _x_log_x(p_label) / 2
    return float(np.maximum(divergence, 0).mean())


def _x_log_x(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x * np.log(np.where(x > 0, x, 1))


def _label_probabilities(
    probabilities: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """p, and the probability of each label."""
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if p.ndim < 1 or p.shape[:-1] != y.shape:
        raise ValueError(
            f"labels: expected the shape {p.shape[:-1]} of the distributions, got {y.shape}"
        )
    if (invalid := (y < 0) | (y >= p.shape[-1])).any():
        raise ValueError(
            f"labels: expected numbers from 0 to {p.shape[-1] - 1}, got {y[invalid][0]}"
        )
    return p, np.take_along_axis(p, y[..., None], axis=-1)[..., 0]
