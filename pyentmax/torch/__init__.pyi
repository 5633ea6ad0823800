"""The mappings, losses and attention for PyTorch: functions, modules and registered operations.

Made by tools/write_stubs.py (`make stubs`): do not edit."""

from typing import Literal

from torch import Tensor

from pyentmax.torch.functions import fenchel_young_loss as fenchel_young_loss
from pyentmax.torch.modules import AlphaEntmax as AlphaEntmax
from pyentmax.torch.modules import Attention as Attention
from pyentmax.torch.modules import LossModule, MappingModule
from pyentmax.torch.one_vs_all import entmax_sigmoid as entmax_sigmoid
from pyentmax.torch.one_vs_all import entmax_sigmoid_loss as entmax_sigmoid_loss
from pyentmax.torch.one_vs_all import one_vs_all_loss as one_vs_all_loss
from pyentmax.torch.sparse_attention import attention as attention

Reduction = Literal["mean", "sum", "none"]

__all__ = [
    "AlphaEntmax",
    "Attention",
    "attention",
    "entmax_sigmoid",
    "entmax_sigmoid_loss",
    "fenchel_young_loss",
    "one_vs_all_loss",
    "softmax",
    "sparsemax",
    "entmax15",
    "entmax",
    "normmax",
    "topk_softmax",
    "topk_sparsemax",
    "fusedmax",
    "oscarmax",
    "csoftmax",
    "csparsemax",
    "budget_sparsemax",
    "softmax_loss",
    "sparsemax_loss",
    "entmax15_loss",
    "entmax_loss",
    "normmax_loss",
    "topk_sparsemax_loss",
    "fusedmax_loss",
    "oscarmax_loss",
    "Softmax",
    "Sparsemax",
    "Entmax15",
    "Entmax",
    "Normmax",
    "TopkSoftmax",
    "TopkSparsemax",
    "Fusedmax",
    "Oscarmax",
    "Csoftmax",
    "Csparsemax",
    "BudgetSparsemax",
    "EntmaxSigmoid",
    "SoftmaxLoss",
    "SparsemaxLoss",
    "Entmax15Loss",
    "EntmaxLoss",
    "NormmaxLoss",
    "TopkSparsemaxLoss",
    "FusedmaxLoss",
    "OscarmaxLoss",
    "EntmaxSigmoidLoss",
    "OneVsAllLoss",
]

def softmax(z: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """p = softmax(z) along ``dim``, with its derivatives."""

def sparsemax(z: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """p = sparsemax(z) along ``dim``, with its derivatives."""

def entmax15(z: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """p = entmax15(z) along ``dim``, with its derivatives."""

def entmax(
    z: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = entmax(z) along ``dim``, with its derivatives."""

def normmax(
    z: Tensor,
    alpha: float | Tensor = 2.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = normmax(z) along ``dim``, with its derivatives."""

def topk_softmax(
    z: Tensor,
    k: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = topk_softmax(z) along ``dim``, with its derivatives."""

def topk_sparsemax(
    z: Tensor,
    k: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = topk_sparsemax(z) along ``dim``, with its derivatives."""

def fusedmax(
    z: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = fusedmax(z) along ``dim``, with its derivatives."""

def oscarmax(
    z: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = oscarmax(z) along ``dim``, with its derivatives."""

def csoftmax(
    z: Tensor,
    upper: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = csoftmax(z) along ``dim``, with its derivatives."""

def csparsemax(
    z: Tensor,
    upper: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = csparsemax(z) along ``dim``, with its derivatives."""

def budget_sparsemax(
    z: Tensor,
    budget: float | Tensor,
    dim: int = -1,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """p = budget_sparsemax(z) along ``dim``, with its derivatives."""

def softmax_loss(
    z: Tensor,
    y: Tensor,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.softmax`, with its derivatives."""

def sparsemax_loss(
    z: Tensor,
    y: Tensor,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.sparsemax`, with its derivatives."""

def entmax15_loss(
    z: Tensor,
    y: Tensor,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.entmax15`, with its derivatives."""

def entmax_loss(
    z: Tensor,
    y: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.entmax`, with its derivatives."""

def normmax_loss(
    z: Tensor,
    y: Tensor,
    alpha: float | Tensor = 2.0,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.normmax`, with its derivatives."""

def topk_sparsemax_loss(
    z: Tensor,
    y: Tensor,
    k: float | Tensor,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.topk_sparsemax`, with its derivatives."""

def fusedmax_loss(
    z: Tensor,
    y: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.fusedmax`, with its derivatives."""

def oscarmax_loss(
    z: Tensor,
    y: Tensor,
    strength: float | Tensor = 1.0,
    dim: int = -1,
    *,
    reduction: Reduction = "mean",
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.oscarmax`, with its derivatives."""

class Softmax(MappingModule):
    """`softmax` as a module."""

    dim: int
    def __init__(self, dim: int = -1) -> None: ...

class Sparsemax(MappingModule):
    """`sparsemax` as a module."""

    dim: int
    def __init__(self, dim: int = -1) -> None: ...

class Entmax15(MappingModule):
    """`entmax15` as a module."""

    dim: int
    def __init__(self, dim: int = -1) -> None: ...

class Entmax(MappingModule):
    """`entmax` as a module."""

    alpha: float | Tensor
    dim: int
    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1) -> None: ...

class Normmax(MappingModule):
    """`normmax` as a module."""

    alpha: float | Tensor
    dim: int
    def __init__(self, alpha: float | Tensor = 2.0, dim: int = -1) -> None: ...

class TopkSoftmax(MappingModule):
    """`topk_softmax` as a module."""

    k: float | Tensor
    dim: int
    def __init__(self, k: float | Tensor, dim: int = -1) -> None: ...

class TopkSparsemax(MappingModule):
    """`topk_sparsemax` as a module."""

    k: float | Tensor
    dim: int
    def __init__(self, k: float | Tensor, dim: int = -1) -> None: ...

class Fusedmax(MappingModule):
    """`fusedmax` as a module."""

    strength: float | Tensor
    dim: int
    def __init__(self, strength: float | Tensor = 1.0, dim: int = -1) -> None: ...

class Oscarmax(MappingModule):
    """`oscarmax` as a module."""

    strength: float | Tensor
    dim: int
    def __init__(self, strength: float | Tensor = 1.0, dim: int = -1) -> None: ...

class Csoftmax(MappingModule):
    """`csoftmax` as a module."""

    upper: float | Tensor
    dim: int
    def __init__(self, upper: float | Tensor, dim: int = -1) -> None: ...

class Csparsemax(MappingModule):
    """`csparsemax` as a module."""

    upper: float | Tensor
    dim: int
    def __init__(self, upper: float | Tensor, dim: int = -1) -> None: ...

class BudgetSparsemax(MappingModule):
    """`budget_sparsemax` as a module."""

    budget: float | Tensor
    dim: int
    def __init__(self, budget: float | Tensor, dim: int = -1) -> None: ...

class EntmaxSigmoid(MappingModule):
    """`entmax_sigmoid` as a module."""

    alpha: float | Tensor
    def __init__(self, alpha: float | Tensor = 1.5) -> None: ...

class SoftmaxLoss(LossModule):
    """`softmax_loss` as a module."""

    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class SparsemaxLoss(LossModule):
    """`sparsemax_loss` as a module."""

    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class Entmax15Loss(LossModule):
    """`entmax15_loss` as a module."""

    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class EntmaxLoss(LossModule):
    """`entmax_loss` as a module."""

    alpha: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class NormmaxLoss(LossModule):
    """`normmax_loss` as a module."""

    alpha: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        alpha: float | Tensor = 2.0,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class TopkSparsemaxLoss(LossModule):
    """`topk_sparsemax_loss` as a module."""

    k: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        k: float | Tensor,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class FusedmaxLoss(LossModule):
    """`fusedmax_loss` as a module."""

    strength: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        strength: float | Tensor = 1.0,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class OscarmaxLoss(LossModule):
    """`oscarmax_loss` as a module."""

    strength: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        strength: float | Tensor = 1.0,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class EntmaxSigmoidLoss(LossModule):
    """`entmax_sigmoid_loss` as a module."""

    alpha: float | Tensor
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...

class OneVsAllLoss(LossModule):
    """`one_vs_all_loss` as a module."""

    alpha: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        dim: int = -1,
        *,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None: ...
