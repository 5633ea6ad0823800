"""The mappings from scores to probabilities, one readable file each.

``MAPPINGS`` lists them by name. The package holds the modules and not the functions, so
that no function hides the file it is defined in; the functions are importable from `pyentmax`.
"""

from pyentmax.reference.mapping import AnyMapping, Mapping
from pyentmax.reference.mappings import functions

MAPPINGS: dict[str, AnyMapping] = {
    mapping.name: mapping for mapping in vars(functions).values() if isinstance(mapping, Mapping)
}
"""Name → mapping, of every one."""

__all__ = ["MAPPINGS", "Mapping"]
