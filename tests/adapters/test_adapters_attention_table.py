"""Attention of tensors, and of JAX, gives what whole matrices give, forward and backward.

The cases, and what is expected of them, are in `attention_cases`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_cases import BOOLS, OTHERS, Case, expected, make, names

import pyentmax as pe
from pyentmax.sparse_attention import route as route_numbers

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")


def close(found: Any, right: Any, name: str = "", room: float = 1e-10) -> None:
    assert np.shape(found) == np.shape(right), name
    atol = room * max(1, np.abs(right).max(initial=0))
    np.testing.assert_allclose(found, right, rtol=0, atol=atol, err_msg=name)


def as_tensors(case: Case, **options: Any) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Arrays, options and what is learned, as tensors."""
    import torch

    learned = {k: torch.tensor(x, **options).requires_grad_() for k, x in case.learned.items()}
    arrays, named = case.replaced(learned)
    for key, x in named.items():
        if key == "mask" and hasattr(x, "tocsr"):
            parts = (torch.from_numpy(np.asarray(y)) for y in (x.indptr, x.indices, x.data))
            named[key] = torch.sparse_csr_tensor(*parts, x.shape, check_invariants=False)
        elif isinstance(x, np.ndarray):
            named[key] = torch.tensor(x)
        elif isinstance(x, tuple):
            named[key] = tuple(map(torch.tensor, x))
    if "alpha" in named:
        learned["alpha"] = torch.tensor(
            np.asarray(case.options["alpha"], float), requires_grad=True
        )
        named["alpha"] = learned["alpha"]
    return arrays, named, learned


@pytest.mark.parametrize("way", ["dense", "support", "dense weights", "weights"])
@pytest.mark.parametrize("name", names())
def test_tensors(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")
    import pyentmax.torch as pt

    pytest.importorskip("scipy")
    if "dense" not in way:
        monkeypatch.setitem(route_numbers.LEAST_SCORES, "tensors", 0)
    case = make(name)
    arrays, options, learned = as_tensors(case)
    results, right = expected(case)
    g = torch.tensor(case.g)
    if "weights" in way:  # a function of the weights, too
        output, weights = pt.attention(*arrays, return_weights=True, **options)
        close(weights.to_dense().detach(), results["weights"])
        shape = (*results["weights"].shape[:-1], results["weights"].shape[-1] + ("sink" in results))
        added = np.random.default_rng(1).standard_normal(shape)
        results, right = expected(case, added)
        loss = (output * g).sum()
        loss = loss + (weights.to_dense() * torch.tensor(added[..., : case.seen.shape[-1]])).sum()
        if "sink" in results:
            close(weights.sink.detach(), results["sink"])
            loss = loss + (weights.sink * torch.tensor(added[..., -1])).sum()
    else:
        output = pt.attention(*arrays, **options)
        loss = (output * g).sum()
    close(output.detach(), results["output"])
    gradients = torch.autograd.grad(loss, list(learned.values()))
    for key, gradient in zip(learned, gradients, strict=True):
        close(gradient, right[key], key)
    with torch.no_grad():
        close(pt.attention(*arrays, **options), results["output"])


@pytest.mark.slow
@pytest.mark.parametrize("name", names(keys=BOOLS)[::7])
def test_compiled_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")
    import pyentmax.torch as pt

    torch.compiler.reset()
    monkeypatch.setitem(route_numbers.LEAST_SCORES, "tensors", 0)
    case = make(name)
    arrays, options, learned = as_tensors(case)
    results, right = expected(case)
    compiled = torch.compile(
        lambda *arrays: pt.attention(*arrays, **options), backend="aot_eager", fullgraph=True
    )
    output = compiled(*arrays)
    close(output.detach(), results["output"])
    gradients = torch.autograd.grad(output, arrays, torch.tensor(case.g))
    for key, gradient in zip(("query", "key", "value"), gradients, strict=True):
        close(gradient, right[key], key)


@pytest.mark.parametrize("mapping", ["1.5", "per head", "1", "2", "top-k"])
@pytest.mark.parametrize(
    "keys", ["all", "mask", "mask by head", "mask causal", "causal", "causal cache"]
)
def test_jax(keys: str, mapping: str) -> None:
    jax = pytest.importorskip("jax", reason="no JAX: pip install 'pyentmax[jax]'")
    import pyentmax.jax as pj

    heads = {"1.5": "three share", "2": "all share"}.get(mapping, "of their own")
    case = make(f"{heads}, {keys}, {mapping}, , , ")
    results, right = expected(case)
    options = {k: x.tolist() if k == "alpha" and np.ndim(x) else x for k, x in case.options.items()}
    alpha = np.asarray(options.pop("alpha", 1.5), float)
    with jax.enable_x64(True):

        def run(*arrays: Any) -> Any:
            return pj.attention(*arrays, **options)

        output, vjp = jax.vjp(run, *case.arrays, alpha)
        gradients = dict(zip(("query", "key", "value", "alpha"), vjp(case.g), strict=True))
    close(output, results["output"])
    for key in right:
        close(gradients[key], right[key], key, 1e-9)
    assert ("alpha" in right) == (mapping not in OTHERS)


@pytest.mark.parametrize("keys", ["numbers", "csr", "weights"])
def test_jax_takes_no_set_of_keys(keys: str) -> None:
    pytest.importorskip("jax", reason="no JAX: pip install 'pyentmax[jax]'")
    import pyentmax.jax as pj

    pytest.importorskip("scipy")
    x = np.ones((3, 2))
    mask = pe.attention(x, x, x, return_weights=True)[1]
    if keys != "weights":
        mask = make(f"of their own, {keys}, 1.5, , , ", 3, 3).options["mask"]
    with pytest.raises(TypeError, match=rf"a set of keys \({type(mask).__name__}\) is not for JAX"):
        pj.attention(x, x, x, mask=mask)
