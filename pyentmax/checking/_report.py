"""The result of a check: a verdict, a table, and an exception on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pyentmax.checking._differences import Array, Derivatives

RESOLUTION = 2.0**-8  # of the largest derivative: a larger error of the differences shows nothing
DIGITS = 64  # spacings of floats that a derivative computed in the same dtype as fn may be off by
# An entry that is not resolved, but known to a quarter of the largest, is wrong if it is off by 16
# times its estimate.
COARSE, CERTAINLY = 1 / 4, 16
HEADINGS = {"passed": "passed", "failed": "FAILED", "unresolved": "UNRESOLVED"}

KINK = (
    "z is on a kink or a jump, or very close to one: the slopes or values on its two sides differ "
    "(an entry is just entering the support, for example), so no derivative exists; move z a little"
)
NOT_FINITE = "the function is NaN or infinite at z or right next to it; move z a little"
LARGE_SCORES = (
    "z is too large for its dtype: steps of 1/16 are lost in the spacing of floats at z; subtract "
    "a constant from the scores, or compute in float64"
)
NOISY = (
    "the function is too noisy for differences, bends too sharply, or does not change where the "
    "derivative is not 0 or the values are large; subtract a constant from the values, compute in "
    "float64, or move z a little"
)


class Judged:
    """A report: true if it passed, and an exception on demand."""

    passed: Any

    def __bool__(self) -> bool:
        return bool(self.passed)

    def __repr__(self) -> str:
        return str(self)

    def raise_if_failed(self) -> Self:
        """Raise AssertionError with the table unless the check passed; then return the report."""
        if not self.passed:
            raise AssertionError(str(self))
        return self


@dataclass(frozen=True, eq=False, repr=False)
class CheckReport(Judged):
    """The result of a check; prints as a small table.

    Attributes
    ----------
    what : str
        Which derivative was checked.
    verdict : str
        ``"passed"``, ``"failed"``, or ``"unresolved"`` if differences cannot decide.
    reason : str
        Why the check is unresolved, else empty.
    kink : bool
        Whether z is on a kink or a jump. No derivative exists there, so the check is unresolved.
    tolerance : float
        What an entry may be off by beyond the estimated error of the differences: atol + rtol times
        the largest numeric entry, or 64 ε of fn's dtype times that entry if it is more.
    analytic_entries, numeric_entries, estimates : array
        All derivatives, and the estimated errors of the numeric ones.
    duality : float or None
        The largest |u·(Jv) − (Jᵀu)·v| / Σ|u∘Jv|, if a JVP was given to compare the VJP with.
    duality_tolerance : float
        What it may be: 1e-10, and more if a product came in a shorter dtype than float64.
    """

    what: str
    verdict: str
    reason: str
    kink: bool
    tolerance: float
    analytic_entries: Array
    numeric_entries: Array
    estimates: Array
    duality: float | None = None
    duality_tolerance: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the derivative is right as far as differences can tell."""
        return self.verdict == "passed"

    @property
    def differences(self) -> Array:
        """analytic − numeric, for all entries."""
        return self.analytic_entries - self.numeric_entries

    @property
    def where(self) -> tuple[int, ...]:
        """The index of the entry with the largest absolute error, of those with a numeric value.

        Of several such entries, that of the largest derivative: if all are exact, not a 0.
        """
        size = np.where(np.isnan(self.numeric_entries), -1, absolute(self.differences))
        derivative = np.where(size == np.max(size), np.abs(self.numeric_entries), -1)
        return tuple(int(i) for i in np.unravel_index(np.argmax(derivative), size.shape))

    @property
    def largest_error(self) -> float:
        """|analytic − numeric| there; infinite if it is NaN."""
        return float(absolute(self.differences)[self.where])

    @property
    def analytic(self) -> float:
        """The analytic derivative there."""
        return float(self.analytic_entries[self.where])

    @property
    def numeric(self) -> float:
        """The numeric derivative there."""
        return float(self.numeric_entries[self.where])

    @property
    def estimate(self) -> float:
        """The estimated error of the numeric derivative there."""
        return float(self.estimates[self.where])

    def __str__(self) -> str:
        place = ", ".join(map(str, self.where))
        largest = f"{self.largest_error:.2e} at [{place}]   (tolerance {self.tolerance:.2e})"
        lines = [
            f"{self.what}: {HEADINGS[self.verdict]}",
            f"  largest error  {largest}",
            f"  analytic       {self.analytic:+.12e}",
            f"  numeric        {self.numeric:+.12e}   (±{self.estimate:.1e})",
        ]
        if self.duality is not None:
            gap = f"{self.duality:.2e}   (tolerance {self.duality_tolerance:.2e})"
            lines.append(f"  JVP-VJP gap    {gap}")
        return "\n".join([*lines, f"  {self.reason}"] if self.reason else lines)


def compare(what: str, analytic: Array, diffs: Derivatives, epsilon: float, rtol: float,
            atol: float, duality: float | None = None,
            duality_tolerance: float = 0.0) -> CheckReport:  # fmt: skip
    """The report on analytic derivatives and numeric ones of the same shape."""
    numeric, error = diffs.value, diffs.error
    largest = float(np.max(np.abs(numeric), initial=0, where=np.isfinite(numeric)))
    # Both sides are computed in fn's dtype, so no more digits can be expected than it has.
    tolerance = atol + max(rtol, DIGITS * epsilon) * largest
    resolved = _resolved(analytic, diffs, largest, tolerance, epsilon, rtol, atol)
    size = absolute(analytic - numeric)
    comparable = resolved | (error <= COARSE * largest)
    wrong = comparable & (size > tolerance + np.where(resolved, 1, CERTAINLY) * error)
    kink = bool(np.any(diffs.gap > 2 * tolerance))
    dual = duality is None or duality <= duality_tolerance
    reasons = ((kink, KINK), (not diffs.visible.all(), LARGE_SCORES),
               (not np.isfinite(numeric).all(), NOT_FINITE),
               (not resolved.all(), NOISY))  # fmt: skip
    reason = next((words for true, words in reasons if true), "")
    verdict = "unresolved" if reason else "passed"
    if not dual or (wrong.any() and not kink):
        verdict, reason = "failed", ""
    entries = (analytic, numeric, error)
    return CheckReport(what, verdict, reason, kink, tolerance, *entries, duality, duality_tolerance)


def _resolved(analytic: Array, diffs: Derivatives, largest: float, tolerance: float,
              epsilon: float, rtol: float, atol: float) -> NDArray[np.bool_]:  # fmt: skip
    """Where the differences are certain enough to confirm the analytic derivative."""
    enough = max(atol + rtol * largest, RESOLUTION * largest)
    certain = (diffs.error <= enough) & (DIGITS * epsilon * largest <= enough)
    # Where large slopes cancel at z, the derivative can only be confirmed if it is 0 up to
    # rounding.
    hidden, claim = 8 * epsilon * diffs.size, np.abs(analytic)
    zero = claim <= max(hidden, DIGITS * epsilon * diffs.slopes)
    # fn does not change along a slope of up to `hidden`, of either sign. Where these are within the
    # tolerance, this confirms any of them; otherwise only a slope of 0, if they are small.
    small = RESOLUTION * hidden if hidden <= RESOLUTION else -1
    flat = claim <= (hidden if hidden <= max(tolerance, rtol) else small)
    return certain | (zero & (diffs.error <= rtol * diffs.slopes)) | (diffs.constant & flat)


def absolute(x: Array) -> Array:
    """|x|, and infinity for NaN, although every comparison with NaN is False."""
    return np.where(np.isnan(x), np.inf, np.abs(x))
