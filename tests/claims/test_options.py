"""Each option means the same for every function of every backend; a wrong argument has its row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rows
import truth
from backends import ARRAYS, BACKENDS, CASES, LOSSES, SECOND, for_each

import pyentmax as pe
from pyentmax.engine.backends import choice

Z = np.random.default_rng(0).standard_normal((3, 4, 5))
Y = np.random.default_rng(1).integers(0, 5, (3, 4))
MASK = rows.masks((3, 4, 5))
NEAR = {"rtol": 1e-12, "atol": 1e-14}
same = np.testing.assert_array_equal
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
arrays_only = pytest.mark.parametrize("backend", ARRAYS, ids=lambda backend: backend.name)


def best(case: tuple[Any, ...], z: np.ndarray, mask: Any = None) -> np.ndarray:
    """The truth for a batch of any shape, along the last axis."""
    flat = z.reshape(-1, z.shape[-1])
    mask = None if mask is None else np.broadcast_to(mask, z.shape).reshape(flat.shape)
    return truth.forward(case[0], flat, *case[1:], mask=mask).reshape(z.shape).astype(float)


def near(case: tuple[Any, ...], atol: float = 1e-14) -> dict[str, float]:
    """Tolerances of p: for large α it is steep at the threshold."""
    steep = case[0] in ("entmax", "normmax") and 2 < case[1] < np.inf
    return {"rtol": 1e-11, "atol": 1e-5 if steep else atol}


def no_order(case: tuple[Any, ...]) -> bool:
    """Whether rows may lie along several axes."""
    return not pe.MAPPINGS[case[0]].one_axis


@for_each(BACKENDS, CASES, SECOND)
def test_axis(backend: Any, case: Any) -> None:
    name, *value = case
    g = np.cos(Z)
    for axis in (0, 1, -2):
        moved = np.moveaxis(Z, axis, -1).copy()
        p = backend.call(name, Z, *value, axis=axis)
        np.testing.assert_allclose(p, np.moveaxis(best(case, moved), -1, axis), **near(case))
        along = backend.vjp(name, moved, np.moveaxis(g, axis, -1).copy(), *value)
        found = backend.vjp(name, Z, g, *value, axis=axis)
        np.testing.assert_allclose(np.moveaxis(found, axis, -1), along, **near(case))
    if backend.several_axes and no_order(case):
        p = backend.call(name, Z, *value, axis=None)
        np.testing.assert_allclose(p, best(case, Z.reshape(1, 60)).reshape(Z.shape), **near(case))
        for axis in ((0, 2), (2, 0), (-3, -1)):
            flat = np.moveaxis(Z, 1, 0).reshape(4, 15)
            p = np.moveaxis(backend.call(name, Z, *value, axis=axis), 1, 0).reshape(4, 15)
            np.testing.assert_allclose(p, best(case, flat), **near(case))
    elif backend.is_arrays:
        for call in ("", ".jvp", ".support", ".loss", ".parameter_vjp"):
            operands = {".jvp": [g], ".parameter_vjp": [g], ".loss": [Y[0, 0]]}.get(call, [])
            with pytest.raises(ValueError, match=r"axis must be one axis, .*an order"):
                backend.call(name + call, Z, *operands, *value, axis=(1, 2))


@for_each(BACKENDS, CASES, SECOND)
def test_mask(backend: Any, case: Any) -> None:
    name, *value = case
    expected, g = best(case, Z, MASK), np.cos(Z)
    clean = backend.vjp(name, np.where(MASK, Z, -np.inf), g, *value)
    for rubbish in (0, np.nan, np.inf, -np.inf):
        spoilt = np.where(MASK, Z, rubbish)
        p = backend.call(name, spoilt, *value, mask=MASK)
        np.testing.assert_allclose(p, expected, **near(case))
        assert (p[~MASK] == 0).all()
        found = backend.vjp(name, spoilt, g, *value, mask=MASK)
        assert (found[~MASK] == 0).all()
        np.testing.assert_allclose(found, clean, **near(case))
    for shared in (np.array([True, True, False, True, True]), MASK[:, :1], MASK[0, :, :]):
        p = backend.call(name, Z, *value, mask=shared)
        np.testing.assert_allclose(p, best(case, Z, shared), **near(case))
    if backend.name != "tape":
        on = backend.call(f"{name}.support", np.where(MASK, Z, np.nan), *value, mask=MASK)
        same(on, expected > 0)
    p = backend.call(name, Z.T.copy(), *value, axis=0, mask=MASK.T.copy())
    np.testing.assert_allclose(p.T, expected, **near(case))


@for_each(BACKENDS, CASES, SECOND)
def test_spoilt_rows_stay_alone(backend: Any, case: Any) -> None:
    name, *value = case
    z = Z.reshape(12, 5).copy()
    clean = backend.call(name, z, *value)
    z[2, 0], z[4, 1], z[7] = np.nan, np.inf, -np.inf
    spoilt, nothing = np.isin(np.arange(12), (2, 4)), np.arange(12) == 7
    p = backend.call(name, z, *value)
    assert np.isnan(p[spoilt]).all()
    assert (p[nothing] == 0).all()
    same(p[~spoilt & ~nothing], clean[~spoilt & ~nothing])
    g = backend.vjp(name, z, np.ones_like(z), *value)
    assert np.isnan(g[spoilt]).all()
    assert (g[nothing] == 0).all()
    assert np.isfinite(g[~spoilt]).all()
    if not backend.is_arrays:
        return
    assert not backend.call(f"{name}.support", z, *value)[spoilt | nothing].any()
    attributes = pe.MAPPINGS[name]
    if attributes.parameter_vjp.is_defined:
        each = np.full((12, 5) if name[:2] == "cs" else 12, float(value[0]))
        slope = backend.call(f"{name}.parameter_vjp.at_scores", z, p, np.ones_like(z), each)
        rows_of_it = slope.reshape(12, -1)
        assert np.isnan(rows_of_it[spoilt]).any(axis=-1).all()
        assert not np.isnan(rows_of_it[~spoilt]).any()
        assert (rows_of_it[nothing] == 0).all()
    if attributes.loss.is_defined:
        y = np.zeros(12, int)
        loss, grad = backend.loss_and_grad(name, z, y, *value, reduction="none")
        same(np.isnan(loss), spoilt)
        assert np.isnan(grad[spoilt]).all()
        assert loss[nothing] == 0
        assert (grad[nothing] == 0).all()


@for_each(BACKENDS, CASES, SECOND)
def test_types(backend: Any, case: Any) -> None:
    name, *value = case
    z = np.array([[2.0, 1, 0], [1, 1, 0]])
    expected = best(case, z)
    for dtype in (np.float16, np.float32, np.float64):
        eps = float(np.finfo(dtype).eps)
        p = backend.call(name, z.astype(dtype), *value)
        assert p.dtype == dtype
        np.testing.assert_allclose(p.astype(float), expected, rtol=0, atol=2 * eps)
        assert backend.vjp(name, z.astype(dtype), z.astype(dtype), *value).dtype == dtype
        if case in LOSSES and case[1:] != (1e-9,):  # whose losses are beyond float16
            loss, grad = backend.loss_and_grad(name, z.astype(dtype), np.array([0, 1]), *value)
            assert loss.dtype == grad.dtype == dtype
        far = np.array([0, -1, -2, -4], dtype)
        same(backend.call(name, far - dtype(1000), *value), backend.call(name, far, *value))
    if not backend.is_arrays:
        return
    attributes = pe.MAPPINGS[name]
    for dtype in (np.float16, np.float32, np.float64, ">f8", ">f4"):
        native = np.dtype(dtype).newbyteorder("=")
        p = backend.call(name, z.astype(dtype), *value)
        assert p.dtype == native
        given = p.astype(dtype)
        assert backend.call(f"{name}.jvp", given, given, *value).dtype == native
        assert backend.call(f"{name}.jacobian", given, *value).dtype == native
        if attributes.parameter_vjp.is_defined:
            at = backend.call(
                f"{name}.parameter_vjp.at_scores", z.astype(dtype), given, given, *value
            )
            assert at.dtype == native
        if attributes.regularizer.is_defined and case[1:] != (1e-9,):
            assert backend.call(f"{name}.regularizer", given, *value).dtype == native
    for dtype in (np.int8, np.int64, np.uint16, bool, np.longdouble):
        p = backend.call(name, z.astype(dtype), *value)
        assert p.dtype == (np.longdouble if dtype is np.longdouble else np.float64)
        wide = z.astype(dtype).astype(float)
        np.testing.assert_allclose(p.astype(float), best(case, wide), rtol=0, atol=4e-15)
    same(backend.call(name, z.tolist(), *value), backend.call(name, z, *value))
    large = z.astype(np.int64) + 2**24
    same(backend.call(name, large, *value), backend.call(name, z, *value))


@for_each(BACKENDS, CASES, SECOND)
def test_empty_batches(backend: Any, case: Any) -> None:
    name, *value = case
    assert backend.call(name, np.zeros((0, 4)), *value).shape == (0, 4)
    assert backend.call(name, np.zeros((4, 0, 3)), *value, axis=0).shape == (4, 0, 3)
    assert backend.vjp(name, np.zeros((0, 4)), np.zeros((0, 4)), *value).shape == (0, 4)
    if backend.is_arrays:
        assert backend.call(f"{name}.jacobian", np.zeros((0, 4)), *value).shape == (0, 4, 4)
        row = backend.call(name, Z[0, 0], *value)  # and without a batch
        assert backend.call(f"{name}.jacobian", row, *value).shape == (5, 5)
        assert backend.call(f"{name}.jvp", row, row, *value).shape == (5,)
    if case in LOSSES:
        loss, grad = backend.loss_and_grad(name, np.zeros((0, 4)), np.zeros(0, int), *value)
        assert loss == 0
        assert grad.shape == (0, 4)


@for_each(ARRAYS, CASES, SECOND)
def test_out_and_memory(backend: Any, case: Any) -> None:
    name, *value = case
    z, expected = Z[0].copy(), backend.call(name, Z[0], *value)
    z.flags.writeable = False
    layouts = (np.asfortranarray(z), z[::-1].copy()[::-1], np.repeat(z, 2, axis=1)[:, ::2])
    for like in layouts:
        np.testing.assert_allclose(backend.call(name, like, *value), expected, **NEAR)
    targets = (
        np.empty((4, 5)),
        np.empty((4, 10))[:, ::2],
        np.empty((5, 4)).T,
        np.empty((4, 5), ">f8"),
    )
    for axis in (-1, 0, None) if no_order(case) else (-1, 0):
        expected = backend.call(name, z, *value, axis=axis)
        for out in targets:
            assert backend.call(name, z, *value, axis=axis, out=out) is out
            np.testing.assert_allclose(out, expected, **NEAR)
        place = z.copy()
        assert backend.call(name, place, *value, axis=axis, out=place) is place
        same(place, expected)
        p, v = backend.call(name, z, *value, axis=axis), np.cos(z)
        out = np.empty((4, 5))
        product = backend.call(f"{name}.jvp", p, v, *value, axis=axis)
        assert backend.call(f"{name}.jvp", p, v, *value, axis=axis, out=out) is out
        np.testing.assert_allclose(out, product, **NEAR)
        for part, given in (("log", z), ("parameter_slope", p)):
            if getattr(pe.MAPPINGS[name], part).is_defined:
                expected = backend.call(f"{name}.{part}", given, *value, axis=axis)
                assert backend.call(f"{name}.{part}", given, *value, axis=axis, out=out) is out
                np.testing.assert_allclose(out, expected, **NEAR)
    same(z, Z[0])
    half, scores = np.empty((4, 5), np.float16), z.astype(np.float16)
    backend.call(name, scores, *value, out=half)
    same(half, backend.call(name, scores, *value))


PER_ROW: dict[str, list[Any]] = {
    "entmax": [0.7, 1, 1.5, np.inf], "normmax": [1.2, 1.5, 2, np.inf],
    "topk_softmax": [1, 2, 3, np.inf], "topk_sparsemax": [1, 2, 3, 9],
    "fusedmax": [0, 0.1, 0.4, 2], "oscarmax": [0, 0.01, 0.05, 0.5],
    "budget_sparsemax": [0, 0.5, 1.5, 4],
}  # fmt: skip


@for_each(BACKENDS, [(name,) for name in PER_ROW])
def test_a_value_for_each_row(backend: Any, case: Any) -> None:
    [name], values = case, np.array(PER_ROW[case[0]])
    if backend.name == "CUDA" and name == "entmax":
        values = np.maximum(values, 1)  # below, an α in an array is NaN there
    mapping, v = pe.MAPPINGS[name], np.cos(Z)
    for z, given, axis in (
        (Z, values, -1), (Z, values[None], -1), (Z, np.resize(values, (3, 1)), -1),
        (Z[0], values, -1), (Z, np.resize(values, (3, 5)), 1), (Z[:, :1], values[1], -1),
        (Z[0].T.copy(), values.tolist(), 0),
    ):  # fmt: skip
        p = backend.call(name, z, given, axis=axis)
        if not backend.is_arrays:
            np.testing.assert_allclose(p, mapping(z, given, axis), **near((name, 4)))
            continue
        on = backend.call(f"{name}.support", z, given, axis)
        g = v[tuple(slice(n) for n in z.shape)] if z.ndim == 3 else np.cos(z)
        jv, jacobian = (
            backend.call(f"{name}.jvp", p, g, given, axis),
            backend.call(f"{name}.jacobian", p, given, axis),
        )
        batch = np.moveaxis(z, axis, -1).shape[:-1]
        each = np.broadcast_to(given, batch)
        moved = [np.moveaxis(x, axis, -1) for x in (z, p, on, g, jv)]
        slopes = np.zeros(batch)
        for i in np.ndindex(batch):
            row, p_row, on_row, g_row, jv_row = (x[i] for x in moved)
            one = backend.call(name, row, each[i])
            np.testing.assert_allclose(p_row, one, **near((name, each[i])))
            same(on_row, backend.call(f"{name}.support", row, each[i]))
            np.testing.assert_allclose(
                jv_row, backend.call(f"{name}.jvp", p_row, g_row, each[i]), **NEAR
            )
            alone = backend.call(f"{name}.jacobian", p_row, each[i])
            np.testing.assert_allclose(jacobian[i], alone, **NEAR)
            if mapping.parameter_vjp.is_defined:
                slopes[i] = backend.call(
                    f"{name}.parameter_vjp.at_scores", row, p_row, g_row, each[i]
                )
        if mapping.parameter_vjp.is_defined:
            found = backend.call(f"{name}.parameter_vjp.at_scores", z, p, g, given, axis)
            shape = np.shape(given)
            extra = tuple(range(len(batch) - len(shape)))
            alike = tuple(i + len(extra) for i, n in enumerate(shape) if n == 1)
            total = slopes.sum(axis=extra + alike, keepdims=True).reshape(shape)
            np.testing.assert_allclose(found, total, rtol=1e-9, atol=1e-12)
        if mapping.loss.is_defined and axis == -1 and name != "normmax":
            y = np.moveaxis(p, axis, -1).argmax(axis=-1)
            loss, grad = backend.loss_and_grad(name, z, y, given, reduction="none")
            for i in np.ndindex(batch):
                one = backend.loss_and_grad(name, z[i], y[i], each[i].item(), reduction="none")
                np.testing.assert_allclose(loss[i], one[0], **NEAR)
                np.testing.assert_allclose(grad[i], one[1], **near((name, each[i])))


@for_each(ARRAYS, [("csoftmax",), ("csparsemax",)])
def test_bounds_broadcast_against_scores(backend: Any, case: Any) -> None:
    [name], g = case, np.cos(Z)
    rng = np.random.default_rng(6)
    for axis in (-1, 0, (2, 0), None):
        for shape in ((3, 4, 5), (1, 4, 1), (5,), ()):
            upper = rng.uniform(0.55, 0.9, shape)
            full = np.broadcast_to(upper, Z.shape).copy()
            p = backend.call(name, Z, upper, axis)
            same(p, backend.call(name, Z, full, axis))
            assert (p <= full).all()
            jv = backend.call(f"{name}.jvp", p, g, upper, axis)
            np.testing.assert_allclose(jv, backend.call(f"{name}.jvp", p, g, full, axis), **NEAR)
            slope = f"{name}.parameter_vjp.at_scores"
            found, each = (backend.call(slope, Z, p, g, u, axis) for u in (upper, full))
            extra = tuple(range(3 - len(shape)))
            alike = tuple(i + len(extra) for i, n in enumerate(shape) if n == 1)
            total = each.sum(axis=extra + alike, keepdims=True).reshape(shape)
            np.testing.assert_allclose(found, total, rtol=1e-12, atol=1e-14)
    mask, upper = MASK[0].copy(), np.full((4, 5), 0.7)
    for rubbish in (np.nan, -1.0, np.inf):  # a mask rules bounds out, too
        p = backend.call(name, Z[0], np.where(mask, upper, rubbish), mask=mask)
        same(p, backend.call(name, np.where(mask, Z[0], -np.inf), upper))
        p = backend.call(name, np.where(mask, Z[0], -np.inf), np.where(mask, upper, rubbish))
        same(p, backend.call(name, np.where(mask, Z[0], -np.inf), upper))


@for_each(ARRAYS, [("csoftmax",), ("csparsemax",)])
def test_bounds_of_other_types(backend: Any, case: Any) -> None:
    """An entry at its bound is recognised in each precision."""
    [name], z, upper = case, np.array([1.0, 0.8, 0.1]), np.array([0.4, 0.4, 0.4])
    for dtype in (np.float16, np.float32, np.float64):
        for bounds in (upper, upper.astype(np.float32), upper.tolist(), upper.astype(np.float16)):
            p = backend.call(name, z.astype(dtype), bounds)
            assert p.dtype == dtype
            rtol = 3 * max(float(np.finfo(x).eps) for x in (dtype, np.asarray(bounds).dtype))
            np.testing.assert_allclose(p, [0.4, 0.4, 0.2], rtol=rtol)
            v = np.array([1, -1, 2], dtype)
            assert not backend.call(f"{name}.jvp", p, v, bounds).any()
            slope = f"{name}.parameter_vjp.at_scores"
            found = backend.call(slope, z.astype(dtype), p, np.eye(3, dtype=dtype)[0], bounds)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, [1, 0, 0], rtol=0, atol=1e-6)
    shared = np.array([0.5, 1, 1], np.float16)  # added up in float16, 2048 + 1 is 2048
    z, g = (np.full((5000, 3), [x, 0, 0], np.float16) for x in (2, 1))
    found = backend.call(slope, z, backend.call(name, z, shared), g, shared)
    same(found, np.array([5000, 0, 0], np.float16))


@for_each(ARRAYS, CASES, SECOND)
def test_rows_of_different_lengths(backend: Any, case: Any) -> None:
    name, *value = case
    z, offsets = Z.reshape(-1)[:20].copy(), np.array([0, 4, 4, 9, 20])
    mapping = backend.function(name)
    p = pe.by_rows(lambda z: backend.call(name, z, *value), (z,), offsets)
    jv = pe.by_rows(lambda p, v: backend.call(f"{name}.jvp", p, v, *value), (p, np.cos(z)), offsets)
    assert mapping is not None
    for start, end in ((0, 4), (4, 9), (9, 20)):
        row = z[start:end]
        same(p[start:end], backend.call(name, row, *value))
        same(jv[start:end], backend.call(f"{name}.jvp", p[start:end], np.cos(row), *value))


@for_each(BACKENDS, LOSSES, SECOND)
def test_options_of_losses(backend: Any, case: Any) -> None:
    name, *value = case
    z = Z.reshape(12, 5)
    y = z.argmax(axis=-1)
    y[1] = 0
    q, weight = np.eye(5)[y], np.linspace(0, 2, 12)
    each = truth.loss(name, z, q, *value).astype(float)
    p, size = best(case, z), max(1, np.abs(each).max())
    room = {"rtol": 1e-11, "atol": 1e-12 * size}
    gradient = {"rtol": 0, "atol": near(case)["atol"] + 4e-15}
    ignored = {"ignore_index": int(y[0])}
    for options, weights in (({}, np.ones(12)), ({"weight": weight}, weight), (ignored, y != y[0])):
        total = weights.sum()
        for reduction, loss_, scale in (
            ("none", each * weights, 1), ("sum", (each * weights).sum(), 1),
            ("mean", (each * weights).sum() / total, total),
        ):  # fmt: skip
            loss, grad = backend.loss_and_grad(name, z, y, *value, reduction=reduction, **options)
            np.testing.assert_allclose(loss, loss_, **room)
            np.testing.assert_allclose(grad, (p - q) * weights[:, None] / scale, **gradient)
    if name != "topk_sparsemax":  # which has no finite loss with more non-zeros
        soft = 0.8 * q + 0.2 / 5
        exact = truth.loss(name, z, soft, *value).astype(float)
        for target, options in ((soft, {}), (y, {"label_smoothing": 0.2})):
            loss, grad = backend.loss_and_grad(name, z, target, *value, reduction="none", **options)
            np.testing.assert_allclose(loss, exact, **room)
            np.testing.assert_allclose(grad, p - soft, **gradient)
    mask = MASK.reshape(12, 5) | (q > 0)
    loss, grad = backend.loss_and_grad(
        name, np.where(mask, z, np.nan), y, *value, reduction="none", mask=mask
    )
    np.testing.assert_allclose(
        loss, truth.loss(name, z, q, *value, mask=mask).astype(float), **room
    )
    assert (grad[~mask] == 0).all()
    across = backend.loss_and_grad(name, z.T.copy(), y, *value, axis=0, reduction="none")
    np.testing.assert_allclose(across[0], each, **room)
    np.testing.assert_allclose(across[1].T, p - q, **gradient)
    if not backend.is_arrays:
        return
    # Rows that count nothing may hold anything: scores, labels, distributions.
    counts = np.arange(12) % 4 > 0
    for options in ({"mask": counts[:, None]}, {"weight": counts}):
        strange = np.where(counts, y, 99)
        found = backend.loss_and_grad(name, z, strange, *value, reduction="none", **options)
        np.testing.assert_allclose(found[0], each * counts, **room)
        np.testing.assert_allclose(found[1], (p - q) * counts[:, None], **gradient)
        strange = np.where(counts[:, None], q, np.nan)
        found = backend.loss_and_grad(name, z, strange, *value, **options)
        np.testing.assert_allclose(found[0], each[counts].mean(), **room)
    away = np.where(q > 0, np.nan, z)
    if name != "topk_sparsemax" or value[0] < 5:
        loss, grad = backend.loss_and_grad(name, z, y, *value, mask=q == 0, reduction="none")
        same(loss, np.inf)  # a label that is ruled out
        np.testing.assert_allclose(grad[q > 0], -1, rtol=1e-15)
    for options in ({"weight": 0.0}, {"ignore_index": 3}):
        labels = y if "weight" in options else np.full(12, 3)
        loss, grad = backend.loss_and_grad(name, away, labels, *value, **options)
        assert loss == 0
        assert (grad == 0).all()
    smoothed = backend.call(f"{name}.loss", z, y, *value, mask=mask, label_smoothing=0.1)
    assert np.isfinite(smoothed) or name == "topk_sparsemax"
    column = backend.call(
        f"{name}.loss", Z, Y, *value, weight=np.array([[1.0], [0.0], [3.0]]), reduction="none"
    )
    plain = backend.call(f"{name}.loss", Z, Y, *value, reduction="none")
    np.testing.assert_allclose(column, plain * [[1], [0], [3]], **room)
    for scale in (2.0**-1040, 1e-50, 1e30, 1.7e308):  # a mean depends on ratios alone
        share = np.array([0.8, 0.2, 0])
        loss, grad = backend.loss_and_grad(name, z[:3], y[:3], *value, weight=scale * share / 0.8)
        np.testing.assert_allclose(loss, (each[:3] * share).sum(), **room)
        np.testing.assert_allclose(grad, (p - q)[:3] * share[:, None], **gradient)
    single = backend.call(f"{name}.loss", z[3], np.uint8(y[3]), *value)
    np.testing.assert_allclose(single, each[3], **room)
    far = backend.call(
        f"{name}.loss", z[:, :4] * 0 + [2.0**13, 2.0**13 + 0.5, 2.0**13 - 1, 2.0**13], y % 4, *value
    )
    same(far, backend.call(f"{name}.loss", z[:, :4] * 0 + [0, 0.5, -1, 0], y % 4, *value))


def test_options_of_one_vs_all() -> None:
    z, mask = Z[0], MASK[0]
    several = (z > 0.3).astype(float)
    one_hot, weight = np.eye(5)[Y[0]], np.arange(4.0)

    def of_entries(targets: np.ndarray) -> np.ndarray:
        pairs = np.stack([z, 0 * z], axis=-1).reshape(-1, 2)
        q = np.stack([targets, 1 - targets], axis=-1).reshape(-1, 2)
        return truth.loss("entmax", pairs, q, 1.5).astype(float).reshape(z.shape)

    for y, ones in (
        (several, several),
        (several > 0, several),
        (Y[0], one_hot),
        (mask / 2, mask / 2),
    ):
        each, p = of_entries(ones.astype(float)), pe.entmax_sigmoid(z)
        for reduction, total in (("none", 1), ("sum", 1), ("mean", 6)):
            loss, grad = pe.one_vs_all_loss_and_grad(z, y, weight=weight, reduction=reduction)
            parts = each.sum(axis=-1) * weight / total
            np.testing.assert_allclose(loss, parts if reduction == "none" else parts.sum(), **NEAR)
            np.testing.assert_allclose(grad, (p - ones) * weight[:, None] / total, **NEAR)
            same(pe.one_vs_all_loss(z, y, weight=weight, reduction=reduction), loss)
        spoilt = np.where(mask, z, np.nan)
        loss, grad = pe.one_vs_all_loss_and_grad(spoilt, y, mask=mask, reduction="none")
        np.testing.assert_allclose(loss, (each * mask).sum(axis=-1), **NEAR)
        np.testing.assert_allclose(grad, (p - ones) * mask, **NEAR)
        smooth = pe.one_vs_all_loss(z, y, label_smoothing=0.2, reduction="sum")
        np.testing.assert_allclose(smooth, of_entries(0.8 * ones + 0.1).sum(), **NEAR)
    across = pe.one_vs_all_loss_and_grad(z.T, Y[0], np.array([[1], [1.3], [1.5], [2], [3]]), axis=0)
    along = pe.one_vs_all_loss_and_grad(z, Y[0], np.array([1, 1.3, 1.5, 2, 3]))
    np.testing.assert_allclose(across[0], along[0], **NEAR)
    np.testing.assert_allclose(across[1].T, along[1], **NEAR)
    both = pe.one_vs_all_loss(Z, Z > 0, axis=(1, 2), reduction="none")
    np.testing.assert_allclose(
        both, pe.one_vs_all_loss(Z, Z > 0, reduction="none").sum(axis=1), **NEAR
    )
    ignored = pe.one_vs_all_loss(z, Y[0], ignore_index=int(Y[0, 0]), reduction="none")
    same(ignored == 0, Y[0] == Y[0, 0])
    unknown = np.where(mask, several, -1)
    expected = pe.one_vs_all_loss_and_grad(z, several, mask=mask)
    for found, right in zip(
        pe.one_vs_all_loss_and_grad(z, unknown, ignore_index=-1), expected, strict=True
    ):
        same(found, right)
    same(pe.entmax_sigmoid(z, [1, 1.3, 1.5, 2, 3])[:, 1], pe.entmax_sigmoid(z[:, 1], 1.3))
    assert pe.entmax_sigmoid(0.0) == 0.5
    assert pe.entmax_sigmoid(np.zeros((2, 0), np.float16)).dtype == np.float16


def test_kernels_run_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call reaches the kernel of its name once, without a copy; a reference reaches none."""
    calls: list[tuple[str, Any]] = []
    real = choice.kernels()

    def spy(name: str) -> Any:
        def kernel(*operands: Any, **options: Any) -> Any:
            calls.append((name, operands))
            return real[name](*operands, **options)

        return kernel

    monkeypatch.setattr(choice, "kernels", lambda: {name: spy(name) for name in real})
    long = np.random.default_rng(0).standard_normal((40, 300))  # more than goes straight
    for name, *value in CASES:
        mapping = pe.MAPPINGS[name]
        for z in (Z, long):
            calls.clear()
            p = mapping.reference(z, *value)
            mapping.jvp.reference(p, z, *value)
            if mapping.parameter_vjp.is_defined:
                mapping.parameter_vjp.reference.at_scores(z, p, z, *value)
            assert not calls, "a reference runs no kernel"
            below_1 = name == "entmax" and value[0] < 1
            if name not in real:
                continue
            mapping(z, *value)
            assert [call[0] for call in calls] == ([] if below_1 else [name])
            if calls:
                assert np.shares_memory(calls[0][1][0], z), "scores are not copied"
                mapping(z.astype(np.float16), *value, axis=0)
                assert calls[-1][1][0].dtype == np.float32
            for part in ("jvp", "loss_and_grad", "log"):
                calls.clear()
                kernel = f"log_{name}" if part == "log" else f"{name}_{part}"
                operand = {"jvp": [z], "loss_and_grad": [p.argmax(axis=-1)]}.get(part, [])
                if kernel in real and not below_1:
                    getattr(mapping, part)(p, *operand, *value)
                    assert [call[0] for call in calls] == [kernel]
    if real:
        calls.clear()
        pe.entmax(long, np.resize([0.5, 1, 1.5], 40))
        assert [call[0] for call in calls] == ["entmax"], "rows with α ≥ 1, in one call"


# --- wrong arguments ------------------------------------------------------------------------------

FROZEN = np.empty((3, 4, 5))
FROZEN.flags.writeable = False
V, T = ValueError, TypeError
NAN, ONE, P = np.nan, np.ones, np.full((3, 4, 5), 0.2)
SCORES: list[tuple[Any, dict[str, Any], Any, str]] = [
    (1.0, {}, V, "z is 0-dimensional"),
    (np.zeros((2, 0)), {}, V, r"z of shape \(2, 0\) has no entry along axis -1"),
    (Z, {"axis": 3}, np.exceptions.AxisError, "axis 3 is out of bounds"),
    (Z, {"axis": 1.0}, T, "axis must be an int, a tuple of int or None"),
    (Z + 1j, {}, T, "z must hold real numbers, got dtype complex128"),
    (Z.astype(object), {}, T, "z must hold real numbers, got dtype object"),
    (np.ma.array(Z), {}, T, r"z is a numpy\.ma array.*mask="),
    (Z, {"mask": ONE((3, 4, 5), int)}, T, "mask must be boolean.*got dtype int64"),
    (Z, {"mask": np.ma.array(MASK)}, T, r"mask is a numpy\.ma array; .*True where"),
    (Z, {"mask": ONE(4, bool)}, V, r"mask of shape \(4,\) does not .* to z"),
    (Z, {"mask": ONE((2, 3, 4, 5), bool)}, V, "does not broadcast to z"),
]
OUTS: list[tuple[Any, Any, str]] = [
    (np.empty((5, 4, 3)), V, r"out must have the shape of z, \(3, 4, 5\), got"),
    (np.empty((3, 4, 5), int), T, "out of dtype int64 cannot hold"),
    ([0.0], T, "out must be an array to write to, got list"),
    (np.ma.array(P), T, r"out is a numpy\.ma array; .*plain"),
    (FROZEN, V, "out is read-only"),
]
VALUES: list[tuple[str, Any, str]] = [  # mapping, value, part of the message of a ValueError
    *(("entmax", x, f"alpha must be above 0, got {x}") for x in (0, -1, NAN, -np.inf)),
    ("entmax", [1.5, NAN, 2, 2], "alpha must be above 0, got nan"),
    *((name, [2] * 3, r"of shape \(3,\) .*batch shape \(3, 4\)") for name in PER_ROW),
    *(("normmax", x, f"alpha must be above 1, got {x}") for x in (1, 0.5, NAN)),
    ("topk_softmax", 0, "k must be at least 1, got 0"),
    ("topk_sparsemax", NAN, "k must be at least 1, got nan"),
    ("topk_softmax", 1.5, "k must be a whole number, got 1.5"),
    ("topk_sparsemax", [1, 2, 1.5, 1], "k must be a whole number, got 1.5"),
    ("fusedmax", -0.1, "strength must be at least 0, got -0.1"),
    ("oscarmax", [0.1, NAN, 0, 0], "strength must be at least 0, got nan"),
    ("csparsemax", [1, 1, 1, 1, -0.25], r"upper must be at least 0, got -0\.25"),
    ("csoftmax", [1, 1, NAN, 1, 1], "upper must be at least 0, got nan"),
    ("csoftmax", ONE(4), r"upper of shape \(4,\) does not broadcast to [zp], of shape"),
    ("budget_sparsemax", -1, "budget must be at least 0, got -1"),
    ("budget_sparsemax", [1, 1, NAN, 1], "budget must be at least 0, got nan"),
]
INFEASIBLE: list[tuple[str, Any, Any, str]] = [
    ("csoftmax", 0.1, None, r"upper is infeasible.*got a sum of 0\.5;"),
    ("csparsemax", 1 / 5 - 1e-12, None, r"got a sum of 0\.99999999999"),
    ("csparsemax", 0.3, [1, 1, 1, 0, 0], r"unmasked entries.*sum of 0\.9"),
    ("budget_sparsemax", 5.5, None, r"budget must be at most the number .*, 5, got 5\.5"),
    ("budget_sparsemax", 3, [1, 1, 0, 0, 0], "unmasked entries.* 2, got 3"),
]
TARGETS: list[tuple[Any, dict[str, Any], Any, str]] = [
    (Y, {"reduction": "avg"}, V, "reduction must be one of mean, sum, none, got 'avg'"),
    (Y, {"label_smoothing": 2}, V, r"label_smoothing must be in \[0, 1\], got 2"),
    (Y, {"label_smoothing": "a"}, T, r"must be a number in .*, got str"),
    (0 * Y + 5, {}, V, r"labels must be in 0 … 4, got 5.*ignore_index"),
    (0 * Y - 9, {"ignore_index": -1}, V, "got -9; rows to leave out"),
    (Y[0], {}, V, r"y must be integer labels of shape \(3, 4\) or"),
    (Y + 0.0, {}, V, r"got dtype float64 and shape \(3, 4\)"),
    (0.99 * P, {}, V, r"must be ≥ 0 and sum to 1 within 0\.004"),
    (P - np.eye(5)[0] + np.eye(5)[1], {}, V, "smallest entry of -0.8"),
    (P, {"ignore_index": 1}, V, r"ignore_index is for integer labels.*weight=0"),
    (Y, {"weight": -1}, V, "weight must be at least 0, got -1"),
    (Y, {"weight": ONE(3)}, V, r"weight of shape \(3,\) does not broadcast"),
    (Y, {"weight": np.inf}, V, "weight must be finite in float64, got inf"),
    (np.int8(Y), {"weight": [-1, 1, 1, 1]}, V, "weight must be at least 0, got -1"),
    (Y, {"weight": np.ma.array(Y)}, T, r"weight is a numpy\.ma array; .*\.filled"),
    (np.ma.array(Y), {}, T, r"y is a numpy\.ma array.*ignore_index"),
]
OPERANDS: list[tuple[str, tuple[Any, ...], Any, str]] = [
    ("entmax15.jvp", (P, P[0]), V, r"v must have the shape of p, \(3, 4, 5\), got \(4, 5\)"),
    ("softmax.jvp", (P, P + 1j), T, "v must hold real numbers"),
    ("softmax.jvp", (P, P, {"mask": ONE((3, 4, 5), int)}), T, "mask must be boolean"),
    ("sparsemax.jvp", (1.0, 1.0), V, "p is 0-dimensional"),
    ("sparsemax.support", (Z, {"out": 1 * P}), T, "unexpected keyword argument 'out'"),
    ("entmax.parameter_vjp", (P, P[0]), V, "g must have the shape of p"),
    ("csoftmax.parameter_vjp", (P, P + 1j, 1.5), T, "g must hold real numbers"),
    ("csparsemax.parameter_vjp", (P, P, 1), T, r"needs the scores too.*at_scores"),
    ("csparsemax.parameter_vjp.at_scores", (Z[0], P, P, 1), V, "z must have the shape of p"),
    ("csoftmax.loss", (Z, Y, 1), V, r"is not defined: this mapping has no"),
    ("topk_softmax.loss", (Z, Y, 1), V, r"is not defined: this mapping has no"),
    ("softmax.parameter_vjp", (P, P), V, "is not defined"),
    ("fusedmax.regularizer", (P, np.inf), V, "strength must be finite .*, got inf"),
    ("fenchel_young_loss", (Z, Y, "csoftmax", {"upper": 1}), V, "has none: choose one of softmax"),
    ("fenchel_young_loss", (Z, Y, "hardmax"), V, "must be one of softmax, .*got 'hardmax'"),
    ("fenchel_young_loss", (Z, Y, len), T, "must be a Mapping or the name.*make a Mapping"),
    ("fenchel_young_loss", (Z, Y, "entmax"), T, r"takes the parameters \(alpha\), got \(\)"),
    ("entmax_sigmoid", (Z, 0), V, "alpha must be above 0"),
    ("entmax_sigmoid", (Z, ONE(3)), V, r"alpha of shape \(3,\) does not broadcast"),
    ("one_vs_all_loss", (Z, Y, ONE(3)), V, "does not broadcast to the entr"),
    ("one_vs_all_loss", (Z, 2 + 0 * Z), V, r"targets y must be in \[0, 1\], got 2"),
    ("one_vs_all_loss", (Z, Y + 5), V, "labels must be in 0 … 4, got"),
    ("softmax", (Z, -1, MASK), T, "positional"),
    ("softmax", (Z.astype("S5"),), T, "z must hold real numbers"),
]


@for_each(ARRAYS, CASES, SECOND)
def test_wrong_scores_and_options(backend: Any, case: Any) -> None:
    name, *value = case
    for z, options, error, message in SCORES:
        for part in ("", ".support"):
            with pytest.raises(error, match=message):
                backend.call(name + part, z, *value, **options)
    for out, error, message in OUTS:
        with pytest.raises(error, match=message):
            backend.call(name, Z, *value, out=out)
    if no_order(case):
        with pytest.raises(ValueError, match="repeated axis"):
            backend.call(name, Z, *value, axis=(0, -3))
    if value:
        parameter = pe.MAPPINGS[name].parameters[0]
        with pytest.raises(TypeError, match=f"{parameter} must hold real numbers"):
            backend.call(name, Z, 2j)


@arrays_only
@pytest.mark.parametrize(("name", "value", "message"), VALUES, ids=str)
def test_wrong_values_write_nothing(backend: Any, name: str, value: Any, message: str) -> None:
    out = np.full(Z.shape, 7.0)
    calls = [("", (Z,), {"out": out}), (".support", (Z,), {}), (".jacobian", (P,), {})]
    calls += [(".jvp", (P, Z), {}), (".jvp", (P, Z), {"out": out})]
    mapping = pe.MAPPINGS[name]
    if mapping.loss.is_defined:
        calls += [(".loss", (Z, Y), {}), (".loss_and_grad", (Z, Y), {})]
    if mapping.parameter_vjp.is_defined:
        calls += [(".parameter_vjp.at_scores", (Z, P, Z), {})]
    for part, arrays, options in calls:
        with pytest.raises(ValueError, match=message):
            backend.call(name + part, *arrays, value, **options)
    assert (out == 7).all()


@arrays_only
@pytest.mark.parametrize(("name", "value", "mask", "message"), INFEASIBLE, ids=str)
def test_infeasible_values_write_nothing(
    backend: Any, name: str, value: Any, mask: Any, message: str
) -> None:
    out, options = np.full(Z.shape, 7.0), {} if mask is None else {"mask": np.array(mask, bool)}
    with pytest.raises(ValueError, match=message):
        backend.call(name, Z, value, out=out, **options)
    assert (out == 7).all()
    nothing = backend.call(name, np.full((1, 5), -np.inf), value)  # feasible, whatever the bounds
    assert (nothing == 0).all()


@for_each(ARRAYS, LOSSES, SECOND)
def test_wrong_targets(backend: Any, case: Any) -> None:
    name, *value = case
    for y, options, error, message in TARGETS:
        for part in (".loss", ".loss_and_grad"):
            with pytest.raises(error, match=message):
                backend.call(name + part, Z, y, *value, **options)


@arrays_only
@pytest.mark.parametrize("row", OPERANDS, ids=lambda row: f"{row[0]}-{row[-1]}")
def test_wrong_operands(backend: Any, row: Any) -> None:
    name, arguments, error, message = row
    arrays = [x for x in arguments if not isinstance(x, dict)]
    options = next((x for x in arguments if isinstance(x, dict)), {})
    with pytest.raises(error, match=message):
        backend.call(name, *arrays, **options)


DEFAULTS = {"entmax": 1.5, "normmax": 2.0, "fusedmax": 1.0, "oscarmax": 1.0}


@for_each(ARRAYS, [(name,) for name in pe.MAPPINGS])
def test_defaults(backend: Any, case: Any) -> None:
    """The last axis, DESIGN's values, the mean; the same for every attribute."""
    [name], z, y = case, Z, Y
    value = [DEFAULTS[name]] if name in DEFAULTS else []
    required = [2] if pe.MAPPINGS[name].parameters and not value else []
    mapping = pe.MAPPINGS[name]
    p = backend.call(name, z, *required)
    calls = [("", (z,)), (".support", (z,)), (".jvp", (p, z)), (".jacobian", (p,))]
    calls += [(".log", (z,))] if mapping.log.is_defined else []
    calls += [(".regularizer", (p,))] if mapping.regularizer.is_defined else []
    calls += [(".parameter_vjp.at_scores", (z, p, z))] if mapping.parameter_vjp.is_defined else []
    if mapping.loss.is_defined:
        calls += [(".loss", (z, y)), (".loss_and_grad", (z, y))]
    for part, arrays in calls:
        options = {"axis": -1, **({"reduction": "mean"} if "loss" in part else {})}
        found = backend.call(name + part, *arrays, *required)
        given = backend.call(name + part, *arrays, *(value or required), **options)
        for one, other in zip(
            *((x if isinstance(x, tuple) else (x,)) for x in (found, given)), strict=True
        ):
            same(one, other)
    if mapping.loss.is_defined:
        generic = z, y, name
        named = dict(zip(mapping.parameters, value or required, strict=True))
        given = pe.fenchel_young_loss(*generic, axis=-1, reduction="mean", **named)
        same(pe.fenchel_young_loss(*generic, **named), given)
    if required:
        with pytest.raises(TypeError, match=f"missing 1 required .*'{mapping.parameters[0]}'"):
            backend.call(name, z)
