"""α-entmax by bisection, as a mapping that a model can be trained with.

The library's own α-entmax finds its threshold faster and to more digits. This one is Algorithm 1 of
Peters et al. (2019) in plain NumPy, which lets Figure 6 compare the training times of both. Ω and
the derivatives are those of `entmax`, because they need p alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pyentmax.backends import declare
from pyentmax.calls.parameters import PerRow
from pyentmax.log_probabilities import log_sum_exp
from pyentmax.mappings import MAPPINGS
from pyentmax.thresholds.bisection import bisection
from pyentmax.thresholds.threshold import beta_per_row

ALPHA = PerRow("alpha", least=1, strict=True)


@declare.mapping(ALPHA)
def entmax_by_bisection(
    z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> Any:
    """p = [(α−1) z − τ]₊^{1/(α−1)}, τ by halving a bracket (Peters et al. 2019, Alg. 1).

    Parameters
    ----------
    z, alpha, axis, mask, out : as in `pyentmax.entmax`, with a finite α above 1

    Examples
    --------
    >>> print(entmax_by_bisection([2.0, 1.6, -1.0]).round(6))
    [0.64 0.36 0.  ]
    """
    above, beta = _above(z, alpha)
    p = above ** (1 / beta)
    # The bracket ends one bit of a float wide, so the sum is off by as little: hence line 7.
    return p / np.sum(p, axis=-1, keepdims=True)


@declare.support(ALPHA)
def _support(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Any:
    """Where (α−1) z exceeds the threshold, though a float underflow to 0 as α nears 1."""
    above, _ = _above(z, alpha)
    return above > 0


@declare.log_probabilities(ALPHA)
def _log(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
    """log p, finite on the support."""
    above, beta = _above(z, alpha)
    with np.errstate(divide="ignore"):
        log_p = np.log(above) / beta
    log_p = log_p - np.max(log_p, axis=-1, keepdims=True)
    return log_p - log_sum_exp(log_p)


def _above(z: Any, alpha: Any) -> tuple[Any, Any]:
    """[(α−1) z − τ]₊ and α − 1."""
    beta = beta_per_row(alpha[:, 0], z)
    x = beta * z
    return np.maximum(x - bisection(x, alpha[:, 0]).tau, 0), beta


BISECTION = replace(
    MAPPINGS["entmax"], name="bisection", forward=entmax_by_bisection, support=_support
).with_own(log=_log, doubtful=MAPPINGS["entmax"].doubtful)
"""The record of α-entmax with another algorithm. It is not in `pyentmax.MAPPINGS`, because it is
the same mapping."""
