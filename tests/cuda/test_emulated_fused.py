"""fusedmax and oscarmax on CuPy arrays: their kernels, emulated, against the NumPy bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import emulated_cupy
import fake_cupy
import numpy as np
import pytest
from emulation import REVERSED, unavailable
from fake_cupy import moved
from kernel_calls import call_kernel

import pyentmax

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(unavailable()), reason=unavailable())]

NAMES = ["fusedmax", "oscarmax"]
STRENGTHS = [0.0, 0.01, 0.3, 20.0, np.inf]
TOLERANCE = {"float16": 1e-3, "float32": 2e-6, "float64": 1e-13}


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[emulated_cupy.Emulation]:
    with emulated_cupy.installed() as emulation:
        emulation.schedule = REVERSED
        yield emulation


def scores(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Random ones, and rows with ties, −∞, far outliers, a rise, a fall, nothing, and a NaN."""
    n = shape[-1]
    z = np.random.default_rng(n).standard_normal((10, n))
    z[1], z[2, n // 2], z[3, n // 3] = np.round(z[1]), -np.inf, -1e4
    z[4], z[5], z[6], z[7] = np.arange(n), -np.arange(n), 0, -np.inf
    z[8, -1], z[9, 0] = np.nan, np.inf
    return np.resize(z, shape).astype(dtype)


def check(name: str, arrays: list[np.ndarray], strength: Any, **options: Any) -> None:
    body, dtype = getattr(pyentmax, name).reference, arrays[0].dtype
    on_device = {key: moved(value) for key, value in options.items()}
    arguments = [*map(moved, arrays), moved(strength)]
    fake_cupy.copies.reset()
    found = call_kernel(name, *arguments, **on_device)
    assert fake_cupy.copies.to_host == fake_cupy.copies.to_device == 0
    assert found.dtype == dtype
    expected = body(*(a.astype(np.float64) for a in arrays), strength, **options)
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=TOLERANCE[dtype.name])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 17, 130])
def test_every_kind_of_row(name: str, n: int) -> None:
    for strength in STRENGTHS:
        check(name, [scores((10, n))], strength)
    check(name, [scores((10, n))], np.geomspace(1e-3, 1e3, 10))
    mask = np.random.default_rng(0).random((10, n)) < 0.7
    mask[8:] &= np.isfinite(scores((10, n))[8:])
    check(name, [scores((10, n))], 0.2, mask=mask)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=lambda t: t.__name__)
def test_other_types_and_axes(name: str, dtype: Any) -> None:
    z = scores((10, 3, 20), dtype)
    check(name, [z], 0.05)
    check(name, [np.ascontiguousarray(z.transpose(2, 0, 1))], 0.05, axis=0)


@pytest.mark.parametrize("name", NAMES)
def test_products(name: str) -> None:
    z = scores((10, 40))
    for strength in STRENGTHS[:4]:
        p = getattr(pyentmax, name).reference(z, strength)
        v = np.where(p == 0, np.nan, np.random.default_rng(1).standard_normal(p.shape))
        check(f"{name}_jvp", [p, v], strength)
        check(f"{name}_jvp", [p, v], strength, mask=np.arange(40) % 7 != 3)
        check(f"{name}_jvp", [p.T.copy(), v.T.copy()], strength, axis=0)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_strengths_are_nan_and_long_rows_the_bodys(name: str) -> None:
    z = scores((10, 5))[:3]
    p = call_kernel(name, moved(z), moved(np.array([-1.0, np.nan, 0.1]))).get()
    assert np.isnan(p).all(axis=-1).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="strength must be at least 0, got -1"):
        call_kernel(name, moved(z), -1)
    assert call_kernel(name, moved(np.zeros((1, 4097)))) is NotImplemented
    long = moved(np.zeros((1, 4097)))
    assert call_kernel(f"{name}_jvp", long, long) is NotImplemented


def test_fused_entries_are_exactly_equal() -> None:
    z = scores((10, 200), np.float32)[:1]
    p = call_kernel("fusedmax", moved(z), 0.5).get()
    changes = np.count_nonzero(np.diff(p))
    assert changes == np.count_nonzero(np.diff(pyentmax.fusedmax.reference(z, 0.5)))


@pytest.mark.parametrize("name", NAMES)
def test_no_race_and_no_overrun(name: str) -> None:
    z = scores((10, 33), np.float32)
    p = getattr(pyentmax, name).reference(z, 0.2).astype(np.float32)
    with emulated_cupy.installed(checked=True):
        check(name, [z], 0.2)
        v = np.random.default_rng(0).standard_normal(p.shape).astype(np.float32)
        check(f"{name}_jvp", [p, v], 0.2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("large", [1e3, 1e8, 1e17, 1e28])
def test_strengths_that_swamp_1_raise_no_low_score_and_tell_groups_apart(
    large: float, dtype: Any
) -> None:
    # Two edges raise a low score by 2λ, and two lower a peak by as much.
    check("fusedmax", [np.array([[0, 1, 0, 1, 0]], dtype) * dtype(100 * large)], large)
    # Of runs that lie λ below the largest score, the difference of 1/4 is left.
    low = -16 * large
    z = np.array([[0.5, 0, low, 0.25, 0, low, 0]], dtype)
    check("fusedmax", [z], large)
    check("fusedmax", [np.array([[0, low, 0.2, low, 0.1]], dtype)], large)


def test_what_ties_and_what_any_strength_fuses() -> None:
    """A score of −4λ beside peaks, where λ swamps 1; equal neighbours, where scores swamp λ."""
    z = np.array([[-4, 0, -4, 0, -4]]) * 2.0**70
    check("fusedmax", [z], 2.0**70)
    equal = np.repeat(-np.random.default_rng(17).uniform(0.02, 0.98, (40, 1)), 6, axis=1)
    equal[:, 0] = 0
    for strength in np.array([0.1, 0.4, 1.2, 2.7]) * 2.0**-54:
        p = call_kernel("fusedmax", moved(equal), float(strength)).get()
        assert (np.ptp(p[:, 1:], axis=1) == 0).all()
        p = call_kernel("fusedmax", moved(equal[:, ::-1].copy()), float(strength)).get()
        assert (np.ptp(p[:, :-1], axis=1) == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_gaps_beyond_the_largest_float(name: str) -> None:
    z = np.array([[1.7e308, -1.7e308, 0]])
    for strength in (1e308, 1.6e308, 1.75e308):
        check(name, [z], strength)
