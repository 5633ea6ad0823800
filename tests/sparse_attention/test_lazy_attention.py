"""Attention of Dask's arrays: the bits of the blocks' own calls, whenever they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe

da = pytest.importorskip("dask.array", reason="dask is not installed")

CASES: dict[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = {
    # Shapes of query, key and value before their last axis, with the chunks of the batch.
    "heads": (((4, 6, 5), (2, 3)), ((4, 6, 7), (2, 3)), ((4, 6, 7), (4, 2))),
    "grouped heads": (((2, 4, 5), (1, 2)), ((2, 2, 7), (1, 1)), ((2, 2, 7), (1, 1))),
    "shared keys": (((4, 2, 5), (1, 1)), ((2, 7), (1,)), ((1, 2, 7), (1, 2))),
    "one head": (((5,), ()), ((7,), ()), ((7,), ())),
}


def arrays(case: str) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    made = [rng.standard_normal((*shape, 3)) * 2 for shape, _ in CASES[case]]
    made.append(rng.standard_normal((*made[0].shape[:-1], 3)))
    cuts = [chunks for _, chunks in CASES[case]]
    lazy = [
        da.from_array(x, chunks=(*c, -1, -1)) for x, c in zip(made, [*cuts, cuts[0]], strict=True)
    ]
    return made, lazy


def assert_lazy_and_close(found: Any, expected: Any) -> None:
    assert isinstance(found, da.Array)
    assert found.shape == np.shape(expected)
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found.compute(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [{}, {"alpha": 2.0, "causal": True, "offset": 2}, {"mapping": "topk_softmax", "k": 3},
     {"mapping": "csparsemax", "upper": 0.4}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("case", CASES)
def test_output_weights_and_derivatives(case: str, options: dict[str, Any]) -> None:
    (query, key, value, g), lazy = arrays(case)
    expected, weights = pe.attention(query, key, value, return_weights=True, **options)
    output, kept = pe.attention(*lazy[:3], return_weights=True, **options)
    assert_lazy_and_close(output, expected)
    assert kept.shape == weights.shape
    computed = kept.compute()
    np.testing.assert_allclose(computed.to_dense(), weights.to_dense(), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(computed.indptr, weights.indptr)
    found = pe.attention_vjp(kept, *lazy, **options)
    wanted = pe.attention_vjp(weights, query, key, value, g, **options)
    for one, other in zip(found, wanted, strict=True):
        assert_lazy_and_close(one, other)
    along = pe.attention_jvp(kept, *lazy[:3], lazy[0], None, lazy[2], **options)
    wanted = pe.attention_jvp(weights, query, key, value, query, None, value, **options)
    assert_lazy_and_close(along, wanted)


@pytest.mark.parametrize("alpha", [1.5, [1.2, 1.5, 1.7, 2.0]], ids=["one", "per head"])
def test_alpha_per_head_and_its_gradient(alpha: Any) -> None:
    (query, key, value, g), lazy = arrays("grouped heads")
    expected, weights = pe.attention(query, key, value, alpha, return_weights=True)
    output, kept = pe.attention(*lazy[:3], alpha, return_weights=True)
    assert_lazy_and_close(output, expected)
    found = pe.attention_vjp_alpha(kept, lazy[2], lazy[3], alpha)
    assert_lazy_and_close(found, pe.attention_vjp_alpha(weights, value, g, alpha))


def test_masks_in_memory_and_lazy_ones() -> None:
    (query, key, value, _), lazy = arrays("heads")
    mask = np.random.default_rng(1).random((4, 1, 5, 7)) < 0.6
    expected = pe.attention(query, key, value, mask=mask)
    assert_lazy_and_close(pe.attention(*lazy[:3], mask=mask), expected)
    cut = da.from_array(mask, chunks=(1, 1, 2, 3))
    assert_lazy_and_close(pe.attention(*lazy[:3], mask=cut), expected)


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    def fail(block: Any) -> Any:
        raise AssertionError("computed")

    query = da.zeros((2, 3, 4), chunks=(1, 3, 4)).map_blocks(fail, dtype=float, meta=np.empty(0))
    output, kept = pe.attention(query, query, query, return_weights=True)
    pe.attention_vjp(kept, query, query, query, output)
    with pytest.raises(AssertionError, match="computed"):
        output.compute()


def test_half_precision_and_arrays_in_memory_beside_lazy_ones() -> None:
    (query, key, value, _), lazy = arrays("heads")
    half = [x.astype(np.float16) for x in (query, key, value)]
    output = pe.attention(lazy[0].astype(np.float16), *half[1:])
    assert output.dtype == np.float16
    np.testing.assert_array_equal(output.compute(), pe.attention(*half))


def test_errors_say_what_to_do() -> None:
    (query, key, value, g), lazy = arrays("heads")
    for axis in (-1, -2):
        cut = lazy[1].rechunk({axis: 1})
        with pytest.raises(ValueError, match=r"key must lie in one chunk.*key.rechunk\(\{-2: -1"):
            pe.attention(lazy[0], cut, lazy[2])
    with pytest.raises(TypeError, match="key is a lazy Dask array, and the array that it goes"):
        pe.attention(query, lazy[1], value)
    _, weights = pe.attention(query, key, value, return_weights=True)
    with pytest.raises(TypeError, match="must be the LazyAttentionWeights that attention returns"):
        pe.attention_vjp(weights, *lazy)
    _, kept = pe.attention(*lazy[:3], return_weights=True)
    with pytest.raises(TypeError, match="must be the AttentionWeights"):
        pe.attention_vjp(kept, query, key, value, g)
    with pytest.raises(ValueError, match="do not belong to"):
        pe.attention_vjp(kept, *(x[:2] for x in lazy))
    with pytest.raises(TypeError, match="parameters must lie in memory"):
        pe.attention(*lazy[:3], da.full(6, 1.5))
    unknown = lazy[0][da.from_array(np.ones(4, bool), chunks=2)]
    with pytest.raises(ValueError, match="unknown sizes"):
        pe.attention(unknown, unknown, unknown)
