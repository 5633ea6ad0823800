"""The result of a check: numbers, a table, a picture, and an exception on demand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pyentmax.checking._differences import Array, NumericDerivatives
from pyentmax.checking._picture import heat_maps, table

RESOLUTION = 2.0**-8  # of the largest entry: differences less certain than this tell nothing
# Of the gap of two products, relative to Σ|u∘Jv|: rounding alone, without finite differences. A sum
# that cancels costs digits: of 3 scores in float32 up to 700 ε were measured.
DUALITY_TOLERANCE, DUALITY_EPSILONS, COARSEST_DUALITY = 1e-10, 4096, 2.0**-4


@dataclass(frozen=True, eq=False)
class CheckReport:
    """The result of a check; prints as a small table, and Jupyter shows it as a picture.

    Attributes
    ----------
    what : str
        Which derivative was checked.
    passed : bool
        Never True on a kink, where there is no derivative that the analytic one could equal, nor
        where it is not resolved.
    largest_error : float
        The absolute difference that exceeds its estimate most.
    tolerance : float
        What it may be beyond the estimate: atol + rtol · (largest numeric entry). Of functions that
        compute in a short dtype no more digits are asked for than 64 of its ε.
    where : tuple of int
        Its index.
    analytic, numeric : float
        The two values there.
    step : float
        The smallest step that the numeric value there depends on.
    estimate : float
        The estimated error of the finite differences there.
    resolved : bool
        Whether the differences are certain enough to tell a right derivative from a wrong one: the
        largest estimate, and 64 ε of the function's dtype, are at most 1/256 of the largest entry,
        or within atol + rtol · (that entry). float16 needs an rtol of 0.07 or more for that. Of
        a function that is flat as far as its dtype shows, only 0 can be told to be right, up to
        slopes of four spacings of a dtype that moves at all.
    kink : bool
        Whether no derivative exists at z: down to the smallest step that the rounding of the
        function allows, the slopes on the two sides differ or the function jumps, if only at z
        itself.
    finest : float
        That step. Kinks that are nearer to z cannot be told from one at z. Of a kink, the smallest
        step at which it shows.
    duality : float or None
        The largest |u·(Jv) − (Jᵀu)·v| / Σ|u∘Jv|, if a JVP was given to compare the VJP with.
    duality_tolerance : float
        What it may be: 1e-10, and more where a product came in a shorter dtype than float64.
    analytic_entries, numeric_entries : array
        All values.
    """

    what: str
    passed: bool
    largest_error: float
    tolerance: float
    where: tuple[int, ...]
    analytic: float
    numeric: float
    step: float
    estimate: float
    resolved: bool
    finest: float
    kink: bool
    duality: float | None
    duality_tolerance: float
    analytic_entries: Array = field(repr=False)
    numeric_entries: Array = field(repr=False)

    @classmethod
    def compare(
        cls,
        what: str,
        analytic: Array,
        found: NumericDerivatives,
        rtol: float,
        atol: float,
        duality: float | None = None,
        product_epsilon: float = 0.0,
    ) -> CheckReport:
        """The report on analytic entries and numeric ones of the same shape."""
        numeric = found.values
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            differences = analytic - numeric
        # A NaN counts as the largest error, although every comparison with it is False.
        size = np.where(np.isnan(differences), np.inf, np.abs(differences))
        largest = float(np.max(np.abs(numeric), initial=0, where=np.isfinite(numeric)))
        # Both sides were computed in fn's dtype, so no more digits can be asked for.
        asked, rounding = atol + rtol * largest, 64 * found.epsilon * largest
        tolerance = max(asked, atol + rounding)
        # No entry is held to more digits than the differences have.
        with np.errstate(invalid="ignore"):
            excess = np.where(np.isinf(size), np.inf, size - found.estimates)
        where = tuple(int(i) for i in np.unravel_index(np.argmax(excess), size.shape))
        allowed = duality_tolerance(product_epsilon)
        dual = duality is None or duality <= allowed
        broken = found.breaks > 2 * tolerance
        kink = bool(np.any(broken))
        finest = max(found.finest, float(np.max(found.clear, initial=0, where=broken)))
        uncertain = float(np.max(found.estimates, initial=0))
        seen = max(uncertain, rounding) <= max(asked, RESOLUTION * largest)
        # Where fn is flat, its dtype shows no more than that, and only what it hides can be right:
        # of any other slope the differences cannot tell whether it is.
        claimed = float(np.max(np.abs(analytic), initial=0))
        nothing = max(largest, claimed) <= max(atol, found.hidden)
        flat = nothing and largest <= uncertain <= found.flatness
        resolved = seen or flat
        return cls(
            what=what,
            passed=bool(excess[where] <= tolerance) and dual and resolved and not kink,
            largest_error=float(size[where]),
            tolerance=tolerance,
            where=where,
            analytic=float(analytic[where]),
            numeric=float(numeric[where]),
            step=float(found.steps[where]),
            estimate=float(found.estimates[where]),
            resolved=resolved,
            finest=finest,
            kink=kink,
            duality=duality,
            duality_tolerance=allowed,
            analytic_entries=analytic,
            numeric_entries=numeric,
        )

    @property
    def differences(self) -> Array:
        """analytic − numeric, for all entries."""
        return self.analytic_entries - self.numeric_entries

    def __str__(self) -> str:
        lines = [f"{self.what}: {'passed' if self.passed else 'FAILED'}"]
        lines += [f"  {name:<14} {value}" for name, value in self._rows()]
        lines += [f"  {note}" for note in self._notes()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The two derivatives and their difference as heat maps above the table."""
        verdict = "✓ passed" if self.passed else "✗ FAILED"
        picture = heat_maps(
            self.what, self.analytic_entries, self.numeric_entries, self.where, self.tolerance
        )
        return table(f"{self.what}: {verdict}", picture, self._rows(), self._notes())

    def _rows(self) -> list[tuple[str, str]]:
        place = ", ".join(str(i) for i in self.where)
        largest = f"{self.largest_error:.2e} at [{place}]   (tolerance {self.tolerance:.2e})"
        rows = [
            ("largest error", largest),
            ("analytic", f"{self.analytic:+.12e}"),
            ("numeric", f"{self.numeric:+.12e}   (±{self.estimate:.1e}, step {self.step:.1e})"),
        ]
        if self.duality is not None:
            gap = f"{self.duality:.2e}   (tolerance {self.duality_tolerance:.2e})"
            rows.append(("JVP-VJP gap", gap))
        return rows

    def _notes(self) -> list[str]:
        if self.kink:
            return [KINK_NOTE.format(self.finest)]
        if not np.isfinite(self.numeric_entries).all():
            return [NOT_FINITE_NOTE]
        return [] if self.resolved else [UNRESOLVED_NOTE]

    def raise_if_failed(self) -> CheckReport:
        """Raise AssertionError with the table if the check failed; otherwise return the report."""
        if not self.passed:
            raise AssertionError(str(self))
        return self


def duality_tolerance(epsilon: float) -> float:
    """What rounding explains of the gap between two products computed with this spacing at 1.

    >>> duality_tolerance(2.0**-52), duality_tolerance(2.0**-23)
    (1e-10, 0.00048828125)
    """
    return max(DUALITY_TOLERANCE, min(DUALITY_EPSILONS * epsilon, COARSEST_DUALITY))


KINK_NOTE = (
    "z sits on a kink or a jump, or within {:.0e} of one: the slopes or values on its two sides "
    "differ (an entry is just entering the support, say), so no derivative exists here; move z a "
    "little"
)
NOT_FINITE_NOTE = "the function is NaN or infinite at z or right beside it: move z a little"
UNRESOLVED_NOTE = (
    "the function is too noisy for differences here, or bends too sharply, so nothing is shown: "
    "compute it in float64, with scores that are not far from 0, or move z a little"
)
