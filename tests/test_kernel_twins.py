"""Every search of a kernel has a twin in Python that computes the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import search_twins

import pyentmax
from pyentmax.engine.backends import gufuncs
from pyentmax.reference import thresholds

ROOT = Path(__file__).parents[1]
# An installed package may lie elsewhere than the tests.
PACKAGE = Path(str(pyentmax.__file__)).parent
CUDA = PACKAGE / "engine" / "backends" / "cuda"
SOURCES = sorted([*ROOT.glob("cython_ext/**/*.h"), *CUDA.glob("*.cu*")])
SUMS_ALONE = ("softmax.cu", "separable.cuh", "grad_alpha.cu")  # their `solve` does not search
TABLE = re.findall(r"^    (\S+\.(?:h|cuh?)) +(\w+(?:, \w+)*)$", thresholds.__doc__ or "", re.M)


def test_every_kernel_search_is_listed() -> None:
    """Those of the CPU lie in one folder, those of the GPU are functions named solve or search."""
    searches = {path for path in SOURCES if path.parent.name == "thresholds"}
    searches |= {
        path
        for path in CUDA.glob("*.cu*")
        if path.name not in SUMS_ALONE
        and re.search(r"void (solve|search)\(", path.read_text(encoding="utf-8"))
    }
    listed = {
        (ROOT if kernel.startswith("cython_ext") else PACKAGE) / kernel for kernel, _ in TABLE
    }
    assert searches <= listed, sorted(searches - listed)
    missing = sorted(path for path in listed if not path.is_file())
    assert not missing
    for kernel, twins in TABLE:
        for twin in twins.split(", "):
            there = hasattr(thresholds, twin) or hasattr(search_twins, twin)
            assert there, f"{kernel}: no {twin}"


def score_rows(d: int) -> np.ndarray:
    rng = np.random.default_rng(d)
    z = rng.standard_normal((8, d)) * np.geomspace(1e-3, 30, 8)[:, None]
    z[:, : d // 3] = np.round(z[:, : d // 3])
    z[4:, d // 2] = -np.inf
    return z - z.max(axis=-1, keepdims=True)


def test_block_sizes_agree_with_kernels() -> None:
    sizes = (ROOT / "cython_ext" / "rows" / "sizes.h").read_text("utf-8")
    for name in ("BLOCK", "SHORT"):
        assert re.findall(rf"^    {name} = (\d+),", sizes, re.M) == [str(getattr(gufuncs, name))]


SEARCHES: dict[str, tuple[float, Callable[..., thresholds.Threshold]]] = {
    "sparsemax": (2, thresholds.newton_sparsemax),
    "entmax15": (1.5, search_twins.newton_entmax15),
    "entmax at 1.25": (1.25, lambda x, t=1: search_twins.halley_norm(x, 1.25, t)),
    "entmax at 1.75": (1.75, lambda x, t=1: search_twins.halley_norm(x, 1.75, t)),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("d", [7, 40, 3000])
def test_twin_agrees_with_kernel(name: str, d: int) -> None:
    """Up to ε of the scores, which changes p by its slope, p^{2−α}, times that."""
    alpha, solve = SEARCHES[name]
    z = score_rows(d)
    p = pyentmax.entmax(z, alpha)
    for search in (solve, lambda x: thresholds.prune_chunks(x, solve)):
        tau = search((alpha - 1) * z).tau
        twin = np.maximum((alpha - 1) * z - tau, 0) ** (1 / (alpha - 1))
        reach = np.max(np.where(p > 0, -z, 1), axis=-1, keepdims=True)
        slope = np.where(p > 0, np.maximum(p, 1e-300) ** (2 - alpha), 0)
        room = 16 * np.finfo(float).eps * (p + slope * np.maximum(reach, 1) / (alpha - 1))
        assert (np.abs(p - twin) <= room + 1e-15).all()


def test_twin_of_steep_entmax_agrees() -> None:
    z = score_rows(40)
    for alpha in (2.5, 4.0):
        beta = np.array([alpha - 1])
        twin, p = search_twins.newton_p_last(z, beta).p, pyentmax.entmax(z, alpha)
        np.testing.assert_allclose(twin**beta, p**beta, rtol=0, atol=1e-14)


def test_twins_of_bounded_mappings_agree() -> None:
    z = score_rows(40)
    upper = np.random.default_rng(1).random(z.shape) * 0.2
    p, q, r = pyentmax.csparsemax(z, upper), pyentmax.csoftmax(z, upper), z.clip(-5)
    for fill in (search_twins.newton_water_fill, search_twins.bracketed_water_fill):
        room = 64 * np.finfo(float).eps * np.max(np.where(p > 0, -z, 1))
        np.testing.assert_allclose(fill(z, upper, 1).p, p, rtol=0, atol=room)
        np.testing.assert_allclose(fill(z, upper, 1, exponential=True).p, q, rtol=0, atol=room)
        budget = fill(r, np.ones_like(r), 3).p
        np.testing.assert_allclose(budget, pyentmax.budget_sparsemax(r, 3), rtol=0, atol=room)


def test_twins_of_topk_agree() -> None:
    z = score_rows(3000)
    for k in (1, 5, 2000):
        kept = pyentmax.topk_softmax_support(z, k)
        for select in (search_twins.kth_largest, search_twins.bisect_kth_largest):
            np.testing.assert_array_equal(z >= select(z, k).score, kept)


@pytest.mark.parametrize("strength", [0.01, 0.1, 1, 10])
def test_twin_of_gpu_smoothing_agrees(strength: float) -> None:
    z = score_rows(30)[:4] + np.random.default_rng(2).standard_normal((4, 30))
    smoothed = np.stack([search_twins.condat_tv(row, strength) for row in z])
    p = pyentmax.fusedmax(z, strength)
    np.testing.assert_allclose(pyentmax.sparsemax(smoothed), p, rtol=0, atol=1e-14)
    assert (search_twins.condat_tv([2.0], strength) == [2.0]).all()
