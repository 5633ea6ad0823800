"""Soft sorting, ranks and top-k of tensors, with gradients: `pyentmax.sorting` says more.

    from pyentmax.torch.sorting import soft_rank, soft_sort, soft_topk

They compute in double precision on the array functions, on the host, and on CUDA devices where CuPy
is installed. Second derivatives in the values exist.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyentmax import sorting
from pyentmax.torch.arguments import check_dim, check_scores
from pyentmax.torch.arrays import has_kernels, on_arrays
from pyentmax.torch.registry import one_by_one, registered

__all__ = ["soft_rank", "soft_sort", "soft_topk"]

_SETTING = "str name, Tensor? k, Tensor strength"


def _settings(k: Tensor | None, strength: Tensor) -> tuple[Tensor, ...]:
    return (strength,) if k is None else (k, strength)


def _compute(z: Tensor, name: str, k: Any, strength: Any) -> Any:
    function = getattr(sorting, name)
    return on_arrays(function, z, *_settings(k, strength))


def _keep(ctx: Any, inputs: Any, output: Tensor) -> None:
    z, ctx.name, k, strength = inputs
    ctx.save_for_backward(z, k, strength)


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    z, k, strength = ctx.saved_tensors
    return _product(z, g, ctx.name, k, strength, True), None, None, None


def _compute_product(
    z: Tensor, v: Tensor, name: str, k: Any, strength: Any, transposed: bool
) -> Any:
    function = getattr(sorting, f"{name}_{'vjp' if transposed else 'jvp'}")
    settings = _settings(k, strength)
    return on_arrays(function, z, v.to(z.dtype), *settings)


def _keep_product(ctx: Any, inputs: Any, output: Tensor) -> None:
    z, _, ctx.name, k, strength, ctx.transposed = inputs
    ctx.save_for_backward(z, k, strength)


def _product_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    z, k, strength = ctx.saved_tensors
    setting = (ctx.name, k, strength, not ctx.transposed)
    # Blocks do not change with z, almost everywhere, so the product's derivative in z is 0.
    in_z = torch.zeros_like(z) if ctx.needs_input_grad[0] else None
    return in_z, _product(z, g, *setting), None, None, None, None


_sorting = registered(
    "sorting",
    f"(Tensor z, {_SETTING}) -> Tensor",
    compute=_compute,
    fake=lambda z, *rest: z.new_empty(z.shape),
    setup_context=_keep,
    backward=_backward,
    vmap=one_by_one,
)
_product = registered(
    "sorting_product",
    f"(Tensor z, Tensor v, {_SETTING}, bool transposed) -> Tensor",
    compute=_compute_product,
    fake=lambda z, *rest: z.new_empty(z.shape),
    setup_context=_keep_product,
    backward=_product_backward,
    vmap=one_by_one,
)


def _apply(name: str, z: Tensor, k: Any, strength: Any, dim: int) -> Tensor:
    check_scores(z, "z")
    check_dim(dim)
    if not has_kernels(z):
        raise TypeError(
            f"{name} takes tensors on the host, or on CUDA where CuPy is installed, got one on "
            f"{z.device}; move it with z.cpu()"
        )
    for value, title in ((k, "k"), (strength, "strength")):
        if isinstance(value, Tensor) and value.requires_grad:
            raise TypeError(f"{name} has no gradient in {title}: detach() the tensor")
    k = None if k is None else torch.as_tensor(k, dtype=torch.float64, device=z.device)
    strength = torch.as_tensor(strength, dtype=torch.float64, device=z.device)
    result: Tensor = _sorting(z.movedim(dim, -1), name, k, strength)
    return result.movedim(-1, dim)


def soft_sort(z: Tensor, strength: Any = 1.0, dim: int = -1) -> Tensor:
    """z sorted to rise, differentiably, as `pyentmax.sorting.soft_sort` sorts.

    Parameters
    ----------
    z : Tensor
    strength : float or Tensor that broadcasts to z's shape without ``dim``
        above 0; gets no gradient
    dim : int, default -1

    Returns
    -------
    Tensor of z's shape and dtype

    Examples
    --------
    >>> import torch
    >>> z = torch.tensor([2.0, -1.0, 0.0], requires_grad=True)
    >>> soft_sort(z, 0.4).detach()
    tensor([-1.,  0.,  2.])
    >>> soft_sort(z, 0.4)[-1].backward()
    >>> z.grad
    tensor([1., 0., 0.])
    """
    return _apply("soft_sort", z, None, strength, dim)


def soft_rank(z: Tensor, strength: Any = 1.0, dim: int = -1) -> Tensor:
    """Ranks, 1 for the least and d for the largest, differentiably: `pyentmax.sorting.soft_rank`.

    Parameters
    ----------
    z, dim : as in `pyentmax.torch.sorting.soft_sort`
    strength : float or Tensor that broadcasts to z's shape without ``dim``
        above 0; for a gradient in it, pass z / strength

    Returns
    -------
    Tensor of z's shape and dtype

    Examples
    --------
    >>> import torch
    >>> soft_rank(torch.tensor([0.0, 5.0, 0.5]))
    tensor([1.2500, 3.0000, 1.7500])
    """
    return _apply("soft_rank", z, None, strength, dim)


def soft_topk(z: Tensor, k: Any, strength: Any = 1.0, dim: int = -1) -> Tensor:
    """How much each entry belongs to the k largest, between 0 and 1: `pyentmax.sorting.soft_topk`.

    Parameters
    ----------
    z, strength, dim : as in `pyentmax.torch.sorting.soft_rank`
    k : whole number or Tensor that broadcasts to z's shape without ``dim``

    Returns
    -------
    Tensor of z's shape and dtype

    Examples
    --------
    >>> import torch
    >>> soft_topk(torch.tensor([0.5, 2.0, 0.0, -1.0]), 2)
    tensor([0.7500, 1.0000, 0.2500, 0.0000])
    """
    return _apply("soft_topk", z, k, strength, dim)
