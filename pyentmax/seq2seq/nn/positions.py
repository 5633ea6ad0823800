r"""Sinusoidal encodings of positions (Vaswani et al. 2017, §3.5).

    PE(t, 2i) = sin(t / 10000^{2i/n})        PE(t, 2i + 1) = cos(t / 10000^{2i/n})

Here the sines come first and the cosines after them, as in the authors' own code; a permutation of
features, which the weights behind them undo.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyentmax.seq2seq.autograd.tensor import Array

LONGEST = 10_000  # the wavelengths are 2π to 2π · LONGEST


def sinusoidal_positions(positions: Array, width: int, dtype: Any = np.float32) -> Array:
    """The encodings (…, width) of integer positions (…), an array on the host.

    Examples
    --------
    >>> sinusoidal_positions(np.array([0, 1]), 4, np.float64).round(3)
    array([[0.   , 0.   , 1.   , 1.   ],
           [0.841, 0.01 , 0.54 , 1.   ]])
    """
    if width < 2 or width % 2:
        raise ValueError(f"width: expected an even number from 2 up, got {width}")
    rates = LONGEST ** (-np.arange(0, width, 2) / width)
    angles = np.asarray(positions)[..., None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(dtype)
