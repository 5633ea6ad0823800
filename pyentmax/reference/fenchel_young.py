"""The Fenchel-Young loss of any mapping with an Ω, by its name or record.

For scores z and a target distribution q (a label y is q = e_y),

    L(z; q) = Ω*(z) + Ω(q) − q·z,    Ω*(z) = p·z − Ω(p),  p = mapping(z),

is convex in z, at least 0, and 0 exactly where p = q; its gradient in z is p − q (Blondel,
Martins & Niculae 2020; Peters et al. 2019, §3.2). Softmax's is the cross-entropy (for a
distribution q the Kullback-Leibler divergence, since Ω(q) is included).

The mathematics is in `pyentmax.reference.losses.definition`; the losses with their own names are in
the files of their mappings.
"""

from __future__ import annotations

from typing import Any

from pyentmax.reference.mapping import AnyMapping, Mapping
from pyentmax.reference.mappings import MAPPINGS


def fenchel_young_loss(
    z: Any,
    y: Any,
    mapping: str | AnyMapping,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    **params: Any,
) -> Any:
    """The Fenchel-Young loss of any mapping with an Ω: Ω*(z) + Ω(q) − q·z.

    Parameters
    ----------
    z : array of scores
    y : integer labels (shape of z without the axis) or distributions (shape of z)
    mapping : name of a row of `pyentmax.MAPPINGS`, or a user-defined `Mapping`
    axis : int, tuple of int or None
        which axes form a row
    reduction : "mean", "sum" or "none"
        the mean divides by the sum of the weights that count, and is 0 where none does
    weight : array that broadcasts against the labels' shape, optional
        the weight of each row. Weights of classes, of shape (d,), are those of the rows' labels:
        ``weight=class_weight[np.where(y == ignore_index, 0, y)]``. That is the `weight` of
        PyTorch's ``cross_entropy`` for integer labels that are not smoothed
    mask : bool array that broadcasts to z, optional
        True where a score may get probability. The loss of a label on a masked entry is infinite;
        a distribution's values there are ignored. Rows that are all masked and rows of weight 0
        are ignored, and their targets may be anything
    ignore_index : int, optional
        rows with this label are ignored; for labels only
    label_smoothing : float in [0, 1]
        ε in q = (1 − ε) q + ε/d, d the number of unmasked entries
    **params
        the mapping's own parameters, such as ``alpha``

    Returns
    -------
    float, or array of the labels' shape for "none"

    Raises
    ------
    ValueError
        if y is neither labels nor distributions that fit z, or an option is out of its range
    TypeError
        if y is not of numbers or is a masked array, an option is of the wrong kind, or a parameter
        is missing or unknown

    Examples
    --------
    >>> print(fenchel_young_loss([[2.0, 1.0, 0.0]], [0], "sparsemax"))
    0.0
    >>> print(fenchel_young_loss([[2.0, 1.0, 0.0]], [1], "entmax", alpha=2))
    1.0
    """
    options = reduction, weight, mask, ignore_index, label_smoothing
    return _loss(z, y, mapping, axis, options, params, gradient=False)


def fenchel_young_loss_and_grad(
    z: Any,
    y: Any,
    mapping: str | AnyMapping,
    axis: Any = -1,
    *,
    reduction: str = "mean",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    **params: Any,
) -> tuple[Any, Any]:
    """`fenchel_young_loss` and its gradient in z, of z's shape, with one forward pass.

    Parameters
    ----------
    z, y, mapping, axis : as in `fenchel_young_loss`
    reduction, weight, mask, ignore_index, label_smoothing : as in `fenchel_young_loss`
    **params : as in `fenchel_young_loss`

    Returns
    -------
    loss : float, or array of the labels' shape for "none"
    gradient : array of z's shape
        of the reduced loss; for "none" each row's own

    Raises
    ------
    ValueError, TypeError
        as in `fenchel_young_loss`

    Examples
    --------
    >>> loss, grad = fenchel_young_loss_and_grad([[2.0, 1.0, 0.0]], [1], "sparsemax")
    >>> print(loss, grad)
    1.0 [[ 1. -1.  0.]]
    """
    options = reduction, weight, mask, ignore_index, label_smoothing
    loss, gradient = _loss(z, y, mapping, axis, options, params, gradient=True)
    return loss, gradient


def _loss(
    z: Any,
    y: Any,
    mapping: str | AnyMapping,
    axis: Any,
    options: tuple[Any, ...],
    params: dict[str, Any],
    *,
    gradient: bool,
) -> Any:
    mapping, values = record_and_parameters(mapping, params)
    function: Any = mapping.loss_and_grad if gradient else mapping.loss
    if not function.is_defined:
        raise ValueError(
            f"mapping must have an Ω for a Fenchel-Young loss, and {mapping.name} has none: choose "
            f"one of {', '.join(name for name, x in MAPPINGS.items() if x.loss.is_defined)}"
        )
    names = ("reduction", "weight", "mask", "ignore_index", "label_smoothing")
    return function(z, y, *values, axis=axis, **dict(zip(names, options, strict=True)))


_OTHER_NAMES = {"is_causal": "causal=", "dim": "axis=", "attn_mask": "mask="}
"""PyTorch's names of arguments, and those of the array functions."""


def record_and_parameters(
    mapping: str | AnyMapping, params: dict[str, Any]
) -> tuple[AnyMapping, tuple[Any, ...]]:
    """A mapping's record, by name or itself, and its parameters in order."""
    record = record_of(mapping)
    if set(params) != set(record.parameters):
        hints = [
            f"; for {name} pass {_OTHER_NAMES[name]}" for name in params if name in _OTHER_NAMES
        ]
        raise TypeError(
            f"{record.name} takes the parameters ({', '.join(record.parameters)}), "
            f"got ({', '.join(params)}){''.join(hints)}"
        )
    return record, tuple(params[name] for name in record.parameters)


def record_of(mapping: str | AnyMapping) -> AnyMapping:
    """A mapping's record, by name or itself."""
    if isinstance(mapping, str):
        if mapping not in MAPPINGS:
            raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
        mapping = MAPPINGS[mapping]
    if not isinstance(mapping, Mapping):
        raise TypeError(
            "mapping must be a Mapping or the name of a row of pyentmax.MAPPINGS, got a "
            f"{type(mapping).__name__}; make a Mapping of your function"
        )
    return mapping
