"""All mappings, their derivatives and their losses: a line for each file, in the order of MAPPINGS.

`pyentmax` takes its names from here, and `MAPPINGS` its mappings.
"""

# ruff: noqa: F403, F405, I001

from pyentmax.reference.mappings.softmax import *
from pyentmax.reference.mappings.sparsemax import *
from pyentmax.reference.mappings.entmax15 import *
from pyentmax.reference.mappings.entmax import *
from pyentmax.reference.mappings.normmax import *
from pyentmax.reference.mappings.topk_softmax import *
from pyentmax.reference.mappings.topk_sparsemax import *
from pyentmax.reference.mappings.fusedmax import *
from pyentmax.reference.mappings.oscarmax import *
from pyentmax.reference.mappings.csoftmax import *
from pyentmax.reference.mappings.csparsemax import *
from pyentmax.reference.mappings.budget_sparsemax import *

# Written out for type checkers; a test compares it with the files' own lists.
__all__ = [
    "budget_sparsemax",
    "budget_sparsemax_jacobian",
    "budget_sparsemax_jvp",
    "budget_sparsemax_support",
    "budget_sparsemax_vjp",
    "budget_sparsemax_vjp_budget",
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
    "entmax_grad_alpha",
    "entmax_jacobian",
    "entmax_jvp",
    "entmax_loss",
    "entmax_loss_and_grad",
    "entmax_support",
    "entmax_vjp",
    "entmax_vjp_alpha",
    "log_entmax",
    "entmax15",
    "entmax15_jacobian",
    "entmax15_jvp",
    "entmax15_loss",
    "entmax15_loss_and_grad",
    "entmax15_support",
    "entmax15_vjp",
    "log_entmax15",
    "fusedmax",
    "fusedmax_jacobian",
    "fusedmax_jvp",
    "fusedmax_support",
    "fusedmax_vjp",
    "fusedmax_vjp_strength",
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
    "log_softmax",
    "softmax",
    "softmax_jacobian",
    "softmax_jvp",
    "softmax_loss",
    "softmax_loss_and_grad",
    "softmax_support",
    "softmax_vjp",
    "log_sparsemax",
    "sparsemax",
    "sparsemax_jacobian",
    "sparsemax_jvp",
    "sparsemax_loss",
    "sparsemax_loss_and_grad",
    "sparsemax_support",
    "sparsemax_vjp",
    "topk_softmax",
    "topk_softmax_jacobian",
    "topk_softmax_jvp",
    "topk_softmax_support",
    "topk_softmax_vjp",
    "topk_sparsemax",
    "topk_sparsemax_jacobian",
    "topk_sparsemax_jvp",
    "topk_sparsemax_loss",
    "topk_sparsemax_loss_and_grad",
    "topk_sparsemax_support",
    "topk_sparsemax_vjp",
]
