"""The check of anybody's implementation of a Fenchel-Young loss: scores, targets, reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from pyentmax.checking import _engine as engine
from pyentmax.checking._differences import Array
from pyentmax.checking._engine import CallError, Case, Cause, Expected, Finding, Missing, Property
from pyentmax.checking._subjects import Settings, Subject, blaming, judge
from pyentmax.checking._truths import truth
from pyentmax.reference.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad
from pyentmax.reference.mapping import AnyMapping as Mapping

IGNORED = -100
REDUCTIONS: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "sum": np.sum, "none": np.array}
TARGETS = ("labels", "soft")
Z = np.array([[0.0, 0.5, 1.0], [1.0, -0.25, 0.75], [-3.0, 2.5, 0.5], [0.25, 0.0, 0.125]])
Y = np.array([1, 0, 2, 2])
Q = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [1.0, 0, 0], [0, 0, 1.0]])
LONG = ((1, 2), (9, 32), (9, 33), (130, 300), (9, 1000), (1, 4099))  # np.eye of more is too large


@dataclass(frozen=True, eq=False, repr=False)
class LossReport(engine.Report):
    __doc__ = engine.Report.__doc__


# --- wrong variants: the loss of each row, and the cure -------------------------------------------
def _p(claim: LossSubject, z: Array, y: Any) -> Array:
    return np.asarray(claim.record(z, *claim.parameters.values(), axis=-1))


def _at(x: Array, claim: LossSubject, y: Any) -> Array:
    return np.asarray(np.sum(x * claim.one_hot(y, x.shape[-1]), axis=-1))


def _changed(change: Callable[[Any, Array], Any]) -> Callable[..., Any]:
    return lambda claim, z, y: change(claim.losses(z, y), z)


def _one_vs_all(of_classes: Any) -> Callable[..., Any]:
    return lambda claim, z, y: of_classes(
        np.logaddexp(0, (1 - 2 * claim.one_hot(y, z.shape[-1])) * z), axis=-1
    )


def _squared(of_classes: Any, factor: float = 1.0) -> Callable[..., Any]:
    return lambda claim, z, y: factor * of_classes(claim.gradients_of(z, y) ** 2, axis=-1)


CONVENTION = "½‖p‖² is ½ at a label, ½(‖p‖² − 1) is 0: use one of them in all terms"
CAUSES = (
    Cause("½p² without z·p",
          lambda claim, z, y: claim.losses(z, y) - np.sum(_p(claim, z, y) * z, axis=-1),
          "Ω*(z) is p·z − Ω(p)"),
    Cause("−log p_y", lambda claim, z, y: -np.log(_at(_p(claim, z, y), claim, y)),
          "infinite off the support; use Ω*(z) + Ω(y) − z_y"),
    *(Cause(f"log of p{words} {eps:g}", lambda claim, z, y, at=at, eps=eps: -np.log(
        at(_at(_p(claim, z, y), claim, y), eps)), "use log_softmax: a constant hides large losses")
      for words, at in ((" +", np.add), (" clipped at", np.maximum))
      for eps in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12)),
    Cause("rows of label 0 ignored", lambda claim, z, y: claim.losses(z, y) * (np.asarray(y) != 0),
          "0 is a class; padding has a label of its own"),
    Cause("−p_y, without the logarithm", lambda claim, z, y: -_at(_p(claim, z, y), claim, y),
          "NLL expects log-probabilities"),
    Cause("−z_y alone", lambda claim, z, y: -_at(z, claim, y),
          "NLL expects log-probabilities: log_softmax first"),
    Cause("the mapping applied twice", lambda claim, z, y: claim.losses(_p(claim, z, y), y),
          "the loss takes scores, not probabilities"),
    Cause("1 − p_y", lambda claim, z, y: 1 - _at(_p(claim, z, y), claim, y),
          "use Ω*(z) + Ω(y) − z_y"),
    *(Cause(f"focal, γ = {gamma}", lambda claim, z, y, gamma=gamma: claim.losses(z, y)
            * (1 - _at(_p(claim, z, y), claim, y)) ** gamma, "do not weigh the loss by (1 − p_y)^γ")
      for gamma in (1, 2)),
    *(Cause(f"one against all{words}", _one_vs_all(of_classes),
            "a binary loss for each class is another loss")
      for words, of_classes in (("", np.sum), (", averaged", np.mean))),
    *(Cause(name, _squared(*how), "the squared error of probabilities is another loss")
      for name, *how in (("‖p − y‖²", np.sum), ("½‖p − y‖²", np.sum, 0.5),
                         ("‖p − y‖², averaged", np.mean))),
    Cause("labels smoothed by 0.1", lambda claim, z, y: claim.losses(z, y) + 0.1 * (
        _at(z, claim, y) - z.mean(-1)), "set the smoothing to 0"),
    Cause("shift not taken out", _changed(lambda loss, z: loss - np.max(z, axis=-1)),
          "subtract the maximum from z_y too, or add it to Ω*(z)"),
    Cause("shift taken out twice", _changed(lambda loss, z: loss + np.max(z, axis=-1)),
          "subtract the maximum from z_y too, or add it to Ω*(z) once"),
    Cause("Ω(y) of another convention", _changed(lambda loss, z: loss + 0.5), CONVENTION),
    Cause("Ω(y) left out", _changed(lambda loss, z: loss - 0.5), CONVENTION),
    Cause("half of the loss", _changed(lambda loss, z: loss / 2), "multiply by 2"),
    Cause("twice the loss", _changed(lambda loss, z: 2 * loss), "divide by 2"),
    Cause("the logarithm to base 2", _changed(lambda loss, z: loss / np.log(2)), "use log"),
    Cause("negated", _changed(lambda loss, z: -loss), "the loss is at least 0"),
    Cause("the mean over the wrong count", _changed(lambda loss, z: loss / z.shape[-1]),
          "the mean divides by the number of rows, not by that of the entries"),
    Cause("another axis", _changed(lambda loss, z: None if len(z) > 1 else 0 * loss),
          "a batch of one row has no loss along the first axis; rows lie along the last"),
    *(Cause(f"the loss of {name}",
            lambda claim, z, y, name=name: fenchel_young_loss(z, y, name, reduction="none"),
            f"fn gives the loss of {name}") for name in ("softmax", "sparsemax", "entmax15")),
)  # fmt: skip
GRADIENT_CAUSES = (  # of the right gradient g of each row, p, the upstream v and the rows n
    Cause("p without − y", lambda g, p, v, n: p * v / n, "subtract 1 at the label"),
    Cause("y − p", lambda g, p, v, n: -g * v / n, "the gradient is p − y"),
    Cause("upstream gradient unused", lambda g, p, v, n: g / n, "multiply by it"),
    Cause("not divided by the number of rows", lambda g, p, v, n: g * v,
          "the gradient of a mean has 1 / rows"),
    Cause("divided by the number of rows", lambda g, p, v, n: g * v / len(g),
          "a sum is not divided by the rows"),
    Cause("divided by the number of rows twice", lambda g, p, v, n: g * v / n**2,
          "divide once"),
    Cause("twice the gradient", lambda g, p, v, n: 2 * g * v / n, "divide by 2"),
    Cause("half of the gradient", lambda g, p, v, n: g * v / n / 2, "multiply by 2"),
    Cause("no gradient", lambda g, p, v, n: 0 * g, "the result does not depend on the scores"),
)  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class LossSubject(Subject):
    """A function of scores and targets, and the mapping whose loss it claims to be."""

    primary = ("loss",)
    vital = ("targets", "batches", "rows and classes", "gradient")
    positional = 2
    variants = (*CAUSES, *GRADIENT_CAUSES)
    spellings = frozenset({"mask"})
    one_row: bool
    targets: str
    reduction: str = "none"
    lengths: tuple[tuple[int, int], ...] = ()

    def sample(self) -> Case:
        """Four rows, or one."""
        return self.make(Z[0] if self.one_row else Z, Y[0] if self.one_row else Y)

    def tried(self) -> Any:
        """What fn gives for a batch of four rows, or for one row."""
        case = self.sample()
        loss = self.first(self.call(case, [*map(self.array, self.arrays_of(case))]))
        if np.shape(loss) not in ((), (1,), (4,)) or isinstance(loss, str):
            raise ValueError(f"expected a loss, or one for each row, got {np.shape(loss)}")
        self.numbers(loss)
        return loss

    def settled(self, out: Any) -> LossSubject:
        """Whether targets are labels or distributions, and losses are averaged or summed."""
        found = self._reduced(out)
        if self.targets == "labels" and found.off() > 1:
            soft = replace(self, targets="soft")
            try:
                soft = soft._reduced(soft.tried())
            except Exception:  # libraries have errors of their own
                return found._said()
            if soft.off() <= 1:
                found = soft
        return found._said()

    def _said(self) -> LossSubject:
        if self.targets == "soft":
            self.say('its targets are distributions; targets="soft" declares it')
        if self.one_row:
            self.say("fn takes one row; it was called row by row")
        else:
            self.say(f"of a batch fn gives {self.reduction.replace('none', 'each loss')}")
        return self

    def _reduced(self, out: Any) -> LossSubject:
        if self.one_row or np.shape(out) == (4,):
            return self
        exact, observed = self.losses(Z, Y), float(np.ravel(self.numbers(out))[0])
        near = min(("mean", "sum"), key=lambda name: abs(observed - REDUCTIONS[name](exact)))
        return replace(self, reduction=near)

    def off(self) -> float:
        """By how many times its limit the loss is off; infinite if it raises."""
        case = self.make(Z, Y)
        try:
            found = self.observe(case)["loss"]
        except CallError:
            return np.inf
        return (
            engine.measure(self, case, "loss", found, self.expect(case)["loss"]).units / self.limit
        )

    @property
    def differentiable(self) -> bool:
        """Whether there is a way to get a gradient."""
        return self.own_vjp is not None or self.functions.vjp is not None

    # --- cases ------------------------------------------------------------------------------------
    def make(self, z: Any = None, y: Any = None, shape: tuple[int, int] | None = None,
             spread: float = 2.0, seed: int = 0, gradients: bool = False, v: Any = 1.0,
             **options: Any) -> Case:  # fmt: skip
        """Scores, labels over the whole range or distributions, and fn's options."""
        known = {"layout", "plain", "edge", "soft"}
        for name in {*options} - known:
            if name not in self.known:
                raise Missing(f"no parameter {name}")
        if gradients and not self.differentiable:
            raise Missing(f"{self.library} has no gradients; grad= hands one in")
        scaled = not isinstance(v, float) or v != 1.0
        if scaled and self.own_vjp is not None:
            raise Missing("grad= takes no upstream gradient")
        if shape is not None:
            rng = np.random.default_rng((self.settings.seed + seed, *shape))
            z = np.round(spread * rng.standard_normal(shape), 4)
            y = rng.integers(0, shape[1], shape[0])
            y[:1] = shape[1] - 1  # the largest label
        z, y = self.rounded(z), np.asarray(y)
        soft = y.dtype.kind == "f"
        if soft and self.targets == "labels" and not options.get("soft"):
            raise Missing("its targets are labels")
        if self.targets == "soft" and not soft and "ignore_index" in options:
            raise Missing("its targets are distributions")
        if (z == np.inf).any():
            raise Missing(f"scores beyond {self.dtype}")
        case: Case = {"z": z, "y": y, **options}
        if gradients:
            case["gradients"], rows = True, z.shape[0] if z.ndim > 1 else 1
            scalar = self.reduction != "none" or z.ndim == 1
            case["v"] = (np.asarray(float(v if not isinstance(v, str) else 2.5)) if scalar else
                         np.resize([1.0, -0.5, 2.0], rows) if isinstance(v, str) else
                         np.full(rows, float(v)))  # fmt: skip
        if not (np.abs(z) <= (engine.HALF_ORDINARY if self.half else engine.ORDINARY)).all():
            case["edge"] = True
        case["long"] = z.shape[-1] * self.epsilon > engine.LONG_SUM
        words = [
            f"{name} = {x!r}"
            for name, x in options.items()
            if name not in ("edge", "soft", "plain", "mask")
        ]
        case["words"] = ", ".join([*words, f"{engine.text(z)}, y = {engine.text(y)}"])
        case["cost"] = float(z.size)
        self.count(classes=z.shape[-1], rows=z.size // max(z.shape[-1], 1))
        return case

    def one_hot(self, y: Any, d: int) -> Array:
        """The targets as distributions."""
        y = np.asarray(y)
        return y if y.dtype.kind == "f" else np.asarray(np.arange(d) == y[..., None], float)

    def options(self, case: Case) -> dict[str, Any]:
        """fn's keywords."""
        names = ("reduction", "ignore_index", "mask")
        return {name: case[name] for name in names if name in case} | self.passed

    def arguments(self, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """Scores, targets, and keywords."""
        y = case["y"]
        if self.targets == "soft":
            y = self.one_hot(y, case["z"].shape[-1])
        options = self.options(case)
        arrays = {name: x for name, x in options.items() if isinstance(x, np.ndarray)}
        return {"z": case["z"], "y": y, **arrays}, {
            name: x for name, x in options.items() if name not in arrays
        }

    # --- the function -----------------------------------------------------------------------------
    def observe(self, case: Case) -> dict[str, Array]:
        """The loss, and the gradient if the case asks for it."""
        z = case["z"]
        if self.one_row and z.ndim > 1:
            rows = [self.observe(self._row(case, i)) for i in range(len(z))]
            return {name: np.stack([one[name] for one in rows]) for name in rows[0]}
        with blaming(case):
            out = self.first(self.call(case, self.native(case)))
            case["epsilon"] = self.epsilon_of(out)
            loss = self.numbers(out)
            if loss.shape == (1,) and (z.ndim == 1 or self.reduction != "none"):
                loss = loss.reshape(())
            if loss.shape not in ((), z.shape[:1] if z.ndim > 1 else ()):
                raise engine.WrongShape(
                    f"expected a loss, or one for each row, got shape {loss.shape}"
                )
            result = {"loss": loss}
            if case.get("gradients"):
                result["gradient"] = self._gradient(case)[0]
        return result

    def _row(self, case: Case, i: int) -> Case:
        row = case | {"z": case["z"][i], "y": np.asarray(case["y"][i])}
        return row | ({"v": np.asarray(case["v"][i])} if "v" in case else {})

    def _gradient(self, case: Case) -> tuple[Array, Array]:
        """The gradient, and the scores after it was computed."""
        arrays, passed = self.native(case), []
        if self.own_vjp is not None:
            g = self.call(case, arrays, self.own_vjp)
            return self.numbers(g).reshape(case["z"].shape), self.numbers(arrays[0])
        assert self.functions.vjp is not None

        def along(z: Any) -> Any:
            passed.append(z)
            return self.first(self.call(case, [z, *arrays[1:]]))

        g = self.numbers(self.functions.vjp(along, arrays[:1], case["v"])[0])
        traced = self.library == "jax"  # whose arrays cannot be written to
        return g.reshape(case["z"].shape), case["z"] if traced else self.numbers(passed[-1])

    # --- what is right ----------------------------------------------------------------------------
    def losses(self, z: Array, y: Any, **options: Any) -> Any:
        """The library's own loss of each row in double precision."""
        options = {"reduction": "none", **options}
        return fenchel_young_loss(z, y, self.record, **options, **self.parameters)

    def gradients_of(self, z: Array, y: Any, **options: Any) -> Array:
        """The library's own gradient of each row."""
        options = {"reduction": "none", **options, **self.parameters}
        return np.asarray(fenchel_young_loss_and_grad(z, y, self.record, **options)[1])

    def expect(self, case: Case) -> dict[str, Expected]:
        """The right loss and its gradient."""
        z, y = case["z"], case["y"]
        reduction = "none" if z.ndim == 1 or self.one_row else case.get("reduction", self.reduction)
        more = {name: case[name] for name in ("ignore_index", "mask") if name in case}
        loss = np.asarray(self.losses(z, y, **more, reduction=reduction))
        if case.get("plain"):  # soft targets without Ω(q)
            labels = np.zeros(z.shape[:-1], int)
            first = np.zeros(z.shape)
            plain = self.losses(z, y) - self.losses(first, y) + self.losses(first, labels)
            loss = np.asarray(REDUCTIONS[reduction](plain))
        largest = float(np.max(np.abs(z), initial=0, where=np.isfinite(z)))
        unit = 8 * case.get("epsilon", self.epsilon) * max(1.0, largest)
        count = z.size / z.shape[-1] if reduction == "sum" else 1
        size = max(1.0, float(np.max(np.abs(loss), initial=0, where=np.isfinite(loss))))
        result = {"loss": Expected(loss, unit * count, size)}
        if case.get("gradients"):
            n = len(z) if reduction == "mean" and z.ndim > 1 else 1
            v = case["v"][..., None] if np.ndim(case["v"]) else case["v"]
            scale = max(1.0, float(np.max(np.abs(v))))
            result["gradient"] = Expected(self.gradients_of(z, y, **more) * v / n, unit * scale)
        return result

    def predict(self, variants: tuple[Cause, ...], case: Case, observed: Any) -> Any:
        """What the variant gives for the loss of a batch, or for the gradient."""
        (one,) = variants
        z, y = case["z"], case["y"]
        if "ignore_index" in case or "mask" in case or case.get("plain"):
            return None
        right = self.expect(case)
        reduction = "none" if z.ndim == 1 or self.one_row else case.get("reduction", self.reduction)
        if "gradient" in observed:
            if one not in GRADIENT_CAUSES:
                return {}
            v = np.asarray(case["v"])[..., None] if np.ndim(case["v"]) else case["v"]
            n = len(z) if reduction == "mean" and z.ndim > 1 else 1
            g = one.variant(self.gradients_of(z, y), _p(self, z, y), v, n)
            return {"gradient": Expected(g, right["gradient"].allowed)}
        if one not in CAUSES:
            return {}
        rows = one.variant(self, z, y)
        if rows is None:
            return None
        loss = np.asarray(REDUCTIONS[reduction](rows))
        return {"loss": Expected(loss, right["loss"].allowed)}


# --- the properties -------------------------------------------------------------------------------
def _rows(**more: Any) -> list[Case]:
    rng = np.random.default_rng(0)
    drawn = (np.round(s * rng.standard_normal(d), 2) for d in (2, 5, 40) for s in (1.0, 4.0))
    rows = []
    for z in (*Z, np.zeros(3), *drawn):
        rows += [{"z": z[None], "y": np.array([y]), **more}
                 for y in {0, z.size - 1, int(np.argmax(z))}]  # fmt: skip
    return rows


def _at_rows(rows: Any) -> list[Case]:
    return [{"z": np.array([z]), "y": np.array([y])} for z, y in rows]


def _soft(subject: LossSubject) -> list[Case]:
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.ones(33), 9)
    z = np.round(rng.standard_normal((9, 33)), 2)
    return [{"z": a, "y": b, "soft": True, "gradients": subject.differentiable}
            for a, b in ((Z, Q), (z, q))]  # fmt: skip


def _soft_targets(subject: LossSubject, case: Case) -> Iterator[Finding]:
    """With Ω(q), or without; a function of labels takes none."""
    try:
        observed = subject.observe(case)
        if subject.targets == "labels" and np.shape(observed["loss"]) != np.shape(
                subject.expect(case)["loss"].value):  # fmt: skip
            raise CallError(case, ValueError("another shape"))
    except CallError:
        if subject.targets == "labels":
            return
        raise
    both = [case | {"plain": plain} for plain in (False, True)]
    findings = [engine.measure(subject, one, "loss", observed["loss"], subject.expect(one)["loss"])
                for one in both]  # fmt: skip
    nearest = min(findings, key=lambda one: one.units)
    yield nearest
    if "gradient" in observed:
        right = subject.expect(case)["gradient"]
        yield engine.measure(subject, case, "gradient", observed["gradient"], right)


def _inputs(subject: LossSubject, case: Case) -> Iterator[Finding]:
    """Whether fn, or its gradient, writes into the scores."""
    arrays = [subject.array(x) for x in subject.arrays_of(case)]
    subject.call(case, arrays)
    intact = all(np.array_equal(subject.numbers(a), x)
                 for a, x in zip(arrays, subject.arrays_of(case), strict=True))  # fmt: skip
    if intact and subject.differentiable:
        with blaming(case):
            intact = np.array_equal(subject._gradient(case | {"v": np.asarray(
                1.0 if subject.reduction != "none" or case["z"].ndim == 1 else
                np.ones(len(case["z"])))})[1], case["z"])  # fmt: skip
    yield engine.same(case, "as they were" if intact else "inputs changed", "as they were")


def _own(subject: LossSubject) -> list[Case]:
    return [{"z": Z[0], "y": Y[0]} if subject.one_row else {"z": Z, "y": Y}]


def _sized(subject: LossSubject) -> list[Case]:
    return [{"shape": shape, "gradients": subject.differentiable, "seed": 1}
            for shape in (*LONG, *subject.lengths)]  # fmt: skip


G: Case = {"gradients": True}
PROPERTIES = (
    Property("targets", "The loss of a row is Ω*(z) + Ω(y) − z_y, in many digits.", _rows(),
             core=True),
    Property("soft targets", "The target may be a distribution q, if fn takes one; with Ω(q), or "
             "without.", _soft, question=_soft_targets),
    Property("batches", "Of a batch comes each row's loss, or their mean or sum; the report says "
             "which.", [{"z": Z[:n], "y": Y[:n]} for n in (2, 4)], core=True),
    Property("rows and classes", "1 to 130 rows, 2 to 4,099 classes, labels over the whole range.",
             _sized, core=True),
    Property("reductions", "``reduction=`` gives the mean, the sum, or each row's loss.",
             [{"z": Z, "y": Y, "reduction": name} for name in REDUCTIONS]),
    Property("masks", "Entries that ``mask=`` leaves out get nothing.",
             [{"z": z[None], "y": np.array([y]), "mask": np.array([[True, True, False]])}
              for z, y in zip(Z, Y % 2, strict=True)]),
    Property("ignored labels", "Rows whose label is ``ignore_index`` count neither in the loss nor "
             "in the mean.", [{"z": Z, "y": np.where(np.arange(4) == 1, IGNORED, Y),
                               "ignore_index": IGNORED}]),
    Property("shifts", "A constant added to all scores changes nothing.", _at_rows(
        [(Z[0] + c, 1) for c in (1.0, -10.0, 1e3, -1e3, 1e5)])),
    Property("masked scores", "A score of −∞ that is not the label's changes nothing.", _at_rows(
        [(np.append(z, -np.inf), y) for z, y in zip(Z, Y, strict=True)]), edge=True),
    Property("margins", "No loss is below 0; it is 0 beyond a mapping's margin, and grows as the "
             "score lead does.", _at_rows([(np.array([lead, 0.0, -0.5]), 0) for lead in
                                           (0.5, 1.0, 1.5, 2.0, 3.0, -8.0, 30.0, -1e4)])),
    Property("memory layouts", "Transposed, strided, reversed and read-only scores give the same.",
             lambda subject: [{"z": Z, "y": Y, "layout": name} for name in
                              ("transposed", "every second", "part of a wider array", "reversed",
                               "read-only") if subject.has_layout(name) and not subject.one_row]),
    Property("float type", "The loss has the float type of the scores.", _own,
             question=engine.float_type, edge=True, core=True),
    Property("gradient", "The gradient is mapping(z) − y.", _rows(**G),
             core=True),
    Property("gradient of a batch", "In a batch each row has its own gradient, divided by the "
             "number of rows for a mean.", [{"z": Z, "y": Y, **G}]),
    Property("upstream gradient", "The gradient of a multiple of the loss, or of a weighted sum.",
             [{"z": Z, "y": Y, **G, "v": v} for v in (2.5, "drawn")]),
    Property("a second call", "It gives the same.", _own, question=engine.repeated),
    Property("arrays read anew", "A call sees what was written into its arrays since the last.",
             lambda subject: _own(subject) * subject.has_layout("transposed"),
             question=engine.arrays_read_anew),
    Property("inputs left as they were", "Neither the function nor its gradient writes into the "
             "scores.", _own, question=_inputs, edge=True),
    Property("results left as they were", "A result does not change with the next call.", _own,
             question=engine.results_kept, edge=True),
)  # fmt: skip


def check_loss(
    fn: Callable[..., Any],
    mapping: str | Mapping,
    *,
    grad: Callable[..., Any] | None = None,
    targets: str | None = None,
    shapes: Sequence[tuple[int, int]] = (),
    dtypes: Sequence[str] | None = None,
    device: Any = None,
    seed: int = 0,
    tolerances: Table[str, float] | None = None,
    strict: bool = False,
    **parameters: Any,
) -> LossReport:
    """Check anybody's implementation of a Fenchel-Young loss, in any array library.

    The function is compared with `pyentmax.fenchel_young_loss` in double precision: labels and soft
    targets, reductions, −∞, shifts, masks, ignored labels, batches of up to 130 rows and 4,099
    classes, with the gradient. It is called at most 6,000 times.

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
    targets : {"labels", "soft"}, optional
        Whether y are labels or distributions of the scores' shape. If not given, it is found out.
    shapes : sequence of (rows, classes), optional
        Sizes to try beside the usual ones.
    dtypes, device, seed, tolerances, strict, **parameters : as in `check_mapping`

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
    if targets not in (None, *TARGETS):
        raise ValueError(f'targets must be "labels", "soft" or None, got {targets!r}')
    record = truth(mapping, parameters)
    fenchel_young_loss(Z, Y, record, **parameters)  # an error if it has no loss
    settings = Settings(dtypes, device, seed, tolerances, strict)

    def trials(library: str) -> Iterator[LossSubject]:
        kinds = (targets,) if targets else TARGETS
        for one_row, kind in product((False, True), kinds):
            yield LossSubject(
                fn=fn, own_vjp=grad, record=record, parameters=parameters, library=library,
                settings=settings, one_row=one_row, targets=kind,
                lengths=tuple(shapes))  # fmt: skip

    expected = "scores (4, 3) and labels (4,), or one row, to losses"
    return judge(LossReport, "loss of ", fn, PROPERTIES, settings, trials, expected)
