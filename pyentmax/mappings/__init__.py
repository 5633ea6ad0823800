"""The mappings from scores to probabilities, one readable file each.

``MAPPINGS`` lists their records by name. The package holds the modules and not the functions, so
that no function hides the file it is defined in; the functions are importable from `pyentmax`.
"""

from pyentmax.mappings import (
    budget_sparsemax,
    csoftmax,
    csparsemax,
    entmax,
    entmax15,
    fusedmax,
    normmax,
    oscarmax,
    softmax,
    sparsemax,
    topk_softmax,
)
from pyentmax.mappings._record import Mapping

_MODULES = (
    softmax,
    sparsemax,
    entmax15,
    entmax,
    normmax,
    topk_softmax,
    fusedmax,
    oscarmax,
    csoftmax,
    csparsemax,
    budget_sparsemax,
)

MAPPINGS: dict[str, Mapping] = {module.MAPPING.name: module.MAPPING for module in _MODULES}
"""Name → record, of every mapping."""

__all__ = [
    "MAPPINGS",
    "Mapping",
    "budget_sparsemax",
    "csoftmax",
    "csparsemax",
    "entmax",
    "entmax15",
    "fusedmax",
    "normmax",
    "oscarmax",
    "softmax",
    "sparsemax",
    "topk_softmax",
]
