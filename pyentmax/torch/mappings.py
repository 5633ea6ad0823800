"""The mappings of tensors, and where they give probability.

Each is the function of the same name in `pyentmax`, whose documentation derives it, with ``dim``
for its ``axis``. All have gradients in the scores, and in a parameter where its description says
so.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pyentmax.torch.calls import apply, apply_support


def softmax(
    z: Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Dense probabilities: argmax of p·z + H(p) over the simplex, H Shannon's entropy.

    Parameters
    ----------
    z : Tensor of scores
    dim : int, default -1
        along which the rows lie
    mask : bool Tensor that broadcasts to z, optional
        True where a score may get probability; False is the same as a score of −∞
    dtype : torch.dtype, optional
        to which z is converted first, as by `torch.softmax`
    offsets : Tensor of int32 or int64, of shape (rows + 1,), optional
        cut the dimension into rows of different lengths, as in `pyentmax.softmax`

    Returns
    -------
    Tensor of z's shape and dtype
        rows sum to 1; a row with nothing left is zeros, one with a NaN or +∞ is NaN

    Raises
    ------
    ValueError
        if mask does not broadcast to z, or z is 0-dimensional or empty along ``dim``
    TypeError
        if z is not a dense tensor of a floating dtype, or mask is not boolean

    Examples
    --------
    >>> softmax(torch.tensor([-0.3, -1.0, 1.8]))
    tensor([0.1035, 0.0514, 0.8451])
    """
    return apply("softmax", z, None, dim, mask=mask, dtype=dtype, offsets=offsets)


def sparsemax(
    z: Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities: the point of the simplex nearest to z (Martins & Astudillo 2016).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> sparsemax(torch.tensor([1.0, 0.5, -2.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    return apply("sparsemax", z, None, dim, mask=mask, dtype=dtype, offsets=offsets)


def entmax15(
    z: Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities p = [z/2 − τ]₊²: α-entmax at α = 1.5 (Peters et al. 2019, Alg. 2).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> entmax15(torch.tensor([2.0, 1.6, -1.0]))
    tensor([0.6400, 0.3600, 0.0000])
    """
    return apply("entmax15", z, None, dim, mask=mask, dtype=dtype, offsets=offsets)


def entmax(
    z: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities p = [(α−1) z − τ]₊^{1/(α−1)} (Peters et al. 2019, Eq. 10 and App. C).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    alpha : float or Tensor that broadcasts to z's shape without ``dim``, default 1.5
        above 0; a tensor gets a gradient. 1 is softmax, 2 sparsemax, ``inf`` uniform over the
        largest scores

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> entmax(torch.tensor([2.0, 1.6, -1.0]), 1.5)
    tensor([0.6400, 0.3600, 0.0000])
    """
    return apply("entmax", z, alpha, dim, mask=mask, dtype=dtype, offsets=offsets)


def normmax(
    z: Tensor,
    alpha: float | Tensor = 2.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities p ∝ [z − τ]₊^{1/(α−1)}: argmax over the simplex of p·z − ‖p‖_α.

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    alpha : float or Tensor that broadcasts to z's shape without ``dim``, default 2.0
        above 1; ``inf`` is uniform over sparsemax's support

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> normmax(torch.tensor([0.8, 0.6, -1.0]))
    tensor([0.5714, 0.4286, 0.0000])
    """
    return apply("normmax", z, alpha, dim, mask=mask, dtype=dtype, offsets=offsets)


def topk_softmax(
    z: Tensor,
    k: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Softmax over each row's k largest scores (Explicit Sparse Transformer, Eq. 2 and 3).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    k : whole number or Tensor that broadcasts to z's shape without ``dim``
        number of scores to keep, at least 1

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> topk_softmax(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
    tensor([0.7311, 0.2689, 0.0000, 0.0000])
    """
    return apply("topk_softmax", z, k, dim, mask=mask, dtype=dtype, offsets=offsets)


def topk_sparsemax(
    z: Tensor,
    k: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities: the point nearest to z of the simplex with at most k non-zeros.

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    k : whole number or Tensor that broadcasts to z's shape without ``dim``
        the most non-zeros, at least 1

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> topk_sparsemax(torch.tensor([1.0, 0.8, 0.9, -1.0]), 2)
    tensor([0.5500, 0.0000, 0.4500, 0.0000])
    """
    return apply("topk_sparsemax", z, k, dim, mask=mask, dtype=dtype, offsets=offsets)


def fusedmax(
    z: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities, equal over runs of neighbours (Niculae & Blondel 2017).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    strength : float or Tensor that broadcasts to z's shape without ``dim``, default 1.0
        λ ≥ 0; a tensor gets a gradient

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> fusedmax(torch.tensor([1.0, 0.9, 1.1, -1.0, 0.8]), 0.1)
    tensor([0.3167, 0.3167, 0.3167, 0.0000, 0.0500])
    """
    return apply("fusedmax", z, strength, dim, mask=mask, dtype=dtype, offsets=offsets)


def oscarmax(
    z: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities, equal over groups of entries anywhere (Niculae & Blondel 2017).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    strength : as in `fusedmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> oscarmax(torch.tensor([1.0, -1.0, 0.9, 0.2, 1.1]), 0.1)
    tensor([0.3333, 0.0000, 0.3333, 0.0000, 0.3333])
    """
    return apply("oscarmax", z, strength, dim, mask=mask, dtype=dtype, offsets=offsets)


def csoftmax(
    z: Tensor,
    upper: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Probabilities p = min(u, e^z r): softmax with upper bounds (Martins & Kreutzer 2017).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    upper : float or Tensor of bounds u ≥ 0 that broadcasts to z
        1 or more sets no bound; the unmasked bounds of a row must sum to 1 or more. A tensor gets
        a gradient

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> csoftmax(torch.tensor([2.0, 0.0, 0.0]), torch.tensor([0.5, 1.0, 1.0]))
    tensor([0.5000, 0.2500, 0.2500])
    """
    return apply("csoftmax", z, upper, dim, mask=mask, dtype=dtype, offsets=offsets)


def csparsemax(
    z: Tensor,
    upper: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Sparse probabilities p = clip(z − τ, 0, u): sparsemax with bounds (Malaviya et al. 2018).

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    upper : as in `csoftmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> csparsemax(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([0.5, 1.0, 1.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return apply("csparsemax", z, upper, dim, mask=mask, dtype=dtype, offsets=offsets)


def budget_sparsemax(
    z: Tensor,
    budget: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Shares p = clip(z − τ, 0, 1) that sum to the budget k: sparsemax that takes k in all.

    Parameters
    ----------
    z, dim, mask, dtype, offsets : as in `softmax`
    budget : float or Tensor that broadcasts to z's shape without ``dim``
        k, at most the number of a row's unmasked entries; a tensor gets a gradient

    Returns
    -------
    Tensor of z's shape and dtype, with exact zeros and ones; rows sum to the budget

    Examples
    --------
    >>> budget_sparsemax(torch.tensor([3.0, 1.0, 0.5, -2.0]), 2)
    tensor([1.0000, 0.7500, 0.2500, 0.0000])
    """
    return apply("budget_sparsemax", z, budget, dim, mask=mask, dtype=dtype, offsets=offsets)


# --- supports -------------------------------------------------------------------------------------


def softmax_support(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, offsets: Tensor | None = None
) -> Tensor:
    """Where softmax gives probability: every unmasked score above −∞, even if p underflows.

    Parameters
    ----------
    z, dim, mask, offsets : as in `softmax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("softmax", z, None, dim, mask=mask, offsets=offsets)


def sparsemax_support(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, offsets: Tensor | None = None
) -> Tensor:
    """Where sparsemax gives probability: z > τ.

    Parameters
    ----------
    z, dim, mask, offsets : as in `sparsemax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("sparsemax", z, None, dim, mask=mask, offsets=offsets)


def entmax15_support(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, offsets: Tensor | None = None
) -> Tensor:
    """Where 1.5-entmax gives probability: z/2 > τ.

    Parameters
    ----------
    z, dim, mask, offsets : as in `entmax15`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("entmax15", z, None, dim, mask=mask, offsets=offsets)


def entmax_support(
    z: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where α-entmax gives probability, even if it underflows to 0 as α nears 1.

    Parameters
    ----------
    z, alpha, dim, mask, offsets : as in `entmax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("entmax", z, alpha, dim, mask=mask, offsets=offsets)


def normmax_support(
    z: Tensor,
    alpha: float | Tensor = 2.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where normmax gives probability, even if it underflows to 0 as α nears 1.

    Parameters
    ----------
    z, alpha, dim, mask, offsets : as in `normmax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("normmax", z, alpha, dim, mask=mask, offsets=offsets)


def topk_softmax_support(
    z: Tensor,
    k: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where top-k softmax gives probability: the scores kept, even if p underflows.

    Parameters
    ----------
    z, k, dim, mask, offsets : as in `topk_softmax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("topk_softmax", z, k, dim, mask=mask, offsets=offsets)


def topk_sparsemax_support(
    z: Tensor,
    k: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where top-k sparsemax gives probability: the scores kept that exceed their threshold.

    Parameters
    ----------
    z, k, dim, mask, offsets : as in `topk_sparsemax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("topk_sparsemax", z, k, dim, mask=mask, offsets=offsets)


def fusedmax_support(
    z: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where fusedmax gives probability: u > τ.

    Parameters
    ----------
    z, strength, dim, mask, offsets : as in `fusedmax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("fusedmax", z, strength, dim, mask=mask, offsets=offsets)


def oscarmax_support(
    z: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where oscarmax gives probability: u > τ.

    Parameters
    ----------
    z, strength, dim, mask, offsets : as in `oscarmax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("oscarmax", z, strength, dim, mask=mask, offsets=offsets)


def csoftmax_support(
    z: Tensor,
    upper: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where csoftmax gives probability: every unmasked score above −∞ whose bound is not 0.

    Parameters
    ----------
    z, upper, dim, mask, offsets : as in `csoftmax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("csoftmax", z, upper, dim, mask=mask, offsets=offsets)


def csparsemax_support(
    z: Tensor,
    upper: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where csparsemax gives probability: z > τ and a bound that is not 0.

    Parameters
    ----------
    z, upper, dim, mask, offsets : as in `csparsemax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("csparsemax", z, upper, dim, mask=mask, offsets=offsets)


def budget_sparsemax_support(
    z: Tensor,
    budget: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Where budget_sparsemax takes anything: z > τ.

    Parameters
    ----------
    z, budget, dim, mask, offsets : as in `budget_sparsemax`

    Returns
    -------
    bool Tensor of z's shape
    """
    return apply_support("budget_sparsemax", z, budget, dim, mask=mask, offsets=offsets)
