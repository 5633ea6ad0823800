"""The sparse mappings and their losses as operations on the tape.

Their VJPs need only the output p (the Jacobian of π_Ω is symmetric, so VJP = JVP); see
:mod:`pyentmax.mappings`. A new mapping needs one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyentmax import losses
from pyentmax.autograd.ops import as_tensor
from pyentmax.autograd.tensor import Array, Tensor
from pyentmax.mappings import MAPPINGS, Mapping
from pyentmax.mappings.budget_sparsemax import budget_sparsemax_vjp_budget
from pyentmax.mappings.csoftmax import csoftmax_vjp_upper
from pyentmax.mappings.csparsemax import csparsemax_vjp_upper
from pyentmax.mappings.entmax import entmax_vjp_alpha
from pyentmax.mappings.fusedmax import fusedmax_vjp_strength
from pyentmax.mappings.oscarmax import oscarmax_vjp_strength

MappingOp = Callable[..., Tensor]


def on_tape(record: Mapping, vjp_parameter: Callable[..., Array] | None = None) -> MappingOp:
    """A mapping as an operation on tensors, from its record.

    ``vjp_parameter`` is its VJP in its parameter, if it has one to differentiate; it is used where
    the parameter is a tensor itself.
    """
    name = record.name

    def op(z: Any, *params: Any, axis: int = -1, mask: Array | None = None) -> Tensor:
        z = as_tensor(z)
        learned = [param for param in params if isinstance(param, Tensor)]
        if learned and vjp_parameter is None:
            raise TypeError(f"{name}: there is no gradient in {', '.join(record.parameters)}")
        values = [param.data if isinstance(param, Tensor) else param for param in params]
        p = record.forward(z.data, *values, axis=axis, mask=mask)

        def vjp(g: Array) -> tuple[Any, ...]:
            gz = record.vjp(p, g, *values, axis=axis, mask=mask)
            if not learned or vjp_parameter is None:
                return (gz,)
            # Only csparsemax needs to see the scores again: p = u = 0 does not tell what held p.
            seen = (z.data,) if name == "csparsemax" else ()
            return gz, vjp_parameter(p, g, *values, *seen, axis=axis, mask=mask)

        return Tensor(p, parents=(z, *learned), vjp=vjp)

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"p = {name}(z) along ``axis`` of a tensor; see :func:`pyentmax.{name}`."
    return op


softmax = on_tape(MAPPINGS["softmax"])
sparsemax = on_tape(MAPPINGS["sparsemax"])
entmax15 = on_tape(MAPPINGS["entmax15"])
entmax = on_tape(MAPPINGS["entmax"], entmax_vjp_alpha)
normmax = on_tape(MAPPINGS["normmax"])
topk_softmax = on_tape(MAPPINGS["topk_softmax"])
fusedmax = on_tape(MAPPINGS["fusedmax"], fusedmax_vjp_strength)
oscarmax = on_tape(MAPPINGS["oscarmax"], oscarmax_vjp_strength)
csoftmax = on_tape(MAPPINGS["csoftmax"], csoftmax_vjp_upper)
csparsemax = on_tape(MAPPINGS["csparsemax"], csparsemax_vjp_upper)
budget_sparsemax = on_tape(MAPPINGS["budget_sparsemax"], budget_sparsemax_vjp_budget)

MAPPING_OPS: dict[str, MappingOp] = {name: globals()[name] for name in MAPPINGS}
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
    loss, gradient = losses.fenchel_young_loss_and_grad(z.data, y, mapping, **options)

    def vjp(g: Array) -> tuple[Array]:
        # For reduction="none" each row has its own gradient; g then lacks the class axis.
        g = g if g.ndim == 0 else z.xp.expand_dims(g, options.get("axis", -1))
        return (gradient * g,)

    return Tensor(z.xp.asarray(loss), parents=(z,), vjp=vjp)
