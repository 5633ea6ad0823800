"""The check of anybody's implementation of a mapping: rows of scores, and known wrong variants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np

from pyentmax.checking import _engine as engine
from pyentmax.checking import _subjects as subjects
from pyentmax.checking._causes import (
    ALPHAS,
    DERIVATIVE_CAUSES,
    OFF,
    STRIDES,
    VALUE_CAUSES,
    WHOLE,
    alpha_of,
    slopes,
)
from pyentmax.checking._differences import Array
from pyentmax.checking._engine import Case, Cause, Expected, Finding, Missing, Property
from pyentmax.checking._subjects import SMALLEST, Settings, Subject, blaming, in_memory_order, judge
from pyentmax.checking._truths import JACOBIANS, slack, truth
from pyentmax.reference.mapping import AnyMapping as Mapping

LENGTHS = (3, 5, 40, 100)  # of rows; the first that fn takes is the length of rows in batches
FIXED = (2, 4, 6, 8, 10, 12, 16, 20, 32, 50, 64)  # of functions that take one length only
MASKS = {"mask", "where", "attention_mask", "key_padding_mask", "valid_lens", "lengths"}
NEARLY_EQUAL = 1200  # scores of the longest row whose Jacobian is formed
LONG = ((1, 1), (9, 32), (9, 33), (130, 33), (9, 130), (2, 1000), (1, 4099), (1, 40000))
SHAPES = ((2, 2), (1, 2), (2, 1), (1, 1))  # of batches


@dataclass(frozen=True, eq=False, repr=False)
class MappingReport(engine.Report):
    __doc__ = engine.Report.__doc__


@dataclass(frozen=True, eq=False, kw_only=True)
class MappingSubject(Subject):
    """A function and the mapping that it claims to be."""

    primary = ("p", "sum")
    vital = ("exact values", "batches", "single entries", "derivative")
    paired = False
    variants = (*VALUE_CAUSES, *DERIVATIVE_CAUSES)
    spellings = frozenset[str]()
    axis_name: str | None
    rank: int  # of the array that one row is passed as
    length: int  # of rows in batches
    one_vector: bool = False  # fn takes no batches, and is called row by row
    lengths: tuple[tuple[int, int], ...] = ()
    taken: dict[tuple[str, int], bool] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        """How many units are right; two in half types, of which computing in them takes 1.4."""
        return 2.0 if self.half else super().limit

    @property
    def ordinary(self) -> Array:
        """Ordinary scores, of a length that fn takes."""
        return np.arange(self.length) / 2

    def sample(self) -> Case:
        """Ordinary scores."""
        return self.make(self.ordinary)

    def tried(self) -> Any:
        """What fn gives for ordinary scores."""
        return self.apply(self.array(self.shaped(self.rounded(self.ordinary))))

    def settled(self, out: Any) -> MappingSubject:
        """Whether fn takes one row, and no batch of rows."""
        try:
            batch = self.array(np.stack([self.ordinary, self.ordinary]))
            one = np.shape(self.apply(batch)) != np.shape(batch)
        except Exception:  # libraries have errors of their own
            one = True
        if self.rank == 1 and one:
            self.say("fn takes one vector; it was called row by row")
        return replace(self, one_vector=self.rank == 1 and bool(one))

    def takes(self, length: int) -> bool:
        """Whether fn takes rows of that length."""
        key = self.dtype, length
        if key not in self.taken:
            try:
                z = np.resize(np.arange(min(length, 8)), length) / 2
                p = self.apply(self.array(self.shaped(z)))
                self.taken[key] = int(np.prod(np.shape(p))) == length
            except Exception:  # libraries have errors of their own
                self.taken[key] = False
        return self.taken[key]

    def shaped(self, z: Array) -> Array:
        """A single row as fn wants it."""
        return z[None] if z.ndim == 1 < self.rank else z

    # --- cases ------------------------------------------------------------------------------------
    def make(self, z: Any = None, shape: tuple[int, ...] = (), spread: float = 1.0, seed: int = 0,
             digits: int = 2, shift: float = 0.0, smooth: bool = False, v: Any = None,
             **more: Any) -> Case:  # fmt: skip
        """Scores as they are given or drawn, and a vector for the product with the Jacobian."""
        axis = more.get("axis", -1)
        if z is None:
            rng = np.random.default_rng((self.settings.seed + seed, shape[-1]))
            draw = partial(self._draw, rng, shape, spread, digits, shift)
            z = next((one for one in (draw() for _ in range(40))
                      if not smooth or self._smooth(one)), None)  # fmt: skip
            if z is None:
                raise Missing("no rows without kinks")
            if axis != -1:
                z = np.moveaxis(z, -1, axis)
        z = self.rounded(z)
        if (z == np.inf).any():
            raise Missing(f"scores beyond {self.dtype}")
        case: Case = {"z": z, "axis": axis, **more}
        if layout := more.get("layout"):
            case["words"] = f"{layout} scores of shape {z.shape}"
        rows = np.moveaxis(z, axis, -1)
        d = rows.shape[-1]
        if "length" not in more and z.size and axis == -1 and not self.takes(d):
            raise Missing(f"rows of {d} raise an error")
        if "axis" in more and not self.axis_name:
            raise Missing("no parameter axis or dim")
        if not more.get("tied"):
            self._decided(rows.reshape(-1, d) if z.size else rows)
        if "layout" in more and not self.differentiable:
            v = None
        if v is not None and not self.differentiable:
            raise Missing(f"{self.library} has no derivatives; vjp= hands one in")
        if "learned" in more and not self.learned:
            raise Missing("no parameter that may be learned")
        if v is not None:
            drawn = np.resize([1.0, -0.5, 2.0, 0.25, -2.0], z.shape)
            case["v"] = {"ones": np.ones(z.shape), "drawn": drawn, "tripled": 3 * drawn}[v] if (
                isinstance(v, str)) else np.asarray(v)  # fmt: skip
        compared = z[: more.get("compare")]
        if not (np.abs(z) <= (engine.HALF_ORDINARY if self.half else engine.ORDINARY)).all():
            case["edge"] = True
        case["long"] = d * self.epsilon > engine.LONG_SUM
        if compared.size and axis == -1:
            with np.errstate(all="ignore"):
                try:
                    self.exact(compared)
                except ValueError as error:  # a budget of 2 for one entry, for example
                    raise Missing(str(error)) from error
        case["cost"] = float(z.size)
        self.count(**{"scores a row": d, "rows": max(1, z.size // max(d, 1))})
        return case

    def _draw(self, rng: Any, shape: Any, spread: float, digits: int, shift: float) -> Array:
        return self.rounded(shift + spread * np.round(rng.standard_normal(shape), digits))

    def _decided(self, rows: Array) -> None:
        """`Missing` where ties decide by order, or whether a tied score is among the k largest."""
        k, d = self.parameters.get("k", 0), rows.shape[-1]
        for z in rows if (k or not self.record.permutation_equivariant) else ():
            if not self.record.permutation_equivariant and len(np.unique(z)) < d:
                raise Missing("the order of ties decides")
            if 0 < k < d and np.diff(np.partition(z, (-k - 1, -k))[-k - 1 : d - k + 1]) == 0:
                raise Missing("a tie at the k-th score")

    def _smooth(self, z: Array) -> bool:
        """Whether the Jacobian has no jump near the rows, and is not 0."""
        if z.shape[-1] > 100:
            return True
        step = 1e-3 if not self.half else 2e-2
        for row in z.reshape(-1, z.shape[-1]):
            here, steps = self.jacobian(row), step * np.eye(row.size)
            change = self.jacobian(np.concatenate([row + steps, row - steps])) - here
            if not (np.max(np.abs(change)) <= 10 * step * np.max(np.abs(here)) and here.any()):
                return False
        return True

    @property
    def differentiable(self) -> bool:
        """Whether there is a way to get Jᵀv."""
        return self.own_vjp is not None or self.functions.vjp is not None

    # --- the function -----------------------------------------------------------------------------
    def apply(self, z: Any, axis: int = -1, **learned: Any) -> Any:
        """What fn returns for an array of its library."""
        if self.one_vector and z.ndim > 1:
            rows = [self.apply(row) for row in z.reshape(-1, z.shape[-1])]
            return self.functions.stack(rows).reshape(z.shape) if rows else z
        axes = {self.axis_name: axis} if self.axis_name else {}
        out = self.fn(z, **self.passed | learned, **axes)
        out = self.first(out)
        if not hasattr(out, "shape"):
            raise TypeError(f"expected an array, got {type(out).__name__}")
        return out

    def arguments(self, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
        """The scores, and keywords."""
        axis = {self.axis_name: case["axis"]} if self.axis_name else {}
        return {"z": self.shaped(case["z"])}, {**self.passed, **axis}

    def call(self, case: Case, arrays: list[Any], function: Any = None) -> Any:
        """What fn gives."""
        with blaming(case):
            return self.apply(arrays[0], case["axis"])

    def observe(self, case: Case) -> dict[str, Array]:
        """Probabilities, their sum, and Jᵀv if the case has a v."""
        z, axis = case["z"], case["axis"]
        with blaming(case):
            array = self.array(self.shaped(z), case.get("layout", ""))
            out = self.apply(array, axis)
            case["epsilon"] = self.epsilon_of(out)
            p = self.numbers(out)
            if p.shape != self.shaped(z).shape:
                raise engine.WrongShape(f"expected the shape {self.shaped(z).shape}, got {p.shape}")
            p = p.reshape(z.shape)[: case.get("compare")]
            result = {"p": p}
            if z.size and axis == -1:
                result["sum"] = np.sum(p, axis=-1)
            if "v" in case:
                product = None if "learned" in case else self.product(case, array)
                if product is not None:
                    result["Jᵀv"] = self.numbers(product).reshape(z.shape)
            if "learned" in case:
                assert self.functions.vjp is not None
                grad = self.functions.vjp(
                    lambda x: self.apply(array, axis, **{self.learned: x}),
                    [self.array(self.parameters[self.learned])], case["v"])[0]  # fmt: skip
                result["in the parameter"] = self.moved(grad)
        return result

    def product(self, case: Case, array: Any) -> Any:
        """Jᵀv by the function handed in, or by the library's own; None if it has no axis."""
        axis, v = case["axis"], self.shaped(case["v"])
        along = partial(self.apply, axis=axis)
        if self.own_vjp is None:
            assert self.functions.vjp is not None
            return self.functions.vjp(along, [array], v)[0]
        names = {"axis", "dim"} & ({*(subjects.parameters_of(self.own_vjp) or ())})
        if axis != -1 and not names:
            return None
        more = {} if axis == -1 else dict.fromkeys(names, axis)
        return self.own_vjp(along(array), self.array(v), **more)

    # --- what is right ----------------------------------------------------------------------------
    def exact(self, z: Array) -> Array:
        """The mapping's own result, in double precision."""
        p: Array = self.record(z, *self.parameters.values(), axis=-1)
        return p

    def jacobian(self, z: Array) -> Array:
        """The exact J of one row, or of each row of a batch."""
        if self.record.name in JACOBIANS:
            return np.asarray(JACOBIANS[self.record.name](z))
        return np.asarray(self.record.jacobian(self.exact(z), *self.parameters.values()))

    def expect(self, case: Case) -> dict[str, Expected]:
        """The right probabilities, their sum, and Jᵀv."""
        epsilon, axis = case.get("epsilon", self.epsilon), case["axis"]
        rows = np.moveaxis(case["z"][: case.get("compare")], axis, -1)
        flat = rows.reshape(-1, rows.shape[-1])
        p = self.exact(rows) if rows.size else rows
        units = [self.allowed(z, q, epsilon)
                 for z, q in zip(flat, p.reshape(flat.shape), strict=True)]  # fmt: skip
        allowed = np.reshape(units, rows.shape) if units else np.ones(rows.shape)
        result = {"p": Expected(np.moveaxis(p, -1, axis), np.moveaxis(allowed, -1, axis))}
        if rows.size and axis == -1:
            total, n = np.sum(p, axis=-1), rows.shape[-1] ** 0.5
            # A quarter of what values may be off by in half types: otherwise sums of 1.25 would do.
            unit = (1 if self.half else 4) * epsilon * n * np.maximum(1, total)
            more = np.sum(slack(self.record, rows, self.limit) * p, axis=-1)
            result["sum"] = Expected(total, unit + more)
        if "v" in case:
            v = np.moveaxis(case["v"], axis, -1)
            jacobian = self.jacobian(rows)
            reach = np.max(np.ptp(np.where(p > 0, rows, rows.max(-1, keepdims=True)), axis=-1))
            size = np.max(np.abs(v)[..., None, :] @ np.abs(jacobian))
            right = (v[..., None, :] @ jacobian)[..., 0, :]
            unit = epsilon * max(1, 16 * max(1, reach) * size)
            unit += float(np.max(slack(self.record, rows, self.limit))) * size
            most = float(np.max(p) * np.max(np.abs(v)))
            result["Jᵀv"] = Expected(np.moveaxis(right, -1, axis), unit, most)
            if "learned" in case:
                slope = self.record.parameter_vjp(p, v, *self.parameters.values())
                result["in the parameter"] = Expected(slope, 4 * unit * rows.shape[-1], most)
        return result

    def allowed(self, z: Array, p: Array, epsilon: float) -> Array:
        """The contract of accuracy for a row: p may be off by so much.

        4ε p of rounding, and what p changes by if scores move by 8ε max(1, their range over the
        support): to first order, and by each score's own move of twice as much, for an entry that
        is just entering the support. Equal scores move together.
        """
        y = z - np.max(z) if self.record.shift_invariant else z
        on = p > 0
        reach = max(1.0, float(np.ptp(y[on]))) if on.any() else 1.0
        move = 8 * epsilon * reach
        if z.size > NEARLY_EQUAL:  # the rows of |J| of the family sum to at most 2 p^{2 − α}
            family = self.record.name in ALPHAS or "alpha" in self.parameters
            slope = 2 * slopes(p, alpha_of(self)) if family else 1.0
            first_order = move * slope + move ** (1 / max(alpha_of(self) - 1, 1)) * (~on) * family
        else:
            first_order = move * np.sum(np.abs(self.jacobian(z)), axis=-1)
        if z.size <= LENGTHS[-1]:  # no entry of longer rows that are tried is near the threshold
            equal = y == y[:, None]
            moved = self.exact(np.concatenate([y + 2 * move * equal, y - 2 * move * equal]))
            own = (moved - self.exact(y)).reshape(2, len(z), -1)
            first_order = first_order + np.abs(np.diagonal(own, 0, 1, 2)).max(0)
        first_order = first_order + slack(self.record, z, self.limit) * p
        return np.asarray(np.maximum(4 * epsilon * p + first_order, SMALLEST[self.computed]))

    def predict(self, variants: tuple[Cause, ...], case: Case, observed: Any) -> Any:
        """What a variant gives: of values for the scores, of derivatives for p and v."""
        (one,) = variants
        z, unit = case["z"], 8 * self.epsilon
        if case["axis"] != -1 or ("compare" in case and one != WHOLE) or not 0 < z.size <= 4000:
            return None
        if "Jᵀv" not in observed:
            if one not in VALUE_CAUSES:
                return {}
            if one == OFF and case.get("edge"):  # where it fits any p
                return None
            if one == STRIDES:
                z = in_memory_order(z, case.get("layout", ""))
            p = np.asarray(one.variant(self, z, observed["p"]))[: case.get("compare")]
            return {
                "p": Expected(p, unit * max(1, np.nanmax(np.abs(p), initial=0))),
                "sum": Expected(np.sum(p, axis=-1), 4 * unit * z.shape[-1]),
            }  # fmt: skip
        if one in VALUE_CAUSES or not (self.record.name in ALPHAS or "alpha" in self.parameters):
            return {}
        p = self.exact(z)
        product = one.variant(p, case["v"], slopes(p, alpha_of(self)))
        return {"Jᵀv": Expected(product, unit * max(1, np.max(np.abs(product))))}


# --- the properties -------------------------------------------------------------------------------
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


def _values(subject: MappingSubject) -> list[Case]:
    n = subject.length
    own = [] if n in LENGTHS else [
        {"shape": (n,), "spread": spread, "seed": i} for i, spread in enumerate((1 / 8, 1, 1, 8))
    ]  # fmt: skip
    return [*_rows(), *own]


def _lengths(subject: MappingSubject) -> list[Case]:
    least = subject.parameters.get("k", 0)
    return [{"z": np.resize(np.arange(min(n, 8)), n) / 2, "length": n}
            for n in (1, *LENGTHS) if n >= least]  # fmt: skip


def _row_lengths(subject: MappingSubject, case: Case) -> Iterator[Finding]:
    subject.observe(case)
    yield engine.same(case, "taken", "taken")


def _kth(subject: MappingSubject) -> list[Case]:
    k = subject.parameters.get("k", 0)
    return [{"z": np.append(np.ones(k + n), 0.0), "tied": True} for n in (1, 3) if k]


def _ties_at_kth(subject: MappingSubject, case: Case) -> Iterator[Finding]:
    """k of the tied scores stay, or all of them: either is a convention."""
    k, n = subject.parameters["k"], case["z"].size - 1
    stay = int(np.count_nonzero(subject.observe(case)["p"] > 0))
    words = f"{stay} of {n} tied scores stay, k = {k}"
    yield engine.same(case, words, f"{k} or {n} of {n} tied scores stay", stay in (k, n))


def _tie(subject: MappingSubject, case: Case) -> Iterator[Finding]:
    z, p = case["z"], subject.observe(case)["p"]
    tied = z == z[:, None]
    right = subject.expect(case)["p"]
    yield engine.measure(
        subject, case, "p", p, right._replace(value=tied @ p / np.sum(tied, axis=-1))
    )


def _masked(subject: MappingSubject) -> list[Case]:
    rows = [one["z"] for one in _rows() if one["z"].size <= 40]
    masked = [np.where(np.arange(z.size) % 3 == i % min(3, z.size), -np.inf, z)
              for i, z in enumerate(rows)]  # fmt: skip
    return [{"z": z} for z in masked if z.max() > -np.inf]


def _masked_row(subject: MappingSubject, case: Case) -> Iterator[Finding]:
    p = subject.observe(case)["p"]
    yield engine.same(case, p, "zeros or NaN", bool((p == 0).all() or np.isnan(p).all()))


def _batches(subject: MappingSubject) -> list[Case]:
    rng = np.random.default_rng(0)
    good = np.round(rng.standard_normal((4, subject.length)), 2)
    return [{"z": np.concatenate([good[:n], np.full((1, subject.length), other)]), "compare": n}
            for n in (2, 4) for other in (9.0, 1e3, np.nan, -np.inf)]  # fmt: skip


def _axes(subject: MappingSubject) -> list[Case]:
    n = subject.length
    return [{"shape": (*shape, n), "axis": axis} for shape in ((n,), (n, n))
            for axis in range(-len(shape) - 1, len(shape) + 1)]  # fmt: skip


def _sized(subject: MappingSubject) -> list[Case]:
    shapes = [*LONG, *subject.lengths] if subject.length in LENGTHS else []
    if subject.half and not subject.alone:  # sums of e^z overflow in float16
        shapes = [shape for shape in shapes if shape[1] < LONG[-1][1]]
    return [
        {"shape": (n, d), "digits": 5, "spread": spread, "words": f"{n} rows of {d}"}
        for n, d in shapes
        for spread in ((1.0, 4.0) if n > 1 else (1.0,))
    ] + [{"shape": (9, 1000), "digits": 5, "shift": 8.0, "words": "9 rows of 1000 around 8"}][
        : "k" in subject.parameters
    ]  # a kth score of few digits is another one there


def _laid_out(subject: MappingSubject) -> list[Case]:
    n = subject.length
    shapes = [(n,)] if subject.one_vector else [(4, n), (9, n)]
    return [{"shape": shape, "layout": name, **({"v": "drawn", "smooth": True} if name not in
             ("reversed", "read-only") else {})}
            for name in ("transposed", "every second", "part of a wider array", "reversed",
                         "read-only")
            for shape in shapes
            if subject.has_layout(name) and (name != "transposed" or len(shape) > 1)]  # fmt: skip


def _type_and_shape(subject: MappingSubject, case: Case) -> Iterator[Finding]:
    array = subject.array(subject.shaped(case["z"]))
    p = subject.call(case, [array])
    words = " of float32's precision" * subject.single
    observed, expected = ((subject.type_of(x), tuple(np.shape(x))) for x in (p, array))
    yield engine.same(case, (observed[0] + words, observed[1]), expected)


def _smooth_rows(subject: MappingSubject) -> list[Case]:
    lengths = dict.fromkeys((2, 3, 5, subject.length))
    return [{"shape": (d,), "spread": s, "seed": i, "smooth": True, "v": v}
            for d in lengths for i, s in enumerate((0.5, 1.0, 1.0))
            for v in (np.eye(d)[0], "drawn")]  # fmt: skip


def _in_arrays(subject: MappingSubject) -> list[Case]:
    n = subject.length
    shapes = [(2, n), (3, n), (9, n), *(((*s, n) for s in SHAPES) if subject.rank < 3 else ())]
    cases = [{"shape": shape, "v": v, "smooth": True, "spread": 1.5}
             for shape in shapes for v in ("drawn", "ones", "tripled")]  # fmt: skip
    more = [{"shape": (2, n), "v": "drawn", "smooth": True, "axis": axis} for axis in (0, 1)]
    return [*cases, *(more if subject.axis_name else ())]


PATTERNS = [[1.0], [-1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.5, 1.0], [-3.0, 1, 0, -1, 0.5]]
SHIFTED = [[0.0, 0.5], [0.0, 0.5, 1.0], [-0.25, 1.0, 0.5, -2.0, 0.0]]
PROPERTIES = (
    Property("row lengths", "Rows of 1, 3, 5, 40 and 100 scores are taken, by a top-k mapping "
             "those of at least k.", _lengths, question=_row_lengths, edge=True),
    Property("exact values", "Each probability, and the sum of a row, is the library's own in "
             "double precision.", _values, core=True),
    Property("rows and lengths", "1 to 130 rows of 1 to 40,000 scores.", _sized, core=True),
    Property("ties", "Equal scores get equal probabilities.",
             [{"z": z} for z in ([0.5, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0, 1.0])],
             question=_tie),
    Property("ties at the kth score", "Of scores that tie with the k-th largest k stay, or all; "
             "the report says which.", _kth, question=_ties_at_kth, edge=True),
    Property("shifts", "A constant added to all scores changes nothing.",
             lambda subject: [{"z": np.add(z, c)} for z in SHIFTED
                              for c in (1.0, -1.0, 10.0, -10.0, 1e2, -1e2, 1e3, -1e3)
                              if subject.record.shift_invariant]),
    Property("scores around 16", "In half types too.",
             [{"z": [16.0, 16.0, 16.875]}, {"z": [16.0, 15.5, 14.5, 17.0, 16.5]}], edge=True,
             core=True),
    Property("tiny and huge scores", "Scores from 1e-30 to 1e30 are as exact as others.",
             [{"z": s * np.array(pattern)} for s in (1e2, 1e-8, 1e4, 1e8, 1e-30, 1e30)
              for pattern in PATTERNS]),
    Property("masked entries", "A score of −∞ gets nothing, and the others what they get without "
             "it.", _masked, edge=True),
    Property("masked rows", "A row of −∞ gives zeros, or NaN where zeros are not the convention.",
             lambda subject: [{"z": np.full(d, -np.inf)} for d in {subject.length: 0, 1: 0, 2: 0}],
             question=_masked_row, edge=True),
    Property("single entries", "A row of one entry gives all to it.",
             [{"z": [x]} for x in (0.0, 0.5, -3.0, 10.0)]),
    Property("batches", "A row gives the same in a batch as alone, whatever the other rows hold.",
             _batches, core=True),
    Property("three dimensions", "Rows may be in an array of three dimensions.",
             lambda subject: [{"shape": (*shape, subject.length)} for shape in SHAPES],
             refusable="all"),
    Property("axes", "Rows may lie along every axis.", _axes),
    Property("memory layouts", "Transposed, strided, reversed and read-only arrays give the same.",
             _laid_out),
    Property("empty batches", "A batch of no rows gives one of no rows.",
             lambda subject: [{"z": np.zeros((0, subject.length))}], edge=True),
    Property("float type and shape", "The result has the float type and the shape of the scores.",
             lambda subject: [{"z": [0.5]}, {"z": subject.ordinary}], question=_type_and_shape,
             edge=True, core=True),
    Property("derivative", "The vector-Jacobian product Jᵀv is the library's own.", _smooth_rows,
             core=True),
    Property("derivative in arrays", "Jᵀv of a row is the same in a batch as alone, along every "
             "axis, also for v expanded from one number.", _in_arrays),
    Property("derivative of long rows", "Jᵀv of rows of 130 and 1000 scores.",
             [{"shape": (2, d), "digits": 5, "spread": 2.0, "v": "drawn"} for d in (130, 1000)]),
    Property("derivative in the parameter", "The gradient in α, if fn takes it as an array.",
             [{"shape": (d,), "smooth": True, "v": "drawn", "learned": True} for d in (3, 5)],
             refusable="all"),
    Property("derivative at masked entries", "A score of −∞ gets no gradient, and spoils that of "
             "no other.",
             [{"z": [1.0, 0.25, -np.inf], "v": v} for v in ([1.0, 0, 0], "drawn")], edge=True),
    Property("a second call", "It gives the same.", lambda subject: [{"z": subject.ordinary}],
             question=engine.repeated),
    Property("arrays read anew", "A call sees what was written into its arrays since the last.",
             lambda subject: [{"z": subject.ordinary}] * subject.has_layout("transposed"),
             question=engine.arrays_read_anew),
    Property("inputs left as they were", "The function does not write into its scores.",
             lambda subject: [{"z": [0.5]}, {"z": subject.ordinary},
                              {"z": [0.5, -np.inf, 1.0]}, {"shape": (4, subject.length)}],
             question=engine.inputs_unchanged, edge=True),
    Property("results left as they were", "A result does not change with the next call.",
             lambda subject: [{"z": subject.ordinary}, {"shape": (4, subject.length)}],
             question=engine.results_kept, edge=True),
)  # fmt: skip


def check_mapping(
    fn: Callable[..., Any],
    mapping: str | Mapping,
    *,
    vjp: Callable[[Any, Any], Any] | None = None,
    shapes: Sequence[tuple[int, int]] = (),
    dtypes: Sequence[str] | None = None,
    device: Any = None,
    seed: int = 0,
    tolerances: Table[str, float] | None = None,
    strict: bool = False,
    **parameters: Any,
) -> MappingReport:
    """Check anybody's implementation of a mapping, in any array library.

    Some hundred rows, the smallest first, go through the function, and through this library's own
    in double precision. A property fails where the function is off by more than 64 times what this
    library's contract of accuracy allows in that float type (twice in float16 and bfloat16).
    Each has a grade; the worst is the verdict. The function is called at most 3,000 times.

    Parameters
    ----------
    fn : callable
        From an array of scores to one of probabilities (or several arrays, the first of which are
        the probabilities), the rows along its last axis, of NumPy, PyTorch, JAX, TensorFlow, Keras
        or CuPy; of the libraries that are already imported, it is the one whose arrays fn returns
        or takes. If fn has a parameter ``axis`` or ``dim``, every axis is checked.
    mapping : str or Mapping
        What it claims to be: the name of a row of `pyentmax.MAPPINGS`, ``"softmax1"``,
        e^z / (1 + Σ e^z), ``"softpick"``, relu(e^z − 1) / Σ |e^z − 1|, or a `Mapping`.
    vjp : callable, optional
        From p, which fn gave, and v to Jᵀv, both fn's arrays. If not given, PyTorch, JAX and
        TensorFlow differentiate fn themselves.
    shapes : sequence of (rows, scores), optional
        Sizes to try beside 1 to 130 rows of 1 to 40,000 scores.
    dtypes : sequence of str, optional
        The float types to look at, of ``"float64"``, ``"float32"``, ``"float16"`` and
        ``"bfloat16"``; by default all that fn takes. Everything is tried in the widest one and in
        one half type, the most telling cases in the others.
    device : optional
        Where arrays of PyTorch and JAX are put.
    seed : int
        Draws the random rows.
    tolerances : dict, optional
        Float type → what a result may be off by, relative to its size, in place of the contract.
    strict : bool
        Whether failures at edges count: −∞, NaN, scores beyond 20, empty batches, errors raised.
    **parameters
        The mapping's own, such as ``alpha``. They are passed to fn by name if it has a parameter of
        that name; otherwise fn is expected to have them built in.

    Returns
    -------
    MappingReport
        A line per property, with the smallest input that fails and the worst. True if the verdict
        is ``"right"``, or ``"edges"`` and the check is not strict.

    Raises
    ------
    TypeError
        if fn takes no array of scores, or the parameters are not those of the mapping
    ValueError
        if there is no mapping of that name, or fn takes none of the dtypes

    Examples
    --------
    >>> import numpy as np
    >>> def softmax(z):
    ...     e = np.exp(z)
    ...     return e / e.sum(axis=-1, keepdims=True)
    >>> report = check_mapping(softmax, "softmax", dtypes=["float32"])
    >>> report.verdict, report.passed, list(report.failures)
    ('edges', True, ['shifts', 'tiny and huge scores'])
    >>> print(report.failures["shifts"])
    [100, 100.5] gives [nan, nan], expected [0.377541, 0.622459]: no number (float32)
    """
    record = truth(mapping, parameters)
    parameters = {name: parameters[name] for name in record.parameters}
    known = subjects.parameters_of(fn)
    axis_names = ("axis", "dim") if known is None else sorted({"axis", "dim"} & {*known})
    settings = Settings(dtypes, device, seed, tolerances, strict)

    def trials(library: str) -> Iterator[MappingSubject]:
        for axis, rank, length in product((*axis_names, None), (1, 2), LENGTHS + FIXED):
            subject = MappingSubject(
                fn=fn, own_vjp=vjp, record=record, parameters=parameters, library=library,
                settings=settings, axis_name=axis, rank=rank, length=length,
                lengths=tuple(shapes))  # fmt: skip
            for name in sorted(MASKS & {*(known or ())}):
                subject.say(f"{name}= was not tried: scores of −∞ mask entries here")
            yield subject

    expected = "an array of scores (of 3, 5, 40, 100 or 2 to 64) to probabilities"
    return judge(MappingReport, "", fn, PROPERTIES, settings, trials, expected)
