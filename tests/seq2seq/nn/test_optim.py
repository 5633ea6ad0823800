"""Adam against its formulas, clipping, schedules."""

import numpy as np

from pyentmax.seq2seq.nn.optim import Adam, clip_gradients, global_norm
from pyentmax.seq2seq.nn.schedules import halve_on_plateau


def test_adam_equals_the_papers_algorithm():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(5)
    params = {"x": x.copy()}
    optimizer = Adam(params, eps=1e-3)
    m = v = 0
    for t in range(1, 8):
        g = rng.standard_normal(5)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        x = x - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-3)
        optimizer.step({"x": g.copy()}, 0.1)
    np.testing.assert_allclose(params["x"], x, rtol=1e-13)


def test_adam_skips_parameters_without_gradient():
    params = {"x": np.ones(2), "unused": np.ones(2)}
    Adam(params).step({"x": np.ones(2)}, 0.1)
    np.testing.assert_array_equal(params["unused"], 1)
    assert (params["x"] < 1).all()


def test_factors_scale_rates_of_named_parameters():
    start = {"a.query.weight": np.ones(2), "a.key.weight": np.ones(2), "a.value.weight": np.ones(2)}
    moved = []
    for factors in ({}, {"a.query.weight": 0.5, "a.key.weight": 0.0}):
        params = {name: x.copy() for name, x in start.items()}
        optimizer = Adam(params)
        optimizer.factors = factors
        optimizer.step({name: np.array([0.3, -2.0]) for name in params}, 0.1)
        moved.append({name: x - start[name] for name, x in params.items()})
    plain, changed = moved
    np.testing.assert_allclose(changed["a.query.weight"], 0.5 * plain["a.query.weight"], rtol=1e-12)
    np.testing.assert_array_equal(changed["a.key.weight"], [0, 0])
    np.testing.assert_array_equal(changed["a.value.weight"], plain["a.value.weight"])


def test_clipping():
    gradients = {"a": np.array([3.0, 0.0]), "b": np.array([[4.0]])}
    assert clip_gradients(gradients, 10) == 5
    np.testing.assert_array_equal(gradients["a"], [3, 0])
    assert clip_gradients(gradients, 1) == 5
    np.testing.assert_allclose(global_norm(gradients), 1, rtol=1e-15)
    np.testing.assert_allclose(gradients["b"], [[0.8]], rtol=1e-15)


def test_rate_halves_when_loss_rises():
    losses = (3, 2, 2.5, 2.6, 1, 1, 2)
    rates = [halve_on_plateau(0.8, losses[:n]) for n in range(8)]
    assert rates == [0.8, 0.8, 0.8, 0.4, 0.2, 0.2, 0.2, 0.1]
    assert halve_on_plateau(1024.0, [1, 2] * 20) == 1
