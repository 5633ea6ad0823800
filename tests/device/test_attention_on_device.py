"""Attention on device arrays gives the host's results, and stays on the device.

The stand-in for CuPy computes as NumPy does, so these tests check which functions are called, what
is copied between host and device, and how large arrays become: with the mappings' bodies, and with
their kernels, emulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import fake_cupy
import numpy as np
import pytest
from attention_cases import BOOLS, FACTORS, expected, make, names
from fake_cupy import moved
from on_gpu import MARKS, emulated_cupy
from stages import sample, slow

import pyentmax as pe
from pyentmax.sparse_attention import tiling

ROOM = {np.float16: 1e-3, np.float32: 2e-5, np.float64: 1e-12}
HEADS = (2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 3)


def arrays(shapes: Any, dtype: Any = np.float64, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    drawn = [2 * rng.standard_normal(shape).astype(dtype) for shape in shapes]
    batch = np.broadcast_shapes(shapes[0][:-2], (1,) * (len(shapes[0]) - 2))
    if len(batch) > 1:
        batch = (max(shape[0] if len(shape) > 3 else 1 for shape in shapes), *batch[1:])
    g = rng.standard_normal((*batch, shapes[0][-2], shapes[2][-1])).astype(dtype)
    return [*drawn, g]


def assert_close(result: Any, expected: Any, room: float) -> None:
    assert isinstance(result, fake_cupy.ndarray)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result.get(), expected, rtol=0, atol=room)


@pytest.fixture(params=["bodies", pytest.param("kernels", marks=MARKS)], autouse=True)
def computed_by(request: pytest.FixtureRequest) -> Iterator[None]:
    with emulated_cupy.installed() if request.param == "kernels" else nullcontext():
        yield


@pytest.fixture(params=[100, *slow(1 << 24)], ids=["small tiles", "one tile"])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(tiling, "DEVICE_TILE", request.param)
    size: int = request.param
    return size


# In an array on a device α is not looked at, and below 1 CUDA's kernels give NaN.
TABLE = [x for x in names(keys=BOOLS, bias=FACTORS["bias"][:-1]) if ", 0.5," not in x]


@pytest.mark.parametrize("name", sample(TABLE, 60))
@pytest.mark.usefixtures("tile")
def test_results_are_those_of_whole_matrices(name: str) -> None:
    case = make(name, 7, 9)
    results, right = expected(case)
    learned = {key: moved(x) for key, x in case.learned.items()}
    there, options = case.replaced(learned)
    options = {key: moved(x) for key, x in options.items()}
    g = moved(case.g)
    fake_cupy.copies.reset()
    output, kept = pe.attention(*there, return_weights=True, **options)
    gradients = pe.attention_vjp(kept, *there, g, **options)
    numbers = {"bias", "cu_seqlens"} & options.keys()  # where sequences end lies on the host
    assert numbers or not fake_cupy.copies.to_device
    found = dict(zip(learned, gradients, strict=True))
    if "alpha" in options:
        found["alpha"] = pe.attention_vjp_alpha(kept, there[2], g, options["alpha"])
    assert_close(output, results["output"], 1e-12)
    assert_close(kept.to_dense(), results["weights"], 1e-12)
    np.testing.assert_array_equal(kept.support_sizes.get(), (results["weights"] != 0).sum(-1))
    if "sink" in results:
        assert_close(kept.sink, results["sink"], 1e-12)
    for key, x in right.items():
        assert_close(found[key], np.asarray(x), 1e-10)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_results_keep_the_arrays_precision(dtype: Any) -> None:
    query, key, value, g = arrays(HEADS, dtype)
    there = [moved(x) for x in (query, key, value)]
    output, kept = pe.attention(*there, return_weights=True)
    expected, weights = pe.attention(query, key, value, return_weights=True)
    assert_close(output, expected, 4 * ROOM[dtype])
    found = pe.attention_vjp(kept, *there, moved(g))
    for one, other in zip(found, pe.attention_vjp(weights, query, key, value, g), strict=True):
        assert_close(one, other, 20 * ROOM[dtype])


@pytest.mark.slow
@pytest.mark.usefixtures("tile")
def test_masks_and_nan_match_the_host() -> None:
    query, key, value, g = arrays(HEADS)
    mask = np.random.default_rng(1).random((2, 1, 7, 9)) < 0.6
    mask[0, 0, 2] = False
    mask[..., 4] = False
    key[..., 4, :], value[..., 4, 0] = np.nan, np.inf
    key[1, 2, 0] = np.nan  # seen by some
    value[0, 1, 1] = np.nan  # may get no weight
    there = [moved(x) for x in (query, key, value)]
    for causal in (False, True):
        named = {"mask": mask, "causal": causal}
        output, kept = pe.attention(*there, return_weights=True, mask=moved(mask), causal=causal)
        expected, weights = pe.attention(query, key, value, return_weights=True, **named)
        assert_close(output, expected, 1e-12)
        np.testing.assert_array_equal(kept.indices.get(), weights.indices)
        assert (output.get()[0, :, 2] == 0).all()
        found = pe.attention_vjp(kept, *there, moved(g), mask=moved(mask), causal=causal)
        for one, other in zip(
            found, pe.attention_vjp(weights, query, key, value, g, **named), strict=True
        ):
            assert_close(one, other, 1e-11)


@pytest.mark.slow
def test_no_array_is_larger_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiling, "DEVICE_TILE", 1024)
    largest, wrapped = [0], fake_cupy.ndarray.__init__

    def seen(array: Any, held: np.ndarray) -> None:
        held_bytes = 0 if 0 in held.strides else held.nbytes
        largest[0] = max(largest[0], held_bytes)
        wrapped(array, held)

    query, key, value, g = arrays([(2, 100, 4)] * 3, np.float32)
    there = [moved(4 * x) for x in (query, key, value, g)]
    monkeypatch.setattr(fake_cupy.ndarray, "__init__", seen)
    output, kept = pe.attention(*there[:3], 2.0, return_weights=True)
    pe.attention_vjp(kept, *there, 2.0)
    pe.attention_vjp_alpha(kept, there[2], there[3], 2.0)
    assert 8 * kept.indices.size < 8192
    assert largest[0] <= 8192  # a tile in double; all scores are 80,000 bytes in single


def test_forward_alone_waits_once() -> None:
    query, key, value, _ = (moved(x) for x in arrays(HEADS))
    fake_cupy.copies.reset()
    pe.attention(query, key, value, causal=True)
    assert (fake_cupy.copies.to_device, fake_cupy.copies.to_host) == (0, 1)


def test_host_and_device_do_not_mix() -> None:
    query, key, value, _ = arrays(HEADS)
    with pytest.raises(TypeError, match="key must lie on the GPU"):
        pe.attention(moved(query), key, value)
    with pytest.raises(TypeError, match="lie on the GPU"):
        pe.attention(*(moved(x) for x in (query, key, value)), np.array([1.5, 2, 1.2]))


def test_empty_arrays() -> None:
    query, key = fake_cupy.asarray(np.zeros((2, 5))), fake_cupy.asarray(np.zeros((0, 5)))
    output = pe.attention(query, key, key)
    np.testing.assert_array_equal(output.get(), np.zeros((2, 5)))
