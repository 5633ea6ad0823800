"""α-entmax by bisection, a mapping of one's own that a configuration names ("bisection:1.5").

The library's own α-entmax finds its threshold faster and to more digits. This one is Algorithm 1 of
Peters et al. (2019) in plain NumPy, which lets Figure 6 compare the training times of both. The
rest is that of `entmax`: Ω and the derivatives need p alone, and decoders ask for its log p.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.engine.backends.function import Arguments
from pyentmax.engine.calls.parameters import Alpha
from pyentmax.engine.calls.types import Array, ArrayLike, Axis
from pyentmax.reference.mapping import mapping
from pyentmax.reference.mappings.entmax import entmax
from pyentmax.reference.thresholds.bisection import bisection as halve
from pyentmax.reference.thresholds.threshold import beta_per_row
from pyentmax.seq2seq.nn.mapping_choice import RECORDS


@mapping(Alpha("alpha", least=1, strict=True), omega_at_vertices=0.0)
def bisection(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: Axis = -1, *, mask: ArrayLike | None = None,
    out: Array | None = None,
) -> Arguments:  # fmt: skip
    """p = [(α−1) z − τ]₊^{1/(α−1)}, τ by halving a bracket (Peters et al. 2019, Alg. 1).

    It is not in `pyentmax.MAPPINGS`, because it is the same mapping as `entmax`.

    Parameters
    ----------
    z, alpha, axis, mask, out : as in `pyentmax.entmax`, with a finite α above 1

    Examples
    --------
    >>> print(bisection([2.0, 1.6, -1.0]).round(6))
    [0.64 0.36 0.  ]
    """
    return z, alpha, axis, mask, out


@bisection.rule
def _forward(y: Any, alpha: Any) -> Any:
    beta = beta_per_row(alpha[:, 0], y)
    x = beta * y
    p = np.maximum(x - halve(x, alpha[:, 0]).tau, 0) ** (1 / beta)
    # The bracket ends one bit of a float wide, so the sum is off by as little: hence line 7.
    return p / np.sum(p, axis=-1, keepdims=True)


bisection.support, bisection.log, bisection.doubtful = entmax.support, entmax.log, entmax.doubtful
bisection.jvp, bisection.vjp, bisection.jacobian = entmax.jvp, entmax.vjp, entmax.jacobian
bisection.regularizer, bisection.parameter_slope = entmax.regularizer, entmax.parameter_slope
bisection.parameter_vjp, bisection.vjps = entmax.parameter_vjp, entmax.vjps

RECORDS[bisection.name] = bisection
