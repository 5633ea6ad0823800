"""pyentmax: sparse probability mappings of the α-entmax family, to read, call, check and learn."""

from importlib.metadata import PackageNotFoundError, version

from pyentmax._dispatch import show_config
from pyentmax.checking import CheckReport, check_gradient, check_jacobian, check_vjp
from pyentmax.entropies import gini_entropy, shannon_entropy, tsallis_entropy
from pyentmax.losses import (
    entmax15_loss,
    entmax15_loss_and_grad,
    entmax_loss,
    entmax_loss_and_grad,
    fenchel_young_loss,
    fenchel_young_loss_and_grad,
    softmax_loss,
    softmax_loss_and_grad,
    sparsemax_loss,
    sparsemax_loss_and_grad,
)
from pyentmax.mappings import MAPPINGS, Mapping
from pyentmax.mappings.entmax import (
    entmax,
    entmax_grad_alpha,
    entmax_jacobian,
    entmax_jvp,
    entmax_support,
    entmax_vjp,
    entmax_vjp_alpha,
)
from pyentmax.mappings.entmax15 import (
    entmax15,
    entmax15_jacobian,
    entmax15_jvp,
    entmax15_support,
    entmax15_vjp,
)
from pyentmax.mappings.regularized import (
    hessian_jacobian,
    regularized_argmax,
    separable_jacobian,
    separable_jvp,
    separable_mapping,
    separable_vjp,
)
from pyentmax.mappings.softmax import (
    softmax,
    softmax_jacobian,
    softmax_jvp,
    softmax_support,
    softmax_vjp,
)
from pyentmax.mappings.sparsemax import (
    sparsemax,
    sparsemax_jacobian,
    sparsemax_jvp,
    sparsemax_support,
    sparsemax_vjp,
)

try:
    __version__ = version("pyentmax")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"

__all__ = [
    "CheckReport",
    "MAPPINGS",
    "Mapping",
    "check_gradient",
    "check_jacobian",
    "check_vjp",
    "entmax",
    "entmax15",
    "entmax15_jacobian",
    "entmax15_jvp",
    "entmax15_loss",
    "entmax15_loss_and_grad",
    "entmax15_support",
    "entmax15_vjp",
    "entmax_grad_alpha",
    "entmax_jacobian",
    "entmax_jvp",
    "entmax_loss",
    "entmax_loss_and_grad",
    "entmax_support",
    "entmax_vjp",
    "entmax_vjp_alpha",
    "fenchel_young_loss",
    "fenchel_young_loss_and_grad",
    "gini_entropy",
    "hessian_jacobian",
    "regularized_argmax",
    "separable_jacobian",
    "separable_jvp",
    "separable_mapping",
    "separable_vjp",
    "shannon_entropy",
    "show_config",
    "softmax",
    "softmax_jacobian",
    "softmax_jvp",
    "softmax_loss",
    "softmax_loss_and_grad",
    "softmax_support",
    "softmax_vjp",
    "sparsemax",
    "sparsemax_jacobian",
    "sparsemax_jvp",
    "sparsemax_loss",
    "sparsemax_loss_and_grad",
    "sparsemax_support",
    "sparsemax_vjp",
    "tsallis_entropy",
]
