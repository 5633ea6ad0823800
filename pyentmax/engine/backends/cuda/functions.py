"""Functions of `pyentmax` that have a CUDA kernel, and what runs it for CuPy arrays."""

from __future__ import annotations

from pyentmax.engine.backends.cuda.families import (
    Run,
    bounded,
    elementwise_gradient,
    forward,
    fused,
    fused_product,
    loss,
    pooled_scores,
    product,
    smoothed_neighbours,
)
from pyentmax.engine.backends.cuda.launch import Kernel

SOFTMAX = Kernel("forward", "Softmax", "softmax.cu")
SPARSEMAX = Kernel("forward", "Sparsemax", "sparsemax.cu")
ENTMAX15 = Kernel("forward", "Entmax15", "entmax15.cu")
ENTMAX = Kernel("forward", "Entmax", "entmax.cu", gathers=True)
NORMMAX = Kernel("forward", "Normmax", "normmax.cu", gathers=True)
TOPK_SOFTMAX = Kernel("forward", "TopkSoftmax", "topk_softmax.cu")
TOPK_SPARSEMAX = Kernel("forward", "TopkSparsemax", "topk_sparsemax.cu")
CSOFTMAX = Kernel("bounded", "Csoftmax", "bounded.cu")
CSPARSEMAX = Kernel("bounded", "Csparsemax", "bounded.cu")
BUDGET_SPARSEMAX = Kernel("bounded", "BudgetSparsemax", "bounded.cu")
SOFTMAX_JVP = Kernel("derivative", "SoftmaxJvp", "softmax.cu")
SPARSEMAX_JVP = Kernel("derivative", "SparsemaxJvp", "sparsemax.cu")
ENTMAX15_JVP = Kernel("derivative", "Entmax15Jvp", "entmax15.cu")
ENTMAX_JVP = Kernel("derivative", "EntmaxJvp", "entmax.cu")
NORMMAX_JVP = Kernel("derivative", "NormmaxJvp", "normmax.cu")
SOFTMAX_LOSS = Kernel("loss", "SoftmaxLoss", "losses.cu")
SPARSEMAX_LOSS = Kernel("loss", "SparsemaxLoss", "losses.cu")
ENTMAX15_LOSS = Kernel("loss", "Entmax15Loss", "losses.cu")
ENTMAX_LOSS = Kernel("loss", "EntmaxLoss", "losses.cu", gathers=True)
NORMMAX_LOSS = Kernel("loss", "NormmaxLoss", "losses.cu", gathers=True)
TOPK_SPARSEMAX_LOSS = Kernel("loss", "TopkSparsemaxLoss", "losses.cu")
ENTMAX_GRAD_ALPHA = Kernel("derivative", "EntmaxGradAlpha", "grad_alpha.cu")

KERNELS: dict[str, Run] = {
    "softmax": forward(SOFTMAX),
    "sparsemax": forward(SPARSEMAX),
    "entmax15": forward(ENTMAX15),
    "entmax": forward(ENTMAX),
    "normmax": forward(NORMMAX),
    "topk_softmax": forward(TOPK_SOFTMAX),
    "topk_sparsemax": forward(TOPK_SPARSEMAX),
    "csoftmax": bounded(CSOFTMAX),
    "csparsemax": bounded(CSPARSEMAX),
    "budget_sparsemax": bounded(BUDGET_SPARSEMAX),
    "fusedmax": fused(SPARSEMAX, smoothed_neighbours),
    "oscarmax": fused(SPARSEMAX, pooled_scores),
    "softmax_jvp": product(SOFTMAX_JVP),
    "sparsemax_jvp": product(SPARSEMAX_JVP),
    "entmax15_jvp": product(ENTMAX15_JVP),
    "entmax_jvp": product(ENTMAX_JVP),
    "normmax_jvp": product(NORMMAX_JVP),
    "csoftmax_jvp": product(SOFTMAX_JVP),
    "csparsemax_jvp": product(SPARSEMAX_JVP),
    "budget_sparsemax_jvp": product(SPARSEMAX_JVP, upper=1.0),
    "fusedmax_jvp": fused_product(anywhere=False),
    "oscarmax_jvp": fused_product(anywhere=True),
    "entmax_grad_alpha": elementwise_gradient(ENTMAX_GRAD_ALPHA),
    "softmax_loss": loss(SOFTMAX_LOSS, with_gradient=False),
    "softmax_loss_and_grad": loss(SOFTMAX_LOSS, with_gradient=True),
    "sparsemax_loss": loss(SPARSEMAX_LOSS, with_gradient=False),
    "sparsemax_loss_and_grad": loss(SPARSEMAX_LOSS, with_gradient=True),
    "entmax15_loss": loss(ENTMAX15_LOSS, with_gradient=False),
    "entmax15_loss_and_grad": loss(ENTMAX15_LOSS, with_gradient=True),
    "entmax_loss": loss(ENTMAX_LOSS, with_gradient=False),
    "entmax_loss_and_grad": loss(ENTMAX_LOSS, with_gradient=True),
    "normmax_loss": loss(NORMMAX_LOSS, with_gradient=False),
    "normmax_loss_and_grad": loss(NORMMAX_LOSS, with_gradient=True),
    "topk_sparsemax_loss": loss(TOPK_SPARSEMAX_LOSS, with_gradient=False),
    "topk_sparsemax_loss_and_grad": loss(TOPK_SPARSEMAX_LOSS, with_gradient=True),
}
