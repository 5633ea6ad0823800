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
from fake_cupy import moved
from on_gpu import MARKS, emulated_cupy
from stages import slow

import pyentmax as pe
from pyentmax.sparse_attention import tiling

ROOM = {np.float16: 1e-3, np.float32: 2e-5, np.float64: 1e-12}
SHAPES = {
    "one head": ((7, 4), (9, 4), (9, 3)),
    "heads": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 3)),
    "grouped heads": ((2, 4, 7, 4), (2, 2, 9, 4), (2, 2, 9, 3)),
    "shared keys": ((2, 4, 7, 4), (9, 4), (4, 9, 3)),
    "crosswise": ((1, 4, 7, 4), (3, 2, 9, 4), (3, 2, 9, 3)),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "α = 1.5": {},
    "sparsemax": {"alpha": 2.0},
    "causal": {"alpha": 1.3, "causal": True, "offset": 1},
    "top k": {"mapping": "topk_softmax", "k": 3},
    "softmax": {"mapping": "softmax", "scale": 2.0},
    "bounds": {"mapping": "csparsemax", "upper": 0.4},
    "sink": {"alpha": 1.4, "sink": np.array([0.1, 0.2, 0.3, 0.4]), "scale": np.full((4, 1), 0.5)},
}


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


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ("one head", "causal"),
        *slow(*((shapes, "causal") for shapes in list(SHAPES)[1:])),
        *slow(*(("grouped heads", name) for name in OPTIONS if name != "causal")),
    ],
)
@pytest.mark.usefixtures("tile")
def test_results_match_the_host(shapes: str, options: str) -> None:
    query, key, value, g = arrays(SHAPES[shapes])
    named = OPTIONS[options]
    named_there = {name: moved(x) for name, x in named.items()}
    there = [moved(x) for x in (query, key, value)]
    expected, weights = pe.attention(query, key, value, return_weights=True, **named)
    fake_cupy.copies.reset()
    output, kept = pe.attention(*there, return_weights=True, **named_there)
    gradients = pe.attention_vjp(kept, *there, moved(g), **named_there)
    assert fake_cupy.copies.to_device == 1  # g
    assert_close(output, expected, 1e-12)
    assert isinstance(kept.data, fake_cupy.ndarray)
    assert_close(kept.to_dense(), weights.to_dense(), 1e-12)
    np.testing.assert_array_equal(kept.support_sizes.get(), weights.support_sizes)
    assert kept.density == weights.density
    wanted = pe.attention_vjp(weights, query, key, value, g, **named)
    for found, one in zip(gradients, wanted, strict=True):
        assert_close(found, one, 1e-11)


@pytest.mark.parametrize("heads", [(4,), *slow(((),), ((1,),))])
@pytest.mark.parametrize("kind", ["scores", "distances", "slopes"])
@pytest.mark.usefixtures("tile")
def test_biases_match_the_host(kind: str, heads: tuple[int, ...]) -> None:
    query, key, value, g = arrays(SHAPES["grouped heads"])
    shape = {"scores": (*heads, 7, 9), "distances": (*heads, 15), "slopes": heads}[kind]
    array = np.random.default_rng(2).random(shape)

    def bias(array: Any) -> Any:
        by_distance = {"slopes": array} if kind == "slopes" else {"numbers": array}
        return array if kind == "scores" else pe.DistanceBias(**by_distance)

    there, bias_there = [moved(x) for x in (query, key, value)], bias(moved(array))
    expected, weights = pe.attention(query, key, value, bias=bias(array), return_weights=True)
    output, kept = pe.attention(*there, bias=bias_there, return_weights=True)
    assert_close(output, expected, 1e-12)
    found = pe.attention_vjp(kept, *there, moved(g), bias=bias_there)
    wanted = pe.attention_vjp(weights, query, key, value, g, bias=bias(array))
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, 1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.5, np.array([1.25, 1.5, 1.75, 2.0])], ids=["one", "per head"])
@pytest.mark.usefixtures("tile")
def test_alpha_per_head_and_its_gradient(alpha: Any) -> None:
    query, key, value, g = arrays(SHAPES["grouped heads"])
    _, weights = pe.attention(query, key, value, alpha, return_weights=True)
    there = [moved(x) for x in (query, key, value, g)]
    output, kept = pe.attention(*there[:3], moved(alpha), return_weights=True)
    assert_close(output, pe.attention(query, key, value, alpha), 1e-12)
    found = pe.attention_vjp_alpha(kept, there[2], there[3], moved(alpha))
    assert_close(found, pe.attention_vjp_alpha(weights, value, g, alpha), 1e-11)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_results_keep_the_arrays_precision(dtype: Any) -> None:
    query, key, value, g = arrays(SHAPES["heads"], dtype)
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
    query, key, value, g = arrays(SHAPES["heads"])
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
    query, key, value, _ = (moved(x) for x in arrays(SHAPES["heads"]))
    fake_cupy.copies.reset()
    pe.attention(query, key, value, causal=True)
    assert (fake_cupy.copies.to_device, fake_cupy.copies.to_host) == (0, 1)


def test_host_and_device_do_not_mix() -> None:
    query, key, value, _ = arrays(SHAPES["heads"])
    with pytest.raises(TypeError, match="key must lie on the GPU"):
        pe.attention(moved(query), key, value)
    with pytest.raises(TypeError, match="lie on the GPU"):
        pe.attention(*(moved(x) for x in (query, key, value)), np.array([1.5, 2, 1.2]))


def test_empty_arrays() -> None:
    query, key = fake_cupy.asarray(np.zeros((2, 5))), fake_cupy.asarray(np.zeros((0, 5)))
    output = pe.attention(query, key, key)
    np.testing.assert_array_equal(output.get(), np.zeros((2, 5)))
