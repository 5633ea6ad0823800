"""The mappings from scores to probabilities, one readable file each.

``MAPPINGS`` lists their records by name. The package holds the modules and not the functions, so
that no function hides the file it is defined in; the functions are importable from `pyentmax`.
"""

from pyentmax.engine.calls.record import Mapping
from pyentmax.reference.mappings import functions

MAPPINGS: dict[str, Mapping] = {
    record.name: record for record in vars(functions).values() if isinstance(record, Mapping)
}
"""Name → record, of every mapping."""

__all__ = ["MAPPINGS", "Mapping"]
