"""Attention of heads over the support alone: the same numbers, and which calls take that path."""

from typing import Any

import numpy as np
import pytest

from pyentmax.engine.backends import choice
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.attention import (
    init_multi_head_attention,
    learned_entmax,
    multi_head_attention,
    sparse,
)
from pyentmax.seq2seq.nn.attention import (
    multi_head as layer,
)
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

B, T, S, N, HEADS = 2, 130, 140, 6, 2
NEEDS_KERNELS = pytest.mark.skipif(not choice.kernels(), reason="without kernels all is dense")
MAPPINGS = {
    "α": lambda params: choose_mapping(1.5),
    "another α": lambda params: choose_mapping(1.2),
    "sparsemax": lambda params: choose_mapping("sparsemax"),
    "top-k": lambda params: choose_mapping("topk_softmax:5"),
    "an α per head": lambda params: learned_entmax(params, "a"),
    "one α": lambda params: learned_entmax(params, "one"),
}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def new_params() -> dict[str, Any]:
    params = init_multi_head_attention(np.random.default_rng(1), "a", N, np.float64, bias=True)
    return {name: 3 * x for name, x in params.items()} | {
        "a.alpha_logit": np.array([[-1.0], [2.0]]),
        "one.alpha_logit": np.array([0.5]),
    }


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls that went over the support."""
    taken: list[dict[str, Any]] = []

    def recorded(*args: Any, **arguments: Any) -> Tensor:
        taken.append(arguments)
        return sparse.sparse_head_averages(*args, **arguments)

    monkeypatch.setattr(layer, "sparse_head_averages", recorded)
    return taken


def both_ways(mapping: Any, **options: Any) -> list[list[np.ndarray]]:
    """Output and gradients, with the weights asked for and without."""
    found = []
    for need_weights in (True, False):
        params = {name: Tensor(x, requires_grad=True) for name, x in new_params().items()}
        x, h = (Tensor(normal(B, n, N, seed=n), requires_grad=True) for n in (T, S))
        learned = {"scale": normal(HEADS, T, seed=3), "sink": normal(HEADS, seed=4)}
        moving = {k: Tensor(v, requires_grad=True) for k, v in learned.items() if options.get(k)}
        given = {"heads": HEADS, "need_weights": need_weights, **options, **moving}
        output, weights = multi_head_attention(params, "a", x, h, h, mapping(params), **given)
        assert (weights is not None) == need_weights
        output.backward(normal(*output.shape, seed=5))
        found.append([output.data, *(t.grad for t in (x, h, *params.values(), *moving.values()))])
    return found


@NEEDS_KERNELS
@pytest.mark.parametrize("name", MAPPINGS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("more", [{}, {"scale": True, "sink": True}], ids=["", "scale and sink"])
def test_sparse_and_dense_paths_agree(
    paths: list[Any], name: str, causal: bool, more: dict[str, bool]
) -> None:
    mask = np.arange(S) < np.array([[S], [S - 30]])
    score = "bilinear" if causal else "scaled"
    dense, over_support = both_ways(MAPPINGS[name], mask=mask, causal=causal, score=score, **more)
    assert len(paths) == 1
    for one, other in zip(dense, over_support, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            scale = max(1, np.abs(one).max())
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("name", ["softmax", "normmax:2", "fusedmax:0.1", "topk_softmax:40", "1"])
def test_dense_mappings_use_matrix_products(paths: list[Any], name: str) -> None:
    x, params = normal(T, N), new_params()
    multi_head_attention(
        params, "a", x, x, x, choose_mapping(name), heads=HEADS, need_weights=False
    )
    assert not paths


@pytest.mark.parametrize(
    "options",
    [
        {"need_weights": True},
        {"rate": 0.1, "rng": np.random.default_rng(0)},
        {"score": "additive"},
        {"short": True},
    ],
    ids=["weights asked for", "dropout", "additive", "short"],
)
def test_calls_that_use_matrix_products(paths: list[Any], options: dict[str, Any]) -> None:
    options = {"need_weights": False, **options}
    x, params = normal(20 if options.pop("short", False) else T, N), new_params()
    params["a.v"] = normal(HEADS, N // HEADS)
    multi_head_attention(params, "a", x, x, x, choose_mapping(1.5), heads=HEADS, **options)
    assert not paths


@NEEDS_KERNELS
def test_rate_without_generator_drops_nothing(paths: list[Any]) -> None:
    x, options = normal(T, N), {"heads": HEADS, "rate": 0.1, "need_weights": False}
    multi_head_attention(new_params(), "a", x, x, x, choose_mapping(1.5), **options)
    assert len(paths) == 1


def test_a_sink_is_for_entmax_and_top_k() -> None:
    x, mapping = normal(4, N), choose_mapping("fusedmax:1")
    with pytest.raises(
        ValueError, match="sink: expected α-entmax or a top-k mapping, got fusedmax"
    ):
        multi_head_attention(new_params(), "a", x, x, x, mapping, heads=2, sink=np.zeros(2))
