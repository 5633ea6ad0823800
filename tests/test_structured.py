"""SparseMAP: enumeration, Frank-Wolfe's gap, other mappings, differences, oracles, errors."""

from __future__ import annotations

from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from stages import slow

import pyentmax as pe
from pyentmax.structured import (
    best_matching,
    best_path,
    best_tree,
    k_of_n,
    sparsemap,
    sparsemap_jvp,
    sparsemap_vjp,
    textbook,
)

RNG = np.random.default_rng(0)


def all_of_k(n: int, k: int) -> np.ndarray:
    return np.array([[i in chosen for i in range(n)] for chosen in combinations(range(n), k)]) * 1.0


def all_matchings(n: int) -> np.ndarray:
    return np.array([np.eye(n)[list(order)] for order in permutations(range(n))])


def all_paths(t: int, k: int) -> np.ndarray:
    paths = np.zeros((k**t, t - 1, k, k))
    for path, labels in zip(paths, product(range(k), repeat=t), strict=True):
        path[np.arange(t - 1), labels[:-1], labels[1:]] = 1
    return paths


def all_trees(n: int) -> np.ndarray:
    found = []
    for heads in product(range(n), repeat=n - 1):
        reached, a = {0}, np.zeros((n, n))
        for _ in range(n):
            reached |= {j for j, i in enumerate(heads, 1) if i in reached}
        if len(reached) == n:
            a[list(heads), np.arange(1, n)] = 1
            found.append(a)
    return np.array(found)


CASES: dict[str, tuple[Any, np.ndarray]] = {
    "choices": (k_of_n(2), all_of_k(6, 2)),
    "matchings": (best_matching, all_matchings(4)),
    "paths": (best_path, all_paths(4, 2)),
    "trees": (best_tree, all_trees(4)),
}


@pytest.mark.parametrize("name", [*sorted(CASES)[:-1], *slow("trees")])
def test_optimal_among_all_structures(name: str) -> None:
    if name == "trees":
        pytest.importorskip("networkx", reason="NetworkX is not installed: pip install networkx")
    oracle, structures = CASES[name]
    shape = structures.shape[1:]
    flat = structures.reshape(len(structures), -1)
    for scale in (1e-3, 0.3, 1.0, 3.0, 1e3):
        z = RNG.standard_normal(shape) * scale
        assert (flat @ z.ravel()).max() - np.sum(oracle(z) * z) <= 1e-12 * scale
        mean, active, p, gap = sparsemap(z, oracle)
        np.testing.assert_allclose(np.tensordot(p, active, 1), mean, rtol=0, atol=1e-14)
        assert abs(p.sum() - 1) <= 1e-12
        assert (p > 0).all()
        assert len(p) <= z.size + 1
        assert all((structures == a).reshape(len(flat), -1).all(axis=1).any() for a in active)
        gains = (flat - mean.ravel()) @ (z - mean).ravel()  # of every structure, not the oracle's
        assert max(gains.max(), gap) <= 1e-12 * (1 + scale) * z.size
        if scale == 0.3:
            expected = textbook(z.ravel(), flat)
            np.testing.assert_allclose(mean.ravel(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("low", [-1e4, -1e9, -1e18, -1e30, np.finfo(float).min])
def test_parts_ruled_out_change_no_other(name: str, low: float) -> None:
    if name == "trees":
        pytest.importorskip("networkx", reason="NetworkX is not installed: pip install networkx")
    rng, (oracle, structures) = np.random.default_rng(3), CASES[name]
    flat = structures.reshape(len(structures), -1)
    for _ in range(10):
        z = rng.standard_normal(structures.shape[1:]) * 0.7
        ruled_out = (rng.random(z.shape) < 0.3) & (structures[rng.integers(len(flat))] == 0)
        remaining = flat[~flat[:, ruled_out.ravel()].any(axis=1)]
        z[ruled_out] = low
        mean = sparsemap(z, oracle).mean
        assert (mean[ruled_out] == 0).all()
        residual = np.where(ruled_out, 0, z - mean).ravel()
        assert ((remaining - mean.ravel()) @ residual).max() <= 1e-12 * z.size


def test_choices_are_sparsemax_and_budget_sparsemax() -> None:
    for n, k in ((5, 1), (7, 3), (30, 10), (4, 4)):
        z, g = RNG.standard_normal((2, n))
        found = sparsemap(z, k_of_n(k))
        expected = pe.budget_sparsemax(z, k)
        np.testing.assert_allclose(found.mean, expected, rtol=0, atol=1e-12)
        back = sparsemap_vjp(found.structures, g)
        np.testing.assert_allclose(
            back, pe.budget_sparsemax.vjp(np.where(found.mean > 1 - 1e-12, 1, found.mean), g, k),
            rtol=0, atol=1e-11,
        )  # fmt: skip
    np.testing.assert_allclose(sparsemap(z, k_of_n(1)).mean, pe.sparsemax(z), rtol=0, atol=1e-13)


@pytest.mark.parametrize("oracle", [best_matching, best_path])
def test_product_matches_differences(oracle: Any) -> None:
    shape = (5, 5) if oracle is best_matching else (4, 3, 3)
    for _ in range(5):
        z, v = RNG.standard_normal((2, *shape)) / 2
        found = sparsemap(z, oracle)
        assert len(found.p) > 1
        h = 1e-6
        up, down = sparsemap(z + h * v, oracle), sparsemap(z - h * v, oracle)
        moved = sparsemap_jvp(found.structures, v)
        np.testing.assert_allclose(moved, (up.mean - down.mean) / (2 * h), rtol=0, atol=1e-7)
        np.testing.assert_allclose(
            sparsemap_vjp(found.structures, moved), moved, rtol=0, atol=1e-12
        )


def test_structures_may_be_any_vectors() -> None:
    corners = RNG.standard_normal((20, 3))  # a cloud, whose hull's nearest point is wanted

    def oracle(z: np.ndarray) -> np.ndarray:
        return corners[np.argmax(corners @ z)]

    for z in 3 * RNG.standard_normal((20, 3)):
        mean, _, _, gap = sparsemap(z, oracle)
        assert np.max((corners - mean) @ (z - mean)) <= 1e-11
        assert gap <= 1e-11
    one = sparsemap(np.zeros(2), lambda z: np.ones(2))
    assert one.p.tolist() == [1]
    assert sparsemap_jvp(one.structures, [1.0, 2.0]).tolist() == [0, 0]


def test_many_parts_take_few_calls() -> None:
    z = RNG.standard_normal((30, 30)) * 5
    calls = []

    def oracle(z: np.ndarray) -> np.ndarray:
        calls.append(1)
        return best_matching(z)

    found = sparsemap(z, oracle)
    assert 1 < len(found.p) < 60
    assert len(calls) < 200
    np.testing.assert_allclose(found.mean.sum(0), 1, rtol=1e-12)
    np.testing.assert_allclose(found.mean.sum(1), 1, rtol=1e-12)


def test_errors_say_what_was_expected() -> None:
    z = np.array([1.0, 0.9, 0.8])
    for error, message, call in [
        (TypeError, "oracle must be a function", lambda: sparsemap(z, z)),
        (ValueError, "scores must be finite", lambda: sparsemap([0, -np.inf], k_of_n(1))),
        (
            ValueError,
            r"structure of shape \(3,\), got \(2,\)",
            lambda: sparsemap(z, lambda z: z[:2]),
        ),
        (ValueError, "k must be from 0 to 3.*got -1", lambda: sparsemap(z, k_of_n(-1))),
        (ValueError, "k must be from 0 to 3.*got 4", lambda: sparsemap(z, k_of_n(4))),
        (ValueError, "max_steps=2 calls", lambda: sparsemap(z, k_of_n(1), max_steps=2)),
        (ValueError, "v must have the shape", lambda: sparsemap_jvp(np.eye(3), z[:2])),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_active_set_may_shrink_to_one_corner() -> None:
    """The first corner of the oracle is far from z, and leaves while there is one other."""
    corners = np.array([[0, 0.2], [1, 0], [2.4, 0.6], [2.6, 1.7], [1.5, 2.3], [0.3, 1.6]])
    z = np.array([-1.5, 0.4])
    found = sparsemap(z, lambda scores: corners[np.argmax(corners @ scores)])
    np.testing.assert_allclose(found.mean, textbook(z, corners), rtol=0, atol=1e-6)
