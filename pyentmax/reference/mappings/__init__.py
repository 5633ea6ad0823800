"""The mappings from scores to probabilities, one readable file each.

``MAPPINGS`` lists them by name. The package holds the modules and not the mappings, so that none
hides the file it is defined in; the mappings are importable from `pyentmax`.
"""

from pyentmax.reference.mapping import AnyMapping, Mapping
from pyentmax.reference.mappings import (
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
    topk_sparsemax,
)

_OBJECTS: tuple[AnyMapping, ...] = (
    softmax.softmax,
    sparsemax.sparsemax,
    entmax15.entmax15,
    entmax.entmax,
    normmax.normmax,
    topk_softmax.topk_softmax,
    topk_sparsemax.topk_sparsemax,
    fusedmax.fusedmax,
    oscarmax.oscarmax,
    csoftmax.csoftmax,
    csparsemax.csparsemax,
    budget_sparsemax.budget_sparsemax,
)
MAPPINGS: dict[str, AnyMapping] = {mapping.name: mapping for mapping in _OBJECTS}
"""Name → mapping, of every one."""

__all__ = ["MAPPINGS", "Mapping"]
