"""Rows and memory layouts that every kernel has to cope with."""

from __future__ import annotations

import numpy as np

FLOATS = [np.float32, np.float64]
LENGTHS = [
    1,
    2,
    3,
    7,
    15,
    16,
    17,
    31,
    32,
    33,
    48,
    64,
    70,
    127,
    128,
    129,
    255,
    256,
    257,
    272,
    384,
    385,
    512,
    513,
    1000,
]


def rows_of_every_kind(rng, n):
    """Rows that are easy, hard, long-tailed, tied, sorted, shifted."""
    z = rng.standard_normal(n)
    for scale in (1e-3, 0.1, 1, 5, 1e3):
        yield scale * z
    yield np.sort(z)
    yield np.sort(z)[::-1]
    yield np.zeros(n)
    yield np.round(z)
    yield np.where(np.arange(n) == n // 2, 0.1, -1.9)
    yield np.where(np.arange(n) == n - 1, 30.0, z)
    for offset in (1e4, -1e4):
        yield z + offset


def awkward_layouts(z):
    """The values of the 2-D array z under every memory layout that a caller may bring."""
    yield "fortran", np.asfortranarray(z)
    yield "reversed", z[:, ::-1].copy()[:, ::-1]
    yield "rows reversed", z[::-1].copy()[::-1]
    wide = np.repeat(z, 3, axis=1)
    yield "every third", wide[:, ::3]
    yield "big-endian", z.astype(z.dtype.newbyteorder(">"))
    read_only = z.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    packed = np.zeros(z.shape, np.dtype([("pad", np.int8), ("z", z.dtype)]))
    packed["z"] = z
    yield "unaligned", packed["z"]
