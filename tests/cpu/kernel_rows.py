"""Rows and memory layouts that every kernel has to cope with."""

from __future__ import annotations

import numpy as np

FLOATS = [np.float32, np.float64]
# Either side of whole lanes, tiles, chunks and leaves of them.
LENGTHS = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 64, 70, 127, 128, 129, 255, 256, 257]
LENGTHS += [272, 384, 385, 512, 513, 1000]


def rows_of_every_kind(rng, n, dtype):
    """A batch: rows that are easy, hard, long-tailed, tied, sorted, shifted, and some spoilt."""
    rows = [np.full(n, -np.inf)]
    for _ in range(2):
        z, place = rng.standard_normal(n), np.arange(n)
        rows += [scale * z for scale in (1e-3, 0.03, 0.1, 1, 5, 1e3)]
        rows += [np.sort(z), np.sort(z)[::-1], np.zeros(n), np.round(z), z + 1e4, z - 1e4]
        rows += [np.where(place == n // 2, 0.1, -1.9), np.where(place == n - 1, 30, z)]
        rows += [np.where(rng.random(n) < 0.1, -np.inf, z)]
        rows += [np.where(place == 0, np.nan, z), np.where(place == n - 1, np.inf, z)]
    return rng.permutation(np.array(rows)).astype(dtype)  # 35: more than a tile holds


def every_third(x):
    """The values of x in an array of its own, some places apart."""
    return np.repeat(x, 3, axis=-1)[..., ::3]


def read_only(x):
    """A copy that nothing can be written to."""
    copy = x.copy()
    copy.flags.writeable = False
    return copy


def unaligned(x):
    """The values of x at odd addresses."""
    packed = np.zeros(x.shape, np.dtype([("pad", np.int8), ("x", x.dtype)]))
    packed["x"] = x
    return packed["x"]


# Copies of an array as a caller may bring them.
LAYOUTS = {
    "fortran": np.asfortranarray,
    "reversed": lambda x: x[..., ::-1].copy()[..., ::-1],
    "rows reversed": lambda x: x[::-1].copy()[::-1],
    "every third": every_third,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "read-only": read_only,
    "unaligned": unaligned,
}
