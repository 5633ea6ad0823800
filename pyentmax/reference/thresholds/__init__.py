"""Ways to find the threshold τ of α-entmax, each a small function in plain NumPy.

All work on rows along the last axis. With x = (α−1) z,

    α-entmax(z) = [x − τ]₊^{1/(α−1)},    f(τ) = Σ [x_i − τ]₊^{1/(α−1)} = 1,

and f decreases, so τ is unique. It lies in [max x − 1, max x − d^{1−α}]: at the left end the
largest term alone is 1, at the right end each of d terms is at most 1/d (Peters et al. 2019,
Alg. 1). So a score with x ≤ max x − 1 is never in the support.

Each of these takes x and returns a `Threshold`, so that they can be compared:

    sort_sparsemax, partial_sort_sparsemax, michelot, condat    α = 2, exact
    sort_entmax15, partial_sort_entmax15                        α = 1.5, exact
    bisection                                                   any α > 1
    newton_threshold                                            1 < α ≤ 2

Near α = 1 all thresholds approach max x − 1 and the powers overflow, so the mappings use general
solvers with better-conditioned variables: `newton` (1 ≤ α ≤ 2) with the normaliser c of
u = 1 + (α−1)(y − c), which becomes log-sum-exp at α = 1; `bisect_p_max` (α > 2) with the largest
probability q, since u = q^{α−1} + (α−1) y and q^{α−1} may be far below the rounding of 1 − u. Here
y = z − max z. The mappings' defaults are `sort_sparsemax`, `sort_entmax15`, `newton` and
`bisect_p_max`: their number of passes has a small bound for every row, and they meet the accuracy
contract in float32 too.

Near the threshold, rounding decides which scores exceed it. There may be thousands of such scores,
and their probabilities add up. `remainder` corrects a rounded threshold; `doubtful` returns the
zeros that are not proved, which the certificates of decoding need.

Mappings with upper bounds find their level by `water_fill` and `project_capped_simplex` instead.

The kernels in C and CUDA do not sort; each explains its search where that begins. Beside the
notebooks, ``notebooks/thresholds.py`` has what only they show: `newton_sparsemax` and
`prune_chunks`, with the kernels' variable names, and `halley`.
"""

from pyentmax.reference.thresholds.bisection import MaxProbability, bisect_p_max, bisection
from pyentmax.reference.thresholds.newton import (
    Normalizer,
    newton,
    newton_threshold,
    remainder,
)
from pyentmax.reference.thresholds.proof import Doubt, doubtful
from pyentmax.reference.thresholds.pruning import condat, michelot
from pyentmax.reference.thresholds.sorting import (
    partial_sort_entmax15,
    partial_sort_sparsemax,
    sort_entmax15,
    sort_sparsemax,
)
from pyentmax.reference.thresholds.threshold import Threshold
from pyentmax.reference.thresholds.tsallis import (
    in_support,
    log_tsallis_exp,
    tsallis_base,
    tsallis_exp,
)
from pyentmax.reference.thresholds.water_filling import (
    WaterFilling,
    project_capped_simplex,
    water_fill,
)

__all__ = [
    "Doubt",
    "MaxProbability",
    "Normalizer",
    "Threshold",
    "WaterFilling",
    "bisect_p_max",
    "bisection",
    "condat",
    "doubtful",
    "in_support",
    "log_tsallis_exp",
    "michelot",
    "newton",
    "newton_threshold",
    "partial_sort_entmax15",
    "partial_sort_sparsemax",
    "project_capped_simplex",
    "remainder",
    "sort_entmax15",
    "sort_sparsemax",
    "tsallis_base",
    "tsallis_exp",
    "water_fill",
]
