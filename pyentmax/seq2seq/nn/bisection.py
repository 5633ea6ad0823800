"""α-entmax by bisection, as a mapping that a model can be trained with.

The library's own α-entmax finds its threshold faster and to more digits. This one is Algorithm 1 of
Peters et al. (2019) in plain NumPy, which lets Figure 6 compare the training times of both. The
rest is that of `entmax`: Ω and the derivatives need p alone, and decoders ask for its log p.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pyentmax.engine.backends import declare
from pyentmax.engine.calls.parameters import PerRow
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.reference.thresholds.bisection import bisection
from pyentmax.reference.thresholds.threshold import beta_per_row


def _forward(y: Any, alpha: Any) -> Any:
    beta = beta_per_row(alpha[:, 0], y)
    x = beta * y
    p = np.maximum(x - bisection(x, alpha[:, 0]).tau, 0) ** (1 / beta)
    # The bracket ends one bit of a float wide, so the sum is off by as little: hence line 7.
    return p / np.sum(p, axis=-1, keepdims=True)


@declare.mapping(_forward, PerRow("alpha", least=1, strict=True))
def entmax_by_bisection(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None, workers: int | None = None, offsets: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """p = [(α−1) z − τ]₊^{1/(α−1)}, τ by halving a bracket (Peters et al. 2019, Alg. 1).

    Parameters
    ----------
    z, alpha, axis, mask, out : as in `pyentmax.entmax`, with a finite α above 1

    Examples
    --------
    >>> print(entmax_by_bisection([2.0, 1.6, -1.0]).round(6))
    [0.64 0.36 0.  ]
    """
    return entmax_by_bisection.dispatch(z, alpha, axis, mask, out, workers, offsets)


_ENTMAX = MAPPINGS["entmax"]
BISECTION = replace(
    _ENTMAX,
    name="bisection",
    forward=entmax_by_bisection,
    conjugate=None,
    loss=None,
    loss_and_grad=None,
)
"""The record of α-entmax with another algorithm. It is not in `pyentmax.MAPPINGS`, because it is
the same mapping."""
