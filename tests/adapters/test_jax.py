"""The JAX adapter: the values of the library's own functions, and derivatives of every order."""

import inspect
import os
import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import pyentmax as pe

jax = pytest.importorskip("jax", reason="JAX is not installed; pip install 'pyentmax[jax]'")
jnp = pytest.importorskip("jax.numpy")
from jax.test_util import check_grads  # noqa: E402

import pyentmax.jax as pj  # noqa: E402

RNG = np.random.default_rng(0)
ALPHAS = [0.2, 0.999, 1, 1 + 1e-6, 1.001, 1.1, 4 / 3, 1.5, 1.9, 2, 2.5, 4]
NAMED = ["softmax", "sparsemax", "entmax15"]


@pytest.fixture(autouse=True)
def in_double_precision():
    with jax.enable_x64(True):
        yield


def moved(z, alpha):
    """How far an entry of float32 may lie from the truth: the library's accuracy contract."""
    exact = pe.entmax(z.astype(np.float64), float(alpha))
    inside = exact > 0
    s = np.where(inside, np.where(inside, exact, 1) ** (2 - float(alpha)), 0)
    gaps = np.where(inside, np.abs(z - z.max(axis=-1, keepdims=True)), 0)
    allowed = 4 * exact + 16 * s * np.maximum(1, gaps.max(axis=-1, keepdims=True))
    return exact, np.finfo(z.dtype).eps * allowed + np.finfo(z.dtype).tiny


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.01, 20])
@pytest.mark.parametrize("alpha", [1, 1.001, 1.1, 1.5, 1.9, 2])
def test_alpha_entmax_is_as_accurate_as_the_library_promises(dtype, scale, alpha):
    alpha = dtype(alpha)  # the exact answer is that for the rounded input
    for d in (1, 300):
        z = (scale * RNG.normal(size=(8, d))).astype(dtype)
        p = np.asarray(pj.entmax(z, alpha))
        assert p.dtype == dtype
        exact, allowed = moved(z, alpha)
        twice = 1 + (dtype == np.float64)  # where the exact answer is the library's, with its own
        assert np.all(np.abs(p - exact) <= twice * allowed)
        sums = p.astype(np.float64).sum(axis=-1)
        assert np.all(np.abs(sums - 1) <= 4 * np.finfo(dtype).eps * np.sqrt(d))


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("scale", [pytest.param(0.001, marks=pytest.mark.slow), 1])
def test_thresholds_of_long_rows_are_as_accurate(name, scale):
    crowded = np.full((1, 5000), -0.99999)
    crowded[0, 0] = 0
    z = np.concatenate([crowded, scale * RNG.normal(size=(3, 5000))]).astype(np.float32)
    exact, allowed = moved(z, {"sparsemax": 2, "entmax15": 1.5}[name])
    p = np.asarray(getattr(pj, name)(z))
    assert np.all(np.abs(p - exact) <= allowed)
    sums = p.astype(np.float64).sum(axis=-1)
    assert np.all(np.abs(sums - 1) <= 4 * np.finfo(z.dtype).eps * np.sqrt(z.shape[-1]))


EDGES = {"softmax": (), "sparsemax": (), "entmax15": (), "entmax": (1.25,)}
EDGES |= {"topk_softmax": (3,), "topk_sparsemax": (3,)}


@pytest.mark.parametrize("name", EDGES)
def test_edge_rows_agree_with_the_library(name):
    args = EDGES[name]
    z, v = RNG.normal(size=(2, 2, 3, 40)).astype(np.float32)
    z[0, 1, :] = -np.inf
    z[0, 2, 7] = np.nan
    back = jax.jit(lambda z, v: jax.vjp(lambda z: getattr(pj, name)(z, *args), z)[1](v)[0])
    along = jax.jit(lambda z, v: jax.jvp(lambda z: getattr(pj, name)(z, *args), (z,), (v,))[1])
    p = getattr(pj, name)(z, *args)
    np.testing.assert_allclose(p, getattr(pe, name)(z, *args), rtol=1e-5, atol=1e-6)
    expected = getattr(pe, name).vjp(np.asarray(p), v, *args)
    for function in (back, along, jax.vmap(back), jax.vmap(along)):
        np.testing.assert_allclose(function(z, v), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EDGES)
def test_supports_are_the_arrays(name):
    function, rng = getattr(pj, name).support, np.random.default_rng(57)
    z = rng.normal(scale=3, size=(21, 6)).astype(np.float32)
    z[20], mask = [0, -1e4, 1e4, 5, 6, -np.inf], rng.random((21, 6)) < 0.8
    mask[:, :3] = True
    for value in {"entmax": [0.5, 1.0, 1.001, 1.25, 3.0]}.get(name, [None]):
        values = list(EDGES[name]) if value is None else [value]
        expected = getattr(pe, name).support(z, *values, mask=mask)
        with jax.numpy_dtype_promotion("strict"):
            found = jax.jit(lambda z, v=values: function(z, *v, mask=mask))(z)  # noqa: B023
        np.testing.assert_array_equal(found, expected)
        broken = function(np.array([[np.nan, 1, 2], [-np.inf] * 3], np.float32), *values)
        assert not broken.any()


def test_gradients_of_an_array_of_alpha_agree_with_the_library():
    z, alpha = RNG.normal(size=(3, 40)), np.array([1.0, 1.3, 2.0])
    _, pull = jax.vjp(pj.entmax, z, alpha)
    expected = pe.entmax.parameter_vjp(pe.entmax(z, alpha), z, alpha)
    np.testing.assert_allclose(pull(z)[1], expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [2.5, 10, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_small_probability_does_not_spoil_the_products_of_a_large_alpha(dtype, alpha):
    """Its p^{2−α} is beyond all others: of a difference that rounds away it made any number."""
    rng = np.random.default_rng(0)
    z = (0.3 * rng.standard_normal((2000, 5))).astype(dtype)
    g, t = rng.standard_normal((2, 2000, 5)).astype(dtype)
    p, pull = jax.vjp(lambda z: pj.entmax(z, dtype(alpha)), z)
    _, along = jax.jvp(lambda z: pj.entmax(z, dtype(alpha)), (z,), (t,))
    p = np.asarray(p, np.float64)
    for found, v in ((pull(g)[0], g), (along, t)):
        exact = pe.entmax.vjp(p, v.astype(np.float64), alpha)
        most = np.abs(exact).max(axis=-1, keepdims=True)
        assert (np.abs(found - exact) <= 32 * np.finfo(dtype).eps * (1 + most)).all()


@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.7])
def test_losses_in_double_precision_have_its_digits(alpha):
    for z in (np.zeros(7), np.linspace(0, 0.3, 7), RNG.normal(size=7)):
        found = pj.entmax.loss(z, 2, alpha)
        assert abs(found - pe.entmax.loss(z, 2, alpha)) <= 24 * 2.0**-52


@pytest.mark.parametrize("alpha", [2.5, 4, 10])
def test_a_large_alpha_solves_for_scores_that_moved_by_rounding(alpha):
    z = RNG.normal(size=(8, 50))
    p = np.asarray(pj.entmax(z, alpha))
    u = p ** (alpha - 1)
    tau = np.where(p > 0, z - u / (alpha - 1), -np.inf).max(axis=-1, keepdims=True)
    gaps = np.where(p > 0, np.abs(z - u / (alpha - 1) - tau), np.maximum(z - tau, 0))
    assert gaps.max() < 1e-12
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4, 5, 9])
def test_top_k_keeps_ties_as_the_library_does(k):
    z = np.array([[2.0, 1, 1, 1, 0], [16, 1e-16, 0, -1, -2]])
    np.testing.assert_allclose(pj.topk_softmax(z, k), pe.topk_softmax(z, k), rtol=1e-14)
    each = np.array([k, 1])
    np.testing.assert_allclose(pj.topk_softmax(z, each), pe.topk_softmax(z, each), rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 9])
def test_top_k_of_sparsemax_keeps_the_first_of_ties(k):
    z = np.array([[2.0, 1.9, 1.9, 1.9, 0], [1e-16, 0, 0, -1, -2]])
    for number in (k, np.array([k, 1])):
        expected = pe.topk_sparsemax(z, number)
        np.testing.assert_allclose(pj.topk_sparsemax(z, number), expected, rtol=1e-14, atol=1e-16)
    v = RNG.normal(size=(2, 5))
    _, along = jax.jvp(lambda z: pj.topk_sparsemax(z, k), (z,), (v,))
    expected = pe.topk_sparsemax.jvp(pe.topk_sparsemax(z, k), v, k)
    np.testing.assert_allclose(along, expected, rtol=1e-12, atol=1e-12)


ATTENTIONS = [
    {},
    {"alpha": np.array([1.0, 1.3, 1.5, 2.0])},
    {"alpha": 2, "causal": True, "offset": 2},
    {"mapping": "topk_softmax", "k": np.array([1, 2, 3, 4])},
    {"mapping": "sparsemax", "scale": 0.3},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", ATTENTIONS, ids=str)
def test_attention_agrees_with_the_library(options):
    query = RNG.normal(size=(2, 4, 5, 8))
    key, value = RNG.normal(size=(2, 2, 7, 8)), RNG.normal(size=(2, 2, 7, 3))
    mask = RNG.random((2, 1, 5, 7)) < 0.7
    mask[1, 0, 2] = mask[..., 6] = False
    key[..., 6, :], value[..., 6, :] = np.nan, np.inf  # no query may see them
    expected, weights = pe.attention(query, key, value, mask=mask, return_weights=True, **options)
    output, pull = jax.vjp(partial(pj.attention, mask=mask, **options), query, key, value)
    np.testing.assert_allclose(output, expected, rtol=1e-9, atol=1e-12)
    of_mapping = {k: v for k, v in options.items() if k not in ("causal", "offset")}
    g = RNG.normal(size=output.shape)
    gradients = pe.attention_vjp(weights, query, key, value, g, **of_mapping)
    for found, right in zip(pull(g), gradients, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((5, 8), (7, 4), (7, 3)), "query and key must have the same number of features"),
        (((5, 8), (7, 8), (6, 3)), "key and value must have the same number of positions"),
        (((8,), (7, 8), (7, 3)), "query must have at least two axes"),
        (((4, 5, 8), (3, 7, 8), (3, 7, 3)), "must broadcast, or keys and values must have one"),
    ],
)
def test_attention_refuses_shapes_as_the_library(shapes, message):
    arrays = list(map(np.ones, shapes))
    for attention in (pe.attention, pj.attention):
        with pytest.raises(ValueError, match=message):
            attention(*arrays)


@pytest.mark.slow
def test_classes_may_be_sharded_over_an_explicit_mesh():
    """In a process of its own, since devices are counted once."""
    code = """
import numpy as np, jax, jax.numpy as jnp, pyentmax as pe, pyentmax.jax as pj
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
z, g = np.random.default_rng(0).normal(size=(2, 4, 32)).astype(np.float32)
split = jax.P(None, "x")
with jax.set_mesh(mesh):
    scores, cotangent = (jax.device_put(x, split) for x in (z, g))
    for name, args in {"softmax": (), "sparsemax": (), "entmax15": (), "entmax": (1.3,)}.items():
        p, pull = jax.vjp(lambda z: getattr(pj, name)(z, *args), scores)
        assert p.sharding.spec == split
        np.testing.assert_allclose(p, getattr(pe, name)(z, *args), rtol=1e-5, atol=1e-6)
        expected = getattr(pe, name).vjp(np.asarray(p), g, *args)
        np.testing.assert_allclose(pull(cotangent)[0], expected, rtol=1e-5, atol=1e-6)
        loss = jax.grad(lambda z: getattr(pj, name).loss(z, jnp.arange(4), *args))
        expected = getattr(pe, name).loss_and_grad(z, np.arange(4), *args)[1]
        np.testing.assert_allclose(jax.jit(loss)(scores), expected, rtol=1e-5, atol=1e-6)
"""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_derivatives_by_scores_and_alpha_agree_with_the_library(alpha):
    z, v = RNG.normal(size=(2, 6))
    p = pe.entmax(z, alpha)
    _, by_scores = jax.jvp(lambda z: pj.entmax(z, alpha), (z,), (v,))
    np.testing.assert_allclose(by_scores, pe.entmax.jvp(p, v, alpha), rtol=1e-6, atol=1e-9)
    _, by_alpha = jax.jvp(lambda a: pj.entmax(z, a), (float(alpha),), (1.0,))
    np.testing.assert_allclose(by_alpha, pe.entmax.parameter_slope(p, alpha), rtol=1e-6, atol=1e-9)


TWICE = {
    "entmax": pj.entmax,
    **{name: lambda z, a, name=name: getattr(pj, name)(z) for name in NAMED},
    "topk_softmax": lambda z, a: pj.topk_softmax(z, 3),
    "logarithm": lambda z, a: jnp.where(pj.entmax(z, a) > 0, pj.entmax.log(z, a), 0),
    "loss of a label": lambda z, a: pj.entmax.loss(z, 1, a),
    "loss of a distribution": lambda z, a: pj.entmax.loss(z, jnp.full(5, 0.2), a),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("alpha", [1.001, 1.5, 2.5])
def test_derivatives_of_second_order(name, alpha):
    z = jnp.array([0.3, 0.1, -0.4, -3.0, 0.7])  # far from the threshold at every α tried
    check_grads(jax.jit(TWICE[name]), (z, alpha), order=2, rtol=1e-3)
    tied = jnp.array([0.3, 0.3, 0.1, -3.0, 0.3])
    check_grads(jax.jit(TWICE[name]), (tied, alpha), order=2, rtol=1e-3)


LOGARITHMS = {**dict.fromkeys(NAMED, ()), "entmax": (1.3,)}


@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_agree_with_the_library(name):
    parameter = LOGARITHMS[name]
    z, mask = RNG.normal(size=(5, 6)), RNG.random((5, 6)) > 0.3
    z[0], mask[1], mask[3] = [40, 0, -1, -2, 30, -800], False, True  # −800: where p underflows
    z[2, 0] = z[3, 1] = np.nan
    mask[2, 0] = False
    log = getattr(pj, name).log
    expected = getattr(pe, name).log(z, *parameter, mask=mask)
    found = jax.jit(lambda z: log(z, *parameter, mask=mask))(z)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    along = log(z.T.astype(np.float32), *parameter, axis=0, mask=mask.T)
    assert along.dtype == np.float32
    np.testing.assert_allclose(along.T, expected, rtol=1e-4, atol=1e-6)
    gradient = np.asarray(jax.grad(lambda z: log(z, *parameter, mask=mask).sum())(z))
    assert np.isnan(gradient[3]).any()
    assert np.all(gradient[1] == 0)
    assert np.all(np.isfinite(gradient[[0, 1, 2, 4]]))


@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_have_derivatives(name):
    z, parameter = jnp.array([0.3, 0.1, -0.4, -3.0, 0.7]), LOGARITHMS[name]
    mapping = getattr(pj, name)
    p = mapping(z, *parameter)
    on = p > 0
    for by, divisor in enumerate([p[:, None], p][: 1 + len(parameter)]):  # and the parameter
        found = jax.jacrev(mapping.log, by)(z, *parameter)
        expected = jax.jacfwd(mapping, by)(z, *parameter) / divisor
        np.testing.assert_allclose(found[on], expected[on], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found, jax.jacfwd(mapping.log, by)(z, *parameter), rtol=1e-12)
        assert np.all(found[~on] == 0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_losses_agree_with_the_library(alpha):
    z = 2 * RNG.normal(size=(6, 5))
    y = RNG.integers(5, size=6)
    q = pe.sparsemax(RNG.normal(size=(6, 5)))
    weight, mask = RNG.random(6), np.ones((6, 5), bool)
    mask[:, 3], y[y == 3] = False, 0
    for target, options in [
        (y, {}),
        (q, {}),
        (y, {"reduction": "none"}),
        (y, {"reduction": "sum", "weight": weight}),
        (q, {"weight": weight}),
        (y, {"ignore_index": 0}),
        (y, {"label_smoothing": 0.1}),
        (y, {"mask": mask, "label_smoothing": 1.0}),
        (y.astype(np.uint8), {"ignore_index": -100}),
    ]:
        expected = pe.entmax.loss(z, target, alpha, **options)
        found = pj.entmax.loss(z, target, alpha, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        if "reduction" not in options:
            _, gradient = pe.entmax.loss_and_grad(z, target, alpha, **options)
            found = jax.grad(lambda z, t=target, o=options: pj.entmax.loss(z, t, alpha, **o))(z)
            np.testing.assert_allclose(found, gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", NAMED)
def test_named_losses_agree_with_the_library(name):
    z, y = 2 * RNG.normal(size=(6, 5)), RNG.integers(5, size=6)
    loss = getattr(pj, name).loss
    np.testing.assert_allclose(loss(z, y), getattr(pe, name).loss(z, y), rtol=1e-12)
    each = loss(z.T, y, 0, reduction="none")
    np.testing.assert_allclose(each, getattr(pe, name).loss(z, y, reduction="none"), rtol=1e-7)


@pytest.mark.slow
def test_rows_without_a_right_target_are_nan_and_those_without_scores_count_nothing():
    z = np.array([[1.0, 0.0], [0.5, 0.0]])
    assert np.isnan(pj.entmax15.loss(z, np.array([0, 2]), reduction="none")).tolist() == [
        False,
        True,
    ]
    assert np.isnan(pj.softmax.loss(z, np.array([[0.5, 0.4], [1, 0]]), reduction="none"))[0]
    mask = np.array([[True, True], [False, False]])
    np.testing.assert_allclose(
        pj.entmax15.loss(z, np.array([1, 0]), mask=mask),
        pe.entmax15.loss(z[:1], np.array([1])),
        rtol=1e-7,
    )
    for name in NAMED:  # a label at a masked score
        assert getattr(pj, name).loss(z, [1, 1], mask=[True, False]) == np.inf
    z, mask = np.array([[1.0, 2.0, 3.0]]), np.array([True, True, False])
    inside, outside = [[0.5, 0.5, np.nan]], np.array([[0.25, 0.25, 0.5]])
    expected = pe.entmax15.loss(z, np.array(inside), mask=mask)
    np.testing.assert_allclose(pj.entmax15.loss(z, inside, mask=mask), expected, rtol=1e-12)
    assert np.isnan(pj.entmax15.loss(z, outside, mask=mask))
    uniform = jnp.full(43, 1 / 43, jnp.bfloat16)  # sums to 1 as well as it can
    assert jnp.isfinite(pj.softmax.loss(jnp.zeros(43), uniform))


def test_a_broken_row_breaks_no_other():
    """In values and derivatives, whether its scores are wrong or its α."""
    z = jnp.array([[1.0, 0.5, -2.0]] * 4 + [[np.nan, 0, 1], [0, np.inf, -1], [-np.inf, 0, -np.inf]])
    alpha = jnp.array([0, 1, 0.5, jnp.inf, 1.5, 1.5, 1.5])
    expected = [True, False, False, True, True, True, False]

    def loss(z, alpha):
        return pj.entmax.loss(z, np.ones(7, int), alpha, reduction="none")

    for function in (pj.entmax, loss):
        value, pull = jax.vjp(function, z, alpha)
        for array in (value, *pull(jnp.ones_like(value))):
            assert np.isnan(array).reshape(7, -1).all(axis=1).tolist() == expected
            assert np.isnan(array).reshape(7, -1).any(axis=1).tolist() == expected
    np.testing.assert_array_equal(pj.entmax(z, alpha)[-1], [0, 1, 0])
    assert np.isnan(pj.topk_softmax(z[0], 0)).all()
    assert np.isnan(pj.topk_softmax(z[0], 1.5)).all()


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15", "entmax"])
def test_a_nan_of_many_scores_spoils_its_row(name):
    """XLA's maximum of rows of this length loses a NaN on a processor, and p was finite."""
    z = RNG.normal(size=(21, 300)).astype(np.float32)
    z[[3, 5, 6], [7, 0, 299]] = np.nan
    p = np.asarray(getattr(pj, name)(z))
    assert np.isnan(p).all(axis=1).tolist() == [row in (3, 5, 6) for row in range(21)]
    assert np.isnan(p).any(axis=1).sum() == 3


@pytest.mark.slow
def test_more_rows_than_float16_can_count_have_a_mean():
    z = jnp.asarray(np.random.default_rng(0).normal(size=(70_000, 2)), jnp.float16)
    y = np.zeros(len(z), int)
    expected = pe.entmax15.loss(np.asarray(z), y)
    np.testing.assert_allclose(pj.entmax15.loss(z, y), expected, rtol=1e-3)


@pytest.mark.slow
def test_a_row_of_weight_0_may_hold_anything():
    z = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    z[1] = np.nan
    y, weight = np.array([0, -100, 2]), np.array([1.0, 0.0, 1.0])
    found = jax.value_and_grad(pj.entmax15.loss)(jnp.asarray(z), y, weight=weight)
    expected = pe.entmax15.loss_and_grad(z, y, weight=weight)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_row_of_weight_0_may_have_any_alpha():
    """The derivative by an infinite α was NaN in rows that count nothing, or have nothing left."""
    z = jnp.array([[1.0, 0.5], [1.0, 0.5], [-jnp.inf, -jnp.inf]])
    y, weight = np.zeros(3, int), np.array([1.0, 0.0, 1.0])
    for strange in (0, jnp.inf, jnp.nan):
        alpha = jnp.array([1.5, strange, strange])
        for gradient in jax.grad(pj.entmax.loss, (0, 2))(z, y, alpha, weight=weight):
            assert np.any(gradient[0] != 0)
            np.testing.assert_array_equal(gradient[1:], 0)


@pytest.mark.slow
def test_what_is_masked_is_no_nan_to_those_who_look_for_them():
    """`jax_debug_nans` saw 0 · −∞ in every call outside `jit` with a mask."""
    z, mask = jnp.array([[1.0, 0.5, -2.0]]), jnp.array([[True, True, False]])
    with jax.debug_nans(True):
        p = pj.sparsemax(z, mask=mask)
        np.testing.assert_array_equal(pj.sparsemax(jnp.where(mask, z, -jnp.inf)), p)
        gradient = jax.grad(pj.sparsemax.loss)(z, jnp.array([0]), mask=mask)
    np.testing.assert_allclose(gradient, p - np.eye(3)[:1], rtol=1e-6)


@pytest.mark.slow
def test_the_mean_of_losses_depends_on_the_ratios_of_weights_alone():
    z, labels = RNG.normal(size=(3, 4)).astype(np.float32), np.array([0, 1, 2])
    for weight in (3e38, np.float32([3e38, 3e38, 1]), 1e-37):
        expected = pe.softmax.loss(z, labels, weight=weight)
        found = pj.softmax.loss(z, labels, weight=weight)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [pj.softmax.loss, pj.entmax.loss])
def test_a_negative_weight_makes_no_number(loss):
    z, labels = np.zeros((2, 3)), np.array([0, 1])
    assert np.isnan(loss(z, labels, weight=[-1.0, 1.0]))
    each = loss(z, labels, weight=[-1.0, 1.0], reduction="none")
    assert np.isnan(each[0])
    assert np.isfinite(each[1])


def test_compiled_and_vectorised_calls_are_the_same():
    z, alpha = RNG.normal(size=(4, 7)), np.array([1.0, 1.3, 1.7, 2.0])
    expected = pe.entmax(z, alpha)
    np.testing.assert_allclose(jax.jit(pj.entmax)(z, alpha), expected, atol=1e-12, rtol=1e-7)
    np.testing.assert_allclose(jax.vmap(pj.entmax)(z, alpha), expected, atol=1e-12, rtol=1e-7)
    each = jax.vmap(pj.entmax, (None, 0))(z, alpha)
    np.testing.assert_allclose(each[:, 0], pe.entmax(z[[0] * 4], alpha), atol=1e-12, rtol=1e-7)
    np.testing.assert_allclose(
        jax.vmap(pj.sparsemax, 1, 1)(z.T), pe.sparsemax(z, axis=-1).T, rtol=1e-7
    )
    labels = np.array([0, 1, 2, 3])
    found = jax.jit(jax.grad(pj.entmax15.loss))(z, labels)
    _, gradient = pe.entmax15.loss_and_grad(z, labels)
    np.testing.assert_allclose(found, gradient, atol=1e-12, rtol=1e-7)


def test_a_second_call_compiles_nothing(caplog):
    z, labels = RNG.normal(size=(2, 9)), np.array([0, 1])

    def calls(alpha):
        pj.entmax(z, alpha)
        jax.grad(pj.entmax.loss)(z, labels, alpha)

    def compiled():
        return [r for r in caplog.records if "compil" in r.getMessage().lower()]

    calls(1.3)
    with jax.log_compiles():
        calls(1.7)  # another α, but no other shape
        assert not compiled()
        pj.entmax(z[:, :8], 1.7)
        assert compiled()


@pytest.mark.parametrize("alpha", [1, 1.001])
def test_losses_keep_digits_at_a_margin(alpha):
    """p rounds to 1 in float32 there, and the loss was 0."""
    z, y = np.array([[18.0, 0, -3]]), np.array([0])
    for name in ("entmax", *(["softmax"] * (alpha == 1))):
        numbers = () if name == "softmax" else (alpha,)
        found = getattr(pj, name).loss(np.float32(z), y, *numbers)
        np.testing.assert_allclose(found, getattr(pe, name).loss(z, y, *numbers), rtol=2e-5)


def test_mappings_are_objects():
    z, y = RNG.normal(size=(4, 3)), np.array([0, 1, 2, 1])
    assert pickle.loads(pickle.dumps(pj.entmax.loss)) is pj.entmax.loss
    assert list(inspect.signature(pj.entmax.loss).parameters)[:4] == ["z", "y", "alpha", "axis"]
    for mapping in (pe.sparsemax, pj.sparsemax, "sparsemax"):
        found = pj.attention(z, z, z, mapping=mapping)
        np.testing.assert_allclose(found, pj.sparsemax(z @ z.T / 3**0.5) @ z, rtol=1e-9)
    for function in (
        pj.entmax15,
        pj.entmax15.support,
        pj.entmax15.log,
        partial(pj.entmax15.loss, y=y),
    ):
        with pytest.raises(TypeError, match="'dim'; of arrays it is axis"):
            function(z, dim=0)
    with pytest.raises(ValueError, match="topk_softmax.loss is not defined"):
        pj.topk_softmax.loss(z, y, 2)
    with pytest.raises(ValueError, match="topk_softmax.log is not defined"):
        pj.topk_softmax.log(z, 2)


@pytest.mark.parametrize("loss", [pj.softmax.loss, pj.entmax.loss], ids=str)
def test_label_smoothing_may_be_traced(loss):
    z, y = RNG.normal(size=(3, 4)), np.array([0, 1, 2])
    smoothed = jax.jit(lambda share: loss(z, y, label_smoothing=share))
    for share in (0.0, 0.1):
        np.testing.assert_allclose(smoothed(share), loss(z, y, label_smoothing=share), rtol=1e-12)
    assert np.isnan(smoothed(1.5))


@pytest.mark.parametrize("margin", [1.0, 16.0, 18.0, 60.0])
def test_saturated_softmax_keeps_digits_of_derivatives(margin):
    z = jnp.array([margin, 0.0], jnp.float32)
    slope = np.exp(-margin) / (1 + np.exp(-margin)) ** 2
    for function in (pj.softmax, lambda z: pj.topk_softmax(z, 2)):
        gradient = jax.grad(lambda z: function(z)[0])(z)  # noqa: B023
        np.testing.assert_allclose(gradient, [slope, -slope], rtol=1e-6)
        _, moved = jax.jvp(function, (z,), (jnp.array([1.0, 0.0], jnp.float32),))
        np.testing.assert_allclose(moved, [slope, -slope], rtol=1e-6)


Z = jnp.asarray(RNG.normal(size=(2, 3, 4)), jnp.bfloat16)
LABELS = np.array([[0, 1, 2], [3, 2, 1]], np.int8)
STRICT = {
    "mappings": lambda z: [getattr(pj, name)(z) for name in NAMED],
    "entmax": lambda z: [pj.entmax(z, 1.3), pj.entmax(z, jnp.array([1.2, 1.5, 2.0]))],
    "top-k": lambda z: [pj.topk_softmax(z, 2), pj.topk_softmax(z, jnp.array([1, 2, 3]), axis=2)],
    "axis and mask": lambda z: [pj.sparsemax(z, (0, 2), mask=jnp.arange(4) < 3)],
    "losses": lambda z: [
        pj.entmax.loss(z, LABELS, 1.3, label_smoothing=0.1),
        pj.softmax.loss(z, LABELS, ignore_index=1, weight=jnp.ones(3)),
        pj.entmax15.loss(z, pj.sparsemax(z), mask=jnp.arange(4) < 4),
        pj.sparsemax.loss(z, LABELS, reduction="none"),
    ],
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_promotion_is_respected(name):
    """As in `jax.nn.softmax`: no array is given another rank or dtype implicitly."""

    def total(z):
        return sum(x.sum().astype(float) for x in STRICT[name](z))

    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        values = jax.eval_shape(STRICT[name], Z)
        assert {x.dtype for x in values} == {Z.dtype}
        assert jax.eval_shape(jax.grad(total), Z).shape == Z.shape


@pytest.mark.parametrize("name", [*NAMED, "entmax", "topk_softmax"])
def test_exports_with_symbolic_axes(name):
    from jax import export

    args = {"entmax": (1.3,), "topk_softmax": (2,)}.get(name, ())
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, d"), jnp.float32)
    labels = jax.ShapeDtypeStruct(export.symbolic_shape("b", scope=shape.shape[0].scope), jnp.int32)
    z, y = RNG.normal(size=(2, 7)).astype(np.float32), np.array([0, 6], np.int32)
    exported = export.export(jax.jit(lambda z: getattr(pj, name)(z, *args)))(shape)
    np.testing.assert_allclose(exported.call(z), getattr(pe, name)(z, *args), rtol=1e-5, atol=1e-7)
    if name != "topk_softmax":
        loss = jax.jit(jax.grad(lambda z, y: getattr(pj, name).loss(z, y, *args)))
        found = export.export(loss)(shape, labels).call(z, y)
        np.testing.assert_allclose(found, loss(z, y), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pj.softmax(1.0), ValueError, "0-dimensional"),
        (lambda: pj.softmax(jnp.zeros((2, 0))), ValueError, "at least one is expected"),
        (lambda: pj.softmax([1j]), TypeError, "real scores"),
        (lambda: pj.softmax([1.0], axis=1), ValueError, "axis 1 is out of bounds"),
        (lambda: pj.softmax([1.0], axis=(0, -1)), ValueError, "repeated axis"),
        (lambda: pj.softmax([1.0], axis=0.5), TypeError, "axis must be an int"),
        (lambda: pj.softmax([1.0], mask=[1.0]), TypeError, "a bool array, got .*mask != 0"),
        (lambda: pj.softmax([1.0], mask=[True, False]), ValueError, "mask: expected a shape"),
        (lambda: pj.entmax([1.0], "1.5"), TypeError, "a number or an array, got '1.5'"),
        (lambda: pj.topk_softmax([1.0], "1.5"), TypeError, "a number or an array, got '1.5'"),
        (lambda: pj.entmax([1.0], [1.5, 2.0]), ValueError, "alpha: expected a shape"),
        (lambda: pj.softmax.loss([1.0], 0, reduction="max"), ValueError, "reduction"),
        (lambda: pj.softmax.loss([1.0], 0, label_smoothing=1.5), ValueError, "a share in"),
        (lambda: pj.softmax.loss([1.0], [0, 1]), ValueError, "integer labels of shape"),
        (lambda: pj.softmax.loss([1.0], [1.0], ignore_index=0), ValueError, "use weight=0"),
        (lambda: pj.softmax.loss([1.0], 0, ignore_index=0.5), TypeError, "whole number or None"),
        (lambda: pj.entmax.loss([1.0], 0, ignore_index=jnp.array(0.0)), TypeError, "whole number"),
    ],
)
def test_what_does_not_fit_is_said(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_scores_of_jax_make_a_model_for_the_decoders(dtype):
    """Its class has what says that an array is on a GPU, where its arrays are on the host, too."""
    from pyentmax.seq2seq import list_outputs
    from pyentmax.seq2seq.models import from_steps

    def scores(prefixes, state):
        return jnp.tile(jnp.array([0.5, 1.0, 0.25], dtype), (len(prefixes), 1)), state

    [found] = list_outputs(from_steps(scores, eos=0, keep="top_k=2"), [[1]], max_length=3)
    p = float(np.exp(0.5) / (np.exp(0.5) + np.exp(1)))
    expected = {(1,) * n: p * (1 - p) ** n for n in range(4)}
    listed = {h.tokens: h.probability for h in found.hypotheses}
    assert listed == pytest.approx(expected, rel=1e-5, abs=1e-6)
