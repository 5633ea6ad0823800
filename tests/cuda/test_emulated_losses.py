"""The losses on CuPy arrays: the launcher and its kernels, emulated, against the NumPy bodies."""

from __future__ import annotations

import re
from typing import Any

import emulated_cupy
import fake_cupy
import numpy as np
import pytest
from emulation import IN_ORDER, REVERSED, unavailable
from fake_cupy import moved
from kernel_calls import call_kernel

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

NAMES = ["softmax", "sparsemax", "entmax15", "entmax", "normmax", "topk_sparsemax"]
USUAL = {"topk_sparsemax": (2,)}  # where there is no default
PARAMETERS: dict[str, list[Any]] = {
    "entmax": [1.0, 1.001, 1.5, 3.0, np.inf],
    "normmax": [1.3, 2.0, np.inf],
    "topk_sparsemax": [1, 3, 100],
}
TOLERANCE = {"float16": 1e-3, "float32": 2e-6, "float64": 1e-13}
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


def check(gpu: Any, name: str, z: np.ndarray, y: np.ndarray, *given: Any, **options: Any) -> None:
    """Loss and gradient on the device are the body's; one launch, and no copy to or fro."""
    given = given or USUAL.get(name, ())
    options = {"ignore_index": NOWHERE, **options}
    on_device = {key: moved(value) for key, value in options.items()}
    function, device_z, device_y = getattr(pyentmax, f"{name}_loss_and_grad"), moved(z), moved(y)
    expected = function.reference(z.astype(np.float64), y, *given, **options)
    gpu.launches.clear()
    fake_cupy.copies.reset()
    loss, gradient = function(device_z, device_y, *given, **on_device)
    alone = getattr(pyentmax, f"{name}_loss")(device_z, device_y, *given, **on_device)
    assert fake_cupy.copies.to_host == fake_cupy.copies.to_device == 0
    assert sum(launch.name.startswith("loss_") for launch in gpu.launches) == 2
    assert loss.dtype == gradient.dtype == z.dtype
    tolerance = TOLERANCE[z.dtype.name]
    np.testing.assert_allclose(loss.get(), expected[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gradient.get(), expected[1], rtol=0, atol=tolerance)
    np.testing.assert_array_equal(alone.get(), loss.get())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, np.float32) for name in NAMES), ("entmax", np.float64), ("sparsemax", np.float16)],
)
def test_every_type_and_parameter(gpu: emulated_cupy.Emulation, name: str, dtype: Any) -> None:
    for parameter in PARAMETERS.get(name, [None]):
        z, y = inputs((7, 9), dtype)
        check(gpu, name, z, y, *([] if parameter is None else [parameter]), reduction="none")


@pytest.mark.parametrize("name", ["normmax_loss", "normmax_loss_and_grad"])
def test_normmax_raises_what_its_body_raises(gpu: emulated_cupy.Emulation, name: str) -> None:
    z, y = inputs((3, 5))
    function = getattr(pyentmax, name)
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


@pytest.mark.parametrize("n", [1, 40, 700, 2500, 20000])
def test_every_way_to_hold_a_row(gpu: emulated_cupy.Emulation, n: int) -> None:
    gpu.schedule = IN_ORDER
    check(gpu, "sparsemax", *inputs((3, n)), reduction="none")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reductions_weights_and_masks(
    gpu: emulated_cupy.Emulation, name: str, reduction: str
) -> None:
    z, y = inputs((2, 4, 6))
    mask = np.random.default_rng(0).random(z.shape) < 0.7
    mask[0, 1] = False  # a row with nothing left has no share in the mean
    np.put_along_axis(mask, np.maximum(y, 0)[..., None], True, axis=-1)
    mask[1, 0] = False
    weight = np.array([1.0, 0.0, 2.0, 0.5])
    check(gpu, name, z, y, reduction=reduction)
    check(gpu, name, z, y, reduction=reduction, weight=weight)
    check(gpu, name, z, y, reduction=reduction, weight=weight, mask=mask)
    check(gpu, name, z, y, reduction=reduction, weight=2.0, mask=mask)
    check(gpu, name, z[..., ::-1], y, reduction=reduction)
    check(gpu, name, np.ascontiguousarray(z.transpose(0, 2, 1)), y, axis=1, reduction=reduction)


def test_where_nothing_counts_the_mean_is_0(gpu: emulated_cupy.Emulation) -> None:
    z, y = inputs((3, 5))
    check(gpu, "sparsemax", z, np.full_like(y, NOWHERE))
    check(gpu, "sparsemax", z, y, mask=np.zeros(5, bool))


def test_wrong_targets_are_nan_and_broken_rows_too(gpu: emulated_cupy.Emulation) -> None:
    z, _ = inputs((6, 5))
    z[0, 1], z[1, 1] = np.nan, np.inf
    y = np.array([0, 0, 5, -1, 1, 1])
    weight = np.array([1, 1, 1, 1, -1, 1.0])
    loss, gradient = pyentmax.sparsemax_loss_and_grad(
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
    check(gpu, name, z, y, weight=weight)
    loss = getattr(pyentmax, f"{name}_loss_and_grad")
    on_device = loss(moved(z), moved(y), weight=moved(weight))
    found, gradient = (x.get() for x in on_device)
    expected, its = loss.reference(z[:2], y[:2], weight=[1, 3])
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE["float32"])
    np.testing.assert_allclose(gradient[:2], its, rtol=0, atol=TOLERANCE["float32"])
