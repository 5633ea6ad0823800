"""pyentmax: sparse probability mappings of the α-entmax family, to read, call, check and learn."""

import importlib
import importlib.metadata as _metadata
from typing import TYPE_CHECKING

import pyentmax.keep as keep
from pyentmax.checking import (
    AttentionReport,
    CheckReport,
    LossReport,
    MappingReport,
    check_attention,
    check_gradient,
    check_jacobian,
    check_loss,
    check_mapping,
    check_vjp,
)
from pyentmax.engine.backends.choice import show_config
from pyentmax.engine.backends.threads import get_workers, set_workers
from pyentmax.engine.calls.by_rows import by_rows
from pyentmax.engine.calls.parameters import Alpha, Strength, TopK
from pyentmax.reference.entropies import (
    gini_entropy,
    norm_entropy,
    shannon_entropy,
    tsallis_entropy,
)
from pyentmax.reference.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad
from pyentmax.reference.linear_loss import linear_loss, linear_loss_and_grad
from pyentmax.reference.mapping import Mapping, mapping
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.reference.mappings.budget_sparsemax import budget_sparsemax
from pyentmax.reference.mappings.csoftmax import csoftmax
from pyentmax.reference.mappings.csparsemax import csparsemax
from pyentmax.reference.mappings.entmax import entmax
from pyentmax.reference.mappings.entmax15 import entmax15
from pyentmax.reference.mappings.fusedmax import fusedmax
from pyentmax.reference.mappings.normmax import normmax
from pyentmax.reference.mappings.oscarmax import oscarmax
from pyentmax.reference.mappings.softmax import softmax
from pyentmax.reference.mappings.sparsemax import sparsemax
from pyentmax.reference.mappings.topk_softmax import topk_softmax
from pyentmax.reference.mappings.topk_sparsemax import topk_sparsemax
from pyentmax.reference.one_vs_all import (
    entmax_sigmoid,
    one_vs_all_loss,
    one_vs_all_loss_and_grad,
)
from pyentmax.reference.sparse_output import csr
from pyentmax.sparse_attention import (
    AttentionWeights,
    DistanceBias,
    ScreenedRows,
    attention,
    attention_vjp,
    attention_vjp_alpha,
    entmax_linear,
    linear_argmax,
    linear_min_p,
    linear_sample,
    linear_top_k,
)

if TYPE_CHECKING:
    from pyentmax import regularized as regularized
    from pyentmax import sorting as sorting
    from pyentmax import structured as structured

try:
    __version__ = _metadata.version("pyentmax")
except _metadata.PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"

__all__ = [
    "Alpha",
    "AttentionReport",
    "AttentionWeights",
    "CheckReport",
    "DistanceBias",
    "LossReport",
    "MAPPINGS",
    "Mapping",
    "MappingReport",
    "ScreenedRows",
    "Strength",
    "TopK",
    "attention",
    "attention_vjp",
    "attention_vjp_alpha",
    "budget_sparsemax",
    "by_rows",
    "check_attention",
    "check_gradient",
    "check_jacobian",
    "check_loss",
    "check_mapping",
    "check_vjp",
    "csoftmax",
    "csparsemax",
    "csr",
    "entmax",
    "entmax15",
    "entmax_linear",
    "entmax_sigmoid",
    "fenchel_young_loss",
    "fenchel_young_loss_and_grad",
    "fusedmax",
    "get_workers",
    "gini_entropy",
    "keep",
    "linear_argmax",
    "linear_loss",
    "linear_loss_and_grad",
    "linear_min_p",
    "linear_sample",
    "linear_top_k",
    "mapping",
    "norm_entropy",
    "normmax",
    "one_vs_all_loss",
    "one_vs_all_loss_and_grad",
    "oscarmax",
    "set_workers",
    "shannon_entropy",
    "show_config",
    "softmax",
    "sparsemax",
    "topk_softmax",
    "topk_sparsemax",
    "tsallis_entropy",
]

_IMPORTED_ON_USE = (
    "jax",
    "regularized",
    "seq2seq",
    "sklearn",
    "sorting",
    "structured",
    "torch",
)
_REMOVED = {  # to go with the first release
    "attention_jvp": "attention_vjp, or jax.jvp of pyentmax.jax.attention",
    "budget_sparsemax_vjp_bounds": "budget_sparsemax.vjp; the bounds are 0 and 1",
    "entmax_sigmoid_grad_alpha": "entmax.parameter_slope of the pairs (z, 0)",
    "entmax_sigmoid_jvp": "entmax.jvp of the pairs (z, 0)",
    "entmax_sigmoid_loss": "one_vs_all_loss of z[..., None]",
    "entmax_sigmoid_loss_and_grad": "one_vs_all_loss_and_grad of z[..., None]",
    "entmax_sigmoid_vjp": "entmax.vjp of the pairs (z, 0)",
    "entmax_sigmoid_vjp_alpha": "entmax.parameter_vjp of the pairs (z, 0)",
}

if not TYPE_CHECKING:  # a type checker would take any name for an attribute

    def __getattr__(name: str):
        if name in _IMPORTED_ON_USE:
            try:
                return importlib.import_module(f"pyentmax.{name}")
            except ImportError as error:  # hasattr and inspect.getmembers expect the other error
                raise AttributeError(str(error)) from error
        instead = f", use {_REMOVED[name]}" if name in _REMOVED else ""
        for mapping in () if instead else MAPPINGS:
            if name.startswith(f"{mapping}_") or name == f"log_{mapping}":
                instead = f": derivatives, log and loss are attributes, as {mapping}.vjp"
        raise AttributeError(f"module 'pyentmax' has no attribute {name!r}{instead}")


def __dir__() -> list[str]:
    rooms = ("checking", "reference", "sparse_attention", *_IMPORTED_ON_USE)
    return sorted({*__all__, *rooms, *(name for name in globals() if name.startswith("__"))})
