"""What holds of a mapping, one property each: a function that tries inputs, the smallest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from pyentmax.checking._checks import check_vjp
from pyentmax.checking._claims import LENGTHS, Claim
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import CallError, Finding, compare, same, text
from pyentmax.checking._subjects import blaming, dtype_name, to_numbers
from pyentmax.checking._truths import slack
from pyentmax.reference.fenchel_young import fenchel_young_loss

Findings = Iterator[Finding]
SHAPES = ((2, 2), (1, 2), (2, 1), (1, 1))  # of batches
NEARLY_EQUAL = 1200  # scores of the longest row, so close that all are in the support


# --- rows -----------------------------------------------------------------------------------------
@cache
def _all_rows() -> list[Array]:
    rng = np.random.default_rng(0)
    levels = np.array([0.0, 0.5, 1.0])
    rows = [row for d in (1, 2, 3) for row in levels[np.indices([3] * d).reshape(d, -1)].T]
    for d in (2, 3, 5, 40):
        for scale in (1 / 8, 1.0, 8.0):
            rows += [scale * np.round(rng.standard_normal(d), 2) for _ in range(2)]
    rows += [np.round(rng.standard_normal(d), 4) for d in (40, 100, 100)]
    return [*rows, np.round(rng.standard_normal(NEARLY_EQUAL) * 1e-4, 6)]


@cache
def _rows_of(length: int) -> list[Array]:
    rng = np.random.default_rng(length)
    return [scale * np.round(rng.standard_normal(length), 2) for scale in (1 / 8, 1.0, 1.0, 8.0)]


def _rows(claim: Claim, rows: Iterable[Any] | None = None, longest: int = 100) -> Iterator[Array]:
    """Rows that the mapping takes, rounded to the float type, without ties where order decides."""
    fixed = [] if claim.length in LENGTHS else _rows_of(claim.length)
    for row in [*_all_rows(), *fixed] if rows is None else rows:
        z = claim.rounded(row)
        ties = len(np.unique(z)) < z.size
        if z.size > longest or (ties and not claim.record.permutation_equivariant):
            continue
        k = claim.parameters.get("k", z.size)
        if k < z.size and np.diff(np.partition(z, (-k - 1, -k))[-k - 1 : z.size - k + 1]) == 0:
            continue  # whether such ties stay is a property of its own
        if not claim.takes(z.size):
            continue
        try:
            claim.exact(z)
        except ValueError:  # a budget of 2 for a row of one entry, for example
            continue
        yield z


def _values(claim: Claim, rows: Iterable[Any] | None = None, longest: int = 100) -> Findings:
    """Rows against the library's own answers."""
    return (_compare_rows(claim, z) for z in _rows(claim, rows, longest))


def _compare_rows(claim: Claim, z: Array, axis: int = -1) -> Finding:
    """An array of rows against the library's own answer."""
    allowed = np.apply_along_axis(claim.allowed, axis, z)
    return compare(z, claim(z, axis), claim.exact(z, axis), allowed)


# --- the properties -------------------------------------------------------------------------------
def exact_values(claim: Claim) -> Findings:
    """Each probability is the library's own in double precision."""
    return _values(claim, longest=NEARLY_EQUAL)


def row_lengths(claim: Claim) -> Findings:
    """Rows of 1, 2, 3, 5, 40 and 100 scores are taken, by a top-k mapping those of at least k."""
    for length in (1, *LENGTHS):
        if length >= claim.parameters.get("k", 0):
            yield Finding(np.arange(length) / 2, claim(np.arange(length) / 2), "probabilities", 0.0)


def sum_of_a_row(claim: Claim) -> Findings:
    """The probabilities of a row sum to 1, those of a mapping with a budget to that."""
    for z in _rows(claim):
        yield _compare_sums(claim, z, 4, np.sum(slack(claim.record, z)))


def _compare_sums(claim: Claim, z: Array, times: float, more: Any = 0.0) -> Finding:
    total, exact = np.sum(claim(z)), np.sum(claim.exact(z))
    return compare(z, total, exact, times * claim.epsilon * np.sqrt(z.size) * max(1, exact) + more)


def no_negative_values(claim: Claim) -> Findings:
    """No probability is below 0."""
    for z in _rows(claim):
        least = np.min(claim(z))
        yield compare(z, least, np.maximum(least, 0), claim.epsilon)


def ties(claim: Claim) -> Findings:
    """Equal scores get equal probabilities."""
    for z in _rows(claim, longest=5):
        p, tied = claim(z), z == z[:, None]
        if np.sum(tied) > z.size:
            yield compare(z, p, tied @ p / np.sum(tied, axis=-1), claim.allowed(z))


def ties_at_the_kth_score(claim: Claim) -> Findings:
    """Scores that tie with the k-th largest all stay in a top-k softmax, k in a top-k sparsemax."""
    k = claim.parameters.get("k", 0)
    for z in (np.append(np.ones(k + n), 0.0) for n in (1, 3)) if k else ():
        if claim.takes(z.size):
            observed, right = (
                f"{np.count_nonzero(p > 0)} of {z.size - 1} tied scores stay, k = {k}"
                for p in (claim(z), claim.exact(z))
            )
            yield same(z, observed, right)


def permutations(claim: Claim) -> Findings:
    """If the scores change places, so do their probabilities."""
    rng = np.random.default_rng(0)
    for z in _rows(claim, longest=40) if claim.record.permutation_equivariant else ():
        order = np.roll(np.arange(z.size), 1) if z.size < 5 else rng.permutation(z.size)
        allowed = claim.allowed(z[order]) + claim.epsilon  # a bisection may leave ε for a 0
        yield compare(z[order], claim(z[order]), claim(z)[order], allowed)


def shifts(claim: Claim) -> Findings:
    """A constant added to all scores changes nothing."""
    for z in _rows(claim, [[0.0, 0.5], [0.0, 0.5, 1.0], [-0.25, 1.0, 0.5, -2.0, 0.0]]):
        for constant in (1.0, -1.0, 1e2, -1e2, 1e3, -1e3):
            if claim.record.shift_invariant:
                yield _compare_rows(claim, claim.rounded(z + constant))


def optimality(claim: Claim) -> Findings:
    """p maximises p·z − Ω(p): its duality gap Ω(p) + Ω*(z) − p·z is 0."""
    for z in _rows(claim) if claim.record.omega and claim.record.on_simplex else ():
        p = np.maximum(claim(z), 0)
        p = p / np.sum(p)
        gap = np.inf
        if np.isfinite(p).all():
            gap = float(fenchel_young_loss(z, p, claim.record, **claim.parameters))
        # Of first order in the error of p, if p does not sum to 1 exactly or Ω has kinks.
        reach = max(1, np.ptp(z[claim.exact(z) > 0]))
        yield compare(z, gap, 0.0, np.sum(claim.allowed(z)) * reach)


def tiny_and_huge_scores(claim: Claim) -> Findings:
    """Scores from 1e-30 to 1e30 are as exact as others."""
    patterns = [[1.0], [-1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.5, 1.0], [-3.0, 1, 0, -1, 0.5]]
    scales = (1e2, 1e-8, 1e4, 1e8, 1e-30, 1e30)
    return _values(claim, [scale * np.array(pattern) for scale in scales for pattern in patterns])


def masked_entries(claim: Claim) -> Findings:
    """A score of −∞ gets nothing, and the others what they get without it."""
    for i, z in enumerate(_rows(claim, longest=40)):
        row = np.where(np.arange(z.size) % 3 == i % min(3, z.size), -np.inf, z)
        if row.max() > -np.inf:
            yield from _values(claim, [row])


def masked_rows(claim: Claim) -> Findings:
    """A row of −∞ gives zeros, or NaN where zeros are not the convention."""
    for d in {claim.length, *((1, 2, 5) if claim.takes(1) else ())}:
        z = np.full(d, -np.inf)
        p = claim(z)
        yield same(z, p, "zeros or NaN", equal=(p == 0).all() or np.isnan(p).all())


def single_entries(claim: Claim) -> Findings:
    """A row of one entry gives all to it."""
    return _values(claim, [[0.0], [0.5], [-3.0], [10.0]])


def batches(claim: Claim) -> Findings:
    """A row gives the same in a batch as alone, whatever the other rows hold."""
    good = _batch(claim, (4,))
    for n in (2, 4):
        for other in (9.0, 1e3, np.nan, -np.inf) if good.size else ():
            z = np.concatenate([good[:n], np.full((1, claim.length), other)])
            alone, allowed = (
                np.stack([f(row) for row in good[:n]]) for f in (claim, claim.allowed)
            )
            yield compare(z, claim(z)[:n], alone, allowed)


def three_dimensions(claim: Claim) -> Findings:
    """Rows may be in an array of three dimensions, if fn takes such arrays at all."""
    for shape in SHAPES if _takes_three(claim) else ():
        yield _compare_rows(claim, _batch(claim, shape))


def axes(claim: Claim) -> Findings:
    """Rows may lie along every axis."""
    n = claim.length
    for shape in ((n, n), (n, n, n + 1)) if claim.axis_name else ():
        z = claim.rounded(np.round(np.random.default_rng(0).standard_normal(shape), 2))
        for axis in range(-len(shape), len(shape)):
            if [*_rows(claim, [np.arange(shape[axis])])]:
                yield _compare_rows(claim, z, axis)


def _batch(claim: Claim, shape: tuple[int, ...], smooth: bool = False) -> Array:
    """Different rows in an array; none if the mapping takes no rows of that length."""
    rng, needed = np.random.default_rng(0), int(np.prod(shape))
    drawn = (np.round(rng.standard_normal(claim.length), 2) for _ in range(20 * needed))
    rows = _rows(claim, drawn)
    chosen = [*islice((z for z in rows if not smooth or _is_smooth(claim, z)), needed)]
    return np.reshape(chosen, (*shape, -1)) if len(chosen) == needed else np.zeros((0, 0))


def _takes_three(claim: Claim) -> bool:
    for z in (_batch(claim, shape) for shape in SHAPES):
        with suppress(CallError):
            return claim(z).size > 0
    return False


def empty_batches(claim: Claim) -> Findings:
    """A batch of no rows gives one of no rows."""
    z = np.zeros((0, claim.length))
    yield Finding(z, claim(z), z, 0.0)


def float_type_and_shape(claim: Claim) -> Findings:
    """The result has the float type and the shape of the scores."""
    for z in _rows(claim, [[0.5], claim.ordinary]):
        array, p = claim.call(z)
        observed, expected = ((dtype_name(x), tuple(np.shape(x))) for x in (p, array))
        yield same(z, observed, expected)


def half_types(claim: Claim) -> Findings:
    """float16 and bfloat16 are kept, and exact in values and sums, at larger scores too."""
    yield from float_type_and_shape(claim)
    rng = np.random.default_rng(0)
    large = [16 + np.round(rng.standard_normal(d), 2) for d in (2, 3, 5, 40)]
    for rows in (None, [[16.0, 16.0, 16.875], *large]):
        for z in _rows(claim, rows, longest=40):
            # A quarter of what values may be off by: otherwise sums of 1.25 would pass.
            values, sums = _compare_rows(claim, z), _compare_sums(claim, z, 1)
            yield values._replace(units=max(values.units, sums.units))


def scores_left_as_they_were(claim: Claim) -> Findings:
    """The function does not write into its scores."""
    for z in _rows(claim, [[0.5], [0.5, 1.0], claim.ordinary]):
        after = to_numbers(claim.call(z)[0]).reshape(z.shape)
        yield same(z, after, z, equal=(after == z).all())


def results_left_as_they_were(claim: Claim) -> Findings:
    """A result does not change with the next call."""
    for z in (claim.ordinary, _batch(claim, (4,))):
        if z.size:
            result = claim.call(z)[1]
            before = to_numbers(result)
            claim.call(-z)
            after = to_numbers(result)
            equal = np.array_equal(before, after, equal_nan=True)
            yield same(z, after.reshape(z.shape), before.reshape(z.shape), equal=equal)


def memory_layouts(claim: Claim) -> Findings:
    """Scores that are a view, transposed or strided, give what a contiguous array gives."""
    z = _batch(claim, (4,))
    if claim.one_vector or not z.size or claim.library not in ("numpy", "torch"):
        return
    views: dict[str, tuple[Array, Any]] = {  # what the memory holds, and the view of it that is z
        "transposed": (z.T, lambda a: a.swapaxes(0, 1)),
        "every second of": (np.stack([z, z + 7], -1).reshape(len(z), -1), lambda a: a[:, ::2]),
        "the first rows of": (np.concatenate([z, z]), lambda a: a[: len(z)]),
    }
    if claim.library == "numpy":
        views["reversed"] = z[:, ::-1], lambda a: a[:, ::-1]
        views["read-only"] = z, lambda a: a.setflags(write=False) or a
    allowed = np.apply_along_axis(claim.allowed, -1, z)
    for name, (memory, view) in views.items():
        given = f"{name} scores {text(z)}"
        with blaming(z, given):
            p = to_numbers(claim.call_native(view(claim.array(np.ascontiguousarray(memory)))))
        yield compare(z, p, claim.exact(z), allowed, given=given)


# --- derivatives ----------------------------------------------------------------------------------
def _smooth_rows(claim: Claim) -> Iterator[Array]:
    """Short rows at which the Jacobian has no jump nearby, and is not 0."""
    rows = [*_rows(claim, longest=max(claim.length, 5))]
    return (z for z in rows[1::2] if _is_smooth(claim, z))


def _is_smooth(claim: Claim, z: Array) -> bool:
    steps = 1e-3 * np.eye(z.size)
    here = claim.jacobian(z)
    change = claim.jacobian(np.concatenate([z + steps, z - steps])) - here
    return bool(np.max(np.abs(change)) <= 0.01 * np.max(np.abs(here)) and here.any())


def _products(claim: Claim, z: Array, v: Array | None = None, axis: int = -1) -> Findings:
    """Jᵀv of rows along an axis against the library's own, if there is a way to get it."""
    d = z.shape[axis]
    rows = np.moveaxis(z, axis, -1).reshape(-1, d)
    for one in (np.eye(d)[0], np.resize([1.0, -0.5, 2.0], d)) if v is None else (v,):
        product = claim.vjp(z, one, axis)
        if product is not None:
            vectors = np.moveaxis(one, axis, -1).reshape(-1, 1, d)
            jacobians, p = claim.jacobian(rows), claim.exact(rows)
            reach = [np.ptp(row[on]) for row, on in zip(rows, p > 0, strict=True)]
            size = np.max(np.abs(vectors) @ np.abs(jacobians))
            exact = (vectors @ jacobians).reshape(np.moveaxis(z, axis, -1).shape)
            allowed = claim.epsilon * max(1, 16 * max(1, *reach) * size)
            yield compare(z, product, np.moveaxis(exact, -1, axis), allowed, one)


def derivative(claim: Claim) -> Findings:
    """The vector-Jacobian product Jᵀv is the library's own."""
    for z in _smooth_rows(claim):
        yield from _products(claim, z)


def derivative_in_arrays(claim: Claim) -> Findings:
    """Jᵀv of a row is the same in a batch as alone, along every axis."""
    shapes = [(2,), (3,), *(SHAPES if _takes_three(claim) else ())]
    for z in (_batch(claim, shape, smooth=True) for shape in shapes):
        v = np.resize([1.0, -0.5, 2.0, 0.25, -2.0], z.shape)
        for axis in range(-1, -1 - z.ndim * bool(claim.axis_name) or -2, -1) if z.size else ():
            rows, vectors = (np.moveaxis(x, -1, axis) for x in (z, v))
            yield from _products(claim, rows, vectors, axis)


def derivative_and_differences(claim: Claim) -> Findings:
    """The vector-Jacobian product is the derivative of the function itself."""
    z = next((z for z in _smooth_rows(claim) if z.size == claim.length), np.zeros(0))
    if not z.size or claim.vjp(z, z) is None:
        return
    report = check_vjp(claim, z, lambda _, v: claim.vjp(z, v), epsilon=claim.epsilon)
    if report.verdict != "unresolved":
        allowed = report.tolerance + report.estimate or claim.epsilon  # of a constant, 0
        units = np.inf if report.verdict == "failed" else report.largest_error / allowed
        v = np.random.default_rng(0).standard_normal(z.shape)  # as check_vjp draws it
        yield Finding(z, report.analytic_entries, report.numeric_entries, units, v)


def derivative_at_masked_entries(claim: Claim) -> Findings:
    """A score of −∞ gets no gradient, and spoils that of no other."""
    for z in _smooth_rows(claim):
        for row in _rows(claim, [np.append(z, -np.inf)], longest=3):
            yield from _products(claim, row)


PROPERTIES = {
    row_lengths: "all", exact_values: "", sum_of_a_row: "", no_negative_values: "", ties: "",
    ties_at_the_kth_score: "all", permutations: "", shifts: "", optimality: "",
    tiny_and_huge_scores: "", masked_entries: "", masked_rows: "all", single_entries: "",
    batches: "", three_dimensions: "errors", axes: "errors", empty_batches: "all",
    float_type_and_shape: "all", half_types: "all", scores_left_as_they_were: "all",
    results_left_as_they_were: "all", memory_layouts: "errors",
    derivative: "errors", derivative_in_arrays: "errors", derivative_and_differences: "errors",
    derivative_at_masked_entries: "errors",
}  # fmt: skip
"""Property → what of its failures is an edge."""
