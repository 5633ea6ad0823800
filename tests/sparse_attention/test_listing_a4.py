"""Top-k attention is the listing of Explicit Sparse Transformer (Zhao et al. 2019), repaired."""

import numpy as np
import pytest

import pyentmax as pe


def listing_a4(query, key, value, k):
    """`sparse_dot_product` of Explicit Sparse Transformer, App. A.4, line by line, for one head.

    Its scores lack the division by √d of the paper's own equation. As printed it cannot run: it
    swaps axes 2 and 3, which arrays of three axes do not have.
    """
    scores = query @ key.swapaxes(1, 2)
    k = min(k, key.shape[1])
    if k:
        v = -np.sort(-scores, axis=-1)[..., :k]
        vk = v[:, :, -1:]
        scores = np.where(scores < vk, -1e18, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_top_k_attention_equals_listing_a4_unscaled(k):
    rng = np.random.default_rng(2)
    query, key, value = rng.normal(size=(3, 2, 6, 16))
    output, weights = listing_a4(query, key, value, k)
    scores = query @ key.swapaxes(1, 2)
    np.testing.assert_allclose(pe.topk_softmax(scores, k), weights, rtol=1e-12, atol=1e-15)
    found = pe.attention(query, key, value, mapping="topk_softmax", k=k, scale=1.0)
    np.testing.assert_allclose(found, output, rtol=1e-12, atol=1e-14)
    # With the equation's scale the same positions stay, and the weights are flatter.
    scaled = pe.topk_softmax(scores / 4, k)
    np.testing.assert_array_equal(scaled > 0, weights > 0)
    if k > 1:
        assert scaled.max() < weights.max()
