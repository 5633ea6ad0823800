"""The mappings, losses and attention for PyTorch: functions, modules and registered operations.

Functions have the names that they have in `pyentmax`, and ``dim`` for its ``axis``; modules are
called after them (`Entmax15`, `Entmax15Loss`). `pyentmax.torch.entmax_package` has the names and
signatures of the ``entmax`` package.

Tensors on the host run the compiled kernels, on their own memory; those on a CUDA device run the
CUDA kernels where CuPy is installed. On other devices softmax, sparsemax, 1.5-entmax, α-entmax, the
top-k mappings, their losses and attention run as PyTorch operations; other mappings are an error.
Half precision is computed in float32. The operations behind the functions are registered
(``torch.ops.pyentmax``), so `torch.compile`, `torch.export` and `torch.func` know them.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"pyentmax.torch needs PyTorch, which cannot be imported ({error}): "
        "pip install 'pyentmax[torch]'"
    ) from error

from pyentmax.sparse_attention import DistanceBias
from pyentmax.torch import entmax_package as entmax_package
from pyentmax.torch import keep
from pyentmax.torch import transformers as transformers  # imports the library when called
from pyentmax.torch.attention_weights import AttentionWeights
from pyentmax.torch.exact_heads import (
    linear_argmax,
    linear_min_p,
    linear_sample,
    linear_top_k,
)
from pyentmax.torch.linear_loss import LinearLoss, linear_loss
from pyentmax.torch.log_probabilities import (
    log_entmax,
    log_entmax15,
    log_softmax,
    log_sparsemax,
)
from pyentmax.torch.losses import (
    entmax15_loss,
    entmax_loss,
    fenchel_young_loss,
    fusedmax_loss,
    normmax_loss,
    oscarmax_loss,
    softmax_loss,
    sparsemax_loss,
    topk_sparsemax_loss,
)
from pyentmax.torch.mappings import (
    budget_sparsemax,
    budget_sparsemax_support,
    csoftmax,
    csoftmax_support,
    csparsemax,
    csparsemax_support,
    entmax,
    entmax15,
    entmax15_support,
    entmax_support,
    fusedmax,
    fusedmax_support,
    normmax,
    normmax_support,
    oscarmax,
    oscarmax_support,
    softmax,
    softmax_support,
    sparsemax,
    sparsemax_support,
    topk_softmax,
    topk_softmax_support,
    topk_sparsemax,
    topk_sparsemax_support,
)
from pyentmax.torch.modules import (
    AlphaEntmax,
    Attention,
    BudgetSparsemax,
    Csoftmax,
    Csparsemax,
    Entmax,
    Entmax15,
    Entmax15Loss,
    EntmaxLoss,
    EntmaxSigmoid,
    EntmaxSigmoidLoss,
    Fusedmax,
    FusedmaxLoss,
    LengthScale,
    LogScale,
    Normmax,
    NormmaxLoss,
    OneVsAllLoss,
    Oscarmax,
    OscarmaxLoss,
    Softmax,
    SoftmaxLoss,
    Sparsemax,
    SparsemaxLoss,
    TopkSoftmax,
    TopkSparsemax,
    TopkSparsemaxLoss,
)
from pyentmax.torch.one_vs_all import entmax_sigmoid, entmax_sigmoid_loss, one_vs_all_loss
from pyentmax.torch.screened import ScreenedRows, entmax_linear
from pyentmax.torch.sparse_attention import attention

__all__ = [
    "AlphaEntmax",
    "Attention",
    "AttentionWeights",
    "DistanceBias",
    "LengthScale",
    "LinearLoss",
    "LogScale",
    "ScreenedRows",
    "attention",
    "entmax_linear",
    "entmax_sigmoid",
    "entmax_sigmoid_loss",
    "fenchel_young_loss",
    "keep",
    "linear_argmax",
    "linear_loss",
    "linear_min_p",
    "linear_sample",
    "linear_top_k",
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
