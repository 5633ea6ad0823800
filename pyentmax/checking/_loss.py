"""The check of anybody's implementation of a Fenchel-Young loss."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pyentmax.calls.record import Mapping
from pyentmax.checking._causes import Cause, first_that_agrees
from pyentmax.checking._checks import check_gradient
from pyentmax.checking._differences import Array
from pyentmax.checking._grades import CallError, Finding, Report, examine, text
from pyentmax.checking._libraries import (
    LIBRARIES,
    SPACINGS,
    Function,
    Subject,
    blaming,
    dtype_name,
    library_of,
    parameter_names,
    to_numbers,
)
from pyentmax.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad

IGNORED = -100
REDUCTIONS: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "sum": np.sum, "none": np.array}
Z = np.array([[0.0, 0.5, 1.0], [1.0, -0.25, 0.75], [-3.0, 2.5, 0.5], [0.25, 0.0, 0.125]])
Y = np.array([1, 0, 2, 2])


@dataclass(frozen=True, eq=False, repr=False)
class LossReport(Report):
    __doc__ = Report.__doc__


@dataclass(frozen=True, eq=False)
class LossClaim(Subject):
    """A function of scores and labels, the mapping whose loss it claims to be, and a float type."""

    fn: Function
    grad: Function | None
    mapping: str | Mapping
    parameters: dict[str, Any]
    library: str
    one_row: bool
    dtype: str = "float32"
    reduction: str = "none"

    def takes(self, option: str) -> bool:
        """Whether fn has a parameter of that name."""
        return option in (parameter_names(self.fn) or ())

    def array(self, x: Any) -> Any:
        """Scores, targets or labels as an array of fn's library."""
        x = np.asarray(x)
        return LIBRARIES[self.library]().array(x, "int64" if x.dtype.kind == "i" else self.dtype)

    def call_native(self, z: Any, y: Any, function: Function | None = None, **options: Any) -> Any:
        """What fn, or grad, returns for arrays of its library."""
        names = parameter_names(self.fn) or set()
        passed = {name: value for name, value in self.parameters.items() if name in names}
        return (function or self.fn)(z, y, **passed, **options)

    def __call__(self, z: Array, y: Any, **options: Any) -> Array:
        """The loss of a row, or of a batch."""
        with blaming(z, f"{text(z)}, y = {text(np.asarray(y))}"):
            if self.one_row and z.ndim > 1:
                return np.stack([self(*row, **options) for row in zip(z, y, strict=True)])
            loss = to_numbers(self.call_native(self.array(z), self.array(y), **options))
            if loss.shape not in ((), z.shape[:1] if z.ndim > 1 else ()):
                raise ValueError(f"expected a loss, or one for each row, got shape {loss.shape}")
            return loss

    def of_row(self, z: Array, y: Any, **options: Any) -> Array:
        """The loss of one row, as a batch of one unless fn takes one row."""
        batch = (z, y) if self.one_row else (z[None], np.asarray(y)[None])
        return self(*batch, **options).reshape(())

    def gradient(self, z: Array, y: Any) -> Array | None:
        """The gradient of the sum of what fn gives, by grad or by the library's own means."""
        vjp: Any = LIBRARIES[self.library]().vjp
        if self.grad is None and vjp is None:
            return None
        with blaming(z, f"{text(z)}, y = {text(np.asarray(y))}"):
            if self.one_row and z.ndim > 1:
                rows: list[Any] = [self.gradient(*row) for row in zip(z, y, strict=True)]
                return np.stack(rows)
            if self.grad is not None:
                call = partial(self.call_native, function=self.grad)
                return to_numbers(call(self.array(z), self.array(y))).reshape(z.shape)
            ones = np.ones_like(self(z, y))
            along = partial(self.call_native, y=self.array(y))
            return to_numbers(vjp(lambda x: along(x), self.array(z), ones)).reshape(z.shape)

    def exact(self, z: Array, y: Any, **options: Any) -> Any:
        """The library's own loss in double precision, reduced as asked for."""
        options = {"reduction": "none", **options}
        return fenchel_young_loss(z, y, self.mapping, **options, **self.parameters)

    def exact_gradient(self, z: Array, y: Any) -> Array:
        """The library's own gradient, of each row."""
        more: dict[str, Any] = {"reduction": "none", **self.parameters}
        return np.asarray(fenchel_young_loss_and_grad(z, y, self.mapping, **more)[1])

    def compare(self, z: Array, y: Any, seen: Any, exact: Any, what: str = "") -> Finding:
        """A loss or gradient against the library's own."""
        size = max(1.0, float(np.max(np.abs(z), initial=0, where=np.isfinite(z))))
        error = np.abs(seen - exact) if np.shape(seen) == np.shape(exact) else np.array(np.nan)
        units = np.max(np.where(seen == exact, 0, error), initial=0) / (8 * self.epsilon * size)
        units = np.inf if np.isnan(units) else float(units)
        given = f"{what}{text(z)}, y = {text(np.asarray(y))}"
        return Finding(z, seen, exact, units, given=given)


def _rows(claim: LossClaim) -> Iterator[tuple[Array, int]]:
    rng = np.random.default_rng(0)
    rows = [*Z, np.zeros(3), *(np.round(s * rng.standard_normal(d), 2) for d in (2, 5, 40)
                               for s in (1.0, 4.0))]  # fmt: skip
    for z in rows:
        z = to_numbers(claim.array(z))
        for y in {0, z.size - 1, int(np.argmax(z))}:
            yield z, y


def labels(claim: LossClaim) -> Iterator[Finding]:
    """The loss of a row is Ω*(z) + Ω(y) − z_y, in many digits."""
    for z, y in _rows(claim):
        yield claim.compare(z, y, claim.of_row(z, y), claim.exact(z, y))


def half_types(claim: LossClaim) -> Iterator[Finding]:
    """float16 and bfloat16 give the loss to their own precision."""
    yield from labels(claim)


def soft_targets(claim: LossClaim) -> Iterator[Finding]:
    """The target may be a distribution q, if fn takes one; with Ω(q), or without."""
    for z, q in zip(Z, ([0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [1.0, 0, 0], [0, 0, 1.0]), strict=True):
        try:
            loss = claim.of_row(z, np.array(q))
        except CallError:
            return
        plain = claim.exact(z, q) - claim.exact(np.zeros(3), q) + claim.exact(np.zeros(3), 0)
        both = [claim.compare(z, q, loss, exact) for exact in (claim.exact(z, q), plain)]
        yield min(both, key=lambda one: one.units)


def batches(claim: LossClaim) -> Iterator[Finding]:
    """Of a batch comes each row's loss, or their mean or sum; the report says which."""
    for n in (2, 4):
        exact = REDUCTIONS[claim.reduction](claim.exact(Z[:n], Y[:n]))
        yield claim.compare(Z[:n], Y[:n], claim(Z[:n], Y[:n]), exact)


def reductions(claim: LossClaim) -> Iterator[Finding]:
    """``reduction=`` gives the mean, the sum, or each row's loss, if fn has it."""
    for name, reduce in REDUCTIONS.items() if claim.takes("reduction") else ():
        seen = claim(Z, Y, reduction=name)
        yield claim.compare(Z, Y, seen, reduce(claim.exact(Z, Y)), f"reduction={name!r}, ")


def ignored_labels(claim: LossClaim) -> Iterator[Finding]:
    """Rows whose label is ``ignore_index`` count neither in the loss nor in the mean."""
    y = np.where(np.arange(4) == 1, IGNORED, Y)
    if claim.takes("ignore_index"):
        exact = claim.exact(Z, y, ignore_index=IGNORED, reduction=claim.reduction)
        yield claim.compare(Z, y, claim(Z, y, ignore_index=IGNORED), exact)


def masks(claim: LossClaim) -> Iterator[Finding]:
    """Entries that ``mask=`` leaves out get nothing, if fn has it."""
    keep = np.array([[True, True, False]])
    for z, y in zip(Z, Y % 2, strict=True) if claim.takes("mask") else ():
        seen = claim(z[None], y[None], mask=LIBRARIES[claim.library]().array(keep, "bool"))
        exact = claim.exact(z[None], y[None], mask=keep)
        yield claim.compare(z, y, np.ravel(seen), np.ravel(exact))


def shifts(claim: LossClaim) -> Iterator[Finding]:
    """A constant added to all scores changes nothing."""
    for constant in (1.0, -10.0, 1e3, -1e3, 1e5):
        z = to_numbers(claim.array(Z[0] + constant))
        yield claim.compare(z, 1, claim.of_row(z, 1), claim.exact(z, 1))


def masked_scores(claim: LossClaim) -> Iterator[Finding]:
    """A score of −∞ that is not the label's changes nothing."""
    for z, y in zip(Z, Y, strict=True):
        z = np.append(z, -np.inf)
        yield claim.compare(z, y, claim.of_row(z, y), claim.exact(z, y))


def margins(claim: LossClaim) -> Iterator[Finding]:
    """No loss is below 0; it is 0 beyond a mapping's margin, and grows as the score lead does."""
    for lead in (0.5, 1.0, 1.5, 2.0, 3.0, -8.0, 30.0, -1e4):
        z = np.array([lead, 0.0, -0.5])
        yield claim.compare(z, 0, claim.of_row(z, 0), claim.exact(z, 0))


def float_type(claim: LossClaim) -> Iterator[Finding]:
    """The loss has the float type of the scores."""
    z, y = (Z[0], Y[0]) if claim.one_row else (Z, Y)
    seen = dtype_name(claim.call_native(claim.array(z), claim.array(y)))
    yield Finding(z, seen, claim.dtype, 0.0 if seen == claim.dtype else np.inf)


def gradient(claim: LossClaim) -> Iterator[Finding]:
    """The gradient is mapping(z) − y."""
    for z, y in _rows(claim):
        batch = (z, y) if claim.one_row else (z[None], np.array([y]))
        seen = claim.gradient(*batch)
        if seen is not None:
            yield claim.compare(z, y, seen.reshape(z.shape), claim.exact_gradient(z, y))


def gradient_of_a_batch(claim: LossClaim) -> Iterator[Finding]:
    """In a batch each row has its own gradient, divided by the number of rows for a mean."""
    seen, n = claim.gradient(Z, Y), len(Z) if claim.reduction == "mean" else 1
    if seen is not None:
        yield claim.compare(Z, Y, seen, claim.exact_gradient(Z, Y) / n)


def gradient_and_differences(claim: LossClaim) -> Iterator[Finding]:
    """The gradient is the derivative of the function itself."""
    if claim.gradient(Z, Y) is not None:
        report = check_gradient(
            lambda z: claim(z, Y), Z, lambda z: claim.gradient(z, Y), epsilon=claim.epsilon
        )
        if report.verdict != "unresolved":
            units = 0.0 if report else np.inf
            yield Finding(Z, report.analytic_entries, report.numeric_entries, units)


PROPERTIES = {
    labels: "", half_types: "all", soft_targets: "", batches: "", reductions: "", masks: "",
    ignored_labels: "", shifts: "", masked_scores: "all", margins: "", float_type: "all",
    gradient: "errors", gradient_of_a_batch: "errors", gradient_and_differences: "errors",
}  # fmt: skip

Variant = Callable[[LossClaim, Array, Any], Any]


def _without_product(claim: LossClaim, z: Array, y: Any) -> Any:
    p = claim.exact_gradient(z, y) + np.eye(z.shape[-1])[y]
    return claim.exact(z, y) - np.sum(p * z, axis=-1)


def _logarithm(claim: LossClaim, z: Array, y: Any) -> Any:
    p = claim.exact_gradient(z, y) + np.eye(z.shape[-1])[y]
    return -np.log(np.take_along_axis(p, np.asarray(y)[..., None], -1)[..., 0])


def _of(name: str) -> Variant:
    return lambda claim, z, y: fenchel_young_loss(z, y, name, reduction="none")


CAUSES = (
    Cause("½p² without z·p", _without_product, "Ω*(z) is p·z − Ω(p)"),
    Cause("−log p_y", _logarithm, "infinite off the support; use Ω*(z) + Ω(y) − z_y"),
    Cause("shift not taken out", lambda claim, z, y: claim.exact(z, y) - np.max(z, axis=-1),
          "subtract the maximum from z_y too, or add it to Ω*(z)"),
    Cause("shift taken out twice", lambda claim, z, y: claim.exact(z, y) + np.max(z, axis=-1),
          "subtract the maximum from z_y too, or add it to Ω*(z) once"),
    Cause("Ω(y) of another convention", lambda claim, z, y: claim.exact(z, y) + 0.5,
          "½‖p‖² is ½ at a label, ½(‖p‖² − 1) is 0: use one of them in all terms"),
    Cause("Ω(y) left out", lambda claim, z, y: claim.exact(z, y) - 0.5,
          "½‖p‖² is ½ at a label, ½(‖p‖² − 1) is 0: use one of them in all terms"),
    Cause("half of the loss", lambda claim, z, y: claim.exact(z, y) / 2, "multiply by 2"),
    Cause("twice the loss", lambda claim, z, y: claim.exact(z, y) * 2, "divide by 2"),
    Cause("negated", lambda claim, z, y: -claim.exact(z, y), "the loss is at least 0"),
    Cause("the mean over the wrong count", lambda claim, z, y: claim.exact(z, y) / z.shape[-1],
          "the mean divides by the number of rows, not by that of the entries"),
    Cause("another axis", lambda claim, z, y: 0 * claim.exact(z, y),
          "a batch of one row has no loss along the first axis; rows lie along the last"),
    *(Cause(f"the loss of {name}", _of(name), f"fn gives the loss of {name}")
      for name in ("softmax", "sparsemax", "entmax15")),
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
    if not callable(fn):
        raise TypeError(f"fn must be a function, got {fn!r:.60}")
    fenchel_young_loss(Z, Y, mapping, **parameters)  # an error names what does not belong to it
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        claims = _claims(fn, grad, mapping, parameters)
        claims = [claim for claim in claims if dtypes is None or claim.dtype in dtypes]
        if not claims:
            raise ValueError(f"dtypes must have one that fn takes, got {dtypes}")
        results = examine(PROPERTIES, claims)
        likely: tuple[str, ...] = ()
        if results[0].grade in ("imprecise", "wrong"):
            cases = [((claims[0], z, y), claims[0].of_row(z, y)) for z, y in _rows(claims[0])]
            likely = first_that_agrees(CAUSES, cases, claims[0].epsilon)
    reduction = claims[0].reduction.replace("none", "each loss")
    note = f"of a batch fn gives {reduction}"
    if claims[0].one_row:
        note = "fn takes one row; it was called row by row"
    name = mapping if isinstance(mapping, str) else mapping.name
    return LossReport(
        f"loss of {name}", tuple(one.dtype for one in claims), results, strict, likely, (note,)
    )


def _claims(
    fn: Function, grad: Function | None, mapping: str | Mapping, parameters: dict[str, Any]
) -> list[LossClaim]:
    errors: dict[str, Exception] = {}
    for library in (name for name in LIBRARIES if name in sys.modules):
        for one_row in (False, True):
            claim = LossClaim(fn, grad, mapping, parameters, library, one_row)
            try:
                z, y = (Z[0], Y[0]) if one_row else (Z, Y)
                loss = claim.call_native(claim.array(z), claim.array(y))
                if np.shape(loss) not in ((), (4,)):
                    raise ValueError(f"expected a loss, or one for each row, got {np.shape(loss)}")
            except Exception as error:  # libraries have errors of their own
                errors.setdefault(library, error)
                continue
            claim = replace(claim, library=library_of(loss) if library == "numpy" else library)
            if np.shape(loss) == () and not one_row:
                exact, seen = claim.exact(Z, Y), to_numbers(loss)
                off = {name: abs(seen - REDUCTIONS[name](exact)) for name in ("mean", "sum")}
                claim = replace(claim, reduction=min(off, key=lambda name: off[name]))
            in_types = [replace(claim, dtype=dtype) for dtype in SPACINGS]
            return [one for one in in_types if _fits(one)]
    each = "; ".join(f"{k}: {type(e).__name__}: {str(e):.150}" for k, e in errors.items())
    raise TypeError(f"fn must map scores (4, 3) and labels (4,), or one row, to losses: {each}")


def _fits(claim: LossClaim) -> bool:
    try:
        claim.of_row(Z[0], 1)
    except CallError:
        return False
    return dtype_name(claim.array(Z)) == claim.dtype
