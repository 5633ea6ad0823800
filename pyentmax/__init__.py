"""pyentmax: sparse probability mappings of the α-entmax family, to read, call, check and learn."""

import importlib
import importlib.metadata as _metadata
from typing import TYPE_CHECKING

import pyentmax.keep as keep
import pyentmax.reference.mappings.functions as functions  # of this form, pyright reads its __all__
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
from pyentmax.reference.mappings.functions import *  # noqa: F403  # a line for each mapping is there
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
    "Strength",
    "TopK",
    "mapping",
    "AttentionReport",
    "AttentionWeights",
    "CheckReport",
    "DistanceBias",
    "MAPPINGS",
    "Mapping",
    "LossReport",
    "MappingReport",
    "ScreenedRows",
    "attention",
    "attention_vjp",
    "attention_vjp_alpha",
    "by_rows",
    "check_attention",
    "check_gradient",
    "check_jacobian",
    "check_loss",
    "check_mapping",
    "check_vjp",
    "csr",
    "entmax_linear",
    "entmax_sigmoid",
    "fenchel_young_loss",
    "fenchel_young_loss_and_grad",
    "get_workers",
    "gini_entropy",
    "keep",
    "linear_argmax",
    "linear_loss",
    "linear_loss_and_grad",
    "linear_min_p",
    "linear_sample",
    "linear_top_k",
    "norm_entropy",
    "one_vs_all_loss",
    "one_vs_all_loss_and_grad",
    "set_workers",
    "shannon_entropy",
    "show_config",
    "tsallis_entropy",
]
__all__ += functions.__all__

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
        raise AttributeError(f"module 'pyentmax' has no attribute {name!r}{instead}")


def __dir__() -> list[str]:
    # An attribute of a mapping, as entmax.jvp, is not shown under its older name, entmax_jvp.
    names = [name for name in __all__ if "." not in getattr(globals()[name], "__qualname__", "")]
    rooms = ("checking", "reference", "sparse_attention", *_IMPORTED_ON_USE)
    return sorted({*names, *rooms, *(name for name in globals() if name.startswith("__"))})
