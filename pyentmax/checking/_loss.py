"""Fenchel-Young losses: scores, targets and reductions, what is right, and what is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from pyentmax.checking import _questions as ask
from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import LAYOUTS
from pyentmax.checking._subject import LONG_SUM, Operator, Property, Subject, accepts
from pyentmax.checking._tape import V
from pyentmax.checking._verdict import Case, Expected, Finding, Missing, text
from pyentmax.reference.fenchel_young import fenchel_young_loss, fenchel_young_loss_and_grad

IGNORED, SMOOTHING = -100, 0.1
REDUCTIONS: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "sum": np.sum, "none": np.array}
TARGETS = ("labels", "soft")
Z = np.array([[0.0, 0.5, 1.0], [1.0, -0.25, 0.75], [-3.0, 2.5, 0.5], [0.25, 0.0, 0.125]])
Y = np.array([1, 0, 2, 2])
Q = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [1.0, 0, 0], [0, 0, 1.0]])
SKIPPING = np.where(np.arange(4) == 1, IGNORED, Y)
LONG = ((1, 2), (9, 32), (20, 3), (9, 33), (130, 300), (300, 3), (9, 1000), (1, 4099))
G: Case = {"gradients": True}


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
    alone = u.facts["each"] or case["z"].ndim == 1
    return "none" if alone else str(case.get("reduction", u.facts["reduction"]))


# --- what is tried --------------------------------------------------------------------------------
def _rows() -> list[Case]:
    rng = np.random.default_rng(0)
    drawn = (np.round(s * rng.standard_normal(d), 2) for d in (2, 5, 40) for s in (1.0, 4.0))
    return [{"z": z[None], "y": np.array([y]), **G} for z in (*Z, np.zeros(3), *drawn)
            for y in {0, z.size - 1, int(np.argmax(z))}]  # fmt: skip


def _at_rows(rows: Any) -> list[Case]:
    return [{"z": np.array([z]), "y": np.array([y])} for z, y in rows]


def _plain_cases(u: Subject) -> list[Case]:
    return [{"z": Z[0], "y": Y[0]} if u.facts["each"] else {"z": Z, "y": Y}]


def _soft(u: Subject) -> list[Case]:
    rng = np.random.default_rng(0)
    q, z = rng.dirichlet(np.ones(33), 9), np.round(rng.standard_normal((9, 33)), 2)
    return [{"z": a, "y": b, "soft": True, **G} for a, b in ((Z, Q), (z, q))]


def _sized(u: Subject) -> list[Case]:
    return [{"shape": shape, **G, "seed": 1} for shape in (*LONG, *u.operator.sizes)]


def _ignored(u: Subject) -> list[Case]:
    how = [x for x in REDUCTIONS if "reduction" in u.known] or [""]
    given = {"ignore_index": IGNORED} if "ignore_index" in u.known else {}
    if not given and not u.facts["ignores"]:
        return []
    return [{"z": Z, "y": SKIPPING, **given, **({"reduction": x} if x else {}), **G, "v": "drawn"}
            for x in how]  # fmt: skip


def _conventions(u: Subject, case: Case) -> Iterator[Finding]:
    """With Ω(q), or without."""
    observed = u.observe(case)
    error, loss = observed.pop("error", None), observed["loss"]
    both = [case | {"without": x} for x in (False, True)]
    findings = [u.measure(one, "loss", loss, u.expect(one)["loss"]) for one in both]
    yield min(findings, key=lambda one: one.units)._replace(case=case)
    if "gradient" in observed:
        yield u.measure(case, "gradient", observed["gradient"], u.expect(case)["gradient"])
    if error is not None:
        raise error


class Loss(Operator):
    """A function from scores and targets to a loss, or one for each row."""

    kind, positional, result = "loss", ("z", "y"), "loss"
    taken = ("reduction", "ignore_index", "mask", "label_smoothing")
    expected_arrays = "scores (4, 3) and labels (4,), or one row, to losses"
    properties = (
        Property("targets", "The loss of a row is Ω*(z) + Ω(y) − z_y.", _rows(), core=True,
                 vital=True),
        Property("soft targets", "The target may be a distribution, with Ω(q) or without.", _soft,
                 _conventions),
        Property("batches", "Of a batch comes each row's loss, or their mean or sum.", [
            {"z": Z[:n], "y": Y[:n], **G} for n in (2, 4)], core=True, vital=True),
        Property("rows and classes", "1 to 300 rows, 2 to 4,099 classes, labels of all.", _sized,
                 core=True, vital=True),
        Property("reductions", "``reduction=`` gives the mean, the sum, or each row's loss.", [
            {"z": Z, "y": Y, "reduction": name, **G, "v": "drawn"} for name in REDUCTIONS],
            option=True),
        Property("masks", "Entries that ``mask=`` leaves out get nothing.", [
            {"z": z[None], "y": np.array([y]), "mask": np.array([[True, True, False]]), **G}
            for z, y in zip(Z, Y % 2, strict=True)], option=True),
        Property("ignored labels", "Rows of ``ignore_index`` count nowhere, backwards too.",
                 _ignored, option=True),
        Property("label smoothing", "``label_smoothing=ε`` gives every class ε / C.", [
            {"z": Z, "y": Y, "label_smoothing": SMOOTHING, **G}], _conventions, option=True),
        Property("shifts", "A constant added to all scores changes nothing.", _at_rows(
            [(Z[0] + c, 1) for c in (1.0, -10.0, 1e3, -1e3, 1e5)])),
        Property("masked scores", "A score of −∞ that is not the label's changes nothing.",
                 _at_rows([(np.append(z, -np.inf), y) for z, y in zip(Z, Y, strict=True)]),
                 edge=True),
        Property("margins", "No loss is below 0, and it is 0 beyond a mapping's margin.", _at_rows(
            [(np.array([lead, 0.0, -0.5]), 0)
             for lead in (0.5, 1.0, 1.5, 2.0, 3.0, -8.0, 30.0, -1e4)])),
        Property("memory layouts", "Views of any strides give the same.", lambda u: [
            {"z": Z, "y": Y, "layout": name} for name in LAYOUTS
            if name != "heads inside" and u.has_layout(name) and not u.facts["each"]]),
        Property("gradient", "It is mapping(z) − y, over the number of rows for a mean."),
        Property("upstream gradient", "That of a multiple of the loss, or of a weighted sum.", [
            {"z": Z, "y": Y, **G, "v": v} for v in (2.5, "drawn", "strided")]),
        *ask.of_calls(_plain_cases),
    )  # fmt: skip

    def __init__(self, targets: str | None = None, sizes: Any = ()) -> None:
        self.targets, self.sizes = targets, tuple(sizes)

    # --- what is found out ------------------------------------------------------------------------
    def forms(self, u: Subject) -> Iterator[dict[str, Any]]:
        """A batch or one row, labels or distributions."""
        kinds = (self.targets,) if self.targets else TARGETS
        for each, kind, how in product((False, True), kinds, ("mean", "none")):
            yield {"each": each, "targets": kind, "reduction": how, "both": False, "ignores": ""}

    def settle(self, u: Subject) -> None:
        """Targets, reduction, and what becomes of a label of −100."""
        kinds = (self.targets,) if self.targets else TARGETS
        found = {kind: u.having(targets=kind) for kind in kinds}
        off = {}
        for kind, one in found.items():
            one.nearest("reduction", [*REDUCTIONS], False, z=Z, y=Y)
            off[kind] = one.off(z=Z, y=Y)
        best = min(kinds, key=lambda kind: (off[kind] > 1 and kind != u.facts["targets"],
                                            kind != u.facts["targets"]))  # fmt: skip
        u.facts |= found[best].facts
        f = u.facts
        soft = {"z": Z, "y": Q, "soft": True}
        if f["targets"] == "labels" and not self.targets:
            f["both"] = u.having(both=True).works(**soft)
        if "ignore_index" not in u.known and f["targets"] == "labels" and not f["each"]:
            kept = {"z": Z, "y": SKIPPING}
            off = {how: u.having(ignores=how).off(**kept) for how in ("skipped", "averaged")}
            f["ignores"] = "skipped" if min(off.values()) <= 1 else ""
        if f["targets"] == "soft":
            u.say('its targets are distributions; targets="soft" declares it')
        if f["each"]:
            u.say("fn takes one row; it was called row by row")
        else:
            u.say(f"of a batch fn gives {f['reduction'].replace('none', 'each loss')}")

    def sample(self, u: Subject) -> Case:
        """Four rows, or one."""
        each = u.facts["each"]
        return self.make(u, z=Z[0] if each else Z, y=Y[0] if each else Y)

    # --- cases ------------------------------------------------------------------------------------
    def make(self, u: Subject, z: Any = None, y: Any = None, shape: tuple[int, int] | None = None,
             spread: float = 2.0, seed: int = 0, v: Any = 1.0, fixed: bool = False,
             **options: Any) -> Case:  # fmt: skip
        """Scores, labels over the whole range or distributions, and fn's options."""
        for name in {*options} & {*self.taken}:
            if name not in u.known:
                raise Missing(f"no parameter {name}")
        upstream = not isinstance(v, float) or v != 1.0
        if options.get("gradients") and u.no_gradients:
            if fixed or upstream and "reduction" not in options and "ignore_index" not in options:
                raise Missing(u.no_gradients)
            del options["gradients"]
        if upstream and u.own_vjp is not None:
            if v == 2.5 or not ({"reduction", "ignore_index"} & {*options}):
                raise Missing("grad= takes no upstream gradient")
            v = 1.0
        if shape is not None:
            rng = np.random.default_rng((u.settings.seed + seed, *shape))
            z = np.round(spread * rng.standard_normal(shape), 4)
            y = rng.integers(0, shape[1], shape[0])
            y[:1] = shape[1] - 1  # the largest label
        z, y = u.rounded(z), np.asarray(y)
        soft = y.dtype.kind == "f"
        if soft and u.facts["targets"] == "labels" and not u.facts["both"]:
            raise Missing("its targets are labels")
        if u.facts["targets"] == "soft" and not soft and (y < 0).any():
            raise Missing("its targets are distributions")
        if (z == np.inf).any():
            raise Missing(f"scores beyond {u.dtype}")
        case: Case = {"z": z, "y": u.rounded(y) if soft else y, **options}
        if isinstance(v, str):
            case["upstream"] = "strided" if v == "strided" else ""
        rows = z.shape[0] if z.ndim > 1 else 1
        scalar = z.ndim == 1 or reduction_of(u, case) in ("mean", "sum")
        case["g"] = (np.asarray(float(v if not isinstance(v, str) else 2.5)) if scalar else
                     np.resize([1.0, -0.5, 2.0], rows) if isinstance(v, str) else
                     np.full(rows, float(v)))  # fmt: skip
        if not (np.abs(z) <= u.ordinary).all():
            case["edge"] = True
        case["long"] = z.shape[-1] * u.epsilon > LONG_SUM
        named = [f"{name} = {x!r}" for name, x in options.items()
                 if name in self.taken and name != "mask"]  # fmt: skip
        case["words"] = ", ".join([*named, f"{text(z)}, y = {text(y)}"])
        case["cost"] = float(z.size)
        u.count(classes=z.shape[-1], rows=z.size // max(z.shape[-1], 1))
        return case

    def given(self, u: Subject, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """Scores, targets, and keywords."""
        y = case["y"]
        if u.facts["targets"] == "soft":
            y = one_hot(y, case["z"].shape[-1])
        options = {name: case[name] for name in self.taken if name in case} | u.passed
        arrays = {name: x for name, x in options.items() if isinstance(x, np.ndarray)}
        return {"z": case["z"], "y": y, **arrays}, {
            name: x for name, x in options.items() if name not in arrays
        }

    def shape(self, u: Subject, case: Case) -> tuple[int, ...]:
        """The shape of a loss, or of one for each row."""
        return np.shape(case["z"])[:-1] if reduction_of(u, case) == "none" else ()

    def gradient(self, name: str) -> str:
        """The gradient in the scores."""
        return "gradient"

    def line(self, name: str) -> str:
        """One for all gradients."""
        return "gradient"

    def own_vjp(self, u: Subject, case: Case, native: Any, options: Any) -> dict[str, Any]:
        """The gradient of the sum."""
        accepts(u.own_vjp, {*native, *options} - {*self.positional})
        return {"z": u.call(native, options, u.own_vjp)}

    # --- what is right ----------------------------------------------------------------------------
    def truth(self, u: Subject, case: Case) -> tuple[V, dict[str, V]]:
        """The losses of rows, reduced."""
        z, y = V(case["z"]), case["y"]
        options = {x: case[x] for x in ("ignore_index", "mask", "label_smoothing") if x in case}
        if y.dtype.kind != "f" and (y == IGNORED).any():
            options["ignore_index"] = IGNORED
        loss, grad = fenchel_young_loss_and_grad(
            case["z"], y, u.record, reduction="none", **options, **u.parameters)  # fmt: skip
        loss = np.asarray(loss)
        if case.get("without"):  # without Ω(q)
            zero, first = np.zeros(case["z"].shape), np.zeros(case["z"].shape[:-1], int)
            loss = loss - losses(u, zero, y, **options) + losses(u, zero, first)
        n = np.count_nonzero(y != IGNORED) if y.dtype.kind != "f" else len(y)
        n = y.size if u.facts["ignores"] == "averaged" else n
        how = reduction_of(u, case)
        weight = 1 / max(1, n) if how == "mean" else 1.0
        rows = V(loss, (z, lambda g: g[..., None] * grad)) * weight
        if how == "none":
            return rows, {"z": z}
        return V(rows.x.sum(), (rows, lambda g: np.broadcast_to(g, rows.x.shape))), {"z": z}

    def expected(self, u: Subject, case: Case, value: Array, grads: Any) -> dict[str, Expected]:
        """The loss and its gradient may be off by rounding of the scores."""
        z, how = case["z"], reduction_of(u, case)
        largest = float(np.max(np.abs(z), initial=0, where=np.isfinite(z)))
        unit = 8 * case.get("epsilon", u.epsilon) * max(1.0, largest)
        count = z.size / z.shape[-1] if how == "sum" else 1
        size = max(1.0, float(np.max(np.abs(value), initial=0, where=np.isfinite(value))))
        result = {"loss": Expected(value, unit * count, size)}
        if grads:
            scale = max(1.0, float(np.max(np.abs(case["g"]))))
            result["gradient"] = Expected(grads["z"], unit * scale)
        return result
