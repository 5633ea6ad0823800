"""A matrix that many steps of a sequence multiply with, and its gradient as one long product.

T steps with inputs x_t and gradients g_t give a weight W the gradient Σ_t x_tᵀ g_t. Stacked into
two long matrices it is one product, several times as fast as T short ones. So each step sends back
its two factors in a list. Lists add up by concatenation, and the VJP of the shared matrix
multiplies them out when all have arrived.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd import Tensor, as_tensor
from pyentmax.seq2seq.autograd.tensor import Array

Factors = list[tuple[Array, Array]]


class SharedMatrix(Tensor):
    """A matrix whose gradient arrives as pairs ``(left, right)``, for leftᵀ @ right.

    With leading axes it is a matrix for each of their entries.

    Examples
    --------
    >>> import numpy as np
    >>> weight = Tensor(np.ones((3, 2)), requires_grad=True)
    >>> shared = SharedMatrix(weight)
    >>> steps = [shared.times(np.full((1, 3), k)) for k in (1.0, 2.0)]
    >>> (steps[0] + steps[1]).sum().backward()
    >>> weight.grad[0]
    array([3., 3.])
    """

    __slots__ = ("_transposed",)

    def __init__(self, matrix: Any) -> None:
        super().__init__(as_tensor(matrix).data, (matrix, multiplied_out))
        self._transposed: Array | None = None

    @property
    def transposed(self) -> Array:
        """Wᵀ, contiguous: the products of the backward pass, of few rows, are faster with it."""
        if self._transposed is None:
            self._transposed = self.data.swapaxes(-1, -2).copy()
        return self._transposed

    def times(self, x: Any) -> Tensor:
        """x W for x (B, n)."""
        x = as_tensor(x)
        return Tensor(
            x.data @ self.data, (x, lambda g: g @ self.transposed), (self, lambda g: [(x.data, g)])
        )


def multiplied_out(factors: Factors) -> Array:
    """Σ leftᵀ right of all pairs, as one product."""
    lefts, rights = zip(*factors, strict=True)
    left, right = np.concatenate(lefts, axis=-2), np.concatenate(rights, axis=-2)
    return left.swapaxes(-1, -2) @ right


def shared(matrix: Any) -> SharedMatrix:
    """The matrix as one that is shared, if it is not yet."""
    return matrix if isinstance(matrix, SharedMatrix) else SharedMatrix(matrix)
