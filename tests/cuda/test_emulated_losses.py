"""The losses on CuPy arrays: the launcher and its kernels, emulated, against the NumPy bodies."""

from __future__ import annotations

import re
from typing import Any

import emulated_cupy
import numpy as np
import pytest
from compiled_functions import FUNCTIONS
from emulation import REVERSED, unavailable
from fake_cupy import moved
from kernel_calls import call_kernel

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

NOWHERE = -100  # a label to ignore


@pytest.fixture(autouse=True)
def fresh(gpu: emulated_cupy.Emulation) -> None:
    gpu.schedule = REVERSED
    gpu.launches.clear()


def inputs(shape: tuple[int, ...], dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels: any, the best, and one to ignore."""
    rng = np.random.default_rng(shape[-1])
    z = (2 * rng.standard_normal(shape)).astype(dtype)
    y = rng.integers(0, shape[-1], shape[:-1])
    y.flat[0] = z.reshape(-1, shape[-1])[0].argmax()
    y.flat[-1] = NOWHERE
    return z, y


@pytest.mark.parametrize("name", ["normmax_loss", "normmax_loss_and_grad"])
def test_normmax_raises_what_its_body_raises(gpu: emulated_cupy.Emulation, name: str) -> None:
    z, y = inputs((3, 5))
    function = FUNCTIONS[name]
    for arguments, options in [
        ((1.0,), {}),
        ((np.array([2.0, 2.0]),), {}),
        ((2.0, 2), {}),
        ((), {"reduction": "median"}),
        ((), {"label_smoothing": 2.0}),
        ((), {"mask": np.ones(3, bool)}),
    ]:
        with pytest.raises((TypeError, ValueError)) as expected:
            function.reference(moved(z), moved(y), *arguments, **options)
        with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
            function(moved(z), moved(y), *arguments, **options)
    assert not gpu.launches


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("n", [1, 40, 700, 2500, 20000])
def test_every_way_to_hold_a_row(gpu: emulated_cupy.Emulation, n: int, dtype: Any) -> None:
    """One launch, and the numbers of the body."""
    z, y = inputs((3, n), dtype)
    options = {"reduction": "none", "ignore_index": NOWHERE}
    found = pyentmax.sparsemax.loss_and_grad(moved(z), moved(y), **options)
    (launched,) = gpu.launches
    assert launched.name.startswith("loss_")
    expected = pyentmax.sparsemax.loss_and_grad.reference(z.astype(float), y, **options)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        tolerance = 16 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(one.get(), other, rtol=tolerance, atol=tolerance)


def test_wrong_targets_are_nan_and_broken_rows_too(gpu: emulated_cupy.Emulation) -> None:
    z, _ = inputs((6, 5))
    z[0, 1], z[1, 1] = np.nan, np.inf
    y = np.array([0, 0, 5, -1, 1, 1])
    weight = np.array([1, 1, 1, 1, -1, 1.0])
    loss, gradient = pyentmax.sparsemax.loss_and_grad(
        moved(z), moved(y), reduction="none", weight=moved(weight)
    )
    assert np.isnan(loss.get()).tolist() == [True] * 5 + [False]
    assert np.isnan(gradient.get()).all(axis=-1).tolist() == [True] * 5 + [False]


def test_what_no_kernel_does_is_left_to_the_body(gpu: emulated_cupy.Emulation) -> None:
    z, y = map(moved, inputs((3, 5)))
    smoothed = {"label_smoothing": 0.1, "ignore_index": NOWHERE}
    assert call_kernel("sparsemax_loss", z, y, **smoothed) is NotImplemented
    assert call_kernel("sparsemax_loss", z, pyentmax.softmax(z)) is NotImplemented
    with pytest.raises(TypeError, match=r"y must lie on the GPU .*cupy\.asarray\(y\)"):
        call_kernel("sparsemax_loss", z, np.zeros(3, int))


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
def test_a_row_without_any_score_counts_nothing_however_heavy(
    gpu: emulated_cupy.Emulation, name: str
) -> None:
    z, y = inputs((3, 5))
    y[-1] = 0
    z[-1] = -np.inf
    weight = np.array([1e-60, 3e-60, 1.0])
    loss = getattr(pyentmax, name).loss_and_grad
    on_device = loss(moved(z), moved(y), weight=moved(weight))
    found, gradient = (x.get() for x in on_device)
    expected, its = loss.reference(z[:2], y[:2], weight=[1, 3])
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    np.testing.assert_allclose(gradient[:2], its, rtol=0, atol=2e-6)
