"""The kernels of derivatives on the CPU, against the NumPy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import IN_ORDER, REVERSED, unavailable
from kernel_runs import DERIVATIVES, FORMS, STREAM, Form, form_and_type, one_of
from number_types import BFLOAT16, FLOAT16, FLOAT32, NumberType
from score_rows import score_rows

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

ALPHAS = {
    "entmax_jvp": [1.0, 1.2, 1.5, 2.0, 2.5, 4.0],
    "entmax_grad_alpha": [1.0, 1 + 1e-6, 1.2, 1.5, 2.0, 2.5, 4.0],
    "normmax_jvp": [1.2, 1.5, 2.0, 3.0],
}
ORDERS = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5}
INVALID = {"entmax_jvp": 0.5, "entmax_grad_alpha": 0.5, "normmax_jvp": 1.0}


def body(name: str) -> Any:
    return getattr(pyentmax, name).reference


def parameters(name: str) -> list[Any]:
    return [np.array(ALPHAS[name])[:, None]] if name in ALPHAS else []


def case(name: str, number: NumberType, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that the mapping gives, and directions that hold anything off the support."""
    rng = np.random.default_rng(n)
    z = score_rows(n)[:: 1 if n < 600 else 2]
    if name in ALPHAS:
        z = np.broadcast_to(z, (len(ALPHAS[name]), *z.shape))
    mapping = name.removesuffix("_jvp").removesuffix("_grad_alpha")
    p = number.rounded(body(mapping)(z, *parameters(name)))
    v = rng.standard_normal(p.shape) * np.exp(rng.normal(size=(*p.shape[:-1], 1)))
    v[number.exact(p) == 0] = np.resize([np.nan, np.inf, 1.0], v.shape)[number.exact(p) == 0]
    return p, number.rounded(v)


def expected_and_size(name: str, p: np.ndarray, v: np.ndarray, mask: Any) -> list[np.ndarray]:
    """What the NumPy body gives, and the size of the terms that it is the sum of."""
    on = (p > 0) & (True if mask is None else mask)
    p, v = np.where(on, p, np.where(np.isnan(p), p, 0)), np.where(on, v, 0)
    some = np.where(on, p, 1)

    def total(x: np.ndarray) -> np.ndarray:
        return np.where(on, x, 0).sum(-1, keepdims=True)

    alpha = np.asarray(ALPHAS.get(name, ORDERS.get(name.removesuffix("_jvp"))), float)
    alpha, v_size = (alpha[:, None, None] if alpha.ndim else alpha), np.abs(v)
    if name == "entmax_grad_alpha":
        beta, logs = np.maximum(alpha - 1, 0), np.abs(np.log(some))
        part = some ** (2 - alpha) / total(some ** (2 - alpha))
        x = beta * logs
        a = logs**2 * np.where(x < 0.1, 0.5, (np.expm1(x) - x) / np.where(x > 0, x, 1) ** 2)
        small = part * some ** (alpha - 1) * (total(p * a) + a + beta * total(p * logs) * a)
        large = (p + part) / np.maximum(beta, 1) ** 2 + p * logs + part * total(p * logs)
        size = np.where(beta <= 1, small + part * total(p * a) * (1 + beta * logs), large)
        return [body(name)(p, *parameters(name)), np.where(on, size, 0)]
    expected = body(name)(p, v, *parameters(name), mask=mask)
    if name == "normmax_jvp":
        norm = total(p**alpha) ** (1 / alpha)
        slope = np.where(on, p * (norm / some) ** (alpha - 1) / (alpha - 1), 0)
        size = slope * (v_size + total(p * v_size))
        return [expected, size + p * total(size)]
    slope = np.where(on, some ** (2 - alpha), 0)
    return [expected, slope * (v_size + total(slope * v_size) / total(slope))]


def check(name: str, number: NumberType, p: np.ndarray, v: np.ndarray, out: np.ndarray,
          mask: Any = None) -> None:  # fmt: skip
    p, v, got = number.exact(p), number.exact(v), number.exact(out)
    with np.errstate(all="ignore"):
        expected, size = expected_and_size(name, p, v, mask)
        allowed = 32 * float(np.finfo(number.computed).eps) * size
        if number in (FLOAT16, BFLOAT16):
            allowed = allowed + number.ulp(expected) / 2
        # What overflows the type does so in both; subnormal numbers may be flushed.
        limit = float(np.finfo(number.stored).max) if number is not BFLOAT16 else 3e38
        expected = np.where(np.abs(expected) > limit, np.sign(expected) * np.inf, expected)
        flushed = 1e4 if name == "entmax_grad_alpha" else np.nan_to_num(np.abs(v)).max()
        allowed += 2.0**-126 * (1 + flushed)
        wrong = ~(np.abs(got - expected) <= allowed) & (got != expected)
    wrong &= ~(np.isnan(got) & np.isnan(expected))
    worst = np.unravel_index(wrong.argmax(), wrong.shape)
    assert not wrong.any(), f"{got[worst]} for {expected[worst]} at {worst} of {p.shape}"


def launch(name: str, form: Form, number: NumberType, p: np.ndarray, v: np.ndarray,
           out: np.ndarray, mask: Any = None, **how: Any) -> None:  # fmt: skip
    paired = name != "entmax_grad_alpha"
    how = {"parameter": (parameters(name) or [0.0])[0], **how}
    operands = [p, v if paired else None, None, mask, out]
    DERIVATIVES[name].run(form, number, operands, **how)


@pytest.mark.parametrize("name", DERIVATIVES)
@form_and_type(FORMS)
def test_derivatives(name: str, form: Form, number: NumberType) -> None:
    for n, schedule in zip(form.lengths, [IN_ORDER, REVERSED, 1, 2, 3, 4], strict=False):
        p, v = case(name, number, n)
        out = np.empty_like(p)
        launch(name, form, number, p, v, out, schedule=schedule)
        check(name, number, p, v, out)


@pytest.mark.parametrize("name", [name for name in DERIVATIVES if name.endswith("_jvp")])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_masked_entries_do_not_move(name: str, form: Form) -> None:
    p, v = case(name, FLOAT32, form.lengths[-2])
    sound = ~np.isnan(p).any(axis=-1).reshape(-1, p.shape[-2]).any(axis=0)
    p, v = p[..., sound, :], v[..., sound, :]
    mask = np.random.default_rng(0).random(p.shape) < 0.6
    p[~mask], v[..., 0], mask[..., 0] = np.nan, np.inf, False
    out = np.empty_like(p)
    launch(name, form, FLOAT32, p, v, out, mask)
    check(name, FLOAT32, np.where(mask, p, 0), v, out, mask)


@pytest.mark.parametrize("name", INVALID)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_invalid_parameter_makes_its_row_nan(name: str, form: Form) -> None:
    p = np.full((3, form.lengths[1]), 1 / form.lengths[1], np.float32)
    out, parameter = np.empty_like(p), np.array([1.5, INVALID[name], np.nan])
    launch(name, form, FLOAT32, p, p, out, parameter=parameter)
    assert np.isnan(out).all(axis=1).tolist() == [False, True, True]


@pytest.mark.parametrize("name", one_of(DERIVATIVES, "entmax_jvp"))
@form_and_type(FORMS, checked=True)
def test_no_race_and_no_overrun(name: str, form: Form, number: NumberType) -> None:
    p, v = (x[..., :8, :] for x in case(name, number, form.lengths[-2]))
    for schedule, out in [(REVERSED, np.empty_like(p)), (1, v.copy())]:  # in place, too
        launch(name, form, number, p, v if schedule < 0 else out, out,
               schedule=schedule, checked=True, words=9)  # fmt: skip
        check(name, number, p, v, out)


@pytest.mark.parametrize("words", [0, 1, 40])
def test_long_rows_with_any_storage(words: int) -> None:
    p, v = case("entmax15_jvp", FLOAT32, 2100)
    out = np.empty_like(p)
    launch("entmax15_jvp", STREAM, FLOAT32, p, v, out, words=words)
    check("entmax15_jvp", FLOAT32, p, v, out)


@pytest.mark.deep
@pytest.mark.parametrize("name", DERIVATIVES)
@form_and_type(FORMS, checked=True)
def test_no_race_and_no_overrun_at_length(name: str, form: Form, number: NumberType) -> None:
    for n in form.lengths:
        p, v = case(name, number, n)
        for schedule in (IN_ORDER, REVERSED, 1, 2, 3):
            for words in (0, 5, 1 << 10):
                out = np.empty_like(p)
                launch(name, form, number, p, v, out, schedule=schedule, checked=True, words=words)
                check(name, number, p, v, out)
                if form is not STREAM:
                    break


@pytest.mark.parametrize("name", ["entmax_jvp", "normmax_jvp", "entmax_grad_alpha"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_is_beyond_floats_is_infinite_as_in_the_body(name: str, form: Form) -> None:
    given = [
        [0.9, 0.05, 0.05],
        [0.5, 0.5, 0],
        [1, 0, 0],
        [0.5, 0.3, 0.2],
        [0.45, 0.45, 0.1],
        [0.6, 0.39, 0.01],
    ]
    along = [[1, 2, 4], [1, 2, 2], [2, 2, 2], [-1, 0, 1], [0, 0, 1]]
    p, v = np.zeros((2, len(given), len(along), form.lengths[1] + 2), np.float32)
    p[..., -3:], v[..., -3:] = np.array(given)[:, None], along
    for alpha in (20, 100, 1000, 1e5, 1e38, 3e38, 1e39, 1.7e308, np.inf):
        out = np.empty_like(p)
        launch(name, form, FLOAT32, p, v, out, parameter=float(alpha))
        expected = body(name)(*([p, v] if name.endswith("jvp") else [p]), alpha)
        assert not np.isnan(out).any()
        far = np.isinf(expected)
        np.testing.assert_array_equal(out[far], expected[far])
        # Powers of p are off by as many ε as their logarithms are large.
        room = 64 * 2.0**-23 * min(1 + 5 * alpha, 1e4)
        size = np.abs(np.where(far, 0, expected)).max(axis=-1, keepdims=True)
        close = np.abs(np.where(far, 0, out) - np.where(far, 0, expected)) <= room * size + 1e-37
        assert close.all(), (alpha, out[~close.all(axis=-1)], expected[~close.all(axis=-1)])
