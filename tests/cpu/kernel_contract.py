"""What a kernel's results may differ by from those of the plainest build in double precision.

For float32 these have twice the digits. For the mappings it is the contract of accuracy. What is
computed from probabilities has as many digits as the largest entry of its row, or as the largest of
what goes into it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

_cpu = pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")

WIDE = list(_cpu.BUILDS.values())[-1]  # the build that asks nothing of the machine, in doubles
OF_ALPHA = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
DIGITS_LOST = 64  # in units of the last place of the largest entry


def assert_contract(name: str, got: Any, given: tuple[np.ndarray, ...]) -> None:
    """That is, of all results of a kernel for some rows."""
    got = tuple(got) if isinstance(got, tuple | list) else (got,)
    dtype = given[0].dtype
    with np.errstate(all="ignore"):
        wide = WIDE[name](*(x.astype(np.float64) if x.dtype == dtype else x for x in given))
        wide = wide if isinstance(wide, tuple) else (wide,)
        for one, best in zip(got, wide, strict=True):
            if one.dtype != dtype:  # whether a row counts
                np.testing.assert_array_equal(one, best)
            elif name == "entmax" or name in OF_ALPHA:
                alpha = given[2] if name == "entmax" else np.full(len(one), OF_ALPHA[name])
                assert_probabilities(one, best, np.where(given[1], given[0], -np.inf), alpha)
            elif name.startswith("log_"):
                alpha = np.full(len(one), OF_ALPHA[name.removeprefix("log_")])
                scores = np.where(given[1], given[0], -np.inf)
                assert_probabilities(np.exp(one), np.exp(best), scores, alpha)
            else:
                assert_close(one, best, given)


def reach(z: np.ndarray, on: np.ndarray) -> np.ndarray:
    """max(1, max over the support of |z − max z|) of each row."""
    gap = np.max(z, axis=-1, keepdims=True) - z
    return np.maximum(1, np.max(np.where(on, gap, 0), axis=-1, keepdims=True))


def assert_probabilities(
    p: np.ndarray, best: np.ndarray, scores: np.ndarray, alpha: np.ndarray
) -> None:
    """The contract. A best p that is itself rounded takes as much again."""
    epsilon, wide = float(np.finfo(p.dtype).eps), p.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(p), np.isnan(best))
    fine = np.isfinite(best).all(axis=-1) & (best.sum(axis=-1) > 0)
    assert (wide[~fine] == best[~fine])[~np.isnan(best[~fine])].all()
    error = np.abs(wide.sum(axis=-1) - 1)[fine]
    assert (error <= 4 * epsilon * np.sqrt(p.shape[-1])).all()
    z, beta = scores.astype(np.float64), np.broadcast_to(alpha, len(p))[:, None] - 1
    below_2 = fine & (beta[:, 0] <= 1)
    p_2, best_2, b_2 = wide[below_2], best[below_2], beta[below_2]
    room = 32 * epsilon * reach(z[below_2], best_2 > 0)
    slope = np.where(best_2 > 0, best_2 ** (1 - b_2), 0)
    allowed = 8 * epsilon * best_2 + slope * room
    at_threshold = best_2**b_2 <= room
    near = np.abs(p_2**b_2 - best_2**b_2) <= room
    close = np.abs(p_2 - best_2) <= np.maximum(allowed, float(np.finfo(p.dtype).tiny))
    assert (close | (at_threshold & near)).all()
    above_2 = fine & (beta[:, 0] > 1) & np.isfinite(beta[:, 0])
    p_3, z_3, b_3 = wide[above_2], z[above_2], beta[above_2]
    y = z_3 - z_3.max(axis=-1, keepdims=True, initial=-np.inf)
    on = p_3 > 0
    wish = np.where(on, y - p_3**b_3 / b_3, y)
    spread = np.max(wish, axis=-1, initial=-np.inf)
    spread -= np.min(np.where(on, wish, np.inf), axis=-1, initial=np.inf)
    assert (spread / 2 <= 8 * epsilon * reach(z_3, on)[:, 0]).all()


def assert_close(one: np.ndarray, best: np.ndarray, given: tuple[np.ndarray, ...]) -> None:
    """To some digits of the largest of a row, of what it is made of, or of 1 where no rows are."""
    finite = np.isfinite(best)
    np.testing.assert_array_equal(np.isfinite(one), finite)
    np.testing.assert_array_equal(one[~finite], best[~finite].astype(one.dtype))
    scale = np.where(finite, np.abs(best), 0)
    p, *others = (np.where(np.isfinite(x), np.abs(x), 0) for x in given if x.dtype == one.dtype)
    if p.ndim == 2 and best.ndim in (1, 2) and len(best) == len(p):  # rows, or numbers for them
        made_of = p.max(axis=-1)
        if others and others[0].shape == p.shape:
            made_of = made_of * others[0].max(axis=-1)
        made_of = np.minimum(made_of, 1)
        if best.ndim == 2:
            scale = np.maximum(scale.max(axis=-1), made_of)[:, None]
        elif others and others[0].shape == p.shape:  # of α: a sum of log²p/2 and less
            logs = np.log(np.where(p > 0, p, 1).min(axis=-1))
            scale = np.maximum(scale, made_of * np.maximum(1, logs**2 / 2))
        else:
            scale = np.maximum(scale, made_of)
    else:
        scale = np.maximum(scale.max(initial=0), 1)
    allowed = DIGITS_LOST * float(np.finfo(one.dtype).eps) * scale
    assert (np.abs(one - np.where(finite, best, one)) <= allowed)[finite].all()
