"""The check of anybody's implementation of a Fenchel-Young loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pyentmax.checking._causes import Cause, likely
from pyentmax.checking._checks import check_gradient
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import CallError, Finding, Report, compare, examine, same, text
from pyentmax.checking._subjects import (
    Function,
    Subject,
    blaming,
    check_function,
    dtype_name,
    fitting,
    quiet,
    to_numbers,
)  # fmt: skip
from pyentmax.checking._truths import truth
from pyentmax.engine.calls.record import Mapping
from pyentmax.reference.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad

IGNORED = -100
REDUCTIONS: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "sum": np.sum, "none": np.array}
Z = np.array([[0.0, 0.5, 1.0], [1.0, -0.25, 0.75], [-3.0, 2.5, 0.5], [0.25, 0.0, 0.125]])
Y = np.array([1, 0, 2, 2])
Findings = Iterator[Finding]


@dataclass(frozen=True, eq=False, repr=False)
class LossReport(Report):
    __doc__ = Report.__doc__


@dataclass(frozen=True, eq=False, kw_only=True)
class LossClaim(Subject):
    """A function of scores and labels, and the mapping whose loss it claims to be."""

    one_row: bool
    reduction: str = "none"

    def call_native(self, z: Any, y: Any, function: Function | None = None, **options: Any) -> Any:
        """What fn, or its gradient, returns for arrays of its library."""
        return (function or self.fn)(z, y, **self.passed, **options)

    def tried(self) -> Any:
        """What fn gives for a batch of four rows, or for one row."""
        loss = self.call_native(*map(self.array, (Z[0], Y[0]) if self.one_row else (Z, Y)))
        if np.shape(loss) not in ((), (4,)):
            raise ValueError(f"expected a loss, or one for each row, got {np.shape(loss)}")
        return loss

    def settled(self, out: Any) -> LossClaim:
        """Whether the losses of a batch are averaged or summed."""
        if self.one_row or np.shape(out):
            return self
        exact, observed = self.exact(Z, Y), to_numbers(out)
        near = min(("mean", "sum"), key=lambda name: abs(observed - REDUCTIONS[name](exact)))
        return replace(self, reduction=near)

    def __call__(self, z: Array, y: Any, **options: Any) -> Array:
        """The loss of a row, or of a batch."""
        with blaming(z, f"{text(z)}, y = {text(np.asarray(y))}"):
            if self.one_row and z.ndim > 1:
                return np.stack([self(*row, **options) for row in zip(z, y, strict=True)])
            loss = to_numbers(self.call_native(self.array(z), self.array(y), **options))
            if loss.shape not in ((), z.shape[:1] if z.ndim > 1 else ()):
                raise ValueError(f"expected a loss, or one for each row, got shape {loss.shape}")
            return loss

    def row(self, z: Array, y: Any) -> tuple[Array, Any]:
        """One row as fn takes it: as a batch of one, unless it takes one row."""
        return (z, y) if self.one_row else (z[None], np.asarray(y)[None])

    def of_row(self, z: Array, y: Any) -> Array:
        """The loss of one row."""
        return self(*self.row(z, y)).reshape(())

    def gradient(self, z: Array, y: Any) -> Array | None:
        """The gradient of the sum of what fn gives, by grad or by the library's own means."""
        vjp: Any = self.functions.vjp
        if self.own_vjp is None and vjp is None:
            return None
        with blaming(z, f"{text(z)}, y = {text(np.asarray(y))}"):
            if self.one_row and z.ndim > 1:
                rows: list[Any] = [self.gradient(*row) for row in zip(z, y, strict=True)]
                return np.stack(rows)
            if self.own_vjp is not None:
                g = self.call_native(self.array(z), self.array(y), self.own_vjp)
            else:
                along = partial(self.call_native, y=self.array(y))
                g = vjp(lambda x: along(x), self.array(z), np.ones_like(self(z, y)))
            return to_numbers(g).reshape(z.shape)

    def exact(self, z: Array, y: Any, **options: Any) -> Any:
        """The library's own loss in double precision, reduced as asked for."""
        options = {"reduction": "none", **options}
        return fenchel_young_loss(z, y, self.record, **options, **self.parameters)

    def exact_gradient(self, z: Array, y: Any) -> Array:
        """The library's own gradient, of each row."""
        more: dict[str, Any] = {"reduction": "none", **self.parameters}
        return np.asarray(fenchel_young_loss_and_grad(z, y, self.record, **more)[1])

    def compare(self, z: Array, y: Any, observed: Any, exact: Any, what: str = "") -> Finding:
        """A loss or gradient against the library's own."""
        size = max(1.0, float(np.max(np.abs(z), initial=0, where=np.isfinite(z))))
        description = f"{what}{text(z)}, y = {text(np.asarray(y))}"
        return compare(z, observed, exact, 8 * self.epsilon * size, given=description)

    def compare_row(self, z: Any, y: Any) -> Finding:
        """The loss of a row against the library's own."""
        z = self.rounded(z)
        return self.compare(z, y, self.of_row(z, y), self.exact(z, y))


def _rows(claim: LossClaim) -> Iterator[tuple[Array, int]]:
    rng = np.random.default_rng(0)
    drawn = (np.round(s * rng.standard_normal(d), 2) for d in (2, 5, 40) for s in (1.0, 4.0))
    for z in map(claim.rounded, (*Z, np.zeros(3), *drawn)):
        for y in {0, z.size - 1, int(np.argmax(z))}:
            yield z, y


def labels(claim: LossClaim) -> Findings:
    """The loss of a row is Ω*(z) + Ω(y) − z_y, in many digits."""
    return (claim.compare_row(z, y) for z, y in _rows(claim))


def half_types(claim: LossClaim) -> Findings:
    """float16 and bfloat16 give the loss to their own precision."""
    return labels(claim)


def soft_targets(claim: LossClaim) -> Findings:
    """The target may be a distribution q, if fn takes one; with Ω(q), or without."""
    for z, q in zip(Z, ([0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [1.0, 0, 0], [0, 0, 1.0]), strict=True):
        try:
            loss = claim.of_row(z, np.array(q))
        except CallError:
            return
        plain = claim.exact(z, q) - claim.exact(np.zeros(3), q) + claim.exact(np.zeros(3), 0)
        both = [claim.compare(z, q, loss, exact) for exact in (claim.exact(z, q), plain)]
        yield min(both, key=lambda one: one.units)


def batches(claim: LossClaim) -> Findings:
    """Of a batch comes each row's loss, or their mean or sum; the report says which."""
    for n in (2, 4):
        exact = REDUCTIONS[claim.reduction](claim.exact(Z[:n], Y[:n]))
        yield claim.compare(Z[:n], Y[:n], claim(Z[:n], Y[:n]), exact)


def reductions(claim: LossClaim) -> Findings:
    """``reduction=`` gives the mean, the sum, or each row's loss, if fn has it."""
    for name, reduce in REDUCTIONS.items() if "reduction" in claim.names else ():
        observed = claim(Z, Y, reduction=name)
        yield claim.compare(Z, Y, observed, reduce(claim.exact(Z, Y)), f"reduction={name!r}, ")


def ignored_labels(claim: LossClaim) -> Findings:
    """Rows whose label is ``ignore_index`` count neither in the loss nor in the mean."""
    y = np.where(np.arange(4) == 1, IGNORED, Y)
    if "ignore_index" in claim.names:
        exact = claim.exact(Z, y, ignore_index=IGNORED, reduction=claim.reduction)
        yield claim.compare(Z, y, claim(Z, y, ignore_index=IGNORED), exact)


def masks(claim: LossClaim) -> Findings:
    """Entries that ``mask=`` leaves out get nothing, if fn has it."""
    keep = np.array([[True, True, False]])
    for z, y in zip(Z, Y % 2, strict=True) if "mask" in claim.names else ():
        observed = claim(z[None], y[None], mask=claim.array(keep))
        exact = claim.exact(z[None], y[None], mask=keep)
        yield claim.compare(z, y, np.ravel(observed), np.ravel(exact))


def shifts(claim: LossClaim) -> Findings:
    """A constant added to all scores changes nothing."""
    return (claim.compare_row(Z[0] + constant, 1) for constant in (1.0, -10.0, 1e3, -1e3, 1e5))


def masked_scores(claim: LossClaim) -> Findings:
    """A score of −∞ that is not the label's changes nothing."""
    return (claim.compare_row(np.append(z, -np.inf), y) for z, y in zip(Z, Y, strict=True))


def margins(claim: LossClaim) -> Findings:
    """No loss is below 0; it is 0 beyond a mapping's margin, and grows as the score lead does."""
    leads = (0.5, 1.0, 1.5, 2.0, 3.0, -8.0, 30.0, -1e4)
    return (claim.compare_row(np.array([lead, 0.0, -0.5]), 0) for lead in leads)


def float_type(claim: LossClaim) -> Findings:
    """The loss has the float type of the scores."""
    yield same(Z[0] if claim.one_row else Z, dtype_name(claim.tried()), claim.dtype)


def gradient(claim: LossClaim) -> Findings:
    """The gradient is mapping(z) − y."""
    for z, y in _rows(claim):
        observed = claim.gradient(*claim.row(z, np.asarray(y)))
        if observed is not None:
            yield claim.compare(z, y, observed.reshape(z.shape), claim.exact_gradient(z, y))


def gradient_of_a_batch(claim: LossClaim) -> Findings:
    """In a batch each row has its own gradient, divided by the number of rows for a mean."""
    observed, n = claim.gradient(Z, Y), len(Z) if claim.reduction == "mean" else 1
    if observed is not None:
        yield claim.compare(Z, Y, observed, claim.exact_gradient(Z, Y) / n)


def gradient_and_differences(claim: LossClaim) -> Findings:
    """The gradient is the derivative of the function itself."""
    if claim.gradient(Z, Y) is not None:
        report = check_gradient(
            lambda z: claim(z, Y), Z, lambda z: claim.gradient(z, Y), epsilon=claim.epsilon
        )
        if report.verdict != "unresolved":
            yield same(Z, report.analytic_entries, report.numeric_entries, equal=bool(report))


PROPERTIES = {
    labels: "", half_types: "all", soft_targets: "", batches: "", reductions: "", masks: "",
    ignored_labels: "", shifts: "", masked_scores: "all", margins: "", float_type: "all",
    gradient: "errors", gradient_of_a_batch: "errors", gradient_and_differences: "errors",
}  # fmt: skip


def _p(claim: LossClaim, z: Array, y: Any) -> Array:
    return claim.exact_gradient(z, y) + np.eye(z.shape[-1])[y]


def _changed(change: Callable[[Any, Array], Any]) -> Callable[..., Any]:
    return lambda claim, z, y: change(claim.exact(z, y), z)


CONVENTION = "½‖p‖² is ½ at a label, ½(‖p‖² − 1) is 0: use one of them in all terms"
CAUSES = (
    Cause("½p² without z·p",
          lambda claim, z, y: claim.exact(z, y) - np.sum(_p(claim, z, y) * z, axis=-1),
          "Ω*(z) is p·z − Ω(p)"),
    Cause("−log p_y", lambda claim, z, y: -np.log(_p(claim, z, y)[y]),
          "infinite off the support; use Ω*(z) + Ω(y) − z_y"),
    Cause("shift not taken out", _changed(lambda loss, z: loss - np.max(z)),
          "subtract the maximum from z_y too, or add it to Ω*(z)"),
    Cause("shift taken out twice", _changed(lambda loss, z: loss + np.max(z)),
          "subtract the maximum from z_y too, or add it to Ω*(z) once"),
    Cause("Ω(y) of another convention", _changed(lambda loss, z: loss + 0.5), CONVENTION),
    Cause("Ω(y) left out", _changed(lambda loss, z: loss - 0.5), CONVENTION),
    Cause("half of the loss", _changed(lambda loss, z: loss / 2), "multiply by 2"),
    Cause("twice the loss", _changed(lambda loss, z: 2 * loss), "divide by 2"),
    Cause("negated", _changed(lambda loss, z: -loss), "the loss is at least 0"),
    Cause("the mean over the wrong count", _changed(lambda loss, z: loss / z.size),
          "the mean divides by the number of rows, not by that of the entries"),
    Cause("another axis", _changed(lambda loss, z: 0 * loss),
          "a batch of one row has no loss along the first axis; rows lie along the last"),
    *(Cause(f"the loss of {name}",
            lambda claim, z, y, name=name: fenchel_young_loss(z, y, name, reduction="none"),
            f"fn gives the loss of {name}") for name in ("softmax", "sparsemax", "entmax15")),
)  # fmt: skip


def check_loss(
    fn: Callable[..., Any],
    mapping: str | Mapping,
    *,
    grad: Callable[..., Any] | None = None,
    dtypes: Sequence[str] | None = None,
    strict: bool = False,
    **parameters: Any,
) -> LossReport:
    """Check anybody's implementation of a Fenchel-Young loss, in any array library.

    The function is compared with `pyentmax.fenchel_young_loss` in double precision: labels and soft
    targets, reductions, −∞, shifts, masks, ignored labels, batches and half types, with the
    gradient. It is called at most 6,000 times.

    Parameters
    ----------
    fn : callable
        ``fn(z, y)`` of scores and labels, of one row or of a batch with the rows along the last
        axis; which of them is found out, and so is whether the losses are averaged or summed. Its
        parameters ``reduction``, ``ignore_index`` and ``mask`` are tried if it has them, with the
        meaning that they have in `pyentmax.fenchel_young_loss`.
    mapping : str or Mapping
        Whose loss it claims to be.
    grad : callable, optional
        ``grad(z, y)``, the gradient in z of what fn returns, summed. If not given, PyTorch, JAX and
        TensorFlow differentiate fn; for other libraries the gradient is not tried.
    dtypes, strict, **parameters : as in `check_mapping`

    Returns
    -------
    LossReport
        As `MappingReport`.

    Examples
    --------
    >>> import numpy as np
    >>> import pyentmax as pe
    >>> def loss(z, y):
    ...     p = pe.sparsemax(z)
    ...     return np.sum(p * z) - np.sum(p**2) / 2 - z[y]  # ½ is missing
    >>> report = check_loss(loss, "sparsemax")
    >>> print(report.verdict, report.causes, report.notes)
    wrong ('Ω(y) left out: ½‖p‖² ...) ('fn takes one row; it was called row by row',)
    """
    check_function(fn)
    record = truth(mapping, parameters)
    fenchel_young_loss(Z, Y, record, **parameters)  # an error if it has no loss

    def trials(library: str) -> Iterator[LossClaim]:
        return (
            LossClaim(fn=fn, own_vjp=grad, record=record, parameters=parameters, library=library,
                      one_row=one_row) for one_row in (False, True)
        )  # fmt: skip

    with quiet():
        claims = fitting(trials, dtypes, "scores (4, 3) and labels (4,), or one row, to losses")
        claim, results = claims[0], examine(PROPERTIES, claims)
        likely_causes: tuple[str, ...] = ()
        if results[0].grade in ("imprecise", "wrong"):
            cases = [((claim, *row), claim.of_row(*row), claim.exact(*row)) for row in _rows(claim)]
            likely_causes = likely(CAUSES, cases, claim.epsilon)
    note = f"of a batch fn gives {claim.reduction.replace('none', 'each loss')}"
    note = "fn takes one row; it was called row by row" if claim.one_row else note
    taken = tuple(one.dtype for one in claims)
    return LossReport(f"loss of {claim.title}", taken, results, strict, likely_causes, (note,))
