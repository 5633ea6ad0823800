"""Mappings: rows of scores, what is right for them, and what is tried."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np

from pyentmax.checking import _questions as ask
from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import SMALLEST, parameters_of
from pyentmax.checking._subject import LONG_SUM, Operator, Property, Subject
from pyentmax.checking._tape import V, mapped, transposed
from pyentmax.checking._truths import JACOBIANS, slack
from pyentmax.checking._verdict import Case, Expected, Finding, Missing

LENGTHS = (3, 5, 40, 100)  # of rows; the first that fn takes is the length of rows in batches
FIXED = (2, 4, 6, 8, 10, 12, 16, 20, 32, 50, 64)  # of functions that take one length only
NEARLY_EQUAL = 1200  # scores of the longest row whose Jacobian is formed
LONG = ((1, 1), (9, 32), (9, 33), (2, 64), (2, 128), (2, 256), (130, 33), (300, 3), (9, 130),
        (2, 1000), (1, 4099), (1, 40000))  # fmt: skip
SHAPES = ((2, 2), (1, 2), (2, 1), (1, 1))  # of batches
ALPHAS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
G: Case = {"gradients": True, "smooth": True}


def alpha_of(u: Subject) -> float:
    """The α of a mapping of Tsallis' family, 1 of others."""
    return float(ALPHAS.get(u.record.name, u.parameters.get("alpha", 1.0)))


def in_family(u: Subject) -> bool:
    """Whether a mapping is of Tsallis' family."""
    return u.record.name in ALPHAS or "alpha" in u.parameters


def slopes(p: Array, alpha: float) -> Array:
    """s = p^{2−α} on the support, 0 off it."""
    return np.where(p > 0, np.where(p > 0, p, 1) ** (2 - alpha), 0)


def exact(u: Subject, z: Array) -> Array:
    """The mapping's own result, in double precision."""
    p: Array = u.record(z, *u.values(), axis=-1)
    return p


def jacobian(u: Subject, z: Array) -> Array:
    """The exact J of one row, or of each row of a batch."""
    if u.record.name in JACOBIANS:
        return np.asarray(JACOBIANS[u.record.name](z))
    return np.asarray(u.record.jacobian(exact(u, z), *u.values()))


# --- what is tried --------------------------------------------------------------------------------
@cache
def _rows() -> list[Case]:
    rng = np.random.default_rng(0)
    levels = np.array([0.0, 0.5, 1.0])
    rows = [row for d in (1, 2, 3) for row in levels[np.indices([3] * d).reshape(d, -1)].T]
    for d in (2, 3, 5, 40):
        for scale in (1 / 8, 1.0, 8.0):
            rows += [scale * np.round(rng.standard_normal(d), 2) for _ in range(2)]
    rows += [np.round(rng.standard_normal(d), 4) for d in (40, 100, 100)]
    rows.append(np.round(rng.standard_normal(NEARLY_EQUAL) * 1e-4, 6))
    return [{"z": row} for row in rows]


def _values(u: Subject) -> list[Case]:
    n = u.facts["length"]
    own = [] if n in LENGTHS else [
        {"shape": (n,), "spread": spread, "seed": i} for i, spread in enumerate((1 / 8, 1, 1, 8))
    ]  # fmt: skip
    return [*_rows(), *own]


def _lengths(u: Subject) -> list[Case]:
    return [{"z": np.resize(np.arange(min(n, 8)), n) / 2, "length": n}
            for n in (1, *LENGTHS) if n >= u.parameters.get("k", 0)]  # fmt: skip


def _sized(u: Subject) -> list[Case]:
    shapes = [*LONG, *u.operator.sizes] if u.facts["length"] in LENGTHS else []
    if u.half and not u.alone:  # sums of e^z overflow in float16
        shapes = [shape for shape in shapes if shape[1] < LONG[-1][1]]
    return [
        {"shape": (n, d), "digits": 5, "spread": spread, "words": f"{n} rows of {d}"}
        for n, d in shapes
        for spread in ((1.0, 4.0) if n > 1 else (1.0,))
    ] + [{"shape": (9, 1000), "digits": 5, "shift": 8.0, "words": "9 rows of 1000 around 8"}][
        : "k" in u.parameters
    ]  # a kth score of few digits is another one there


def _masked(u: Subject) -> list[Case]:
    rows = [one["z"] for one in _rows() if one["z"].size <= 40]
    masked = [np.where(np.arange(z.size) % 3 == i % min(3, z.size), -np.inf, z)
              for i, z in enumerate(rows)]  # fmt: skip
    return [{"z": z} for z in masked if z.max() > -np.inf]


def _batches(u: Subject) -> list[Case]:
    n = u.facts["length"]
    good = np.round(np.random.default_rng(0).standard_normal((4, n)), 2)
    return [{"z": np.concatenate([good[:m], np.full((1, n), other)]), "compare": m}
            for m in (2, 4) for other in (9.0, 1e3, np.nan, -np.inf)]  # fmt: skip


def _axes(u: Subject) -> list[Case]:
    n = u.facts["length"]
    return [{"shape": (n,) * rank, "axis": axis, **(G if rank == 2 else {})}
            for rank in (2, 3) for axis in range(-rank, rank)]  # fmt: skip


def _laid_out(u: Subject) -> list[Case]:
    n = u.facts["length"]
    shapes = [(n,)] if u.facts["each"] else [(4, n), (9, n)]
    return [{"shape": shape, "layout": name, **(
             {} if name in ("reversed", "read-only") or u.no_gradients else G)}
            for name in ("transposed", "every second", "part of a wider array", "reversed",
                         "read-only")
            for shape in shapes
            if u.has_layout(name) and (name != "transposed" or len(shape) > 1)]  # fmt: skip


def _smooth_rows(u: Subject) -> list[Case]:
    lengths = dict.fromkeys((2, 3, 5, u.facts["length"]))
    return [{"shape": (d,), "spread": s, "seed": i, **G, "upstream": v}
            for d in lengths for i, s in enumerate((0.5, 1, 1)) for v in ("one", "")]  # fmt: skip


def _in_arrays(u: Subject) -> list[Case]:
    n = u.facts["length"]
    shapes = [(2, n), (3, n), (9, n), *(((*s, n) for s in SHAPES) if u.facts["rank"] < 3 else ())]
    return [{"shape": shape, "upstream": v, "spread": 1.5, **G}
            for shape in shapes for v in ("", "expanded", "tripled")]  # fmt: skip


def _strided(u: Subject) -> list[Case]:
    n = u.facts["length"]
    shapes = ((4, n), (2, 3, n)) if u.library == "torch" and u.own_vjp is None else ()
    return [{"shape": shape, "upstream": "strided", **G} for shape in shapes]


# --- questions of rows ----------------------------------------------------------------------------
def _accepts_row_length(u: Subject, case: Case) -> Iterator[Finding]:
    u.observe(case)
    yield ask.same(case, "taken", "taken")


def _tie(u: Subject, case: Case) -> Iterator[Finding]:
    z, p = case["z"], u.observe(case)["p"]
    tied = z == z[:, None]
    one = u.expect(case)["p"]
    yield u.measure(case, "p", p, one._replace(value=tied @ p / np.sum(tied, axis=-1)))


def _ties_at_kth(u: Subject, case: Case) -> Iterator[Finding]:
    """k of the tied scores stay, or all of them: either is a convention."""
    k, n = u.parameters["k"], case["z"].size - 1
    stay = int(np.count_nonzero(u.observe(case)["p"] > 0))
    words = f"{stay} of {n} tied scores stay, k = {k}"
    yield ask.same(case, words, f"{k} or {n} of {n} tied scores stay", stay in (k, n))


def _masked_row(u: Subject, case: Case) -> Iterator[Finding]:
    p = u.observe(case)["p"]
    yield ask.same(case, p, "zeros or NaN", bool((p == 0).all() or np.isnan(p).all()))


def _ordinary(u: Subject) -> Array:
    return np.arange(u.facts["length"]) / 2


PATTERNS = [[1.0], [-1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.5, 1.0], [-3.0, 1, 0, -1, 0.5]]
SHIFTED = [[0.0, 0.5], [0.0, 0.5, 1.0], [-0.25, 1.0, 0.5, -2.0, 0.0]]
SHIFTS = (1.0, -1.0, 10.0, -10.0, 1e2, -1e2, 1e3, -1e3)


class Rows(Operator):
    """A function from scores to probabilities, the rows along its last axis or along any."""

    kind, result, half_limit = "mapping", "p", 2.0  # of which computing in them takes 1.4
    taken = ("axis", "dim")
    expected_arrays = "an array of scores (of 3, 5, 40, 100 or 2 to 64) to probabilities"
    properties = (
        Property("row lengths", "Rows of 1, 3, 5, 40 and 100 scores are taken.", _lengths,
                 _accepts_row_length, edge=True),
        Property("exact values", "Each probability, and the sum of a row, is the library's own in "
                 "double precision.", _values, core=True, vital=True),
        Property("rows and lengths", "1 to 300 rows of 1 to 40,000 scores.", _sized, core=True),
        Property("ties", "Equal scores get equal probabilities.", [
            {"z": z} for z in ([0.5, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0, 1.0])], _tie),
        Property("ties at the kth score", "Of scores that tie with the k-th k stay, or all.",
                 lambda u: [{"z": np.append(np.ones(u.parameters["k"] + n), 0.0), "tied": True}
                            for n in (1, 3) if u.parameters.get("k")], _ties_at_kth, edge=True),
        Property("shifts", "A constant added to all scores changes nothing.", lambda u: [
            {"z": np.add(z, c)} for z in SHIFTED for c in SHIFTS if u.record.shift_invariant]),
        Property("scores around 16", "In half types too.", [
            {"z": [16.0, 16.0, 16.875]}, {"z": [16.0, 15.5, 14.5, 17.0, 16.5]}], edge=True,
            core=True),
        Property("tiny and huge scores", "Scores from 1e-30 to 1e30 are as exact as others.", [
            {"z": s * np.array(pattern)} for s in (1e2, 1e-8, 1e4, 1e8, 1e-30, 1e30)
            for pattern in PATTERNS]),
        Property("masked entries", "A score of −∞ gets nothing, and changes no other.", _masked,
                 edge=True),
        Property("masked rows", "A row of −∞ gives zeros or NaN.", lambda u: [
            {"z": np.full(d, -np.inf)} for d in {u.facts["length"]: 0, 1: 0, 2: 0}], _masked_row,
            edge=True),
        Property("single entries", "A row of one entry gives all to it.", [
            {"z": [x]} for x in (0.0, 0.5, -3.0, 10.0)], vital=True),
        Property("batches", "A row gives the same whatever the other rows hold.", _batches,
                 core=True, vital=True),
        Property("three dimensions", "Rows may be in an array of three dimensions.", lambda u: [
            {"shape": (*shape, u.facts["length"])} for shape in SHAPES],
                 refusable="always"),
        Property("axes", "Rows may lie along every axis.", _axes),
        Property("memory layouts", "Views of any strides give the same.", _laid_out),
        Property("empty batches", "A batch of no rows gives one of no rows.", lambda u: [
            {"z": np.zeros((0, u.facts["length"]))}], edge=True),
        Property("derivative", "The product Jᵀv is the library's own.", _smooth_rows, core=True),
        Property("derivative in arrays", "Jᵀv of a row is the same in a batch, for any v.",
                 _in_arrays),
        Property("derivative of long rows", "Jᵀv of rows of 130 and 1000 scores.", [
            {"shape": (2, d), "digits": 5, "spread": 2.0, **G} for d in (130, 1000)]),
        Property("derivative in the parameter", "The gradient in α, if fn takes it as an array.", [
            {"shape": (d,), **G, "learned": True} for d in (3, 5)], refusable="always"),
        Property("derivative at masked entries", "A score of −∞ has, and spoils, no gradient.", [
            {"z": [1.0, 0.25, -np.inf], "gradients": True, "upstream": v} for v in ("one", "")],
            edge=True),
        Property("strided gradients from above", "Jᵀv for a v that is a view.", _strided,
                 cause="strides of the gradient from above not used: make it contiguous"),
        *ask.of_calls(lambda u: [{"z": _ordinary(u)}, {"shape": (4, u.facts["length"])}], (), [
            {"z": [0.5]}, {"z": [0.5, -np.inf, 1.0]}]),
    )  # fmt: skip

    def __init__(self, sizes: Any = ()) -> None:
        self.sizes = tuple(sizes)

    def forms(self, u: Subject) -> Iterator[dict[str, Any]]:
        """The name of the axis, the axes of a single row, and the length of rows."""
        known = parameters_of(u.fn)
        names = ("axis", "dim") if known is None else sorted({"axis", "dim"} & {*known})
        for axis, rank, length in product((*names, None), (1, 2), LENGTHS + FIXED):
            yield {"axis": axis, "rank": rank, "length": length, "each": False, "takes": {}}

    def settle(self, u: Subject) -> None:
        """Whether fn takes one row, and no batch of rows."""
        if u.facts["rank"] == 1:
            u.facts["each"] = not u.works(z=np.stack([_ordinary(u)] * 2))
        if u.facts["each"]:
            u.say("fn takes one vector; it was called row by row")

    def sample(self, u: Subject) -> Case:
        """Ordinary scores."""
        return self.make(u, z=_ordinary(u), length=True)

    def takes(self, u: Subject, length: int) -> bool:
        """Whether fn takes rows of that length."""
        known = u.facts["takes"]
        if (u.dtype, length) not in known:
            known[u.dtype, length] = True
            z = np.resize(np.arange(min(length, 8)), length) / 2
            known[u.dtype, length] = u.works(z=z, tied=True)
        return bool(known[u.dtype, length])

    def make(self, u: Subject, z: Any = None, shape: tuple[int, ...] = (), spread: float = 1.0,
             seed: int = 0, digits: int = 2, shift: float = 0.0, smooth: bool = False,
             fixed: bool = False, **more: Any) -> Case:  # fmt: skip
        """Scores as they are given or drawn, and a vector for the product with the Jacobian."""
        axis = more.get("axis", -1)
        if more.get("gradients") and u.no_gradients:
            if fixed or "axis" not in more:
                raise Missing(u.no_gradients)
            del more["gradients"]
        if "learned" in more and not u.learned:
            raise Missing("no parameter that may be learned")
        if z is None:
            rng = np.random.default_rng((u.settings.seed + seed, shape[-1]))
            draw = partial(rng.standard_normal, shape)
            tries = (u.rounded(shift + spread * np.round(draw(), digits)) for _ in range(40))
            z = next((one for one in tries if not smooth or self._smooth(u, one)), None)
            if z is None:
                raise Missing("no rows without kinks")
            if axis != -1:
                z = np.moveaxis(z, -1, axis)
        z = u.rounded(z)
        if (z == np.inf).any():
            raise Missing(f"scores beyond {u.dtype}")
        case: Case = {"z": z, "axis": axis, **more}
        if layout := more.get("layout"):
            case["words"] = f"{layout} scores of shape {z.shape}"
        rows = np.moveaxis(z, axis, -1)
        d = rows.shape[-1]
        if "length" not in more and z.size and axis == -1 and not self.takes(u, d):
            raise Missing(f"rows of {d} raise an error")
        if "axis" in more and not u.facts["axis"]:
            raise Missing("no parameter axis or dim")
        if not more.get("tied"):
            self._decided(u, rows.reshape(-1, d) if z.size else rows)
        how = more.get("upstream")
        case["g"] = {"one": np.eye(1, z.size).reshape(z.shape), "expanded": np.ones(z.shape)}.get(
            how or "", np.resize([1.0, -0.5, 2.0, 0.25, -2.0], z.shape) * (3 if how == "tripled"
                                                                           else 1))  # fmt: skip
        if not (np.abs(z) <= u.ordinary).all():
            case["edge"] = True
        case["long"] = d * u.epsilon > LONG_SUM
        compared = z[: more.get("compare")]
        if compared.size and axis == -1:
            try:
                exact(u, compared)
            except ValueError as error:  # a budget of 2 for one entry, for example
                raise Missing(str(error)) from error
        case["cost"] = float(z.size)
        u.count(**{"scores a row": d, "rows": max(1, z.size // max(d, 1))})
        return case

    def _decided(self, u: Subject, rows: Array) -> None:
        """`Missing` where ties decide by order, or whether a tied score is among the k largest."""
        k, d = u.parameters.get("k", 0), rows.shape[-1]
        for z in rows if (k or not u.record.permutation_equivariant) else ():
            if not u.record.permutation_equivariant and len(np.unique(z)) < d:
                raise Missing("the order of ties decides")
            if 0 < k < d and np.diff(np.partition(z, (-k - 1, -k))[-k - 1 : d - k + 1]) == 0:
                raise Missing("a tie at the k-th score")

    def _smooth(self, u: Subject, z: Array) -> bool:
        """Whether the Jacobian has no jump near the rows, and is not 0."""
        if z.shape[-1] > 100:
            return True
        step = 1e-3 if not u.half else 2e-2
        for row in z.reshape(-1, z.shape[-1]):
            here, steps = jacobian(u, row), step * np.eye(row.size)
            change = jacobian(u, np.concatenate([row + steps, row - steps])) - here
            if not (np.max(np.abs(change)) <= 10 * step * np.max(np.abs(here)) and here.any()):
                return False
        return True

    # --- the function -----------------------------------------------------------------------------
    def given(self, u: Subject, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """The scores, and keywords."""
        z, axis, passed = case["z"], u.facts["axis"], u.passed
        arrays = {"z": z[None] if z.ndim == 1 < u.facts["rank"] else z}
        if case.get("learned"):
            arrays[u.learned] = np.asarray(float(passed.pop(u.learned)))
        return arrays, passed | ({axis: case["axis"]} if axis else {})

    def back(self, u: Subject, case: Case, name: str, x: Array) -> Array:
        """The array in the shape of the scores, if it has that of the array that holds them."""
        held = self.given(u, case)[0]["z"].shape
        return x.reshape(case["z"].shape) if x.shape == held and name != "parameter" else x

    def finish(self, u: Subject, case: Case, found: dict[str, Array]) -> None:
        """Rows that are compared, and their sums."""
        found["p"] = found["p"][: case.get("compare")]
        if case["z"].size and case["axis"] == -1:
            found["sum"] = np.sum(found["p"], axis=-1)

    def gradient(self, name: str) -> str:
        """The product with the Jacobian."""
        return "in the parameter" if name == "parameter" else "Jᵀv"

    def own_vjp(self, u: Subject, case: Case, native: Any, options: Any) -> dict[str, Any]:
        """Jᵀv by the function handed in; none if it has no axis."""
        axis = case["axis"]
        names = {"axis", "dim"} & {*(parameters_of(u.own_vjp) or ())} if u.own_vjp else set()
        if axis != -1 and not names:
            raise Missing("vjp has no axis")
        more = {} if axis == -1 else dict.fromkeys(names, axis)
        v = np.reshape(case["g"], self.given(u, case)[0]["z"].shape)
        assert u.own_vjp is not None
        return {"z": u.own_vjp(u.call(native, options), u.array(v), **more)}

    # --- what is right ----------------------------------------------------------------------------
    def truth(self, u: Subject, case: Case) -> tuple[V, dict[str, V]]:
        """The mapping along the axis."""
        z, axis = V(case["z"]), case["axis"]
        leaves = {"z": z}
        if case.get("learned"):
            leaves["parameter"] = V(u.parameters[u.learned])
        moved = transposed(z, axis, -1) if axis != -1 else z
        out = mapped(u.record, u.values(leaves.get("parameter")), moved)
        return (transposed(out, axis, -1) if axis != -1 else out), leaves

    def expected(self, u: Subject, case: Case, value: Array, grads: Any) -> dict[str, Expected]:
        """The right probabilities, their sum, and Jᵀv."""
        epsilon, axis = case.get("epsilon", u.epsilon), case["axis"]
        moved, p = (np.moveaxis(x[: case.get("compare")], axis, -1) for x in (case["z"], value))
        flat = moved.reshape(-1, moved.shape[-1])
        units = [self._allowed(u, z, q, epsilon)
                 for z, q in zip(flat, p.reshape(flat.shape), strict=True)]  # fmt: skip
        allowed = np.reshape(units, moved.shape) if units else np.ones(moved.shape)
        result = {"p": Expected(np.moveaxis(p, -1, axis), np.moveaxis(allowed, -1, axis))}
        more = slack(u.record, moved, u.limit)
        if moved.size and axis == -1:
            total, n = np.sum(p, axis=-1), moved.shape[-1] ** 0.5
            # A quarter of what values may be off by in half types: otherwise sums of 1.25 would do.
            unit = (1 if u.half else 4) * epsilon * n * np.maximum(1, total)
            result["sum"] = Expected(total, unit + np.sum(more * p, axis=-1))
        if grads:
            v = np.moveaxis(case["g"], axis, -1)
            reach = np.max(np.ptp(np.where(p > 0, moved, moved.max(-1, keepdims=True)), axis=-1))
            size = np.max(np.abs(v)[..., None, :] @ np.abs(jacobian(u, moved)))
            unit = epsilon * max(1, 16 * max(1, reach) * size) + float(np.max(more)) * size
            most = float(np.max(p) * np.max(np.abs(v)))
            result["Jᵀv"] = Expected(grads["z"], unit, most)
            if "parameter" in grads:
                del result["Jᵀv"]
                result["in the parameter"] = Expected(
                    grads["parameter"], 4 * unit * moved.shape[-1], most
                )
        return result

    def _allowed(self, u: Subject, z: Array, p: Array, epsilon: float) -> Array:
        """The contract of accuracy for a row: p may be off by so much.

        4ε p of rounding, and what p changes by if scores move by 8ε max(1, their range over the
        support): to first order, and by each score's own move of twice as much, for an entry that
        is just entering the support. Equal scores move together.
        """
        y = z - np.max(z) if u.record.shift_invariant else z
        on = p > 0
        reach = max(1.0, float(np.ptp(y[on]))) if on.any() else 1.0
        move = 8 * epsilon * reach
        if z.size > NEARLY_EQUAL:  # the rows of |J| of the family sum to at most 2 p^{2 − α}
            slope, a = (2 * slopes(p, alpha_of(u)) if in_family(u) else 1.0), alpha_of(u)
            first_order = move * slope + move ** (1 / max(a - 1, 1)) * (~on) * in_family(u)
        else:
            first_order = move * np.sum(np.abs(jacobian(u, z)), axis=-1)
        if z.size <= LENGTHS[-1]:  # no entry of longer rows that are tried is near the threshold
            equal = y == y[:, None]
            moved = exact(u, np.concatenate([y + 2 * move * equal, y - 2 * move * equal]))
            own = (moved - exact(u, y)).reshape(2, len(z), -1)
            first_order = first_order + np.abs(np.diagonal(own, 0, 1, 2)).max(0)
        first_order = first_order + slack(u.record, z, u.limit) * p
        return np.asarray(np.maximum(4 * epsilon * p + first_order, SMALLEST[u.computed]))
