"""A value for each parameter of a mapping that fits rows of any length.

Generic tests take a mapping from MAPPINGS and its parameter's value from here.
"""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, Any] = {"alpha": 1.5, "budget": 1, "k": 2, "strength": 0.2, "upper": 1}
