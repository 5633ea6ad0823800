"""The mappings, losses and attention for PyTorch: functions, modules and registered operations.

Made by tools/write_stubs.py (`make stubs`): do not edit."""

from typing import Literal

from torch import Tensor
from torch import dtype as Dtype

from pyentmax.torch import keep as keep
from pyentmax.torch import transformers as transformers
from pyentmax.torch.functions import fenchel_young_loss as fenchel_young_loss
from pyentmax.torch.log_probabilities import log_entmax as log_entmax
from pyentmax.torch.log_probabilities import log_entmax15 as log_entmax15
from pyentmax.torch.log_probabilities import log_softmax as log_softmax
from pyentmax.torch.log_probabilities import log_sparsemax as log_sparsemax
from pyentmax.torch.modules import AlphaEntmax as AlphaEntmax
from pyentmax.torch.modules import Attention as Attention
from pyentmax.torch.modules import LengthScale as LengthScale
from pyentmax.torch.modules import LossModule, MappingModule
from pyentmax.torch.one_vs_all import entmax_sigmoid as entmax_sigmoid
from pyentmax.torch.one_vs_all import entmax_sigmoid_loss as entmax_sigmoid_loss
from pyentmax.torch.one_vs_all import one_vs_all_loss as one_vs_all_loss
from pyentmax.torch.sparse_attention import attention as attention

Reduction = Literal["mean", "sum", "none"]

__all__ = [
    "AlphaEntmax",
    "Attention",
    "LengthScale",
    "attention",
    "entmax_sigmoid",
    "entmax_sigmoid_loss",
    "fenchel_young_loss",
    "keep",
    "log_entmax",
    "log_entmax15",
    "log_softmax",
    "log_sparsemax",
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
    "softmax_support",
    "sparsemax_support",
    "entmax15_support",
    "entmax_support",
    "normmax_support",
    "topk_softmax_support",
    "topk_sparsemax_support",
    "fusedmax_support",
    "oscarmax_support",
    "csoftmax_support",
    "csparsemax_support",
    "budget_sparsemax_support",
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

def softmax(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, dtype: Dtype | None = None,
) -> Tensor:
    """Dense probabilities: argmax of p·z + H(p) over the simplex, H Shannon's entropy."""
def sparsemax(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities: the point of the simplex nearest to z (Martins & Astudillo 2016)."""
def entmax15(
    z: Tensor, dim: int = -1, *, mask: Tensor | None = None, dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities p = [z/2 − τ]₊²: α-entmax at α = 1.5 (Peters et al. 2019, Alg. 2)."""
def entmax(
    z: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities p = [(α−1) z − τ]₊^{1/(α−1)} (Peters et al. 2019, Eq. 10 and App. C)."""
def normmax(
    z: Tensor, alpha: float | Tensor = 2.0, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities p ∝ [z − τ]₊^{1/(α−1)}: argmax over the simplex of p·z − ‖p‖_α."""
def topk_softmax(
    z: Tensor, k: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Softmax over each row's k largest scores (Explicit Sparse Transformer, Eq. 2 and 3)."""
def topk_sparsemax(
    z: Tensor, k: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities: the point nearest to z of the simplex with at most k non-zeros."""
def fusedmax(
    z: Tensor, strength: float | Tensor = 1.0, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities, equal over runs of neighbours (Niculae & Blondel 2017)."""
def oscarmax(
    z: Tensor, strength: float | Tensor = 1.0, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities, equal over groups of entries anywhere (Niculae & Blondel 2017)."""
def csoftmax(
    z: Tensor, upper: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Probabilities p = min(u, e^z r): softmax with upper bounds (Martins & Kreutzer 2017)."""
def csparsemax(
    z: Tensor, upper: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Sparse probabilities p = clip(z − τ, 0, u): sparsemax with bounds (Malaviya et al. 2018)."""
def budget_sparsemax(
    z: Tensor, budget: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
    dtype: Dtype | None = None,
) -> Tensor:
    """Shares p = clip(z − τ, 0, 1) that sum to the budget k: sparsemax that takes k in all."""
def softmax_support(z: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where softmax gives probability: every unmasked score above −∞, even if p underflows."""
def sparsemax_support(z: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where sparsemax gives probability: z > τ."""
def entmax15_support(z: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Where 1.5-entmax gives probability: z/2 > τ."""
def entmax_support(
    z: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where α-entmax gives probability, even if it underflows to 0 as α nears 1."""
def normmax_support(
    z: Tensor, alpha: float | Tensor = 2.0, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where normmax gives probability, even if it underflows to 0 as α nears 1."""
def topk_softmax_support(
    z: Tensor, k: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where top-k softmax gives probability: the scores kept, even if p underflows."""
def topk_sparsemax_support(
    z: Tensor, k: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where top-k sparsemax gives probability: the scores kept that exceed their threshold."""
def fusedmax_support(
    z: Tensor, strength: float | Tensor = 1.0, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where fusedmax gives probability: u > τ."""
def oscarmax_support(
    z: Tensor, strength: float | Tensor = 1.0, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where oscarmax gives probability: u > τ."""
def csoftmax_support(
    z: Tensor, upper: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where csoftmax gives probability: every unmasked score above −∞ whose bound is not 0."""
def csparsemax_support(
    z: Tensor, upper: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where csparsemax gives probability: z > τ and a bound that is not 0."""
def budget_sparsemax_support(
    z: Tensor, budget: float | Tensor, dim: int = -1, *, mask: Tensor | None = None,
) -> Tensor:
    """Where budget_sparsemax takes anything: z > τ."""
def softmax_loss(
    z: Tensor, y: Tensor, dim: int = -1, *, reduction: Reduction = "mean",
    weight: Tensor | None = None, mask: Tensor | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.softmax`, with its derivatives."""
def sparsemax_loss(
    z: Tensor, y: Tensor, dim: int = -1, *, reduction: Reduction = "mean",
    weight: Tensor | None = None, mask: Tensor | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.sparsemax`, with its derivatives."""
def entmax15_loss(
    z: Tensor, y: Tensor, dim: int = -1, *, reduction: Reduction = "mean",
    weight: Tensor | None = None, mask: Tensor | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.entmax15`, with its derivatives."""
def entmax_loss(
    z: Tensor, y: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, *,
    reduction: Reduction = "mean", weight: Tensor | None = None, mask: Tensor | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.entmax`, with its derivatives."""
def normmax_loss(
    z: Tensor, y: Tensor, alpha: float | Tensor = 2.0, dim: int = -1, *,
    reduction: Reduction = "mean", weight: Tensor | None = None, mask: Tensor | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.normmax`, with its derivatives."""
def topk_sparsemax_loss(
    z: Tensor, y: Tensor, k: float | Tensor, dim: int = -1, *, reduction: Reduction = "mean",
    weight: Tensor | None = None, mask: Tensor | None = None, ignore_index: int | None = None,
    label_smoothing: float = 0.0, class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.topk_sparsemax`, with its derivatives."""
def fusedmax_loss(
    z: Tensor, y: Tensor, strength: float | Tensor = 1.0, dim: int = -1, *,
    reduction: Reduction = "mean", weight: Tensor | None = None, mask: Tensor | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.fusedmax`, with its derivatives."""
def oscarmax_loss(
    z: Tensor, y: Tensor, strength: float | Tensor = 1.0, dim: int = -1, *,
    reduction: Reduction = "mean", weight: Tensor | None = None, mask: Tensor | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0,
    class_weight: Tensor | None = None,
) -> Tensor:
    """The Fenchel-Young loss of `pyentmax.oscarmax`, with its derivatives."""
class Softmax(MappingModule):
    """`softmax` as a module; tensors come with each call."""

    dim: int
    def __init__(self, dim: int = -1) -> None: ...
class Sparsemax(MappingModule):
    """`sparsemax` as a module; tensors come with each call."""

    dim: int
    def __init__(self, dim: int = -1) -> None: ...
class Entmax15(MappingModule):
    """`entmax15` as a module; tensors come with each call."""

    dim: int
    def __init__(self, dim: int = -1) -> None: ...
class Entmax(MappingModule):
    """`entmax` as a module; tensors come with each call."""

    alpha: float | Tensor
    dim: int
    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1) -> None: ...
class Normmax(MappingModule):
    """`normmax` as a module; tensors come with each call."""

    alpha: float | Tensor
    dim: int
    def __init__(self, alpha: float | Tensor = 2.0, dim: int = -1) -> None: ...
class TopkSoftmax(MappingModule):
    """`topk_softmax` as a module; tensors come with each call."""

    k: float | Tensor
    dim: int
    def __init__(self, k: float | Tensor, dim: int = -1) -> None: ...
class TopkSparsemax(MappingModule):
    """`topk_sparsemax` as a module; tensors come with each call."""

    k: float | Tensor
    dim: int
    def __init__(self, k: float | Tensor, dim: int = -1) -> None: ...
class Fusedmax(MappingModule):
    """`fusedmax` as a module; tensors come with each call."""

    strength: float | Tensor
    dim: int
    def __init__(self, strength: float | Tensor = 1.0, dim: int = -1) -> None: ...
class Oscarmax(MappingModule):
    """`oscarmax` as a module; tensors come with each call."""

    strength: float | Tensor
    dim: int
    def __init__(self, strength: float | Tensor = 1.0, dim: int = -1) -> None: ...
class Csoftmax(MappingModule):
    """`csoftmax` as a module; tensors come with each call."""

    upper: float | Tensor
    dim: int
    def __init__(self, upper: float | Tensor, dim: int = -1) -> None: ...
class Csparsemax(MappingModule):
    """`csparsemax` as a module; tensors come with each call."""

    upper: float | Tensor
    dim: int
    def __init__(self, upper: float | Tensor, dim: int = -1) -> None: ...
class BudgetSparsemax(MappingModule):
    """`budget_sparsemax` as a module; tensors come with each call."""

    budget: float | Tensor
    dim: int
    def __init__(self, budget: float | Tensor, dim: int = -1) -> None: ...
class EntmaxSigmoid(MappingModule):
    """`entmax_sigmoid` as a module; tensors come with each call."""

    alpha: float | Tensor
    def __init__(self, alpha: float | Tensor = 1.5) -> None: ...
class SoftmaxLoss(LossModule):
    """`softmax_loss` as a module; tensors come with each call."""

    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, dim: int = -1, *, reduction: Reduction = "mean", ignore_index: int | None = None,
        label_smoothing: float = 0.0, class_weight: Tensor | None = None,
    ) -> None: ...
class SparsemaxLoss(LossModule):
    """`sparsemax_loss` as a module; tensors come with each call."""

    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, dim: int = -1, *, reduction: Reduction = "mean", ignore_index: int | None = None,
        label_smoothing: float = 0.0, class_weight: Tensor | None = None,
    ) -> None: ...
class Entmax15Loss(LossModule):
    """`entmax15_loss` as a module; tensors come with each call."""

    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, dim: int = -1, *, reduction: Reduction = "mean", ignore_index: int | None = None,
        label_smoothing: float = 0.0, class_weight: Tensor | None = None,
    ) -> None: ...
class EntmaxLoss(LossModule):
    """`entmax_loss` as a module; tensors come with each call."""

    alpha: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, alpha: float | Tensor = 1.5, dim: int = -1, *, reduction: Reduction = "mean",
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None: ...
class NormmaxLoss(LossModule):
    """`normmax_loss` as a module; tensors come with each call."""

    alpha: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, alpha: float | Tensor = 2.0, dim: int = -1, *, reduction: Reduction = "mean",
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None: ...
class TopkSparsemaxLoss(LossModule):
    """`topk_sparsemax_loss` as a module; tensors come with each call."""

    k: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, k: float | Tensor, dim: int = -1, *, reduction: Reduction = "mean",
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None: ...
class FusedmaxLoss(LossModule):
    """`fusedmax_loss` as a module; tensors come with each call."""

    strength: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, strength: float | Tensor = 1.0, dim: int = -1, *, reduction: Reduction = "mean",
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None: ...
class OscarmaxLoss(LossModule):
    """`oscarmax_loss` as a module; tensors come with each call."""

    strength: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, strength: float | Tensor = 1.0, dim: int = -1, *, reduction: Reduction = "mean",
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None: ...
class EntmaxSigmoidLoss(LossModule):
    """`entmax_sigmoid_loss` as a module; tensors come with each call."""

    alpha: float | Tensor
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, alpha: float | Tensor = 1.5, *, reduction: Reduction = "mean",
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None: ...
class OneVsAllLoss(LossModule):
    """`one_vs_all_loss` as a module; tensors come with each call."""

    alpha: float | Tensor
    dim: int
    reduction: Reduction
    ignore_index: int | None
    label_smoothing: float
    class_weight: Tensor | None
    def __init__(
        self, alpha: float | Tensor = 1.5, dim: int = -1, *, reduction: Reduction = "mean",
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None: ...
