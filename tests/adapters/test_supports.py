"""Supports in PyTorch and JAX: the array functions', underflowing probabilities included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe

VALUES: dict[str, Any] = {
    "entmax": 1.25,
    "topk_softmax": 2,
    "topk_sparsemax": 3,
    "csoftmax": 0.5,
    "csparsemax": 0.5,
    "budget_sparsemax": 1.5,
}
RNG = np.random.default_rng(57)
Z = np.concatenate([RNG.normal(scale=3, size=(20, 6)), [[0, -1e4, 1e4, 5, 6, -np.inf]]])
MASK = RNG.random(Z.shape) < 0.8
MASK[:, :3] = True
JAX = ["softmax", "sparsemax", "entmax15", "entmax", "topk_softmax", "topk_sparsemax"]


@pytest.mark.parametrize("name", pe.MAPPINGS)
@pytest.mark.parametrize("kernels", [True, False])
def test_tensors_supports_are_the_arrays(name: str, kernels: bool, monkeypatch: Any) -> None:
    torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")
    import pyentmax.torch as pt
    from pyentmax.torch import composed, operations

    if not kernels:
        if name not in composed.NAMES:
            pytest.skip("needs kernels")
        monkeypatch.setattr(operations, "has_kernels", lambda tensor: False)
    values = [VALUES[name]] if name in VALUES else []
    expected = getattr(pe, name).support(Z, *values, mask=MASK)
    function = getattr(pt, name).support
    z, mask = torch.tensor(Z, requires_grad=True), torch.tensor(MASK)
    found = function(z, *values, mask=mask)
    assert found.dtype == torch.bool
    assert not found.requires_grad
    np.testing.assert_array_equal(found, expected)
    if kernels and name != "fusedmax":
        np.testing.assert_array_equal(function(z.T, *values, dim=0, mask=mask.T).T, expected)
        run = torch.vmap(lambda z, mask: function(z, *values, mask=mask))
        np.testing.assert_array_equal(run(z, mask), expected)


def test_a_support_compiles_without_a_graph_break() -> None:
    torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")
    import pyentmax.torch as pt

    run = torch.compile(
        lambda z: pt.entmax.support(z, alpha=1.001), fullgraph=True, backend="eager"
    )
    assert run(torch.tensor([0.0, -900, -1100])).tolist() == [True, True, False]


@pytest.mark.parametrize("name", JAX)
def test_jax_supports_are_the_arrays(name: str) -> None:
    jax = pytest.importorskip("jax", reason="no JAX: pip install 'pyentmax[jax]'")
    import pyentmax.jax as pj

    function, z = getattr(pj, name).support, Z.astype(np.float32)
    for value in {"entmax": [0.5, 1.0, 1.001, 1.25, 2.0, 3.0]}.get(name, [VALUES.get(name)]):
        values = [] if value is None else [value]
        expected = getattr(pe, name).support(z, *values, mask=MASK)
        with jax.numpy_dtype_promotion("strict"):
            found = jax.jit(lambda z, v=values: function(z, *v, mask=MASK))(z)
        np.testing.assert_array_equal(found, expected)
        broken = function(np.array([[np.nan, 1, 2], [-np.inf] * 3], np.float32), *values)
        assert not broken.any()
