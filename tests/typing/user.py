"""A user's script: type checkers accept it, and know what the functions return."""

from __future__ import annotations

from functools import partial
from typing import Any, assert_type

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

import pyentmax as pe
import pyentmax.torch as pt
from pyentmax.torch.entmax_package import Entmax15Loss

z = np.linspace(-1, 1, 40).reshape(8, 5)
p = pe.entmax(z, alpha=1.25, axis=-1, mask=z <= 0)
assert_type(p, NDArray[Any])
assert_type(pe.sparsemax([[2.0, 1.6, -1.0]]), NDArray[Any])
assert_type(pe.entmax15.reference(z, out=np.empty_like(z)), NDArray[Any])
assert_type(pe.entmax.parameter_vjp(p, p, 1.25), NDArray[Any])
assert_type(pe.entmax.jvp(p, p, alpha=1.25, axis=-1, mask=z <= 0), NDArray[Any])
assert_type(pe.topk_softmax.support(z, 2), NDArray[Any])
assert_type(pe.entmax.vjps(p, p, 1.25), tuple[NDArray[Any], NDArray[Any]])
labels_of_rows = np.zeros(8, int)
loss, gradient = pe.entmax15.loss_and_grad(z, labels_of_rows, reduction="sum", ignore_index=3)
print(pe.entmax.loss(z, labels_of_rows, 1.25), pe.fusedmax.loss(z, labels_of_rows, strength=0.1))


@pe.mapping(pe.Alpha("order", least=1))
def own(
    z: ArrayLike, order: ArrayLike = 2.0, axis: int = -1, *, mask: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
) -> tuple[Any, Any, Any, Any, Any]:  # fmt: skip
    return z, order, axis, mask, out


assert_type(own.jvp(p, p, order=3.0), NDArray[Any])
print(float(loss), gradient.T @ gradient, pe.tsallis_entropy(p, 1.5), pe.MAPPINGS["entmax"].sparse)
print(pe.attention(z, z, z, alpha=1.5, causal=True), pe.csr("sparsemax", z).toarray())
with pe.set_workers(1):
    pe.check_jacobian(pe.sparsemax, z[0]).raise_if_failed()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(5, 5)
        self.mapping = pt.Entmax(alpha=1.25, dim=-1)
        self.loss = pt.Entmax15Loss(reduction="sum", label_smoothing=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mapping(self.linear(x))


t, labels = torch.zeros(8, 5), torch.zeros(8, dtype=torch.long)
model = Model()
model.loss(model(t), labels).backward()
assert_type(pt.entmax(t, alpha=torch.tensor(1.5), dim=0), torch.Tensor)
assert_type(pt.sparsemax_loss(t, labels, weight=None, reduction="none"), torch.Tensor)
print(pt.attention(t, t, t, 1.25), Entmax15Loss(k=5)(t, labels), partial(pt.topk_softmax, k=2)(t))
