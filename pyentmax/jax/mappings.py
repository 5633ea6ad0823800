"""α-entmax and its kin, by `pyentmax.reference.composed`.

The rules for derivatives are written in p, whose own derivatives are these rules again: second
derivatives come by applying them twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from pyentmax.jax import namespace as xp
from pyentmax.jax.rows import Rows, by_rows
from pyentmax.jax.symmetric import symmetric_product
from pyentmax.reference.composed import mappings
from pyentmax.reference.composed.mappings import ALPHAS


def softmax(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """exp z / Σ exp z, everywhere above zero.

    Parameters
    ----------
    z : array
        Scores. Half precisions compute in float32 and return their own dtype.
    axis : int, tuple of int or None
    mask : bool array, optional
        Broadcastable to z, True where an entry may get probability.

    Returns
    -------
    array of z's shape and dtype

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(softmax([1.0, 0.5, -2.0])), 3))
    [0.604 0.366 0.03 ]
    """
    return by_rows(ROWS["softmax"], z, axis, mask)


def sparsemax(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The point of the simplex that is nearest to z (Martins & Astudillo 2016).

    Parameters and result are as for `softmax`.

    Examples
    --------
    >>> print(sparsemax([1.0, 0.5, -2.0]))
    [0.75 0.25 0.  ]
    """
    return by_rows(ROWS["sparsemax"], z, axis, mask)


def entmax15(z: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """1.5-entmax (Peters et al. 2019, §3.3): between softmax and sparsemax.

    Parameters and result are as for `softmax`.

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(entmax15([1.0, 0.5, -2.0])), 3))
    [0.674 0.326 0.   ]
    """
    return by_rows(ROWS["entmax15"], z, axis, mask)


def entmax(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """α-entmax: softmax at α = 1, sparsemax at 2, and sparser the larger α is; dense below 1.

    Parameters
    ----------
    z, axis, mask : as for `softmax`
    alpha : number or array
        Above 0, finite, broadcastable to z's shape without the axis; differentiable. Where it is
        not above 0 or infinite the result is NaN.

    Returns
    -------
    array of z's shape and dtype

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(entmax([1.0, 0.5, -2.0], 1.5)), 3))
    [0.674 0.326 0.   ]
    >>> by_alpha = jax.jacobian(lambda a: entmax(jnp.array([1.0, 0.5, -2.0]), a))(1.5)
    >>> print(np.round(np.float64(by_alpha), 3))
    [ 0.124 -0.124  0.   ]
    """
    name = name_for(alpha)
    if name in ALPHAS:
        return by_rows(ROWS[name], z, axis, mask)
    rows = Rows(z, axis, mask)
    alpha = rows.parameter("alpha", alpha)
    alpha = alpha * jnp.where(rows.empty | (alpha < jnp.inf), 1, jnp.nan)  # whose gradient is NaN
    return rows.restored(ROWS[name](rows.unshifted, jnp.where(rows.empty, 2, alpha)))


def topk_softmax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """softmax over the k largest scores, and what ties with the k-th; zero elsewhere.

    Explicit Sparse Transformer's selection: its derivative is softmax's over what is kept.

    Parameters
    ----------
    z, axis, mask : as for `softmax`
    k : int or int array
        From 1 up, broadcastable to z's shape without the axis; where it is below 1, or not whole,
        the result is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(topk_softmax([1.0, 0.5, -2.0], 2)), 3))
    [0.622 0.378 0.   ]
    """
    return _topk(ROWS["topk_softmax"], z, k, axis, mask)


def topk_sparsemax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> jax.Array:
    """The point nearest to z of the simplex with at most k non-zeros.

    sparsemax over the k largest scores (Kyrillidis et al. 2013); of scores that tie for the k-th
    place, those of the lowest indices are kept.

    Parameters
    ----------
    z, k, axis, mask : as for `topk_softmax`

    Examples
    --------
    >>> print(topk_sparsemax([1.0, 0.8, 0.9, -1.0], 2).round(4))
    [0.55 0.   0.45 0.  ]
    """
    return _topk(ROWS["topk_sparsemax"], z, k, axis, mask)


def _topk(body: Callable[..., jax.Array], z: Any, k: Any, axis: Any, mask: Any) -> jax.Array:
    rows = Rows(z, axis, mask)
    k = rows.parameter("k", k)
    p = body(rows.unshifted, jnp.clip(k, 1, 2**30))
    return rows.restored(jnp.where((k >= 1) & (k == jnp.floor(k)), p, jnp.nan))


# --- rows (…, d) as they come ------------------------------------------------------------------
def name_for(alpha: Any) -> str:
    """Which of `ROWS` computes α-entmax: nothing need look at an α that is a number."""
    if type(alpha) not in (int, float):
        return "entmax"
    return _CLOSED.get(alpha, "entmax")


def _mapping(name: str, product: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A mapping of rows and perhaps a parameter of each, given its Jacobian's product.

    A row with nothing left is zeros, one with NaN or +∞ is NaN. Compiled once per shape and dtype,
    outside `jax.jit` too: a loop would otherwise be compiled at every call, for its functions are
    new ones.
    """

    @jax.custom_jvp
    @jax.jit
    def forward(z: jax.Array, *parameters: jax.Array) -> jax.Array:
        return mappings.mapping(xp, z, name, *parameters)

    def rule(primals: Any, tangents: Any) -> Any:
        p, alpha = forward(*primals), primals[1:] if name == "entmax" else ()
        moved = []  # what is not differentiated is not computed
        if type(tangents[0]) is not SymbolicZero:
            moved.append(product(p, tangents[0], *alpha))
        if alpha and type(tangents[1]) is not SymbolicZero:
            moved.append(grad_alpha(p, *alpha) * tangents[1])
        return p, sum(moved[1:], start=moved[0] if moved else jnp.zeros_like(p))

    forward.defjvp(rule, symbolic_zeros=True)
    return forward


def _product(alpha: float | None) -> Callable[..., jax.Array]:
    """J v at the output p of mappings with the same α, or with one in each row."""

    def body(p: jax.Array, v: jax.Array, *parameters: jax.Array) -> jax.Array:
        return mappings.product(xp, p, v, *parameters, *(() if alpha is None else (alpha,)))

    return symmetric_product(body)


@jax.jit
def grad_alpha(p: jax.Array, alpha: jax.Array) -> jax.Array:
    return mappings.grad_alpha(xp, p, alpha)


_CLOSED = {1.0: "softmax", 1.5: "entmax15", 2.0: "sparsemax"}
_PRODUCTS = {alpha: _product(alpha) for alpha in _CLOSED}
ROWS = {name: _mapping(name, _PRODUCTS[alpha]) for name, alpha in ALPHAS.items()}
ROWS["entmax"] = _mapping("entmax", _product(None))
