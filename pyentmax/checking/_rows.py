"""Mappings: rows of scores, what is right for them, and what is tried."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np

from pyentmax.checking._differences import Array
from pyentmax.checking._libraries import SMALLEST, parameters_of
from pyentmax.checking._questions import Property, of_calls, same
from pyentmax.checking._subject import LONG_SUM, Operator, Subject
from pyentmax.checking._tape import V, mapped, transposed
from pyentmax.checking._truths import JACOBIANS, slack
from pyentmax.checking._verdict import Case, Expected, Finding, Missing, refuse

LENGTHS = (3, 5, 40, 100)  # of rows; the first that fn takes is the length of rows in batches
FIXED = (2, 4, 6, 8, 10, 12, 16, 20, 32, 50, 64)  # of functions that take one length only
NEARLY_EQUAL = 1200  # scores of the longest row whose Jacobian is formed
LONG = ((1, 1), (9, 32), (9, 33), (2, 64), (2, 128), (2, 256), (130, 33), (300, 3), (9, 130),
        (2, 1000), (1, 4099), (1, 40000))  # fmt: skip
SHAPES = ((2, 2), (1, 2), (2, 1), (1, 1))  # of batches
ALPHAS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
G: dict[str, Any] = {"gradients": True, "smooth": True}


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
def _rows() -> list[Any]:
    rng = np.random.default_rng(0)
    levels = np.array([0.0, 0.5, 1.0])
    rows = [row for d in (1, 2, 3) for row in levels[np.indices([3] * d).reshape(d, -1)].T]
    rows += [scale * np.round(rng.standard_normal(d), 2)
             for d in (2, 3, 5, 40) for scale in (1 / 8, 1.0, 8.0) for _ in range(2)]  # fmt: skip
    rows += [np.round(rng.standard_normal(d), 4) for d in (40, 100, 100)]
    rows.append(np.round(rng.standard_normal(NEARLY_EQUAL) * 1e-4, 6))
    return [{"z": row} for row in rows]


def _n(u: Subject) -> int:
    return int(u.facts["length"])


def _values(u: Subject) -> list[Any]:
    own = [{"shape": (_n(u),), "spread": x, "seed": i} for i, x in enumerate((1 / 8, 1, 1, 8))]
    return _rows() + own * (_n(u) not in LENGTHS)


def _ramp(n: int) -> Array:
    return np.resize(np.arange(min(n, 8)), n) / 2


def _sized(u: Subject) -> list[Any]:
    shapes = [*LONG, *u.operator.sizes] if _n(u) in LENGTHS else []
    if u.half and not u.alone:  # sums of e^z overflow in float16
        shapes = [shape for shape in shapes if shape[1] < LONG[-1][1]]
    words = {"digits": 5, "words": "9 rows of 1000 around 8", "shape": (9, 1000), "shift": 8.0}
    return [{"shape": (n, d), "digits": 5, "spread": spread, "words": f"{n} rows of {d}"}
            for n, d in shapes for spread in ((1.0, 4.0) if n > 1 else (1.0,))
            ] + [words] * ("k" not in u.parameters)  # fmt: skip  # a kth of few digits is another


def _masked(u: Subject) -> list[Any]:
    rows = [one["z"] for one in _rows() if one["z"].size <= 40]
    masked = [np.where(np.arange(z.size) % 3 == i % min(3, z.size), -np.inf, z)
              for i, z in enumerate(rows)]  # fmt: skip
    return [{"z": z} for z in masked if z.max() > -np.inf]


def _batches(u: Subject) -> list[Any]:
    good = np.round(np.random.default_rng(0).standard_normal((4, _n(u))), 2)
    return [{"z": np.concatenate([good[:m], np.full((1, _n(u)), other)]), "compare": m}
            for m in (2, 4) for other in (9.0, 1e3, np.nan, -np.inf)]  # fmt: skip


def _axes(u: Subject) -> list[Any]:
    return [{"shape": (_n(u),) * rank, "axis": axis, **(G if rank == 2 else {})}
            for rank in (2, 3) for axis in range(-rank, rank)]  # fmt: skip


def _smooth_rows(u: Subject) -> list[Any]:
    return [{"shape": (d,), "spread": s, "seed": i, **G, "upstream": v}
            for d in dict.fromkeys((2, 3, 5, _n(u))) for i, s in enumerate((0.5, 1, 1))
            for v in ("one", "")]  # fmt: skip


def _in_arrays(u: Subject) -> list[Any]:
    batches = [(2,), (3,), (9,), *(SHAPES if u.facts["rank"] < 3 else ())]
    return [{"shape": (*shape, _n(u)), "upstream": v, "spread": 1.5, **G}
            for shape in batches for v in ("", "expanded", "tripled")]  # fmt: skip


# --- questions of rows ----------------------------------------------------------------------------
def _accepts_row_length(u: Subject, case: Case) -> Iterator[Finding]:
    u.observe(case)
    yield same(case, "taken", "taken")


def _tie(u: Subject, case: Case) -> Iterator[Finding]:
    p, one, tied = u.observe(case)["p"], u.expect(case)["p"], case.z == case.z[:, None]
    yield u.measure(case, "p", p, one._replace(value=tied @ p / np.sum(tied, axis=-1)))


def _ties_at_kth(u: Subject, case: Case) -> Iterator[Finding]:
    """k of the tied scores stay, or all of them: either is a convention."""
    k, n = u.parameters["k"], case.z.size - 1
    stay = int(np.count_nonzero(u.observe(case)["p"] > 0))
    words = f"{stay} of {n} tied scores stay, k = {k}"
    yield same(case, words, f"{k} or {n} of {n} tied scores stay", stay in (k, n))


def _masked_row(u: Subject, case: Case) -> Iterator[Finding]:
    p = u.observe(case)["p"]
    yield same(case, p, "zeros or NaN", bool((p == 0).all() or np.isnan(p).all()))


PATTERNS = [[1.0], [-1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.5, 1.0], [-3.0, 1, 0, -1, 0.5]]
SHIFTED = [[0.0, 0.5], [0.0, 0.5, 1.0], [-0.25, 1.0, 0.5, -2.0, 0.0]]
SHIFTS = (1.0, -1.0, 10.0, -10.0, 1e2, -1e2, 1e3, -1e3)


class Rows(Operator):
    """A function from scores to probabilities, the rows along its last axis or along any."""

    kind, result, half_limit = "mapping", "p", 2.0  # of which computing in them takes 1.4
    taken = ("axis", "dim")
    gradient_names = {"z": "Jᵀv", "parameter": "in the parameter"}
    expected_arrays = "an array of scores (of 3, 5, 40, 100 or 2 to 64) to probabilities"
    properties = (
        Property("row lengths", "Rows of 1, 3, 5, 40 and 100 scores are taken.", lambda u: [
            {"z": _ramp(n), "length": n} for n in (1, *LENGTHS) if n >= u.parameters.get("k", 0)],
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
            {"z": np.full(d, -np.inf)} for d in dict.fromkeys((_n(u), 1, 2))], _masked_row,
            edge=True),
        Property("single entries", "A row of one entry gives all to it.", [
            {"z": [x]} for x in (0.0, 0.5, -3.0, 10.0)], vital=True),
        Property("batches", "A row gives the same whatever the other rows hold.", _batches,
                 core=True, vital=True),
        Property("three dimensions", "Rows may be in an array of three dimensions.", lambda u: [
            {"shape": (*shape, _n(u))} for shape in SHAPES], refusable="always"),
        Property("axes", "Rows may lie along every axis.", _axes),
        Property("empty batches", "A batch of no rows gives one of no rows.", lambda u: [
            {"z": np.zeros((0, _n(u)))}], edge=True),
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
        *of_calls(lambda u: [{"z": _ramp(_n(u))}, {"shape": (4, _n(u))}],
                  lambda u: [{"shape": (*n, _n(u)), "smooth": True} for n in ((4,), (2, 3))],
                  lambda u: [{"shape": (*n, _n(u)), "smooth": True} for n in (
                      [()] if u.facts["each"] else [(4,), (9,)])], (),
                  [{"z": [0.5]}, {"z": [0.5, -np.inf, 1.0]}]),
    )  # fmt: skip

    def __init__(self, sizes: Any = ()) -> None:
        self.sizes = tuple(sizes)

    def axes(self, u: Subject, words: Any) -> int:
        """The axes of an array."""
        return len(words["shape"])

    def forms(self, u: Subject) -> Iterator[dict[str, Any]]:
        """The name of the axis, the axes of a single row, and the length of rows."""
        known = parameters_of(u.fn)
        names = ("axis", "dim") if known is None else sorted({"axis", "dim"} & {*known})
        for axis, rank, length in product((*names, None), (1, 2), LENGTHS + FIXED):
            yield {"axis": axis, "rank": rank, "length": length, "each": False, "takes": {}}

    def settle(self, u: Subject) -> None:
        """Whether fn takes one row, and no batch of rows."""
        u.facts["each"] = u.facts["rank"] == 1 and bool(u.error(z=np.stack([_ramp(_n(u))] * 2)))
        if u.facts["each"]:
            u.say("fn takes one vector; it was called row by row")

    def sample(self, u: Subject) -> Case:
        """Ordinary scores."""
        return self.make(u, z=_ramp(_n(u)), length=True)

    def takes(self, u: Subject, length: int) -> bool:
        """Whether fn takes rows of that length."""
        known = u.facts["takes"]
        if (u.dtype, length) not in known:
            known[u.dtype, length] = True
            known[u.dtype, length] = not u.error(z=_ramp(length), tied=True)
        return bool(known[u.dtype, length])

    def make(self, u: Subject, z: Any = None, shape: tuple[int, ...] = (), spread: float = 1.0,
             seed: int = 0, digits: int = 2, shift: float = 0.0, smooth: bool = False,
             fixed: bool = False, **more: Any) -> Case:  # fmt: skip
        """Scores as they are given or drawn, and a vector for the product with the Jacobian."""
        refuse("axis" in more and not u.facts["axis"], "no parameter axis or dim")
        refuse("learned" in more and not u.learned, "no parameter that may be learned")
        u.drop_gradients(more, fixed or not {"axis", "layout"} & {*more})
        axis, how = more.setdefault("axis", -1), more.get("upstream", "")
        if z is None:
            rng = np.random.default_rng((u.settings.seed + seed, shape[-1]))
            draw = partial(rng.standard_normal, shape)
            tries = (u.rounded(shift + spread * np.round(draw(), digits)) for _ in range(40))
            z = next((one for one in tries if not smooth or self._smooth(u, one)), None)
            refuse(z is None, "no rows without kinks")
            z = np.moveaxis(z, -1, axis)
        z = u.rounded(z)
        refuse((z == np.inf).any(), f"scores beyond {u.dtype}")
        rows = np.moveaxis(z, axis, -1)
        d = rows.shape[-1]
        case = Case(z=z, long=d * u.epsilon > LONG_SUM, cost=float(z.size), **more)
        if case.layout:
            case["words"] = f"{case.layout} scores of shape {z.shape}"
        if "length" not in more and z.size and axis == -1:
            refuse(not self.takes(u, d), f"rows of {d} raise an error")
        if not more.get("tied"):
            self._decided(u, rows.reshape(-1, d) if z.size else rows)
        v = np.resize([1.0, -0.5, 2.0, 0.25, -2.0], z.shape) * (3 if how == "tripled" else 1)
        case["g"] = {"one": np.eye(1, z.size).reshape(z.shape), "expanded": np.ones(z.shape)}.get(
            how, v)  # fmt: skip
        if not (np.abs(z) <= u.ordinary).all():
            case["edge"] = True
        if z[: case.compare].size and axis == -1:
            try:
                exact(u, z[: case.compare])
            except ValueError as error:  # a budget of 2 for one entry, for example
                raise Missing(str(error)) from error
        u.count(**{"scores a row": d, "rows": max(1, z.size // max(d, 1))})
        return case

    def _decided(self, u: Subject, rows: Array) -> None:
        """`Missing` where ties decide by order, or whether a tied score is among the k largest."""
        k, d, ordered = u.parameters.get("k", 0), rows.shape[-1], u.record.permutation_equivariant
        for z in rows if k or not ordered else ():
            refuse(not ordered and len(np.unique(z)) < d, "the order of ties decides")
            refuse(0 < k < d and np.diff(np.sort(z)[d - k - 1 : d - k + 1]) == 0,
                   "a tie at the k-th score")  # fmt: skip

    def _smooth(self, u: Subject, z: Array) -> bool:
        """Whether the Jacobian has no jump near the rows, and is not 0."""
        step = 2e-2 if u.half else 1e-3
        for row in z.reshape(-1, z.shape[-1]) if z.shape[-1] <= 100 else ():
            here, steps = jacobian(u, row), step * np.eye(row.size)
            change = jacobian(u, np.concatenate([row + steps, row - steps])) - here
            if not (np.max(np.abs(change)) <= 10 * step * np.max(np.abs(here)) and here.any()):
                return False
        return True

    # --- the function -----------------------------------------------------------------------------
    def given(self, u: Subject, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """The scores, and keywords."""
        z, axis, passed = case.z, u.facts["axis"], dict(u.passed)
        arrays = {"z": z[None] if z.ndim == 1 < u.facts["rank"] else z}
        if case.learned:
            arrays[u.learned] = np.asarray(float(passed.pop(u.learned)))
        return arrays, passed | ({axis: case.axis} if axis else {})

    def back(self, u: Subject, case: Case, name: str, x: Array) -> Array:
        """The array in the shape of the scores, if it has that of the array that holds them."""
        held = self.given(u, case)[0]["z"].shape
        return x.reshape(case.z.shape) if x.shape == held and name != "parameter" else x

    def finish(self, u: Subject, case: Case, found: dict[str, Array]) -> None:
        """Rows that are compared, and their sums."""
        found["p"] = found["p"][: case.compare]
        if case.z.size and case.axis == -1:
            found["sum"] = np.sum(found["p"], axis=-1)

    def own_vjp(self, u: Subject, case: Case, native: Any, options: Any) -> dict[str, Any]:
        """Jᵀv by the function handed in; none if it has no axis."""
        assert u.own_vjp is not None
        names = {"axis", "dim"} & {*(parameters_of(u.own_vjp) or ())}
        refuse(case.axis != -1 and not names, "vjp has no axis")
        more = {} if case.axis == -1 else dict.fromkeys(names, case.axis)
        v = np.reshape(case.g, self.given(u, case)[0]["z"].shape)
        return {"z": u.own_vjp(u.call(native, options), u.array(v), **more)}

    # --- what is right ----------------------------------------------------------------------------
    def truth(self, u: Subject, case: Case) -> tuple[V, dict[str, V]]:
        """The mapping along the axis."""
        leaves = {"z": V(case.z)}
        if case.learned:
            leaves["parameter"] = V(u.parameters[u.learned])
        moved = transposed(leaves["z"], case.axis, -1)
        out = mapped(u.record, u.values(leaves.get("parameter")), moved)
        return transposed(out, case.axis, -1), leaves

    def expected(self, u: Subject, case: Case, value: Array, grads: Any) -> dict[str, Expected]:
        """The right probabilities, their sum, and Jᵀv."""
        epsilon, axis = case.get("epsilon", u.epsilon), case.axis
        moved, p = (np.moveaxis(x[: case.compare], axis, -1) for x in (case.z, value))
        d, more = moved.shape[-1], slack(u.record, moved, u.limit)
        allowed = self._allowed(u, moved, p, epsilon) if moved.size else np.ones(moved.shape)
        allowed = np.maximum(allowed + more * p, SMALLEST["float32" if u.single else u.dtype])
        result = {"p": Expected(np.moveaxis(p, -1, axis), np.moveaxis(allowed, -1, axis))}
        if moved.size and axis == -1:
            total = np.sum(p, axis=-1)
            # A quarter of what values may be off by in half types: otherwise sums of 1.25 would do.
            unit = (1 if u.half else 4) * epsilon * d**0.5 * np.maximum(1, total)
            result["sum"] = Expected(total, unit + np.sum(more * p, axis=-1))
        if grads:
            v = np.moveaxis(case.g, axis, -1)
            reach = np.max(np.ptp(np.where(p > 0, moved, moved.max(-1, keepdims=True)), axis=-1))
            size = np.max(np.abs(v)[..., None, :] @ np.abs(jacobian(u, moved)))
            unit = epsilon * max(1, 16 * max(1, reach) * size) + float(np.max(more)) * size
            most = float(np.max(p) * np.max(np.abs(v)))
            name = "parameter" if "parameter" in grads else "z"
            unit = 4 * unit * d if name == "parameter" else unit
            result[self.gradient(name)] = Expected(grads[name], unit, most)
        return result

    def _allowed(self, u: Subject, z: Array, p: Array, epsilon: float) -> Array:
        """The contract of accuracy for rows: each entry of p may be off by so much.

        4ε p of rounding, and what p changes by if scores move by 8ε max(1, their range over the
        support): to first order, Σⱼ |∂pᵢ/∂zⱼ|, and by each score's own move of twice as much, for
        an entry that is just entering the support. Equal scores move together.
        """
        if z.ndim > 2:
            return np.stack([self._allowed(u, *one, epsilon) for one in zip(z, p, strict=True)])
        y = z - np.max(z, axis=-1, keepdims=True) if u.record.shift_invariant else z
        on, d, a = p > 0, z.shape[-1], alpha_of(u)
        low, high = (np.where(on, y, x) for x in (np.inf, -np.inf))
        reach = high.max(-1, keepdims=True) - low.min(-1, keepdims=True)
        move = 8 * epsilon * np.maximum(1.0, reach)
        if in_family(u):  # J = diag(s) − ssᵀ / Σs
            s = slopes(p, a)
            first_order = 2 * move * s * (1 - s / np.maximum(np.sum(s, -1, keepdims=True), 1e-300))
            entering = move ** (1 / max(a - 1, 1)) * ~on
        else:
            rows = np.sum(np.abs(jacobian(u, z)), axis=-1) if d <= NEARLY_EQUAL else 1.0
            first_order, entering = move * rows, 0.0
        if d <= LENGTHS[-1]:  # no entry of longer rows that are tried is near the threshold
            by = 2 * move[..., None] * (y[..., None, :] == y[..., :, None])
            moved = exact(u, np.stack([y[..., None, :] + by, y[..., None, :] - by]))
            own = np.diagonal(moved - exact(u, y)[..., None, :], 0, -2, -1)
            entering = np.abs(own).max(0)
        elif d <= NEARLY_EQUAL:
            entering = 0.0
        return np.asarray(4 * epsilon * p + first_order + entering)
