"""The mappings and losses on the tape: the same values as the array functions, and gradients."""

import numpy as np
import pytest
from finite_differences import assert_gradients

import pyentmax
from pyentmax.seq2seq import autograd as ag
from pyentmax.seq2seq.autograd import Tensor

RNG = np.random.default_rng(3)
Z = RNG.standard_normal((3, 4, 5))
MASK = RNG.random((3, 4, 5)) < 0.7
MASK[:2] = MASK[:, :2] = MASK[..., :2] = True  # along any axis two entries are left
PARAMETERS = {
    "entmax": 1.3,
    "normmax": 2.5,
    "topk_softmax": 2,
    "topk_sparsemax": 2,
    "fusedmax": 0.3,
    "oscarmax": 0.1,
    "csoftmax": 0.6,
    "csparsemax": 0.6,
    "budget_sparsemax": 1.2,
}
NAMES = list(ag.MAPPING_OPS)
LOSSES = ["softmax", "sparsemax", "entmax15", "entmax", "normmax"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("axis", "mask"), [(-1, None), (0, MASK), (-2, None)])
def test_mapping(name, axis, mask):
    op, function = getattr(ag, name), getattr(pyentmax, name)
    params = (PARAMETERS[name],) if name in PARAMETERS else ()
    value = op(Tensor(Z), *params, axis=axis, mask=mask).data
    np.testing.assert_array_equal(value, function(Z, *params, axis=axis, mask=mask))
    assert_gradients(lambda z: op(z, *params, axis=axis, mask=mask), Z, rtol=1e-5, atol=1e-7)


def test_learned_alpha_at_one():
    a = Tensor(np.ones(4), requires_grad=True)
    weights = RNG.standard_normal((4, 5))
    ag.entmax(Tensor(Z[0]), a).backward(weights)
    below, above = (
        (pyentmax.entmax(Z[0], 1 + step) * weights).sum(axis=1) for step in (-1e-4, 1e-4)
    )
    np.testing.assert_allclose(a.grad, (above - below) / 2e-4, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entmax", np.array([1.2, 1.5, 2.0, 1.01])),
        ("fusedmax", np.array(0.3)),
        ("oscarmax", np.array([0.1, 0.2, 0.1, 0.05])),
        ("csoftmax", np.full((4, 5), 0.4)),
        ("csparsemax", np.array([0.5, 0.4, 0.6, 0.3, 0.7])),
        ("budget_sparsemax", np.array(1.3)),
    ],
)
def test_a_learned_parameter_gets_a_gradient(name, value):
    assert_gradients(getattr(ag, name), Z[0], value, rtol=1e-5, atol=1e-7)


def test_a_parameter_without_gradient_is_refused():
    k = Tensor(np.array(2.0), requires_grad=True)
    with pytest.raises(TypeError, match="topk_softmax: there is no gradient in k"):
        ag.topk_softmax(Tensor(Z), k)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("reduction", "axis"), [("mean", -1), ("sum", 0), ("none", 0)])
def test_loss(name, reduction, axis):
    options = {"alpha": PARAMETERS[name]} if name in PARAMETERS else {}
    batch = Z.sum(axis).shape
    options |= {"reduction": reduction, "axis": axis, "weight": RNG.random(batch)}
    y = RNG.integers(3, size=batch)

    def function(z):
        return ag.fenchel_young_loss(z, y, name, **options)

    assert function(Tensor(Z)).shape == (batch if reduction == "none" else ())
    assert_gradients(function, Z, rtol=1e-5, atol=1e-8)
