"""The five scores of the first picture, through notebooks 1 to 6: one table that grows.

Each notebook ends with the rows so far. Its own row comes from its own functions; the earlier ones,
and what its own is compared with, from the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pyentmax

Z = np.array([1.2, 0.9, 0.3, -0.4, -1.0])
ALPHA, LABEL = 1.5, 1  # the label of notebook 5 is the second score


def rows() -> dict[int, tuple[str, Any]]:
    """By notebook: what the row is, and five numbers."""
    p = pyentmax.entmax(Z, ALPHA)
    x = (ALPHA - 1) * Z
    return {
        1: ("probability p", p),
        2: ("term of the entropy H", (p - p**ALPHA) / (ALPHA * (ALPHA - 1))),
        3: ("height above the level, x − τ", x - (x[0] - p[0] ** (ALPHA - 1))),
        4: ("first row of the Jacobian", pyentmax.entmax.jacobian(p, ALPHA)[0]),
        5: ("gradient of the loss, p − e₂", p - np.eye(5)[LABEL]),
        6: ("slope in α, ∂p/∂α", pyentmax.entmax.parameter_slope(p, ALPHA)),
    }


def table(notebook: int, found: Any) -> None:
    """Print the rows up to that of a notebook, for which ``found`` is its own result."""
    known = rows()
    np.testing.assert_allclose(found, known[notebook][1], rtol=0, atol=1e-7)
    print(f"{'':34}" + "".join(f"{z:8.1f}" for z in Z) + "     sum")
    for number in range(1, notebook + 1):
        what, numbers = known[number]
        numbers = found if number == notebook else numbers
        cells = [*numbers, np.sum(numbers)]
        if number == 3:
            cells.pop()  # it has no meaning
        text = "".join(f"{x:8.3f}" if abs(x) > 1e-9 else f"{'0':>8}" for x in cells)
        print(f"{number}  {what:31}{text}")
