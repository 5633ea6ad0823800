"""The mappings and losses on the tape: the same values as the array functions, and gradients."""

import numpy as np
import pytest
from finite_differences import assert_gradients

import pyentmax
from pyentmax import autograd as ag
from pyentmax.autograd import Tensor

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
@pytest.mark.parametrize("axis", [-1, 0, -2])
@pytest.mark.parametrize("mask", [None, MASK])
def test_mapping(name, axis, mask):
    op, function = getattr(ag, name), getattr(pyentmax, name)
    params = (PARAMETERS[name],) if name in PARAMETERS else ()
    value = op(Tensor(Z), *params, axis=axis, mask=mask).data
    np.testing.assert_array_equal(value, function(Z, *params, axis=axis, mask=mask))
    assert_gradients(lambda z: op(z, *params, axis=axis, mask=mask), Z, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_learned_alpha_gets_a_gradient(alpha):
    assert_gradients(ag.entmax, Z[0], np.full(4, alpha), rtol=1e-5, atol=1e-7)


def test_learned_alpha_at_one():
    # α can't be moved below 1, so the difference looks forward.
    a = Tensor(np.ones(4), requires_grad=True)
    weights = RNG.standard_normal((4, 5))
    ag.entmax(Tensor(Z[0]), a).backward(weights)
    step = 1e-4
    at, near, far = ((pyentmax.entmax(Z[0], 1 + k * step) * weights).sum(axis=1) for k in range(3))
    forward = (-3 * at + 4 * near - far) / (2 * step)
    np.testing.assert_allclose(a.grad, forward, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
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


def test_every_mapping_is_on_the_tape():
    assert ag.MAPPING_OPS.keys() == pyentmax.MAPPINGS.keys()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_loss(name, reduction):
    params = {"alpha": PARAMETERS[name]} if name in PARAMETERS else {}
    y = RNG.integers(5, size=(3, 4))
    weight = RNG.random((3, 4))

    def function(z):
        return ag.fenchel_young_loss(z, y, name, reduction=reduction, weight=weight, **params)

    assert function(Tensor(Z)).shape == ((3, 4) if reduction == "none" else ())
    assert_gradients(function, Z, rtol=1e-5, atol=1e-8)


def test_loss_along_another_axis():
    y = RNG.integers(3, size=(4, 5))
    assert_gradients(
        lambda z: ag.fenchel_young_loss(z, y, "entmax15", axis=0, reduction="none"), Z, rtol=1e-5
    )


SMOOTHED = {"softmax": {}, "entmax15": {}, "sparsemax": {}, "entmax": {"alpha": 1.3}}


@pytest.mark.parametrize("name", SMOOTHED)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothed_labels_are_distributions_made_by_hand(name, reduction, weighted):
    z, y, epsilon = 3 * RNG.standard_normal((6, 5)), RNG.integers(5, size=6), 0.2
    weight = np.array([0.5, 0, 2, 1, 0.1, 0]) if weighted else None
    options = {"reduction": reduction, "weight": weight, **SMOOTHED[name]}
    q = (1 - epsilon) * np.eye(5)[y] + epsilon / 5
    expected, gradient = pyentmax.fenchel_young_loss_and_grad(z, q, name, **options)
    labels = np.where(weight == 0, -7, y) if weighted else y  # those of weight 0 may be anything
    tensor = Tensor(z, requires_grad=True)
    loss = ag.fenchel_young_loss(tensor, labels, name, label_smoothing=epsilon, **options)
    np.testing.assert_allclose(loss.data, expected, rtol=1e-12, atol=1e-13)
    loss.sum().backward()
    np.testing.assert_allclose(tensor.grad, gradient, rtol=1e-12, atol=1e-13)
    assert_gradients(
        lambda z: ag.fenchel_young_loss(z, labels, name, label_smoothing=epsilon, **options),
        z,
        rtol=1e-5,
        atol=1e-8,
    )


@pytest.mark.parametrize("name", SMOOTHED)
def test_smoothed_labels_of_large_scores_lose_no_digits(name):
    z, y = RNG.standard_normal((6, 50)).astype(np.float32), RNG.integers(50, size=6)
    options = {"label_smoothing": 0.1, **SMOOTHED[name]}
    near, far = (
        ag.fenchel_young_loss(Tensor(z + shift), y, name, **options).data
        for shift in (np.float32(0), np.float32(4096))
    )
    # Moved to 4096, scores themselves are rounded to 2⁻¹².
    np.testing.assert_allclose(far, near, rtol=1e-3, atol=1e-3)
    assert near.dtype == np.float32


@pytest.mark.parametrize("name", SMOOTHED)
def test_smoothed_labels_lose_no_digits_to_an_offset_of_doubles(name):
    z, y = np.round(4 * RNG.standard_normal((6, 1000))) + 1e15, RNG.integers(1000, size=6)
    found = ag.fenchel_young_loss(Tensor(z), y, name, label_smoothing=0.5, **SMOOTHED[name]).data
    near = ag.fenchel_young_loss(
        Tensor(z - 1e15), y, name, label_smoothing=0.5, **SMOOTHED[name]
    ).data
    np.testing.assert_allclose(found, near, rtol=1e-13)


def test_smoothed_labels_with_weights_whose_sum_overflows():
    z, y = RNG.standard_normal((2, 5)), np.array([0, 1])
    large, even = (
        ag.fenchel_young_loss(
            Tensor(z), y, "entmax15", label_smoothing=0.1, weight=np.full(2, weight)
        ).data
        for weight in (1e308, 1)
    )
    np.testing.assert_allclose(large, even, rtol=1e-12)


def test_smoothing_leaves_out_what_has_no_score():
    z, y = RNG.standard_normal((3, 5)), np.array([0, 1, 2])
    z[:, 4] = -np.inf
    options = {"label_smoothing": 0.2}
    found = ag.fenchel_young_loss(Tensor(z), y, "entmax15", **options).data
    q = 0.8 * np.eye(4)[y] + 0.2 / 4
    expected = pyentmax.fenchel_young_loss(z[:, :4], q, "entmax15")
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_smoothing_that_cannot_be():
    z, y = Tensor(np.zeros((3, 5))), np.array([0, 1, 2])
    with pytest.raises(ValueError, match="label_smoothing"):
        ag.fenchel_young_loss(z, y, "entmax15", label_smoothing=1.5)
    with pytest.raises(ValueError, match="labels must be in"):
        ag.fenchel_young_loss(z, y + 3, "entmax15", label_smoothing=0.1)


def test_the_gradient_of_a_loss_can_be_asked_for_twice():
    z = Tensor(RNG.standard_normal((3, 5)), requires_grad=True)
    loss = ag.fenchel_young_loss(z, np.array([0, 1, 2]), "entmax15")
    loss.backward()
    once = z.grad.copy()
    z.grad *= 7  # the caller's own
    (2 * loss).backward()
    np.testing.assert_allclose(z.grad, 9 * once, rtol=1e-12)
