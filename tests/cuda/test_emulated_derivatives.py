"""The kernels of Jacobian products on the CPU, against the NumPy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import IN_ORDER, REVERSED, unavailable
from kernel_runs import FORMS, JVP, STREAM, Form
from number_types import BFLOAT16, FLOAT16, FLOAT32, TYPES, NumberType
from score_rows import score_rows

import pyentmax

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

ALPHAS = np.array([1.0, 1.2, 1.5, 2.0, 2.5, 4.0])[:, None]
EXPONENTS = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5, "entmax": ALPHAS}


def case(name: str, number: NumberType, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that the mapping gives, and directions that hold anything off the support."""
    rng = np.random.default_rng(n)
    z = score_rows(n)
    if name == "entmax":
        z = np.broadcast_to(z, (len(ALPHAS), *z.shape))
    p = number.rounded(body(name)(z, *parameters(name)))
    v = rng.standard_normal(p.shape) * np.exp(rng.normal(size=(*p.shape[:-1], 1)))
    v[number.exact(p) == 0] = np.resize([np.nan, np.inf, 1.0], v.shape)[number.exact(p) == 0]
    return p, number.rounded(v)


def body(name: str) -> Any:
    """The NumPy body of a function, whether it is accelerated or not."""
    function = getattr(pyentmax, name)
    return getattr(function, "reference", function)


def parameters(name: str) -> list[Any]:
    return [ALPHAS] if name == "entmax" else []


def check(name: str, number: NumberType, p: np.ndarray, v: np.ndarray, out: np.ndarray,
          mask: Any = None) -> None:  # fmt: skip
    p, v, got = number.exact(p), number.exact(v), number.exact(out)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = body(f"{name}_jvp")(p, v, *parameters(name), mask=mask)
        keep = (p > 0) & (True if mask is None else mask)
        order = np.asarray(EXPONENTS[name])[..., None]
        slope = np.where(keep, np.where(keep, p, 1) ** (2 - order), 0)
        size = np.where(keep, np.abs(v), 0)
        mean = (slope * size).sum(-1, keepdims=True) / slope.sum(-1, keepdims=True)
        allowed = 32 * float(np.finfo(number.computed).eps) * slope * (size + mean)
        if number in (FLOAT16, BFLOAT16):
            allowed = allowed + number.ulp(expected) / 2
        # What overflows the type does so in both; subnormal numbers may be flushed.
        limit = float(np.finfo(number.stored).max) if number is not BFLOAT16 else 3e38
        expected = np.where(np.abs(expected) > limit, np.sign(expected) * np.inf, expected)
        allowed += 2.0**-126 * (1 + size + mean)
        wrong = ~(np.abs(got - expected) <= allowed) & (got != expected)
    wrong &= ~(np.isnan(got) & np.isnan(expected))
    worst = np.unravel_index(wrong.argmax(), wrong.shape)
    assert not wrong.any(), f"{got[worst]} for {expected[worst]} at {worst} of {p.shape}"


def launch(name: str, form: Form, number: NumberType, p: np.ndarray, v: np.ndarray,
           out: np.ndarray, mask: Any = None, **how: Any) -> None:  # fmt: skip
    parameter = ALPHAS if name == "entmax" else 0.0
    JVP[name].run(form, number, [p, v, None, mask, out], parameter=parameter, **how)


@pytest.mark.parametrize("name", JVP)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("number", TYPES, ids=str)
def test_jacobian_products(name: str, form: Form, number: NumberType) -> None:
    for n, schedule in zip(form.lengths, [IN_ORDER, REVERSED, 1, 2, 3, 4], strict=False):
        p, v = case(name, number, n)
        out = np.empty_like(p)
        launch(name, form, number, p, v, out, schedule=schedule)
        check(name, number, p, v, out)


@pytest.mark.parametrize("name", JVP)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_masked_entries_do_not_move(name: str, form: Form) -> None:
    p, v = case(name, FLOAT32, form.lengths[-2])
    mask = np.random.default_rng(0).random(p.shape) < 0.6
    p[~mask], v[..., 0], mask[..., 0] = np.nan, np.inf, False
    out = np.empty_like(p)
    launch(name, form, FLOAT32, p, v, out, mask)
    check(name, FLOAT32, np.where(mask, p, 0), v, out, mask)


@pytest.mark.parametrize("name", JVP)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("number", TYPES, ids=str)
def test_no_race_and_no_overrun(name: str, form: Form, number: NumberType) -> None:
    p, v = (x[..., :8, :] for x in case(name, number, form.lengths[-2]))
    for schedule, out in [(REVERSED, np.empty_like(p)), (1, v.copy())]:  # in place, too
        launch(name, form, number, p, v if schedule < 0 else out, out,
               schedule=schedule, checked=True, words=9)  # fmt: skip
        check(name, number, p, v, out)


@pytest.mark.parametrize("words", [0, 1, 40])
def test_long_rows_with_any_storage(words: int) -> None:
    p, v = case("entmax15", FLOAT32, 2100)
    out = np.empty_like(p)
    launch("entmax15", STREAM, FLOAT32, p, v, out, words=words)
    check("entmax15", FLOAT32, p, v, out)
