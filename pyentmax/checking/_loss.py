"""Fenchel-Young losses: scores, targets and reductions, what is right, and what is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._questions import G, Property, of_calls
from pyentmax.checking._subject import LONG_SUM, Operator, Subject, accepts
from pyentmax.checking._tape import V
from pyentmax.checking._verdict import Case, Expected, Finding, refuse, text
from pyentmax.reference.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad

IGNORED, SMOOTHING = -100, 0.1
REDUCTIONS: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "sum": np.sum, "none": np.array}
TARGETS = ("labels", "soft")
Z = np.array([[0.0, 0.5, 1.0], [1.0, -0.25, 0.75], [-3.0, 2.5, 0.5], [0.25, 0.0, 0.125]])
Y = np.array([1, 0, 2, 2])
Q = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [1.0, 0, 0], [0, 0, 1.0]])
SKIPPING = np.where(np.arange(4) == 1, IGNORED, Y)
LONG = ((1, 2), (9, 32), (20, 3), (9, 33), (130, 300), (300, 3), (9, 1000), (1, 4099))
ROWS: dict[str, Any] = {"z": Z, "y": Y}


def losses(u: Subject, z: Array, y: Any, **options: Any) -> Array:
    """The library's own loss of each row, in double precision."""
    options = {"reduction": "none", **options, **u.parameters}
    return np.asarray(fenchel_young_loss(z, y, u.record, **options))


def one_hot(y: Any, d: int) -> Array:
    """Targets as distributions; of ignored rows zeros."""
    y = np.asarray(y)
    return y if y.dtype.kind == "f" else np.asarray(np.arange(d) == y[..., None], float)


def reduction_of(u: Subject, case: Case) -> str:
    """The reduction of the losses of a case's rows."""
    alone = u.facts["each"] or case.z.ndim == 1
    return "none" if alone else str(case.get("reduction", u.facts["reduction"]))


# --- what is tried --------------------------------------------------------------------------------
def _rows() -> list[Any]:
    rng = np.random.default_rng(0)
    drawn = (np.round(s * rng.standard_normal(d), 2) for d in (2, 5, 40) for s in (1.0, 4.0))
    return [{"z": z[None], "y": np.array([y]), **G} for z in (*Z, np.zeros(3), *drawn)
            for y in {0, z.size - 1, int(np.argmax(z))}]  # fmt: skip


def _at_rows(rows: Any) -> list[Any]:
    return [{"z": np.array([z]), "y": np.array([y])} for z, y in rows]


def _soft(u: Subject) -> list[Any]:
    rng = np.random.default_rng(0)
    q, z = rng.dirichlet(np.ones(33), 9), np.round(rng.standard_normal((9, 33)), 2)
    return [{"z": a, "y": b, "soft": True, **G} for a, b in ((Z, Q), (z, q))]


def _ignored(u: Subject) -> list[Any]:
    named, words = "ignore_index" in u.known, {"z": Z, "y": SKIPPING, **G, "upstream": "drawn"}
    words |= {"ignore_index": IGNORED} if named else {}
    hows = [{"reduction": x} for x in REDUCTIONS if "reduction" in u.known] or [{}]
    return [words | how for how in hows] if named or u.facts["ignores"] else []


def _conventions(u: Subject, case: Case) -> Iterator[Finding]:
    """With Ω(q), or without."""
    observed, right = u.observe(case), u.expect(case)
    loss, error = observed["loss"], observed.pop("error", None)
    case.update(observed=observed, expected=right)
    both = (u.expect(case | {"without": x})["loss"] for x in (False, True))
    yield min((u.measure(case, "loss", loss, one) for one in both), key=lambda one: one.units)
    if "gradient" in observed:
        yield u.measure(case, "gradient", observed["gradient"], right["gradient"])
    if error is not None:
        raise error


class Loss(Operator):
    """A function from scores and targets to a loss, or one for each row."""

    kind, positional, result = "loss", ("z", "y"), "loss"
    taken = ("reduction", "ignore_index", "mask", "label_smoothing")
    expected_arrays = "scores (4, 3) and labels (4,), or one row, to losses"
    gradient_names, gradient_line = {"z": "gradient"}, "gradient"
    properties = (
        Property("targets", "The loss of a row is Ω*(z) + Ω(y) − z_y.", _rows(), core=True,
                 vital=True),
        Property("soft targets", "The target may be a distribution, with Ω(q) or without.", _soft,
                 _conventions),
        Property("batches", "Of a batch comes each row's loss, or their mean or sum.", [
            {"z": Z[:n], "y": Y[:n], **G} for n in (2, 4)], core=True, vital=True),
        Property("rows and classes", "1 to 300 rows, 2 to 4,099 classes, labels of all.",
                 lambda u: [{"shape": shape, **G, "seed": 1}
                            for shape in (*LONG, *u.operator.sizes)], core=True, vital=True),
        Property("reductions", "``reduction=`` gives the mean, the sum, or each row's loss.", [
            {**ROWS, "reduction": name, **G, "upstream": "drawn"} for name in REDUCTIONS],
            option=True),
        Property("masks", "Entries that ``mask=`` leaves out get nothing.", [
            {"z": z[None], "y": np.array([y]), "mask": np.array([[True, True, False]]), **G}
            for z, y in zip(Z, Y % 2, strict=True)], option=True),
        Property("ignored labels", "Rows of ``ignore_index`` count nowhere, backwards too.",
                 _ignored, option=True),
        Property("label smoothing", "``label_smoothing=ε`` gives every class ε / C.", [
            {**ROWS, "label_smoothing": SMOOTHING, **G}], _conventions, option=True),
        Property("shifts", "A constant added to all scores changes nothing.", _at_rows(
            [(Z[0] + c, 1) for c in (1.0, -10.0, 1e3, -1e3, 1e5)])),
        Property("masked scores", "A score of −∞ that is not the label's changes nothing.",
                 _at_rows([(np.append(z, -np.inf), y) for z, y in zip(Z, Y, strict=True)]),
                 edge=True),
        Property("margins", "No loss is below 0, and it is 0 beyond a mapping's margin.", _at_rows(
            [(np.array([lead, 0.0, -0.5]), 0)
             for lead in (0.5, 1.0, 1.5, 2.0, 3.0, -8.0, 30.0, -1e4)])),
        Property("gradient", "It is mapping(z) − y, over the number of rows for a mean."),
        Property("upstream gradient", "That of a multiple of the loss, or of a weighted sum.", [
            {**ROWS, **G, "upstream": how} for how in ("scaled", "drawn")]),
        *of_calls(lambda u: [{"z": Z[0], "y": Y[0]} if u.facts["each"] else ROWS],
                  [ROWS, {**ROWS, "reduction": "none"}], [ROWS]),
    )  # fmt: skip

    def __init__(self, targets: str | None = None, sizes: Any = ()) -> None:
        self.targets, self.sizes = targets, tuple(sizes)

    def axes(self, u: Subject, words: Any) -> int:
        """The axes of the scores; a single row has no views."""
        return 0 if u.facts["each"] else 2

    # --- what is found out ------------------------------------------------------------------------
    def forms(self, u: Subject) -> Iterator[dict[str, Any]]:
        """A batch or one row, labels or distributions."""
        kinds = (self.targets,) if self.targets else TARGETS
        for each, kind, how in product((False, True), kinds, ("mean", "none")):
            yield {"each": each, "targets": kind, "reduction": how, "both": False, "ignores": ""}

    def settle(self, u: Subject) -> None:
        """Targets, reduction, and what becomes of a label of −100."""
        f = u.facts
        kinds = (self.targets,) if self.targets else (f["targets"], *TARGETS)
        ways = [{"targets": kind, "reduction": how} for kind in kinds for how in REDUCTIONS]
        n = len(REDUCTIONS)
        if u.nearest(ways[:n], True, **ROWS) > 1 and u.nearest(ways, True, **ROWS) > 1:
            u.nearest(ways[:n], False, **ROWS)
        if f["targets"] == "labels" and not self.targets:
            f["both"] = not u.having(both=True).error(z=Z, y=Q, soft=True)
        if "ignore_index" not in u.known and f["targets"] == "labels" and not f["each"]:
            hows = [u.having(ignores=x).off(z=Z, y=SKIPPING) for x in ("skipped", "averaged")]
            f["ignores"] = "skipped" if min(hows) <= 1 else ""
        if f["targets"] == "soft":
            u.say('its targets are distributions; targets="soft" declares it')
        u.say("fn takes one row; it was called row by row" if f["each"] else
              f"of a batch fn gives {f['reduction'].replace('none', 'each loss')}")  # fmt: skip

    def sample(self, u: Subject) -> Case:
        """Four rows, or one."""
        each = u.facts["each"]
        return self.make(u, z=Z[0] if each else Z, y=Y[0] if each else Y)

    # --- cases ------------------------------------------------------------------------------------
    def make(self, u: Subject, z: Any = None, y: Any = None, shape: tuple[int, int] | None = None,
             spread: float = 2.0, seed: int = 0, upstream: str = "", fixed: bool = False,
             **options: Any) -> Case:  # fmt: skip
        """Scores, labels over the whole range or distributions, and fn's options."""
        how, named = u.facts["targets"], {"reduction", "ignore_index"} & {*options}
        for name in {*options} & {*self.taken}:
            refuse(name not in u.known, f"no parameter {name}")
        u.drop_gradients(options, fixed or (upstream and not named))
        if upstream and u.own_vjp is not None:
            refuse(not named, "grad= takes no upstream gradient")
            upstream = ""
        if shape is not None:
            rng = np.random.default_rng((u.settings.seed + seed, *shape))
            z = np.round(spread * rng.standard_normal(shape), 4)
            y = rng.integers(0, shape[1], shape[0])
            y[:1] = shape[1] - 1  # the largest label
        z, y = u.rounded(z), np.asarray(y)
        soft = y.dtype.kind == "f"
        refuse(soft and how == "labels" and not u.facts["both"], "its targets are labels")
        refuse(how == "soft" and not soft and (y < 0).any(), "its targets are distributions")
        refuse((z == np.inf).any(), f"scores beyond {u.dtype}")
        case = Case(z=z, y=u.rounded(y) if soft else y, cost=float(z.size), upstream=upstream,
                    long=z.shape[-1] * u.epsilon > LONG_SUM, **options)  # fmt: skip
        rows = () if reduction_of(u, case) != "none" else z.shape[:-1]
        refuse(upstream == "strided" and not rows, "the gradient from above is one number")
        drawn = np.resize([1.0, -0.5, 2.0], rows)
        alike = not rows or upstream in ("", "scaled")
        case["g"] = np.full(rows, 2.5 if upstream else 1.0) if alike else drawn
        if not (np.abs(z) <= u.ordinary).all():
            case["edge"] = True
        words = [f"{name} = {x!r}" for name, x in options.items()
                 if name in self.taken and name != "mask"]  # fmt: skip
        case["words"] = ", ".join([*words, f"{text(z)}, y = {text(y)}"])
        u.count(classes=z.shape[-1], rows=z.size // max(z.shape[-1], 1))
        return case

    def given(self, u: Subject, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """Scores, targets, and keywords."""
        soft = u.facts["targets"] == "soft"
        y = np.asarray(one_hot(case.y, case.z.shape[-1]) if soft else case.y)
        options = {name: case[name] for name in self.taken if name in case} | u.passed
        arrays = {name: x for name, x in options.items() if isinstance(x, np.ndarray)}
        return {"z": case.z, "y": y, **arrays}, {
            name: x for name, x in options.items() if name not in arrays}  # fmt: skip

    def shape(self, u: Subject, case: Case) -> tuple[int, ...]:
        """The shape of a loss, or of one for each row."""
        return np.shape(case.z)[:-1] if reduction_of(u, case) == "none" else ()

    def own_vjp(self, u: Subject, case: Case, native: Any, options: Any) -> dict[str, Any]:
        """The gradient of the sum."""
        accepts(u.own_vjp, {*native, *options} - {*self.positional})
        return {"z": u.call(native, options, u.own_vjp)}

    # --- what is right ----------------------------------------------------------------------------
    def truth(self, u: Subject, case: Case) -> tuple[V, dict[str, V]]:
        """The losses of rows, reduced."""
        z, y = V(case.z), case.y
        options = {x: case[x] for x in ("ignore_index", "mask", "label_smoothing") if x in case}
        seen = np.ones(len(z.x)) if y.dtype.kind == "f" else np.atleast_1d(y != IGNORED)
        if not seen.all():
            options["ignore_index"] = IGNORED
        loss, grad = fenchel_young_loss_and_grad(
            case.z, y, u.record, reduction="none", **options, **u.parameters)  # fmt: skip
        loss = np.asarray(loss)
        if case.without:  # without Ω(q)
            zero, first = np.zeros(case.z.shape), np.zeros(case.z.shape[:-1], int)
            loss = loss - losses(u, zero, y, **options) + losses(u, zero, first)
        how = reduction_of(u, case)
        n = seen.size if u.facts["ignores"] == "averaged" else np.count_nonzero(seen)
        rows = V(loss, (z, lambda g: g[..., None] * grad))
        rows = rows * (1 / max(1, n) if how == "mean" else 1.0)
        if how == "none":
            return rows, {"z": z}
        return V(rows.x.sum(), (rows, lambda g: np.broadcast_to(g, rows.x.shape))), {"z": z}

    def expected(self, u: Subject, case: Case, value: Array, grads: Any) -> dict[str, Expected]:
        """The loss and its gradient may be off by rounding of the scores."""
        z = case.z
        largest = float(np.max(np.abs(z), initial=0, where=np.isfinite(z)))
        unit = 8 * case.get("epsilon", u.epsilon) * max(1.0, largest)
        count = z.size / z.shape[-1] if reduction_of(u, case) == "sum" else 1
        size = max(1.0, float(np.max(np.abs(value), initial=0, where=np.isfinite(value))))
        scale = max(1.0, float(np.max(np.abs(case.g))))
        return {"loss": Expected(value, unit * count, size)} | {
            self.gradient(x): Expected(g, unit * scale) for x, g in grads.items()}  # fmt: skip
