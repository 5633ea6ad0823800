"""Right derivatives of every mapping, and a palette of wrong ones, to calibrate the checks with.

A check is held to two things: a right derivative passes, or the report says truly that it sits on a
kink or that the differences are too uncertain; a wrong one fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pyentmax import MAPPINGS, CheckReport, check_jacobian, check_vjp

RTOL, ATOL = 1e-6, 1e-8
SHOWN = 0.01  # a derivative off by so much of its largest entry has to fail

MAPPED: list[tuple[str, Callable[[int], tuple[Any, ...]]]] = [
    ("softmax", lambda d: ()),
    ("sparsemax", lambda d: ()),
    ("entmax15", lambda d: ()),
    ("entmax", lambda d: (1.1,)),
    ("entmax", lambda d: (4 / 3,)),
    ("entmax", lambda d: (1.75,)),
    ("entmax", lambda d: (2.5,)),
    ("entmax", lambda d: (4.0,)),
    ("topk_softmax", lambda d: (max(1, d // 3),)),
    ("topk_sparsemax", lambda d: (max(1, d // 3),)),
    ("fusedmax", lambda d: (0.2,)),
    ("oscarmax", lambda d: (0.2 / d,)),
    ("csoftmax", lambda d: (min(1.0, 3 / d),)),
    ("csparsemax", lambda d: (min(1.0, 3 / d),)),
    ("budget_sparsemax", lambda d: (d / 4,)),
    ("normmax", lambda d: (1.2,)),
    ("normmax", lambda d: (2.0,)),
    ("normmax", lambda d: (4.0,)),
]


@dataclass(frozen=True)
class Case:
    """A mapping at a point."""

    name: str
    params: tuple[Any, ...]
    d: int
    scale: float
    offset: float
    dtype: Any
    seed: int

    def scores(self) -> np.ndarray:
        rng = np.random.default_rng([self.seed, self.d])
        return rng.standard_normal(self.d) * self.scale + self.offset

    def forward(self, z: Any) -> Any:
        return MAPPINGS[self.name].forward(np.asarray(z, self.dtype), *self.params)

    def jacobian(self, p: Any) -> Any:
        return MAPPINGS[self.name].jacobian(np.asarray(p, self.dtype), *self.params)


def remembered(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, computed once for each point: the palette is checked at the same points."""
    known: dict[bytes, Any] = {}

    def remembering(z: Any) -> Any:
        key = z.tobytes()
        if key not in known:
            known[key] = function(z)
        return known[key]

    return remembering


def wrong_jacobians(right: np.ndarray, p: np.ndarray, seed: int) -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(seed)
    largest = np.abs(right).max()
    yield "zero", 0 * right
    yield "sign", -right
    yield "1.01", 1.01 * right
    one_off = right.copy()
    one_off[tuple(rng.integers(len(p), size=2))] += 2 * SHOWN * largest
    yield "one entry", one_off
    yield "transposed", right.T
    support = np.flatnonzero(p)
    gone = rng.choice(support)
    missing = right.copy()
    missing[gone] = missing[:, gone] = 0
    yield "an entry of the support missing", missing
    yield "the average forgotten", np.diag(np.diag(right))


def on_kink(case: Case, z: np.ndarray, reach: float) -> bool:
    """Whether the Jacobian changes within so short a way: at a break, or too fast to be seen."""
    rng = np.random.default_rng(7)
    ways = [*np.eye(case.d)[: 256 if case.d <= 256 else 0], *rng.choice([-1, 1], (32, case.d))]
    least = np.abs(z).max() * np.finfo(case.dtype).eps
    p = case.forward(z)
    here = case.jacobian(p)
    for u in ways:
        for sign in (-1, 1):
            q = case.forward(z + sign * max(reach, 2 * least) * u)
            there = case.jacobian(q)
            if np.abs(there - here).max() > 2 * RTOL * np.abs(here).max() + ATOL:
                return True
            if np.abs(there).max() <= ATOL and np.abs(q - p).max() > SHOWN:
                return True  # a jump between two places where it is flat
    return False


def judged(case: Case) -> Counter[str]:
    """How the check did on a case: counts of right and wrong ones by what the report says."""
    z = case.scores()
    forward = remembered(case.forward)
    p = forward(z)
    right = np.asarray(case.jacobian(p), np.float64)
    told: Counter[str] = Counter()
    told[verdict(check_vjp(forward, z, lambda _, v: right.T @ v))] += 1
    report = check_jacobian(forward, z, lambda _: right)
    told[verdict(report)] += 1
    if verdict(report) == "kink":
        true = on_kink(case, z, 8 * getattr(report, "finest", 2.0**-20))
        told["kink, truly" if true else "KINK, FALSELY"] += 1
    largest = np.abs(right).max()
    for name, wrong in wrong_jacobians(right, np.asarray(p), case.seed):
        dust = 2 * ATOL if case.dtype is np.float64 else 128 * np.finfo(case.dtype).eps * p.max()
        if np.abs(wrong - right).max() < SHOWN * largest + dust:
            continue
        told["wrong"] += 1
        if check_jacobian(forward, z, lambda _, wrong=wrong: wrong).passed:
            told[f"MISSED {name}"] += 1
        if name in ("zero", "sign", "1.01"):  # what shows in every product
            if check_vjp(forward, z, lambda _, v, wrong=wrong: wrong.T @ v).passed:
                told[f"MISSED {name}, product"] += 1
    return told


def verdict(report: CheckReport) -> str:
    if report.passed:
        return "passed"
    if report.kink:
        return "kink"
    return "unresolved" if not getattr(report, "resolved", True) else "FALSE ALARM"


def cases(
    ds: tuple[int, ...],
    scales: tuple[float, ...],
    offsets: tuple[float, ...],
    dtypes: tuple[Any, ...] = (np.float64, np.float32),
    seeds: int = 1,
) -> list[Case]:
    return [
        Case(name, params(d), d, scale, offset, dtype, seed)
        for (name, params), d, scale, offset, dtype, seed in product(
            MAPPED, ds, scales, offsets, dtypes, range(seeds)
        )
    ]
