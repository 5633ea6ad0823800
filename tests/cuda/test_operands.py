"""How arrays become the structs that kernels take, and rows are cut into launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from pyentmax.engine.backends.cuda.operands import MOST_ROWS, launches


def of_size(shape: tuple[int, ...], steps: tuple[int, ...]) -> np.ndarray:
    """An array that is not there: only its shape, address and steps may be looked at."""
    return as_strided(np.zeros(1, np.float32), shape, [4 * step for step in steps])


def places(array: np.ndarray) -> list[tuple[int, int, list[int]]]:
    """Of each launch: the first row's place in the array, how many rows, and their three steps."""
    found: list[tuple[int, int, list[int]]] = []
    for rows, batch, (operand,), _ in launches(array.shape, [array], []):
        assert rows == batch["rows"] <= MOST_ROWS
        assert batch["n"] == array.shape[-1]
        begin = (int(operand["at"]) - array.ctypes.data) // 4
        found.append((begin, rows, [int(operand[a]) for a in ("outer", "middle", "last")]))
    return found


def test_neighbouring_axes_are_one_where_they_can_be() -> None:
    assert places(of_size((4, 5, 6, 7), (210, 42, 7, 1))) == [(0, 120, [0, 0, 7])]
    assert places(of_size((4, 5, 6, 7), (500, 42, 7, 1))) == [(0, 120, [0, 500, 7])]
    assert places(of_size((1, 6, 7), (1, -7, 1))) == [(0, 6, [0, 0, -7])]


@pytest.mark.parametrize(
    ("shape", "steps", "expected"),
    [
        # A single long axis, as of a contiguous array: 30 billion entries, 112 GB.
        (
            (3_000_000_000, 10),
            (10, 1),
            [(0, MOST_ROWS), (MOST_ROWS * 10, 3_000_000_000 - MOST_ROWS)],
        ),
        # A short axis before a long one that cannot be joined to it.
        (
            (2, 3_000_000_000, 10),
            (50_000_000_000, 10, 1),
            [
                (0, MOST_ROWS),
                (MOST_ROWS * 10, 3_000_000_000 - MOST_ROWS),
                (50_000_000_000, MOST_ROWS),
                (50_000_000_000 + MOST_ROWS * 10, 3_000_000_000 - MOST_ROWS),
            ],
        ),
        ((0, 5), (5, 1), []),
    ],
)
def test_too_many_rows_are_several_launches(shape: Any, steps: Any, expected: Any) -> None:
    found = places(of_size(shape, steps))
    assert [(begin, rows) for begin, rows, _ in found] == expected
    assert sum(rows for _, rows, _ in found) == np.prod(shape[:-1], dtype=object)


def test_a_row_too_long_to_count_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 2147483647 entries on a GPU, got 2147483648"):
        places(of_size((1, 2**31), (2**31, 1)))
