"""The mappings, losses and attention for PyTorch: functions, modules and registered operations.

Mappings are the objects that they are in `pyentmax`, with ``dim`` for ``axis``: `entmax15(z)`,
``entmax15.support``, ``entmax15.log``, ``entmax15.loss``; derivatives come by autograd. Modules are
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
from pyentmax.torch.by_rows import by_rows
from pyentmax.torch.exact_heads import (
    linear_argmax,
    linear_min_p,
    linear_sample,
    linear_top_k,
)
from pyentmax.torch.linear_loss import LinearLoss, linear_loss
from pyentmax.torch.mappings import (
    Mapping,
    budget_sparsemax,
    csoftmax,
    csparsemax,
    entmax,
    entmax15,
    fenchel_young_loss,
    fusedmax,
    normmax,
    oscarmax,
    softmax,
    sparsemax,
    topk_softmax,
    topk_sparsemax,
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
from pyentmax.torch.one_vs_all import entmax_sigmoid, one_vs_all_loss
from pyentmax.torch.screened import ScreenedRows, entmax_linear
from pyentmax.torch.sparse_attention import attention

# As the package entmax has them.
sparsemax_loss, entmax15_loss = sparsemax.loss, entmax15.loss

__all__ = [
    "AlphaEntmax",
    "Attention",
    "AttentionWeights",
    "DistanceBias",
    "LengthScale",
    "LinearLoss",
    "LogScale",
    "Mapping",
    "ScreenedRows",
    "attention",
    "by_rows",
    "entmax_linear",
    "entmax_sigmoid",
    "fenchel_young_loss",
    "keep",
    "linear_argmax",
    "linear_loss",
    "linear_min_p",
    "linear_sample",
    "linear_top_k",
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
    "sparsemax_loss",
    "entmax15_loss",
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
    "OneVsAllLoss",
]
