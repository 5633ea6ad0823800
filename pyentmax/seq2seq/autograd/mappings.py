"""The sparse mappings and their losses as operations on the tape.

Their VJPs need only the output p (the Jacobian of π_Ω is symmetric, so VJP = JVP); see
:mod:`pyentmax.reference.mappings`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyentmax.reference import fenchel_young
from pyentmax.reference import linear_loss as output_layer
from pyentmax.reference.mapping import AnyMapping as Mapping
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq.autograd.tensor import Array, Tensor, as_tensor, value_of

MappingOp = Callable[..., Tensor]


def on_tape(record: Mapping) -> MappingOp:
    """A mapping as an operation on tensors, from its record.

    Its parameter may be a tensor too, if the record knows the gradient in it.
    """
    name = record.name

    def op(z: Any, *params: Any, axis: int = -1, mask: Array | None = None) -> Tensor:
        z = as_tensor(z)
        values = [value_of(param) for param in params]
        options = {"axis": axis, "mask": mask}
        p = record(z.data, *values, **options)

        def vjp(g: Array) -> Array:
            return record.vjp(p, g, *values, **options)

        learned = tuple(param for param in params if isinstance(param, Tensor))
        if not learned:
            return Tensor(p, (z, vjp))
        if not record.parameter_vjp.is_defined:
            raise TypeError(f"{name}: there is no gradient in {', '.join(record.parameters)}")

        def vjps(g: Array) -> tuple[Array, Array]:
            if record.vjps.is_defined:
                return record.vjps(p, g, *values, **options)
            return vjp(g), record.parameter_vjp.at_scores(z.data, p, g, *values, **options)

        return Tensor(p, ((z, *learned), vjps))

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
    loss, gradient = fenchel_young.fenchel_young_loss_and_grad(z.data, y, mapping, **options)

    def vjp(g: Array) -> Array:
        if g.ndim == 0:
            return gradient * g
        # For reduction="none" each row has its own gradient; g then lacks the class axis.
        return gradient * np.expand_dims(g, options.get("axis", -1))

    return Tensor(np.asarray(loss), (z, vjp))


def linear_loss(
    x: Any, rows: Any, y: Array, mapping: Any = "entmax15", *, bias: Any = None, **options: Any
) -> Tensor:
    """The Fenchel-Young loss of the scores x Wᵀ + b, an array of which is never made.

    Parameters
    ----------
    x : Tensor of shape (…, d)
        Inputs of the output layer.
    rows : Tensor of shape (classes, d)
        W, a row of weights for each class.
    y : array
        Integer labels, or target distributions.
    mapping : str or Mapping
        As for `fenchel_young_loss`.
    bias : Tensor of shape (classes,), optional
    **options
        Those of :func:`pyentmax.linear_loss_and_grad`, and the parameters of the mapping.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Tensor(np.array([[2.0, 0.0], [1.0, 1.2]]), requires_grad=True)
    >>> linear_loss(np.array([[1.0, 0.5]]), rows, np.array([0]), "sparsemax").backward()
    >>> rows.grad.round(2)
    array([[-0.3 , -0.15],
           [ 0.3 ,  0.15]])
    """
    operands = [as_tensor(a) for a in (x, rows, bias) if a is not None]
    values = [a.data for a in operands]
    offset = None if bias is None else values[2]
    loss, *gradients = output_layer.linear_loss_and_grad(
        values[0], values[1], y, mapping, bias=offset, **options
    )

    def part(gradient: Array) -> Callable[[Array], Array]:
        return lambda g: gradient * g

    parents = [(a, part(gradient)) for a, gradient in zip(operands, gradients, strict=True)]
    return Tensor(np.asarray(loss), *parents)
