"""Smoothed labels as a loss of labels, against the distributions written out."""

import numpy as np
import pytest

import pyentmax
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("choice", ["1", "1.5", "2", "1.3", "normmax:2.5"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weight", [None, RNG.random((2, 3))])
def test_smoothed_labels_equal_their_distributions(choice, reduction, weight):
    z, y = 3 * RNG.standard_normal((2, 3, 5)), RNG.integers(5, size=(2, 3))
    mapping = choose_mapping(choice)
    options = {"alpha": mapping.params[0]} if mapping.params else {}
    options |= {"reduction": reduction, "weight": weight}
    q = 0.8 * np.eye(5)[y] + 0.2 / 5
    expected, gradient = pyentmax.fenchel_young_loss_and_grad(z, q, mapping.name, **options)
    tensor = Tensor(z, requires_grad=True)
    loss = mapping.loss(tensor, y, label_smoothing=0.2, reduction=reduction, weight=weight)
    (2 * loss).backward()
    np.testing.assert_allclose(loss.data, expected, rtol=1e-12)
    np.testing.assert_allclose(tensor.grad, 2 * gradient, rtol=1e-11, atol=1e-13)


def test_large_float32_scores_keep_their_digits():
    z, y = RNG.standard_normal((6, 50)).astype(np.float32), RNG.integers(50, size=6)
    loss = choose_mapping(1.5).loss
    near, far = (
        loss(Tensor(z + np.float32(shift)), y, label_smoothing=0.1).data for shift in (0, 4096)
    )
    # At 4096 the scores themselves are rounded to 2⁻¹².
    np.testing.assert_allclose(far, near, rtol=1e-3)
    assert near.dtype == np.float32
