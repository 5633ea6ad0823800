"""pyentmax: sparse probability mappings of the α-entmax family, to read, call, check and learn."""

from importlib.metadata import PackageNotFoundError, version

from pyentmax.backends.choice import show_config
from pyentmax.backends.threads import get_workers, set_workers
from pyentmax.checking import CheckReport, check_gradient, check_jacobian, check_vjp
from pyentmax.entropies import gini_entropy, norm_entropy, shannon_entropy, tsallis_entropy
from pyentmax.log_probabilities import log_entmax, log_entmax15, log_softmax, log_sparsemax
from pyentmax.losses import (
    entmax15_loss,
    entmax15_loss_and_grad,
    entmax_loss,
    entmax_loss_and_grad,
    fenchel_young_loss,
    fenchel_young_loss_and_grad,
    normmax_loss,
    normmax_loss_and_grad,
    softmax_loss,
    softmax_loss_and_grad,
    sparsemax_loss,
    sparsemax_loss_and_grad,
)
from pyentmax.mappings import MAPPINGS, Mapping
from pyentmax.mappings.budget_sparsemax import (
    budget_sparsemax,
    budget_sparsemax_jacobian,
    budget_sparsemax_jvp,
    budget_sparsemax_support,
    budget_sparsemax_vjp,
    budget_sparsemax_vjp_budget,
)
from pyentmax.mappings.csoftmax import (
    csoftmax,
    csoftmax_jacobian,
    csoftmax_jvp,
    csoftmax_support,
    csoftmax_vjp,
    csoftmax_vjp_upper,
)
from pyentmax.mappings.csparsemax import (
    csparsemax,
    csparsemax_jacobian,
    csparsemax_jvp,
    csparsemax_support,
    csparsemax_vjp,
    csparsemax_vjp_upper,
)
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
from pyentmax.mappings.fusedmax import (
    fusedmax,
    fusedmax_jacobian,
    fusedmax_jvp,
    fusedmax_support,
    fusedmax_vjp,
    fusedmax_vjp_strength,
)
from pyentmax.mappings.normmax import (
    normmax,
    normmax_jacobian,
    normmax_jvp,
    normmax_support,
    normmax_vjp,
)
from pyentmax.mappings.oscarmax import (
    oscarmax,
    oscarmax_jacobian,
    oscarmax_jvp,
    oscarmax_support,
    oscarmax_vjp,
    oscarmax_vjp_strength,
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
from pyentmax.mappings.topk_softmax import (
    topk_softmax,
    topk_softmax_jacobian,
    topk_softmax_jvp,
    topk_softmax_support,
    topk_softmax_vjp,
)
from pyentmax.sparse_output import entmax15_csr, entmax_csr, sparsemax_csr, topk_softmax_csr

try:
    __version__ = version("pyentmax")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"

__all__ = [
    "CheckReport",
    "MAPPINGS",
    "Mapping",
    "budget_sparsemax",
    "budget_sparsemax_jacobian",
    "budget_sparsemax_jvp",
    "budget_sparsemax_support",
    "budget_sparsemax_vjp",
    "budget_sparsemax_vjp_budget",
    "check_gradient",
    "check_jacobian",
    "check_vjp",
    "csoftmax",
    "csoftmax_jacobian",
    "csoftmax_jvp",
    "csoftmax_support",
    "csoftmax_vjp",
    "csoftmax_vjp_upper",
    "csparsemax",
    "csparsemax_jacobian",
    "csparsemax_jvp",
    "csparsemax_support",
    "csparsemax_vjp",
    "csparsemax_vjp_upper",
    "entmax",
    "entmax15",
    "entmax15_csr",
    "entmax15_jacobian",
    "entmax15_jvp",
    "entmax15_loss",
    "entmax15_loss_and_grad",
    "entmax15_support",
    "entmax15_vjp",
    "entmax_csr",
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
    "fusedmax",
    "fusedmax_jacobian",
    "fusedmax_jvp",
    "fusedmax_support",
    "fusedmax_vjp",
    "fusedmax_vjp_strength",
    "get_workers",
    "gini_entropy",
    "hessian_jacobian",
    "log_entmax",
    "log_entmax15",
    "log_softmax",
    "log_sparsemax",
    "norm_entropy",
    "normmax",
    "normmax_jacobian",
    "normmax_jvp",
    "normmax_loss",
    "normmax_loss_and_grad",
    "normmax_support",
    "normmax_vjp",
    "oscarmax",
    "oscarmax_jacobian",
    "oscarmax_jvp",
    "oscarmax_support",
    "oscarmax_vjp",
    "oscarmax_vjp_strength",
    "regularized_argmax",
    "separable_jacobian",
    "separable_jvp",
    "separable_mapping",
    "separable_vjp",
    "set_workers",
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
    "sparsemax_csr",
    "sparsemax_jacobian",
    "sparsemax_jvp",
    "sparsemax_loss",
    "sparsemax_loss_and_grad",
    "sparsemax_support",
    "sparsemax_vjp",
    "topk_softmax",
    "topk_softmax_csr",
    "topk_softmax_jacobian",
    "topk_softmax_jvp",
    "topk_softmax_support",
    "topk_softmax_vjp",
    "tsallis_entropy",
]
