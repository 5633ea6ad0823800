"""The kernels of losses and their gradients on the CPU, against the NumPy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import IN_ORDER, REVERSED, Library, compiled, unavailable
from kernel_arguments import SOURCES, Arguments
from kernel_runs import LOSS_FORMS, LOSSES, Form, form_and_type, one_of
from number_types import FLOAT32, FLOAT64, TYPES, NumberType
from score_rows import score_rows

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

PARAMETERS = {
    "entmax": [1.0, 1.3, 2.0, 3.0, np.inf],
    "normmax": [1.2, 2.0, 4.0],
    "topk_sparsemax": [1.0, 3.0, 40.0],
}


class Case:
    """Scores, labels and weights of rows, and what the kernel makes of them."""

    def __init__(self, name: str, number: NumberType, n: int, wanted: bool = True) -> None:
        rng = np.random.default_rng(n)
        z = score_rows(n)[:: 1 if n < 600 else 2]
        self.parameter = np.array(PARAMETERS[name])[:, None] if name in PARAMETERS else None
        if self.parameter is not None:
            z = np.broadcast_to(z, (len(self.parameter), *z.shape))
        self.name, self.number, self.z = name, number, number.rounded(z)
        batch = self.z.shape[:-1]
        self.label = rng.integers(n, size=(*batch, 1))
        self.weight = rng.choice([0.0, 1.0, 0.25], size=batch)
        self.gradient = np.empty_like(self.z) if wanted else None
        self.loss, self.counted = np.empty((2, *batch, 1))

    def run(self, form: Form, mask: Any = None, **how: Any) -> None:
        parameter = 0.0 if self.parameter is None else self.parameter
        outputs = [self.gradient, self.loss, self.counted]
        LOSSES[self.name].run(form, self.number, [self.z, mask, self.label, *outputs],
                              parameter=parameter, weight=self.weight, **how)  # fmt: skip

    def check(self, mask: Any = None) -> None:
        body = getattr(pyentmax, f"{self.name}_loss_and_grad").reference
        parameters = [] if self.parameter is None else [self.parameter]
        z, weight = self.number.exact(self.z), self.weight[..., None]
        with np.errstate(invalid="ignore"):
            loss, gradient = body(z, self.label[..., 0], *parameters, reduction="none", mask=mask)
            loss, gradient = (weight * x for x in (loss[..., None], gradient))
        there = (z if mask is None else np.where(mask, z, -np.inf)).max(-1, keepdims=True) > -np.inf
        there |= np.isnan(loss)
        for x in (loss, gradient):  # a row that does not count is not looked at
            x[np.broadcast_to(weight == 0, x.shape)] = 0
        np.testing.assert_array_equal(self.counted, np.where(there, weight, 0))
        tolerance = 2e-14 if self.number is FLOAT64 else 4e-6
        np.testing.assert_allclose(self.loss, loss, rtol=tolerance, atol=tolerance)
        if self.gradient is not None:
            got = self.number.exact(self.gradient)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(gradient))
            half = self.number not in (FLOAT32, FLOAT64)
            allowed = np.maximum(self.number.ulp(gradient), 1e-6) if half else tolerance / 4
            # For α > 2 p is exact for scores moved by 8ε, and an entry at the threshold moves far.
            alpha = self.parameter if self.name in ("entmax", "normmax") else 1.0
            alpha = np.asarray(alpha)[..., None]
            steep = (alpha > 2) & np.isfinite(alpha)
            move = 32 * np.finfo(self.number.computed).eps * alpha
            far = np.where(steep, np.where(steep, move, 1) ** (1 / np.maximum(alpha - 1, 1)), 0)
            allowed = np.maximum(allowed, far)
            excess = np.nan_to_num(np.abs(got - gradient) - allowed, nan=-1)
            assert excess.max() <= 0, excess.max()


@pytest.mark.parametrize("name", LOSSES)
@form_and_type(LOSS_FORMS)
def test_losses_and_gradients(name: str, form: Form, number: NumberType) -> None:
    for n, schedule in zip(form.lengths, [IN_ORDER, REVERSED, 1, 2, 3, 4], strict=False):
        case = Case(name, number, n)
        case.run(form, schedule=schedule)
        case.check()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("form", LOSS_FORMS, ids=str)
def test_without_a_gradient_and_with_a_mask(name: str, form: Form) -> None:
    case = Case(name, FLOAT32, form.lengths[-2], wanted=False)
    mask = np.random.default_rng(0).random(case.z.shape) < 0.6
    mask[..., 2, :] = False
    case.z[..., 0], mask[..., 0] = np.nan, False
    case.run(form, mask)
    case.check(mask)


@pytest.mark.parametrize("form", LOSS_FORMS, ids=str)
def test_a_label_out_of_range_is_nan_where_it_counts(form: Form) -> None:
    case = Case("entmax15", FLOAT32, form.lengths[1])
    case.z[...] = 0
    n = case.z.shape[-1]
    case.label[:, 0] = np.resize([-1, n, 0, n + 2**32], len(case.label))
    case.weight[:] = np.resize([1, 1, 1, 1, 0, 0], len(case.weight))
    case.run(form)
    wrong = (case.weight != 0) & ((case.label < 0) | (case.label >= n))[:, 0]
    assert (np.isnan(case.loss)[:, 0] == wrong).all()
    assert (np.isnan(case.gradient).all(axis=1) == wrong).all()
    assert (np.isnan(case.gradient).any(axis=1) == wrong).all()


@pytest.mark.parametrize("name", one_of(LOSSES, "entmax"))
@form_and_type(LOSS_FORMS, checked=True)
def test_no_race_and_no_overrun(name: str, form: Form, number: NumberType) -> None:
    for schedule in (REVERSED, 1):
        case = Case(name, number, form.lengths[-2])
        case.run(form, schedule=schedule, checked=True, room=24)
        case.check()


def rescaling() -> Library:
    names = [f"rescale<{number.cuda}>" for number in TYPES]
    text = (SOURCES / "losses.cu").read_text()
    return compiled(text, names, include=[SOURCES], file_name="losses.cu", checked=True)


@pytest.mark.parametrize("number", TYPES, ids=str)
def test_rescaling(number: NumberType) -> None:
    library = rescaling()
    for factor in (0.25, 1.0):
        gradient = number.rounded(np.random.default_rng(0).standard_normal((5, 300)))
        expected = number.rounded(number.exact(gradient) * factor)
        make = Arguments(gradient.shape)
        arguments = [make.operand(gradient), make.batch(), make.parameter(np.array([factor] * 5))]
        library.launch(f"rescale<{number.cuda}>", 3, 128, arguments, arrays=make.arrays)
        np.testing.assert_array_equal(gradient, expected)
