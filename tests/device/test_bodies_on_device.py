"""Every mapping, derivative, entropy and loss on device arrays, by the NumPy bodies.

On the stand-in for CuPy the results are those of the host, to the last bit unless a test says
otherwise, and nothing crosses between host and device but what the test says.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import fake_cupy
import numpy as np
import pytest
from fake_cupy import moved
from stages import slow

import pyentmax
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.regularized import separable_mapping
from pyentmax.seq2seq import analysis

RNG = np.random.default_rng(0)
SHAPE = (3, 5)
Z = RNG.normal(size=SHAPE).astype(np.float32)
V = RNG.normal(size=SHAPE).astype(np.float32)
MASK = RNG.random(SHAPE) < 0.7
VALUES: dict[str, Any] = {"alpha": 1.3, "k": 2, "strength": 0.2, "upper": 0.4, "budget": 1.5}
# Their loops look at the data to know when to stop, on the device too.
LOOKING = ("fusedmax", "oscarmax")
WITH_LOSS = [name for name, record in MAPPINGS.items() if record.regularizer.is_defined]


@pytest.fixture(autouse=True)
def bodies_on_the_host_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled kernels agree with the bodies, but not to the last bit."""
    monkeypatch.setattr(pyentmax.engine.backends.choice, "kernels", dict)


each_mapping = pytest.mark.parametrize("name", MAPPINGS)
masks = pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])


def values(name: str, per_row: bool) -> list[Any]:
    """The parameters of a mapping, one number for all rows or an array of them."""
    wanted = [VALUES[parameter] for parameter in MAPPINGS[name].parameters]
    if not per_row:
        return wanted
    return [
        np.full(SHAPE if parameter == "upper" else SHAPE[:1], value, np.float64)
        for parameter, value in zip(MAPPINGS[name].parameters, wanted, strict=True)
    ]


def assert_same(
    function: Any, *args: Any, looks: bool = False, exact: bool = True, **kwargs: Any
) -> None:
    """What a body gives for device arrays is what it gives for their copies on the host."""
    expected = function(*args, **kwargs)
    on_device = [moved(x) for x in args]
    options = {key: moved(x) for key, x in kwargs.items()}
    fake_cupy.copies.reset()
    found = function(*on_device, **options)
    assert fake_cupy.copies.to_device == 0
    assert looks or fake_cupy.copies.to_host == 0
    pairs = (x if isinstance(x, tuple) else (x,) for x in (expected, found))
    for mine, theirs in zip(*pairs, strict=True):
        assert isinstance(theirs, fake_cupy.ndarray)
        assert theirs.dtype == mine.dtype
        # The bodies that look are those that add up runs of entries, one by one on the device.
        rounded = (looks or not exact) and mine.dtype.kind == "f"
        rounding = 4 * np.finfo(mine.dtype).eps if rounded else 0
        np.testing.assert_allclose(theirs.get(), mine, rtol=rounding, atol=rounding)


@each_mapping
@masks
@pytest.mark.parametrize("per_row", [False, *slow(True)], ids=["number", "rows"])
def test_mappings_and_derivatives(name: str, mask: Any, per_row: bool) -> None:
    record, params, looks = MAPPINGS[name], values(name, per_row), name in LOOKING
    for z in (Z, Z.astype(np.float16), Z.astype(np.float64)):
        assert_same(record, z, *params, mask=mask, looks=looks)
        assert_same(record.support, z, *params, mask=mask, looks=looks)
    p = record(Z, *params, mask=mask)
    assert_same(record.jvp, p, V, *params, mask=mask, looks=looks)
    assert_same(record.jacobian, p, *params, looks=looks)
    if record.regularizer.is_defined:
        assert_same(record.regularizer, p, *params)


@each_mapping
def test_other_axes(name: str) -> None:
    forward, params, looks = MAPPINGS[name], values(name, False), name in LOOKING
    assert_same(forward, Z, *params, 0, looks=looks)
    if name != "fusedmax":  # its scores need an order
        assert_same(forward, Z, *params, (0, 1), mask=MASK, looks=looks)
        assert_same(forward, Z, *params, None, looks=looks)


@masks
@pytest.mark.parametrize("per_row", [False, True], ids=["number", "rows"])
@pytest.mark.parametrize("name", [n for n, m in MAPPINGS.items() if m.parameter_vjp.is_defined])
def test_derivatives_in_parameters(name: str, mask: Any, per_row: bool) -> None:
    mapping, params = MAPPINGS[name], values(name, per_row)
    p, looks = mapping(Z, *params, mask=mask), name in LOOKING
    if mapping.parameter_slope.is_defined:
        assert_same(mapping.parameter_slope, p, *params)
    assert_same(mapping.parameter_vjp.at_scores, Z, p, V, *params, mask=mask, looks=looks)


@masks
@pytest.mark.parametrize("name", WITH_LOSS)
@pytest.mark.parametrize(
    ("reduction", "smoothing"), [("none", 0.1), *slow(("mean", 0.0), ("mean", 0.1), ("none", 0.0))]
)
def test_losses(name: str, mask: Any, reduction: str, smoothing: float) -> None:
    record, params = MAPPINGS[name], values(name, False)
    named = dict(zip(record.parameters, params, strict=True))
    labels = np.array([0, 4, 2]) if mask is None else MASK.argmax(axis=-1)
    looks = name in LOOKING
    for y in (labels, record(np.roll(Z, 1, axis=0), *params, mask=mask)):
        assert_same(
            pyentmax.fenchel_young_loss_and_grad,
            Z,
            y,
            name,
            mask=mask,
            weight=np.array([1.0, 0.0, 2.0]),
            ignore_index=2 if y is labels else None,
            reduction=reduction,
            label_smoothing=smoothing,
            looks=looks,
            **named,
        )


@pytest.mark.parametrize("alpha", [0.5, 1, 1.5, 2, 3, np.inf])
def test_entropies(alpha: float) -> None:
    p = pyentmax.entmax(Z, 1.5)
    for function in (pyentmax.shannon_entropy, pyentmax.gini_entropy):
        assert_same(function, p)
        assert_same(function, p, axis=None)
    assert_same(pyentmax.tsallis_entropy, p, alpha)
    assert_same(pyentmax.tsallis_entropy, p, np.full(3, alpha))
    if alpha >= 1:
        # NumPy squares where others take a power with exponent 2.
        assert_same(pyentmax.norm_entropy, p, alpha, exact=False)


@pytest.mark.parametrize("name", ["tsallis_entropy", "norm_entropy"])
@pytest.mark.parametrize("wrong", [-1.0, -np.inf, np.nan])
def test_wrong_alpha_makes_an_entropy_nan(name: str, wrong: float) -> None:
    """An entropy came as a negative number."""
    entropy = getattr(pyentmax, name)
    p = np.array([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]])
    for rows in (p, p[:, :1]):
        fake_cupy.copies.reset()
        h = entropy(moved(rows), moved(np.array([2.0, 1.5, wrong])))
        assert fake_cupy.copies.to_host == 0
        np.testing.assert_array_equal(np.isnan(h.get()), [False, False, True])
        np.testing.assert_allclose(h.get()[:2], entropy(rows[:2], [2.0, 1.5]), rtol=1e-15)
        single = moved(rows.astype(np.float32))
        assert entropy(single, moved(np.full(3, 2.0))).dtype == np.float32


@pytest.mark.parametrize("alpha", [1, 1.25, 2, 2.5, np.inf])
def test_every_alpha(alpha: float) -> None:
    assert_same(pyentmax.entmax, Z, alpha)
    p = pyentmax.entmax(Z, alpha)
    assert_same(pyentmax.entmax.jvp, p, V, alpha)
    assert_same(pyentmax.entmax.parameter_slope, p, alpha)
    assert_same(pyentmax.entmax.loss_and_grad, Z, np.array([0, 1, 2]), alpha)


def test_separable_mapping() -> None:
    cubic = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
    p = cubic(Z)
    # On the host the search ends when nothing moves; on the device nobody may ask.
    np.testing.assert_allclose(cubic(fake_cupy.asarray(Z)).get(), p, rtol=0, atol=1e-6)
    assert_same(cubic.jvp, p, V)
    assert_same(cubic.jacobian, p)


@pytest.mark.slow
def test_finite_differences_of_functions_on_the_device() -> None:
    z = fake_cupy.asarray(Z)
    report = pyentmax.check_jacobian(pyentmax.entmax15, z, pyentmax.entmax15.jacobian)
    assert report.passed
    assert pyentmax.check_vjp(pyentmax.entmax15, z, pyentmax.entmax15.vjp).passed
    wrong = pyentmax.check_jacobian(pyentmax.entmax15, z, pyentmax.sparsemax.jacobian)
    assert not wrong.passed


@pytest.mark.parametrize("function", ["support_size", "density"])
def test_host_only_functions_say_so(function: str) -> None:
    with pytest.raises(TypeError, match=r"use `.get\(\)`"):
        getattr(analysis, function)(fake_cupy.asarray(Z))


def test_rows_without_a_maximum_match() -> None:
    z = Z.copy()
    z[0, 1], z[1] = np.nan, -np.inf
    for name, record in MAPPINGS.items():
        assert_same(record, z, *values(name, False), looks=name in LOOKING)


def test_out() -> None:
    out, mine = fake_cupy.zeros(SHAPE, np.float32), np.zeros(SHAPE, np.float32)
    assert pyentmax.sparsemax(fake_cupy.asarray(Z), out=out) is out
    pyentmax.sparsemax(Z, out=mine)
    np.testing.assert_array_equal(out.get(), mine)


# --- what nobody may look at ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("entmax", 0.0),
        ("entmax", np.nan),
        ("normmax", 1.0),
        ("topk_softmax", 0.0),
        ("topk_softmax", 1.5),
        ("fusedmax", -0.1),
        ("oscarmax", -0.1),
        ("budget_sparsemax", -1.0),
        ("budget_sparsemax", 5.5),
    ],
)
def test_wrong_parameter_makes_its_row_nan(name: str, wrong: float) -> None:
    params = np.array([wrong, VALUES[MAPPINGS[name].parameters[0]], wrong])
    p = MAPPINGS[name](fake_cupy.asarray(Z), fake_cupy.asarray(params)).get()
    assert np.isnan(p[[0, 2]]).all()
    np.testing.assert_array_equal(p[1], MAPPINGS[name](Z[1], params[1]))


@pytest.mark.parametrize("name", ["csoftmax", "csparsemax"])
@pytest.mark.parametrize("wrong", [[0.1] * 5, [-0.5, 1, 1, 1, 1], [np.nan, 1, 1, 1, 1]])
def test_wrong_bounds_make_their_row_nan(name: str, wrong: list[float]) -> None:
    upper = np.array([wrong, [0.4] * 5, [0.4] * 5])
    p = MAPPINGS[name](fake_cupy.asarray(Z), fake_cupy.asarray(upper)).get()
    assert np.isnan(p[0]).all()
    np.testing.assert_array_equal(p[1:], MAPPINGS[name](Z[1:], upper[1:]))


@pytest.mark.parametrize(
    ("y", "weight"),
    [
        ([7, 1, 2], None),
        ([-1, 1, 2], None),
        ([0, 1, 2], [-1.0, 1.0, 1.0]),
        ([0, 1, 2], [np.inf, 1.0, 1.0]),
        ([[1, 1, 0, 0, 0], [1.0, 0, 0, 0, 0], [1.0, 0, 0, 0, 0]], None),
        ([[2, -1, 0, 0, 0], [1.0, 0, 0, 0, 0], [1.0, 0, 0, 0, 0]], None),
    ],
)
def test_wrong_target_makes_its_row_nan(y: Any, weight: Any) -> None:
    loss, grad = pyentmax.fenchel_young_loss_and_grad(
        fake_cupy.asarray(Z),
        fake_cupy.asarray(np.array(y)),
        "sparsemax",
        weight=None if weight is None else fake_cupy.asarray(np.array(weight)),
        reduction="none",
    )
    assert np.isnan(loss.get()).tolist() == [True, False, False]
    assert np.isnan(grad.get()).all(axis=-1).tolist() == [True, False, False]


# --- what would take a copy -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda here, there: pyentmax.softmax(here(Z), mask=there(MASK)), "mask"),
        (lambda here, there: pyentmax.entmax(here(Z), there(np.full(3, 1.5))), "alpha"),
        (lambda here, there: pyentmax.topk_softmax(here(Z), there(np.full(3, 2))), "k"),
        (lambda here, there: pyentmax.csoftmax(here(Z), there(np.full(5, 0.5))), "upper"),
        (lambda here, there: pyentmax.sparsemax.jvp(here(Z), there(V)), "v"),
        (lambda here, there: pyentmax.softmax.loss(here(Z), there(np.arange(3))), "y"),
        (lambda here, there: pyentmax.softmax(here(Z), out=there(Z.copy())), "out"),
        (lambda here, there: pyentmax.tsallis_entropy(here(Z), there(np.full(3, 2.0))), "alpha"),
    ],
)
def test_arguments_on_two_sides_are_an_error(call: Any, name: str) -> None:
    host = np.asarray
    with pytest.raises(TypeError, match=rf"^{name} must lie on the GPU .* cupy.asarray\({name}\)"):
        call(fake_cupy.asarray, host)
    with pytest.raises(TypeError, match=rf"^{name} must lie on the host .* {name}.get\(\)"):
        call(host, fake_cupy.asarray)


@pytest.mark.parametrize("name", LOOKING)
def test_neither_nan_nor_large_values_reach_other_rows(name: str) -> None:
    z = np.vstack([Z[:1], Z[1:2] * np.float32(1e30), Z[2:]])
    v = V.copy()
    v[0, 0] = np.nan
    p = MAPPINGS[name](fake_cupy.asarray(z), 0.2)
    alone = MAPPINGS[name](Z[2], 0.2)
    np.testing.assert_allclose(p.get()[2], alone, rtol=0, atol=1e-6)
    found = MAPPINGS[name].jvp(p, fake_cupy.asarray(v), 0.2).get()
    assert np.isnan(found[0]).any()
    np.testing.assert_allclose(found[2], MAPPINGS[name].jvp(alone, v[2], 0.2), rtol=0, atol=1e-6)


@masks
@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2, 3, np.array([1, 1.3, 1.5, 2, 3])])
def test_scores_by_themselves(alpha: Any, mask: Any) -> None:
    assert_same(pyentmax.entmax_sigmoid, Z, alpha)
    for y in (np.array([0, 4, 2]), Z > 0, np.clip(V, 0, 1)):
        assert_same(pyentmax.one_vs_all_loss_and_grad, Z, y, alpha, mask=mask)


def test_wrong_alpha_or_target_of_sigmoid_is_nan() -> None:
    alpha = fake_cupy.asarray(np.array([0.0, 1, 1.5, 2, 3]))
    found = pyentmax.entmax_sigmoid(fake_cupy.asarray(Z), alpha).get()
    np.testing.assert_array_equal(np.isnan(found), np.broadcast_to(np.arange(5) == 0, SHAPE))
    y = fake_cupy.asarray(np.array([0, 7, 2]))
    each = pyentmax.one_vs_all_loss(fake_cupy.asarray(Z), y, reduction="none").get()
    np.testing.assert_array_equal(np.isnan(each), [False, True, False])


@pytest.mark.parametrize("on_host", [True, False])
def test_rows_of_different_lengths(on_host: bool) -> None:
    offsets = np.array([0, 3, 3, 7, 8, 12])
    z, g = RNG.normal(size=(2, 12))
    alpha = 1 + RNG.random(5)
    cuts = offsets if on_host else moved(offsets)
    p = pyentmax.by_rows(pyentmax.entmax, (z,), offsets, (alpha,))
    found = pyentmax.by_rows(pyentmax.entmax, (moved(z),), cuts, (moved(alpha),))
    np.testing.assert_allclose(found.get(), p, rtol=1e-12)
    slope = pyentmax.by_rows(pyentmax.entmax.parameter_vjp, (p, g), offsets, (alpha,))
    given = (moved(p), moved(g)), cuts, (moved(alpha),)
    found = pyentmax.by_rows(pyentmax.entmax.parameter_vjp, *given)
    np.testing.assert_allclose(found.get(), slope, rtol=1e-10, atol=1e-12)
    y, loss = np.array([0, 9, 3, 0, 2]), partial(pyentmax.entmax.loss_and_grad, reduction="none")
    expected = pyentmax.by_rows(loss, (z,), offsets, (y, alpha))
    found = pyentmax.by_rows(loss, (moved(z),), cuts, (moved(y), moved(alpha)))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=1e-10, atol=1e-12)
