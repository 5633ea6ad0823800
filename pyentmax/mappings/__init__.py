"""The mappings from scores to probabilities, one readable file each.

``MAPPINGS`` lists their records by name. The package holds the modules and not the functions, so
that no function hides the file it is defined in; the functions are importable from `pyentmax`.
"""

from pyentmax.mappings import entmax, entmax15, softmax, sparsemax
from pyentmax.mappings._record import Mapping

MAPPINGS: dict[str, Mapping] = {
    module.MAPPING.name: module.MAPPING for module in (softmax, sparsemax, entmax15, entmax)
}

__all__ = ["MAPPINGS", "Mapping", "entmax", "entmax15", "softmax", "sparsemax"]
