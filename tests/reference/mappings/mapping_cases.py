"""Each mapping with values of its parameters: the cases that its tests share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from on_gpu import MARKS, on_gpu
from parameter_values import EXAMPLES
from scipy.special import xlogy
from stages import slow

from pyentmax import MAPPINGS, Mapping
from pyentmax.regularized import separable_mapping

# --- a user's own Ω -------------------------------------------------------------------------------

BETA = 0.3
SHANNON = separable_mapping(
    "shannon", lambda p: xlogy(p, p), lambda t: np.exp(t - 1), lambda p: 1 / p, sparse=False
)
GINI = separable_mapping("gini", lambda p: p * p / 2, lambda t: t, np.ones_like)
TSALLIS = separable_mapping(
    "tsallis",
    lambda p: p ** (1 + BETA) / (BETA * (1 + BETA)),
    lambda t: np.maximum(BETA * t, 0) ** (1 / BETA),
    lambda p: p ** (BETA - 1),
)
# New ones: growing slopes, a slope that is steep at 0, a tiny and a huge scale, one with its own
# upper barrier (g'(1) = ∞: p log p + (1 − p) log(1 − p)).
COSH = separable_mapping("cosh", np.cosh, np.arcsinh, np.cosh)
CUBIC = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
TINY = separable_mapping("tiny", lambda p: 1e-6 * p**2, lambda t: 5e5 * t, lambda p: 2e-6 + 0 * p)
HUGE = separable_mapping("huge", lambda p: 1e6 * p**2, lambda t: 5e-7 * t, lambda p: 2e6 + 0 * p)
FERMI = separable_mapping(
    "fermi",
    lambda p: xlogy(p, p) + xlogy(1 - p, 1 - p),
    lambda t: 1 / (1 + np.exp(-t)),
    lambda p: 1 / (p * (1 - p)),
    sparse=False,
)
OWN = {r.name: r for r in (SHANNON, GINI, TSALLIS, COSH, CUBIC, TINY, HUGE, FERMI)}

# --- cases ----------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A mapping at values of its parameters; `form` is "reference" for its body, or "gpu"."""

    name: str
    params: tuple[Any, ...] = ()
    form: str = ""

    @property
    def record(self) -> Mapping:
        return (MAPPINGS | OWN)[self.name]

    def function(self, part: str) -> Any:
        function: Any = getattr(self.record, part) if part else self.record
        if self.form == "gpu":
            return on_gpu(function)
        return function.reference if self.form else function

    def forward(self, z: Any, axis: Any = -1, **options: Any) -> Any:
        return self.function("")(z, *self.params, axis=axis, **options)

    def support(self, z: Any, axis: Any = -1, **options: Any) -> Any:
        return self.function("support")(z, *self.params, axis=axis, **options)

    def jvp(self, p: Any, v: Any, axis: Any = -1, **options: Any) -> Any:
        return self.function("jvp")(p, v, *self.params, axis=axis, **options)

    def vjp(self, p: Any, v: Any, axis: Any = -1, **options: Any) -> Any:
        return self.function("vjp")(p, v, *self.params, axis=axis, **options)

    def jacobian(self, p: Any, axis: Any = -1) -> Any:
        jacobian = on_gpu(self.record.jacobian) if self.form == "gpu" else self.record.jacobian
        return jacobian(p, *self.params, axis=axis)

    def __str__(self) -> str:
        return f"{self.name}{self.params or ''}{self.form and '.' + self.form}"


def parametrized(cases: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=str)


# Tsallis' family with its α, which the contract of accuracy is about.
ENTMAX = [(Case(name, (), form), alpha)
          for name, alpha in (("softmax", 1), ("sparsemax", 2), ("entmax15", 1.5))
          for form in ("", "reference")]  # fmt: skip
ENTMAX += [(Case("entmax", (a,)), a) for a in (0.1, 0.7, 1, 1.001, 1.1, 1.33, 1.5, 1.75, 2, 2.5, 4)]

# What the contract is tested with: every mapping, and each kind of α.
CASES = [Case(name, tuple(EXAMPLES[p] for p in record.parameters), form)
         for name, record in MAPPINGS.items() for form in ("", "reference")]  # fmt: skip
CASES += [Case("entmax", (alpha,)) for alpha in (0.5, 1, 1.001, 1.33, 2, 4, np.inf)]
CASES += [Case("fusedmax", (0,)), Case("oscarmax", (0,)), Case("normmax", (np.inf,))]
CASES += [Case("entmax", (1.33,), "reference"), Case("shannon")]
every_case = parametrized([*CASES, *slow((Case("gini"),), (Case("tsallis"),))])
# And with the kernels of a GPU, which raise less.
GPU_CASES = [
    pytest.param(case._replace(form="gpu"), marks=MARKS)
    for case in (*CASES, Case("entmax", (1.3,)))
    if case.form == "" and case.name in MAPPINGS
]
