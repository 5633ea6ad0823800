"""The sparse mappings and their losses as operations on the tape.

Their VJPs need only the output p (the Jacobian of π_Ω is symmetric, so VJP = JVP); see
:mod:`pyentmax.mappings`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax import fenchel_young
from pyentmax.autograd.ops import as_tensor
from pyentmax.autograd.tensor import Array, Tensor
from pyentmax.calls.parameters import parts_of_largest
from pyentmax.calls.record import Mapping
from pyentmax.mappings import MAPPINGS

MappingOp = Callable[..., Tensor]
_ALPHA_ENTMAX = ("softmax", "entmax15", "sparsemax", "entmax")  # Ω is symmetric, and 0 at labels


def on_tape(record: Mapping) -> MappingOp:
    """A mapping as an operation on tensors, from its record.

    Its parameter may be a tensor too, if the record knows the gradient in it.
    """
    name = record.name

    def op(z: Any, *params: Any, axis: int = -1, mask: Array | None = None) -> Tensor:
        z = as_tensor(z)
        learned = [param for param in params if isinstance(param, Tensor)]
        if learned and record.parameter_vjp is None:
            raise TypeError(f"{name}: there is no gradient in {', '.join(record.parameters)}")
        values = [param.data if isinstance(param, Tensor) else param for param in params]
        p = record.forward(z.data, *values, axis=axis, mask=mask)
        if name in (*_ALPHA_ENTMAX, "topk_softmax"):
            mask = None  # p is 0 there, which is all that their derivatives ask

        def vjp(g: Array) -> tuple[Any, ...]:
            if learned and record.vjps is not None:
                gradients: tuple[Any, Any] = record.vjps(p, g, *values, axis=axis, mask=mask)
                return gradients
            gz = record.vjp(p, g, *values, axis=axis, mask=mask)
            if not learned or record.parameter_vjp is None:
                return (gz,)
            seen = (z.data,) if record.parameter_vjp_takes_scores else ()
            return gz, record.parameter_vjp(p, g, *values, *seen, axis=axis, mask=mask)

        return Tensor(p, parents=(z, *learned), vjp=vjp)

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"p = {name}(z) along ``axis`` of a tensor; see :func:`pyentmax.{name}`."
    return op


MAPPING_OPS: dict[str, MappingOp] = {name: on_tape(record) for name, record in MAPPINGS.items()}
"""Name → operation on tensors, with the names of :data:`pyentmax.MAPPINGS`."""


def fenchel_young_loss(z: Any, y: Array, mapping: Any = "entmax15", **options: Any) -> Tensor:
    """The Fenchel-Young loss of a mapping as an operation on the tape.

    Parameters
    ----------
    z : Tensor
        Scores.
    y : array
        Integer labels, or target distributions.
    mapping : str or Mapping
        A name in :data:`pyentmax.MAPPINGS`, or a record of one's own.
    **options
        Those of :func:`pyentmax.fenchel_young_loss`, such as ``reduction`` and ``weight``, and the
        parameters of the mapping.

    Notes
    -----
    ∇L = p − q falls out of the forward pass (Peters et al., App. A.2), so loss and gradient are
    computed together, and the backward pass is one product with a number.
    """
    z = as_tensor(z)
    found = smoothed_labels(z.data, y, mapping, **options)
    if found is None:
        found = fenchel_young.fenchel_young_loss_and_grad(z.data, y, mapping, **options)
    loss, gradient = found

    def vjp(g: Array) -> tuple[Array]:
        if g.ndim == 0:
            # A loss by itself has the gradient 1, and z often more bytes than all else.
            return (gradient if z.xp is np and g == 1 else gradient * g,)
        # For reduction="none" each row has its own gradient; g then lacks the class axis.
        return (gradient * z.xp.expand_dims(g, options.get("axis", -1)),)

    return Tensor(z.xp.asarray(loss), parents=(z,), vjp=vjp)


def smoothed_labels(
    z: Array,
    y: Array,
    mapping: Any,
    *,
    label_smoothing: float = 0.0,
    weight: Any = None,
    reduction: str = "mean",
    **options: Any,
) -> tuple[Any, Array] | None:
    """Loss and gradient of smoothed labels for the work of labels; None where it is not for these.

    With q = (1 − ε) e_y + ε/d, and Ω(e_y) = 0, all that differs from the loss of the label is

        L(z; q) = L(z; e_y) + ε (z_y − mean z) + Ω(q)        ∇ = p − e_y + ε (e_y − 1/d)

    so that the distributions q, as large as z, are never made. It is for plain α-entmax of the last
    axis on the host, with scores that are finite.
    """
    record: Any = MAPPINGS.get(mapping) if isinstance(mapping, str) else mapping
    if not label_smoothing or not any(record is MAPPINGS[name] for name in _ALPHA_ENTMAX):
        return None
    if not set(options) <= set(record.parameters):
        return None
    if any(np.ndim(value) for value in options.values()):
        return None
    if not (type(z) is type(y) is np.ndarray and z.dtype in (np.float32, np.float64)):
        return None
    if reduction == "none" or y.dtype.kind not in "iu" or y.shape != z.shape[:-1] or not y.size:
        return None
    center = z.mean(axis=-1, dtype=np.float64)
    if not np.isfinite(center).all() or not 0 < label_smoothing <= 1:
        return None
    loss, gradient = fenchel_young.fenchel_young_loss_and_grad(
        z, y, record, weight=weight, reduction=reduction, **options
    )
    d = z.shape[-1]
    share = np.broadcast_to(1.0 if weight is None else weight, y.shape).astype(np.float64)
    if reduction == "mean":
        share = parts_of_largest(share)
        share = share / (share.sum() or 1.0)
    label = np.where(share == 0, 0, y)[..., None]  # of weight 0, it may be anything
    smoothed = np.full(d, label_smoothing / d)
    smoothed[0] += 1 - label_smoothing
    constant = float(record.omega(smoothed, *options.values()))
    at_label = np.take_along_axis(z, label, axis=-1)
    above_mean = at_label[..., 0] - center
    if z.dtype == np.float64:  # of which an offset would take digits; of floats it took them before
        above_mean = -(z - at_label).mean(axis=-1)
    loss = loss + (share * (label_smoothing * above_mean + constant)).sum()
    pull = (label_smoothing * share[..., None]).astype(z.dtype)
    gradient -= pull / d
    kept = np.take_along_axis(gradient, label, axis=-1)
    np.put_along_axis(gradient, label, kept + pull, axis=-1)
    return z.dtype.type(loss), gradient
