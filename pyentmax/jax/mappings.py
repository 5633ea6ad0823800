"""α-entmax and its kin as objects: `entmax15(z)`, `entmax15.support(z)`, `entmax15.loss(z, y)`.

The text of a call returns its arguments; the rows are mapped by `pyentmax.jax.row_mappings`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec

import jax
import jax.numpy as jnp

from pyentmax.jax import namespace as xp
from pyentmax.jax.losses import loss_of
from pyentmax.jax.row_mappings import LOGS, ROWS, name_for
from pyentmax.jax.rows import Rows
from pyentmax.reference.composed import mappings
from pyentmax.reference.composed.mappings import ALPHAS

P = ParamSpec("P")
Arguments = tuple[Any, Any, Any, Any]  # scores, parameter, axis, mask
Text = Callable[Concatenate[Any, P], Arguments]


class ArrayFunction(Generic[P]):
    """A function of JAX's arrays; `bind` is the text of its mapping, which returns arguments."""

    def __init__(self, name: str, bind: Text[P]) -> None:
        self.__qualname__, self.__module__ = name, bind.__module__
        self.__name__ = name.rpartition(".")[2]
        self.bind, self.name = bind, bind.__name__
        self.__doc__ = inspect.cleandoc(type(self).__doc__ or "")
        _, *own = inspect.signature(type(self).__call__).parameters.values()
        arrays = [x for x in own if x.kind == x.POSITIONAL_OR_KEYWORD]
        options = [x for x in own if x.kind == x.KEYWORD_ONLY]
        _, *shared = inspect.signature(bind).parameters.values()
        shared = [x for x in shared if x.name not in {option.name for option in options}]
        self.__signature__ = inspect.Signature([*arrays, *shared, *options])

    def __reduce__(self) -> str:  # pickled by name, as functions are
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<pyentmax.jax.{self.__qualname__}>"

    def check_defined(self) -> None:
        """Raise a ValueError unless the mapping is of those with logarithms and losses."""
        if self.name not in LOGS:
            raise ValueError(f"{self.__qualname__} is not defined in JAX")

    def bound(self, z: Any, *args: Any, **kwargs: Any) -> Arguments:
        """The arguments of a call."""
        if "dim" in kwargs:
            raise TypeError(
                f"{self.__qualname__}() got an unexpected keyword argument 'dim'; of arrays it is "
                "axis"
            )
        return self.bind(z, *args, **kwargs)

    def arguments(self, z: Any, *args: Any, **kwargs: Any) -> tuple[str, Rows, Any]:
        """The mapping that computes a call, the rows, and the parameter of each or None."""
        z, value, axis, mask = self.bound(z, *args, **kwargs)
        rows = Rows(z, axis, mask)
        if value is None:
            return self.name, rows, None
        name = name_for(value) if self.name == "entmax" else self.name
        if name != self.name:  # of an α whose mapping has its own name
            return name, rows, None
        return name, rows, rows.parameter("alpha" if name == "entmax" else "k", value)

    def solved(self, by: dict[str, Any], z: Any, *args: Any, **kwargs: Any) -> jax.Array:
        """The result of a call, by the functions of rows: `ROWS`, or their logarithms."""
        name, rows, value = self.arguments(z, *args, **kwargs)
        if value is None:
            return rows.restored(by[name](rows.unshifted))
        if name == "entmax":
            value = value * jnp.where(rows.empty | (value < jnp.inf), 1, jnp.nan)  # so its gradient
            return rows.restored(by[name](rows.unshifted, jnp.where(rows.empty, 2, value)))
        p = by[name](rows.unshifted, jnp.clip(value, 1, 2**30))
        return rows.restored(jnp.where((value >= 1) & (value == jnp.floor(value)), p, jnp.nan))


class Support(ArrayFunction[P]):
    """Where the mapping gives probability, whether or not a float can show it: bools."""

    def __call__(self, z: Any, *args: P.args, **kwargs: P.kwargs) -> jax.Array:
        """The bools of scores."""
        name, rows, value = self.arguments(jax.lax.stop_gradient(z), *args, **kwargs)
        parameters = () if value is None else (value,)
        p = ROWS[name](rows.unshifted, *parameters)
        return rows.restored(mappings.support(xp, rows.unshifted, p, name, *parameters)) != 0


class Log(ArrayFunction[P]):
    """Logarithms of the probabilities, differentiable in z and alpha; −∞ off the support.

    Those of `softmax`, and of `entmax` where α is the number 1, are finite where a probability
    underflows; others are −∞ there. Top-k mappings have none.
    """

    def __call__(self, z: Any, *args: P.args, **kwargs: P.kwargs) -> jax.Array:
        """The logarithms, of z's shape and dtype."""
        self.check_defined()
        return self.solved(LOGS, z, *args, **kwargs)


class Loss(ArrayFunction[...]):
    """The mapping's Fenchel-Young loss, whose gradient in z is mapping(z) − y.

    Parameters
    ----------
    z : array
        Scores.
    y : int array of z's shape without the axis, or array of z's shape
        Labels, or distributions that sum to 1. A loss with a label out of range is NaN.
    alpha : number or array
        Of `entmax`, differentiable.
    axis : int, tuple of int or None
    reduction : {"mean", "sum", "none"}
        The mean is weighted, and over the rows that count.
    weight : array, optional
        What each row counts, broadcastable to z's shape without the axis. A negative one is NaN.
        With a weight for each class this is ``class_weight[np.where(y == ignore_index, 0, y)]``.
    mask : bool array, optional
        Broadcastable to z, True where an entry may get probability. A row without any counts
        nothing.
    ignore_index : int, optional
        Rows with this label count nothing.
    label_smoothing : float, default 0
        The share of the target that is spread over all unmasked entries; it may be traced.

    Returns
    -------
    scalar, or array of the labels' shape for "none"

    """

    def __call__(
        self, z: Any, y: Any, *args: Any, reduction: str = "mean", weight: Any = None,
        mask: Any = None, ignore_index: int | None = None, label_smoothing: Any = 0.0,
        **kwargs: Any,
    ) -> jax.Array:  # fmt: skip
        """The loss, reduced."""
        self.check_defined()
        z, alpha, axis, _ = self.bound(z, *args, **kwargs)
        return loss_of(
            self.name, z, y, ALPHAS.get(self.name, alpha), axis, reduction=reduction, weight=weight,
            mask=mask, ignore_index=ignore_index, label_smoothing=label_smoothing,
        )  # fmt: skip


class Mapping(ArrayFunction[P]):
    """A mapping of JAX's arrays.

    Attributes
    ----------
    support, log, loss : functions of arrays
    """

    def __init__(self, text: Text[P]) -> None:
        name = text.__name__
        super().__init__(name, text)
        self.__doc__, self.__wrapped__ = text.__doc__, text
        self.support: Support[P] = Support(f"{name}.support", text)
        self.log: Log[P] = Log(f"{name}.log", text)
        self.loss = Loss(f"{name}.loss", text)

    def __call__(self, z: Any, *args: P.args, **kwargs: P.kwargs) -> jax.Array:
        """The probabilities of scores."""
        return self.solved(ROWS, z, *args, **kwargs)


@Mapping
def softmax(z: Any, axis: Any = -1, *, mask: Any = None) -> Arguments:
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
    return z, None, axis, mask


@Mapping
def sparsemax(z: Any, axis: Any = -1, *, mask: Any = None) -> Arguments:
    """The point of the simplex that is nearest to z (Martins & Astudillo 2016).

    Parameters and result are as for `softmax`.

    Examples
    --------
    >>> print(sparsemax([1.0, 0.5, -2.0]))
    [0.75 0.25 0.  ]
    """
    return z, None, axis, mask


@Mapping
def entmax15(z: Any, axis: Any = -1, *, mask: Any = None) -> Arguments:
    """1.5-entmax (Peters et al. 2019, §3.3): between softmax and sparsemax.

    Parameters and result are as for `softmax`.

    Examples
    --------
    >>> import numpy as np
    >>> print(np.round(np.float64(entmax15([1.0, 0.5, -2.0])), 3))
    [0.674 0.326 0.   ]
    """
    return z, None, axis, mask


@Mapping
def entmax(z: Any, alpha: Any = 1.5, axis: Any = -1, *, mask: Any = None) -> Arguments:
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
    return z, alpha, axis, mask


@Mapping
def topk_softmax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> Arguments:
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
    return z, k, axis, mask


@Mapping
def topk_sparsemax(z: Any, k: Any, axis: Any = -1, *, mask: Any = None) -> Arguments:
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
    return z, k, axis, mask
