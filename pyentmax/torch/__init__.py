"""The mappings, losses and attention for PyTorch: functions, modules and registered operations.

Functions have the names that they have in `pyentmax`, and ``dim`` for its ``axis``; modules are
called after them (`Entmax15`, `Entmax15Loss`). `pyentmax.torch.entmax` has the names and signatures
of the ``entmax`` package, and is the function `entmax` at the same time.

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

# Loaded before its name is taken by the function below: Python binds a submodule only once.
from pyentmax.torch import entmax as _entmax_package
from pyentmax.torch import keep
from pyentmax.torch import transformers as transformers  # imports the library when called
from pyentmax.torch.entmax import activations as _activations
from pyentmax.torch.entmax import losses as _losses
from pyentmax.torch.entmax import root_finding as _root_finding
from pyentmax.torch.functions import (
    LOSS_FUNCTIONS,
    MAPPING_FUNCTIONS,
    SUPPORT_FUNCTIONS,
    fenchel_young_loss,
)
from pyentmax.torch.log_probabilities import (
    log_entmax,
    log_entmax15,
    log_softmax,
    log_sparsemax,
)
from pyentmax.torch.modules import MODULES, AlphaEntmax, Attention, LengthScale
from pyentmax.torch.one_vs_all import entmax_sigmoid, entmax_sigmoid_loss, one_vs_all_loss
from pyentmax.torch.sparse_attention import attention

globals().update({**MAPPING_FUNCTIONS, **SUPPORT_FUNCTIONS, **LOSS_FUNCTIONS, **MODULES})
# `import pyentmax.torch.entmax as entmax` gives the function: it has the package's names, too, and
# what Python asks of a package, for `from entmax.losses import …` once it is sys.modules["entmax"].
vars(MAPPING_FUNCTIONS["entmax"]).update(
    {n: getattr(_entmax_package, n) for n in (*_entmax_package.__all__, "__path__", "__spec__")},
    activations=_activations,
    losses=_losses,
    root_finding=_root_finding,
)

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
]
__all__ += [*MAPPING_FUNCTIONS, *SUPPORT_FUNCTIONS, *LOSS_FUNCTIONS, *MODULES]
