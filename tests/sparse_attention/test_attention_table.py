"""Attention of arrays gives what whole matrices give, forward and backward, on every way.

The cases, and what is expected of them, are in `attention_cases`.
"""

from __future__ import annotations

import sys
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from attention_cases import Case, expected, make, names
from stages import sample, slow

import pyentmax as pe
from pyentmax.engine.backends import choice
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.autograd import attention as tape_attention
from pyentmax.sparse_attention import few_queries, given_keys, tiles, tiling
from pyentmax.sparse_attention.problem import AttentionProblem

has_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")
SIZES = {"few queries": (3, 26), "tiles": (20, 26)}


def assert_close(found: dict[str, Any], right: dict[str, Any], room: float = 1e-11) -> None:
    assert found.keys() == right.keys()
    for name, x in right.items():
        atol = room * max(1, np.abs(x).max(initial=0))
        assert np.shape(found[name]) == np.shape(x), name
        np.testing.assert_allclose(found[name], x, rtol=0, atol=atol, err_msg=name)


def both_passes(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `expected` has, by the public functions."""
    output, weights = pe.attention(*case.arrays, return_weights=True, **case.options)
    results = {"output": output, "weights": weights.to_dense()}
    if weights.sink is not None:
        results["sink"] = weights.sink
    gradients = pe.attention_vjp(weights, *case.arrays, case.g, **case.options)
    named = dict(zip(case.learned, gradients, strict=True))
    if "alpha" in case.options:
        alpha = case.options["alpha"]
        named["alpha"] = pe.attention_vjp_alpha(weights, case.arrays[2], case.g, alpha)
    return results, named


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sample(names(), 5))
def test_arrays(name: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiling, "TILE", 1 << 8)  # several tiles, and several blocks of keys
    for module in (tiles, tiling):
        monkeypatch.setattr(module, "KEYS", 8)
    case = make(name, *SIZES[size])
    for found, right in zip(both_passes(case), expected(case), strict=True):
        assert_close(found, right)
    output = pe.attention(*case.arrays, **case.options)  # whose weights may be shorter to find
    assert_close({"output": output}, {"output": expected(case)[0]["output"]})


@pytest.mark.parametrize("name", sample(names(), 4))
def test_gradients_by_differences(name: str) -> None:
    case = make(name, 5, 7)
    gradients, rng, step = expected(case)[1], np.random.default_rng(1), 1e-6
    for one, array in case.learned.items():
        v, sums = rng.standard_normal(array.shape), []
        for moved in (array + step * v, array - step * v):
            arrays, options = case.replaced({**case.learned, one: moved})
            sums.append(np.sum(case.g * pe.attention(*arrays, **options)))
        difference = (sums[0] - sums[1]) / (2 * step)
        np.testing.assert_allclose(np.sum(gradients[one] * v), difference, rtol=1e-5, atol=1e-6)


@has_kernels
@pytest.mark.parametrize("name", sample(names(), 6))
def test_without_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make(name, 5, 9)
    monkeypatch.setattr(choice, "kernels", dict)
    for found, right in zip(both_passes(case), expected(case), strict=True):
        assert_close(found, right)


@pytest.mark.parametrize("name", sample(names(), 9))
def test_heads_whose_weights_are_not_stored(name: str) -> None:
    case = make(name, 70, 80)
    case.arrays[0] *= np.array([0.01, 3, 0.02, 3, 3, 0.01])[:, None, None]  # some dense
    results, right = expected(case)
    problem = AttentionProblem(*case.arrays, **case.options)
    output, weights = problem.forward(True, whole=False)
    assert weights is not None
    assert_close({"output": output}, {"output": results["output"]})
    found = dict(zip(case.learned, problem.vjp(weights, case.g), strict=True))
    if "alpha" in case.options:
        found["alpha"] = problem.vjp_alpha(weights, case.g)
    assert_close(found, right, 1e-10)


@has_kernels
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sample(names()[::3], 9))
def test_threads_and_pieces_give_the_same_bits(
    name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "TILE", 1 << 8)
    for module in (tiles, few_queries):
        monkeypatch.setattr(module, "WORK", 1)
    for size in SIZES.values():
        case = make(name, *size)
        case.arrays, case.g = [x.astype(dtype) for x in case.arrays], case.g.astype(dtype)
        runs = []
        for workers, room in ((1, 1 << 16), (1, 20), (3, 50)):
            monkeypatch.setattr(given_keys, "ROOM", room)
            with pe.set_workers(workers):
                alone = pe.attention(*case.arrays, **case.options)
                runs.append([{"alone": alone}, *both_passes(case)])
        for other in runs[1:]:
            for one, two in zip(runs[0], other, strict=True):
                for key, x in one.items():
                    np.testing.assert_array_equal(x, two[key], err_msg=key)


BUILDS = getattr(sys.modules.get("pyentmax._cpu"), "BUILDS", {})
LONG = names(mapping=("1.5", "per head", "1", "2", "2.5"))[::12]


@pytest.mark.parametrize("dtype", [np.float32, *slow(np.float64)])
@pytest.mark.parametrize("build", BUILDS)
def test_every_build(build: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of longer rows, and of features that do and do not fill vectors."""
    monkeypatch.setattr(choice, "kernels", lambda: BUILDS[build])
    features = cycle([(64, 50), (3, 1), (1, 147)])
    for name, sizes, width in zip(LONG, cycle(SIZES.values()), features, strict=False):
        case = make(name, sizes[0], 600, width)
        case.arrays, case.g = [x.astype(dtype) for x in case.arrays], case.g.astype(dtype)
        found = both_passes(case)
        case.arrays, case.g = [x.astype(float) for x in case.arrays], case.g.astype(float)
        for one, right in zip(found, expected(case), strict=True):
            assert_close(one, right, {np.float32: 2e-4, np.float64: 1e-11}[dtype])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("name", [x for x in names() if "top-k" not in x][::6])
def test_results_keep_the_arrays_precision(name: str, dtype: Any) -> None:
    case = make(name)
    case.arrays, case.g = [x.astype(dtype) for x in case.arrays], case.g.astype(dtype)
    found = both_passes(case)
    case.arrays, case.g = [x.astype(float) for x in case.arrays], case.g.astype(float)
    assert found[0]["weights"].dtype == np.float32
    for one, right in zip(found, expected(case), strict=True):
        assert_close(one, right, {np.float16: 4e-3, np.float32: 5e-5}[dtype])
    assert {found[0]["output"].dtype, found[1]["query"].dtype, found[1]["value"].dtype} == {
        np.dtype(dtype)
    }


SCREENED = names(
    keys=("all", "mask", "mask by head", "causal", "causal cache"), mapping=("1.5", "2")
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SCREENED)
def test_screened_rows(name: str, size: str) -> None:
    case = make(name, SIZES[size][0], 300)
    case.arrays[1][..., 1] *= 40  # a large column
    query, key, value = case.arrays
    output, weights = pe.attention(
        query, pe.ScreenedRows(key), value, return_weights=True, **case.options
    )
    right = expected(case)[0]
    found = {"output": output, "weights": weights.to_dense()}
    if weights.sink is not None:
        found["sink"] = weights.sink
    assert_close(found, right, 1e-10)


@pytest.mark.parametrize("name", names())
def test_the_tape(name: str) -> None:
    case = make(name)
    tensors = [Tensor(x, requires_grad=True) for x in case.arrays]
    options, learned = (
        dict(case.options),
        dict(zip(("query", "key", "value"), tensors, strict=True)),
    )
    if "alpha" in options:
        options["alpha"] = Tensor(np.asarray(options["alpha"], float), requires_grad=True)
        learned["alpha"] = options["alpha"]
    output = tape_attention(*tensors, **options)
    (output * case.g).sum().backward()
    results, right = expected(case)
    assert_close({"output": output.data}, {"output": results["output"]})
    assert_close({k: x.grad for k, x in learned.items()}, {k: right[k] for k in learned})
