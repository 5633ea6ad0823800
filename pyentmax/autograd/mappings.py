"""The sparse mappings and their losses as operations on the tape.

Their VJPs need only the output p (the Jacobian of π_Ω is symmetric, so VJP = JVP); see
:mod:`pyentmax.mappings`. A new mapping needs one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import losses
from ..mappings import MAPPINGS
from ..mappings.entmax import entmax_vjp_alpha
from .ops import as_tensor
from .tensor import Array, Tensor

MappingOp = Callable[..., Tensor]


def _on_tape(name: str) -> MappingOp:
    """The mapping called ``name`` as an operation z ↦ p on tensors."""
    record = MAPPINGS[name]

    def op(z: Any, *params: Any, axis: int = -1, mask: Array | None = None) -> Tensor:
        z = as_tensor(z)
        p = record.forward(z.data, *params, axis=axis, mask=mask)

        def vjp(g: Array) -> tuple[Array]:
            return (record.vjp(p, g, *params, axis=axis, mask=mask),)

        return Tensor(p, parents=(z,), vjp=vjp)

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"p = {name}(z) along ``axis`` of a tensor; see :func:`pyentmax.{name}`."
    return op


softmax = _on_tape("softmax")
sparsemax = _on_tape("sparsemax")
entmax15 = _on_tape("entmax15")


def entmax(z: Any, alpha: Any = 1.5, *, axis: int = -1, mask: Array | None = None) -> Tensor:
    """p = entmax(z, α) along ``axis``; α may be a tensor too, and then gets a gradient.

    See :func:`pyentmax.entmax` and, for ∂p/∂α, :func:`pyentmax.entmax_grad_alpha`.
    """
    record = MAPPINGS["entmax"]
    z = as_tensor(z)
    learned = isinstance(alpha, Tensor)
    shape = alpha.data if learned else alpha
    p = record.forward(z.data, shape, axis=axis, mask=mask)

    def vjp(g: Array) -> tuple[Any, ...]:
        gz = record.vjp(p, g, shape, axis=axis, mask=mask)
        return (gz, entmax_vjp_alpha(p, g, shape, axis=axis, mask=mask)) if learned else (gz,)

    return Tensor(p, parents=(z, alpha) if learned else (z,), vjp=vjp)


MAPPING_OPS: dict[str, MappingOp] = {
    op.__name__: op for op in (softmax, sparsemax, entmax15, entmax)
}
"""Name → operation on tensors, with the names of :data:`pyentmax.mappings.MAPPINGS`."""


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
