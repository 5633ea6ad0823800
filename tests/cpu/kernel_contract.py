"""What a kernel's results may differ by from the truth: definitions in wide floats, and bodies.

Of α-entmax, 1 ≤ α ≤ 2, the truth is a bisection of its definition and the dense Jacobian, both in
long doubles; of all others it is the NumPy body in double precision. The bodies are tested
against definitions in more digits in tests/claims.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from compiled_functions import FUNCTIONS
from exact_rows import exact_entmax
from kernel_operands import ENTRY_BY_ENTRY, _cpu, mapping_of

import pyentmax as pe
from pyentmax.reference.mappings._simplex import dense_in_numpy
from pyentmax.seq2seq.nn.lstm_cell import lstm_cell, lstm_cell_vjp
from pyentmax.seq2seq.nn.optim import adam_step
from pyentmax.sorting import permutahedron, permutahedron_product

OF_ALPHA = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
Operands = tuple[Any, ...]


def results(kernel: Any, given: Operands, **options: Any) -> tuple[Any, ...]:
    """Of a kernel that has one result as of one that has several."""
    found = kernel(*given, **options)
    return found if isinstance(found, tuple) else (found,)


def alphas(name: str, given: Operands) -> Any:
    """α of each row, as a column; None for a mapping that is not α-entmax."""
    mapping = mapping_of(name).removeprefix("log_")
    if mapping in OF_ALPHA:
        return np.full((len(given[0]), 1), OF_ALPHA[mapping])
    return np.broadcast_to(given[-1], len(given[0]))[:, None] if mapping == "entmax" else None


# --- the truth ------------------------------------------------------------------------------------


def exact_product(p: np.ndarray, v: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J v in long doubles with J = diag(s) − ssᵀ/Σs, s = p^{2−α}, and the size of its terms.

    v is taken relative to that beside the largest s, so that nothing cancels.
    """
    p, on = p.astype(np.longdouble), p > 0
    v = np.where(on, v, 0).astype(np.longdouble)
    s = np.where(on, np.where(on, p, 1) ** (2 - alpha.astype(np.longdouble)), 0)
    s = np.where(np.isinf(alpha), 0, s)
    share = s / np.maximum(s.sum(axis=-1, keepdims=True), np.finfo(np.longdouble).tiny)
    apart = v - np.take_along_axis(v, s.argmax(axis=-1)[:, None], -1)
    apart = np.where(on, apart, 0)
    product = s * (apart - (share * apart).sum(axis=-1, keepdims=True))
    size = s * (np.abs(apart) + np.abs(share * apart).sum(axis=-1, keepdims=True))
    return np.where(np.isnan(p), p, product), size


WRITERS: dict[str, Any] = {"lstm_cell": lstm_cell, "lstm_cell_vjp": lstm_cell_vjp}
WRITERS |= {"permutahedron": permutahedron, "permutahedron_product": permutahedron_product}


def truth(name: str, given: Operands) -> tuple[Any, ...]:
    """What a kernel computes, in wider floats."""
    mapping, alpha, dtype = mapping_of(name), alphas(name, given), given[0].dtype
    wide = [x.astype(np.float64) if x.dtype == dtype else x for x in given]
    with np.errstate(all="ignore"):
        if name == "adam_step":  # which writes over what it is given
            adam_step.reference(*wide, out=tuple(wide[:3]))
            return tuple(wide[:3])
        if name == "separable_jacobian":
            return (dense_in_numpy(wide[0]),)
        if name in WRITERS:
            best = tuple(np.empty(x.shape) for x in results(getattr(_cpu, name), given))
            if name.startswith("permutahedron") and wide[-2][0] < 1:
                wide[-2] = float(wide[-2][0])  # what is asked for instead of the k largest
            WRITERS[name].reference(*wide, out=best if len(best) > 1 else best[0])
            return best
        if name in ENTRY_BY_ENTRY:  # of β = α − 1
            options = {"reduction": "none"} if "loss" in name else {}
            found = FUNCTIONS[name].reference(*wide[:-1], 1 + wide[-1], **options)
            return found if isinstance(found, tuple) else (found,)
        if "_loss" in name:
            return _losses(name, wide)
        if name in (mapping, f"log_{mapping}"):
            if alpha is not None:
                wider = np.float64 if dtype == np.float32 else np.longdouble
                scores = np.where(given[1], given[0].astype(wider), -np.inf)
                p = exact_entmax(scores, np.minimum(alpha, 2))
                return (np.log(p) if name.startswith("log_") else p,)
            return (FUNCTIONS[name].reference(wide[0], *wide[2:], mask=given[1]),)
        if name.endswith("vjp_upper"):
            body = FUNCTIONS[name].reference
            if len(wide) == 4:  # the scores, which the kernel takes last
                return (body.at_scores(wide[3], *wide[:3]),)
            return (body(*wide),)
        if name.endswith("grad_alpha"):
            return (pe.entmax.parameter_slope.reference(wide[0], alpha[:, 0]),)
        if alpha is None:
            further = [1] if mapping == "budget_sparsemax" else wide[2:]
            return (FUNCTIONS[name].reference(wide[0], wide[1], *further),)
        product = exact_product(wide[0], wide[1], alpha)[0]
        if name.endswith("jvp"):
            return (product,)
        slope = pe.entmax.parameter_slope.reference(wide[0], alpha[:, 0])
        of_alpha = np.where(wide[0] != 0, slope * wide[1], 0).sum(axis=-1)
        return (of_alpha,) if name.endswith("vjp_alpha") else (product, of_alpha)


def _losses(name: str, wide: list[Any]) -> tuple[Any, ...]:
    z, mask, y, weight, *further = wide
    body = FUNCTIONS[name].reference
    found = body(z, y, *further, mask=mask, weight=weight, reduction="none")
    loss, *gradient = found if isinstance(found, tuple) else (found,)
    left = (np.where(mask, z, -np.inf) != -np.inf).any(axis=-1)
    return loss, left & (weight != 0), *gradient


# --- what is allowed ------------------------------------------------------------------------------


def assert_contract(name: str, got: Any, given: Operands, best: Any = None) -> None:
    """That is, of all results of a kernel for a batch of rows."""
    got = got if isinstance(got, tuple | list) else (got,)
    best = truth(name, given) if best is None else best
    with np.errstate(all="ignore"):
        for one, exact in zip(got, best, strict=True):
            assert one.shape == exact.shape
            if one.dtype == bool:  # which rows count
                np.testing.assert_array_equal(one, exact)
                continue
            assert one.dtype == given[0].dtype
            np.testing.assert_array_equal(np.isnan(one), np.isnan(exact))
            _assert_close(name, one, exact, given)


def _assert_close(name: str, one: np.ndarray, best: np.ndarray, given: Operands) -> None:
    mapping, alpha = mapping_of(name), alphas(name, given)
    if "_loss" in name and name not in ENTRY_BY_ENTRY:
        check = assert_loss if one.ndim == 1 else assert_gradient
        check(one, best, given, alpha)
    elif name.startswith("log_"):
        assert_probabilities(np.exp(one), np.exp(best), given, alpha)
    elif name == mapping and alpha is not None:
        assert_probabilities(one, best, given, alpha)
    elif name == mapping and mapping in STRUCTURED:
        assert_structured(name, one, best, given)
    else:
        allowed = units(one, best) * allowed_units(name, one, best, given, alpha)
        off = np.abs(one - np.where(np.isfinite(best), best, one))
        wrong = (off > allowed) | (np.isinf(best) & (one != best))
        assert not wrong.any(), (name, one[wrong][:3], best[wrong][:3], np.nonzero(wrong))
        if one.shape == given[0].shape and name.endswith("jvp"):
            assert (one[given[0] == 0] == 0).all()


def units(one: np.ndarray, best: np.ndarray) -> float:
    """ε, and twice that where the truth is rounded to the same digits."""
    epsilon = float(np.finfo(one.dtype).eps)
    return epsilon if one.dtype != best.dtype else 2 * epsilon


def reach(z: np.ndarray, on: np.ndarray) -> np.ndarray:
    """max(1, max over the support of |z − max z|) of each row."""
    gap = np.max(z, axis=-1, keepdims=True) - z
    return np.maximum(1, np.max(np.where(on, gap, 0), axis=-1, keepdims=True))


def near(p: Any, best: Any, alpha: np.ndarray, room: np.ndarray, dtype: Any) -> np.ndarray:
    """Is p off by 4ε p* + 16ε s* max(1, …), or by what scores moved by that make of p^{α−1}?

    The latter where an entry is at the threshold, or α > 2: there a first-order bound is none.
    """
    beta = np.minimum(alpha, 1e6) - 1
    slope = np.where(best > 0, best ** (1 - beta), 0)
    tiny = float(np.finfo(dtype).tiny)
    close = np.abs(p - best) <= np.maximum(room / 4 * best + room * slope, tiny)
    at_threshold = (best**beta <= room) | (alpha > 2)
    moved = np.abs(np.maximum(p, 0).astype(best.dtype) ** beta - best**beta)
    return close | (at_threshold & (moved <= np.maximum(beta, 1) * room))


def assert_probabilities(
    p: np.ndarray, best: np.ndarray, given: Operands, alpha: np.ndarray
) -> None:
    """The contract; and ties get the same, larger scores no less but for one rounding."""
    scores, epsilon = np.where(given[1], given[0], -np.inf).astype(np.float64), units(p, best)
    fine = np.isfinite(best).all(axis=-1) & (best.sum(axis=-1) > 0)
    np.testing.assert_array_equal(p[~fine], best[~fine])
    p, best, z, alpha = p[fine], best[fine], scores[fine], alpha[fine]
    wide = p.astype(np.float64)
    off = np.abs(wide.sum(axis=-1) - 1)
    assert (off <= 4 * epsilon * np.sqrt(p.shape[-1])).all(), off.max()
    order = np.argsort(z, axis=-1)
    in_order = np.take_along_axis(wide, order, -1)
    rise, rounding = np.diff(in_order, axis=-1), 1.5 * epsilon * in_order[..., 1:]
    tied = np.diff(np.take_along_axis(z, order, -1), axis=-1) == 0
    assert (np.where(tied, rise == 0, rise >= -rounding)).all()
    low, inf = alpha[:, 0] <= 2, np.isinf(alpha[:, 0])
    room = 16 * epsilon * reach(z[low], best[low] > 0)
    right = near(p[low], best[low], alpha[low], room, p.dtype)
    assert right.all(), (alpha[low][~right.all(axis=-1)], z[low][~right.all(axis=-1)])
    ties = z[inf] == z[inf].max(axis=-1, keepdims=True, initial=-np.inf)
    share = ties / np.maximum(ties.sum(axis=-1, keepdims=True), 1)
    np.testing.assert_allclose(wide[inf], share, rtol=epsilon, atol=0)
    high = ~low & ~inf  # p is exact for scores moved by at most 8ε max(1, …)
    p, z, beta = wide[high], z[high], alpha[high] - 1
    y, on = z - z.max(axis=-1, keepdims=True, initial=-np.inf), p > 0
    wish = np.where(on, y - p**beta / beta, y)
    spread = np.max(wish, axis=-1, initial=-np.inf)
    spread -= np.min(np.where(on, wish, np.inf), axis=-1, initial=np.inf)
    assert (spread / 2 <= 8 * epsilon * reach(z, on)[:, 0]).all()


BOUNDED = ("csoftmax", "csparsemax", "budget_sparsemax")
STRUCTURED = ("fusedmax", "oscarmax", *BOUNDED, "normmax")


def assert_structured(name: str, p: np.ndarray, best: np.ndarray, given: Operands) -> None:
    """To 64ε times how far apart scores are that can share probability; the sum, the bounds.

    normmax beyond α = 2, steep at the threshold, is exact for scores moved by 8ε there.
    """
    scores = np.where(given[1] & np.isfinite(given[0]), given[0], np.nan).astype(np.float64)
    bounds = given[2] if name in ("csoftmax", "csparsemax") else 1
    if name in BOUNDED:  # what is full, and what has nothing, shares with no other
        scores = np.where((best > 0) & (best < bounds), scores, np.nan)
    scores[np.isnan(scores).all(axis=-1)] = 0
    width = np.nanmax(scores, axis=-1) - np.nanmin(scores, axis=-1)
    if name in ("fusedmax", "oscarmax"):
        width = np.minimum(width, 1 + given[2] * (4 if name == "fusedmax" else p.shape[-1]))
    total = given[2] if name == "budget_sparsemax" else np.ones(len(p))
    size = np.maximum(width, np.maximum(total, 1))[:, None]
    if name == "normmax":
        alpha, on = np.clip(given[2], 2, 100)[:, None], best > 0
        norm = (best**alpha).sum(axis=-1, keepdims=True) ** (1 / alpha)
        steep = np.where(on, best, 1) ** (2 - alpha) * norm ** (alpha - 1) / (alpha - 1) * on
        moved = steep + best * steep.sum(axis=-1, keepdims=True)  # by (I − p1ᵀ) diag(s)
        size = np.where(given[2][:, None] > 2, np.maximum(size, moved / 8), size)
    wrong = np.abs(p - best) > 64 * float(np.finfo(p.dtype).eps) * size
    assert not wrong.any(), (name, p[wrong][:3], best[wrong][:3], np.nonzero(wrong))
    fine = best.sum(axis=-1) > 0
    off = np.abs(p.sum(axis=-1, dtype=np.float64) / total - 1)[fine]
    assert (off <= 8 * float(np.finfo(p.dtype).eps) * np.sqrt(p.shape[-1])).all()
    assert ((p <= bounds) & (p >= 0) | np.isnan(p)).all()


def _margins(best: np.ndarray, given: Operands) -> tuple[np.ndarray, np.ndarray]:
    """x = z − max z where it is finite, and the weight of each row that counts."""
    z = np.where(given[1], given[0], -np.inf).astype(np.float64)
    x = z - np.max(z, axis=-1, keepdims=True)
    return np.where(np.isfinite(x), x, 0), given[3].astype(np.float64)


def assert_loss(loss: np.ndarray, best: np.ndarray, given: Operands, alpha: Any) -> None:
    """|L − L*| ≤ 8ε L* + 4ε max(1, max |z − max z|): a small loss has its digits, and L ≥ 0."""
    x, weight = _margins(best, given)
    size = 8 * np.where(np.isfinite(best), best, 0) + 4 * weight * np.maximum(1, -x.min(axis=-1))
    assert ((loss >= 0) | np.isnan(loss)).all()
    wrong = np.abs(loss - best) > units(loss, best) * size
    assert not (wrong & np.isfinite(best)).any(), (loss[wrong], best[wrong])
    np.testing.assert_array_equal(np.isinf(loss), np.isinf(best))


def assert_gradient(grad: np.ndarray, best: np.ndarray, given: Operands, alpha: Any) -> None:
    """The weight times p − e_y, with p as near as it is to be; that of y is a sum of the others."""
    x, weight = _margins(best, given)
    fine = np.isfinite(best).all(axis=-1) & (weight > 0) & (best != 0).any(axis=-1)
    np.testing.assert_array_equal(grad[~fine], best[~fine])
    x, rows = x[fine], np.flatnonzero(fine)
    each = weight[fine, None]
    one, exact, label = grad[fine] / each, best[fine] / each, given[2][fine]
    alpha = np.full((len(rows), 1), 2.0) if alpha is None else alpha[fine]
    epsilon = units(grad, best)
    room = 16 * epsilon * np.max(np.where(exact != 0, np.maximum(1, -x), 1), axis=-1, keepdims=True)
    at = (np.arange(len(rows)), label)
    own = np.abs(one[at] - exact[at])
    one[at] = exact[at] = 0
    right = near(one, exact, alpha, room, grad.dtype)
    assert right.all(), (alpha[~right.all(axis=-1)], one[~right], exact[~right])
    slope = np.where(exact > 0, exact ** (2 - np.minimum(alpha, 2)), 0)
    loose = np.sqrt(one.shape[-1]) * 4 * epsilon + room[:, 0] * np.maximum(slope.max(axis=-1), 1)
    assert (own <= loose).all()


def allowed_units(
    name: str, one: np.ndarray, best: np.ndarray, given: Operands, alpha: Any
) -> np.ndarray | float:
    """What else a kernel may be off by, in units of ε."""
    row = np.where(np.isfinite(best), np.abs(best), 0)
    if name == "topk_softmax":
        least = float(np.finfo(one.dtype).smallest_subnormal)
        assert ((best > 0) >= (one > 0)).all()
        assert ((one > 0) >= (best > least)).all()
        return 8 * row * np.maximum(1, -np.log(row)) + least / units(one, best)
    if name == "topk_sparsemax":
        assert (np.count_nonzero(one, axis=-1) <= given[2])[~np.isnan(one[:, 0])].all()
        return 4 * row + 16
    if one.ndim == 2 and name.endswith("grad_alpha"):
        return 100 * row.max(axis=-1, keepdims=True) + 16
    if name.startswith("permutahedron"):  # means, whose rounding is that of what they add up
        z, n = np.where(np.isfinite(given[0]), given[0], 0).astype(np.float64), one.shape[-1]
        width, strength = np.ptp(z, axis=-1, keepdims=True), given[-1][:, None]
        size = np.abs(z).max(axis=-1, keepdims=True) + np.minimum(width / strength, 2 * n * n)
        return 16 * (np.maximum(row, 1) + size + n / strength)
    if not name.endswith(("jvp", "vjps", "vjp_alpha", "vjp_upper")) or name.startswith("lstm"):
        return 16 * np.maximum(row, 1)  # entry by entry
    p, v = (x.astype(np.float64) for x in given[:2])
    beside = np.max(np.where(p != 0, np.abs(v), 0), axis=-1, keepdims=True)
    if alpha is None:  # normmax has slopes above 1
        size = np.abs(v).max(axis=-1, keepdims=True) if "upper" in name else beside
        return 32 * np.maximum(size, row.max(axis=-1, keepdims=True))
    if one.ndim == 1:
        slope = pe.entmax.parameter_slope.reference(p, alpha[:, 0])
        size = np.abs(np.where(p != 0, slope * v, 0)).sum(axis=-1)
        return 64 * (size + beside[:, 0])
    # Digits of a logarithm go into a power: a few up to α = 2, all of the exponent's above.
    log = -np.log(np.min(np.where(p > 0, p, 1), axis=-1, keepdims=True))
    digits = 1 + log / 16 + np.maximum(0, np.minimum(alpha, 1e3) - 2) * log
    size = exact_product(p, v, alpha)[1].max(axis=-1, keepdims=True)
    s = np.where(p > 0, np.where(p > 0, p, 1) ** (2 - np.minimum(alpha, 2)), 0)
    even = s.max(axis=-1, keepdims=True) < 0.6 * s.sum(axis=-1, keepdims=True)
    size = size + np.where(even, beside, 0)  # where no entry has most of the weight
    within = size < float(np.finfo(one.dtype).max) / 2**8  # else: tests/claims
    tiny = float(np.finfo(one.dtype).tiny) / units(one, best)
    return np.where(within, 16 * digits * size + tiny, np.inf).astype(np.float64)
