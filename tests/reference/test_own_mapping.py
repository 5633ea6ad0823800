"""A mapping of one's own: a text and a few rules give all that the package's mappings have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe


@pe.mapping(pe.Strength("temperature", least=0, strict=True))
def warm(
    z: Any, temperature: Any = 1.0, axis: Any = -1, *, mask: Any = None, out: Any = None
) -> tuple[Any, Any, Any, Any, Any]:
    """Sparsemax of z/T, whose Ω is T/2 ‖p‖²."""
    return z, temperature, axis, mask, out


warm.rule(lambda y, temperature: pe.sparsemax.body(y / temperature))
warm.jvp.rule(lambda p, v, temperature: pe.sparsemax.jvp.body(p, v) / temperature)
warm.jacobian.rule(lambda p, temperature: pe.sparsemax.jacobian.body(p) / temperature[..., None])
warm.regularizer.rule(lambda p, temperature: temperature[:, 0] * (p * p).sum(axis=-1) / 2)

Z = np.random.default_rng(0).normal(size=(4, 3, 5))


def test_axes_masks_dtypes_parameters_and_out() -> None:
    mask, each = Z > -1, np.array([0.5, 1.0, 2.0])
    expected = np.stack([pe.sparsemax(Z[:, i] / t, mask=mask[:, i]) for i, t in enumerate(each)], 1)
    np.testing.assert_allclose(warm(Z, each, mask=mask), expected, rtol=1e-14, atol=1e-15)
    moved = warm(np.moveaxis(Z, -1, 0), each, 0, mask=np.moveaxis(mask, -1, 0))
    np.testing.assert_array_equal(np.moveaxis(moved, 0, -1), warm(Z, each, mask=mask))
    assert warm(Z.astype(np.float16), 2.0).dtype == np.float16
    out = np.empty_like(Z)
    assert warm(Z, 2.0, out=out) is out
    assert (warm(Z, mask=np.zeros_like(mask)) == 0).all()


@pytest.mark.slow
def test_derivatives_and_losses() -> None:
    labels, weight = np.arange(12).reshape(4, 3) % 5, np.linspace(0, 1, 12).reshape(4, 3)
    assert pe.check_jacobian(lambda z: warm(z, 2.0), Z, lambda p: warm.jacobian(p, 2.0))
    assert pe.check_vjp(lambda z: warm(z, 2.0), Z, lambda p, v: warm.vjp(p, v, 2.0))
    options: Any = {"weight": weight, "label_smoothing": 0.1}
    assert pe.check_gradient(
        lambda z: warm.loss(z, labels, 2.0, **options),
        Z,
        lambda z: warm.loss_and_grad(z, labels, 2.0, **options)[1],
    )
    by_name = pe.fenchel_young_loss(Z, labels, warm, temperature=1.0)
    np.testing.assert_allclose(by_name, warm.loss(Z, labels), rtol=1e-15)
    np.testing.assert_allclose(by_name, pe.sparsemax.loss(Z, labels), rtol=1e-13)


def test_errors_name_the_mapping() -> None:
    with pytest.raises(ValueError, match="temperature must be above 0, got -1"):
        warm(Z, -1.0)
    with pytest.raises(TypeError, match=r"warm\(\) got an unexpected keyword argument 'temp'"):
        warm(Z, temp=2.0)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="warm.support is not defined"):
        warm.support(Z)


def test_its_name_does_not_bring_a_kernel() -> None:
    @pe.mapping()
    def entmax15(z: Any, axis: Any = -1, *, mask: Any = None, out: Any = None) -> Any:
        return z, None, axis, mask, out

    entmax15.rule(pe.softmax.body)
    entmax15.jvp.rule(pe.softmax.jvp.body)
    np.testing.assert_allclose(entmax15(Z), pe.softmax(Z), rtol=1e-14)
    expected = pe.softmax.jvp(pe.softmax(Z), Z)
    np.testing.assert_allclose(entmax15.jvp(pe.softmax(Z), Z), expected, rtol=1e-13, atol=1e-15)


def test_dask_arrays_are_planned() -> None:
    dask = pytest.importorskip("dask.array")
    lazy = dask.from_array(Z, chunks=(2, 3, 5))
    np.testing.assert_array_equal(warm(lazy, 2.0).compute(), warm(Z, 2.0))
