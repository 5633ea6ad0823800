"""Keep-sets of PyTorch and JAX are the array functions', and those of Hugging Face's processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyentmax import keep

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402

VALUES: dict[str, float] = {
    "epsilon": 0.02,
    "eta": 0.1,
    "min_p": 0.1,
    "top_k": 5,
    "top_n_sigma": 1.5,
    "top_p": 0.8,
    "typical": 0.7,
}
RNG = np.random.default_rng(57)
Z = RNG.normal(scale=2, size=(200, 50))  # no ties, and no score at the border of a set
MASK = RNG.random(Z.shape) < 0.8
MASK[0] = False


@pytest.mark.parametrize("name", VALUES)
def test_tensors_have_the_array_functions_sets(name: str) -> None:
    function, value = getattr(pt.keep, name), VALUES[name]
    expected = getattr(keep, name)(Z, value, mask=MASK)
    z, mask = torch.tensor(Z), torch.tensor(MASK)
    column = torch.full((len(Z),), value)
    np.testing.assert_array_equal(function(z, value, mask=mask), expected)
    np.testing.assert_array_equal(function(z, column, mask=mask), expected)
    np.testing.assert_array_equal(function(z.T, value, 0, mask=mask.T).T, expected)
    assert function(torch.tensor([[torch.nan, 0, -torch.inf]]), value).tolist() == [[1, 1, 0]]
    half = z.bfloat16()
    np.testing.assert_array_equal(
        function(half, value), getattr(keep, name)(half.float().numpy(), value)
    )


def test_a_keep_set_compiles_with_its_mapping() -> None:
    def policy(z: Any) -> Any:
        return pt.softmax.log(z, mask=pt.keep.min_p(z, 0.1) & pt.keep.top_k(z, 9))

    z = torch.tensor(Z, requires_grad=True)
    run = torch.compile(policy, fullgraph=True, backend="eager")
    torch.testing.assert_close(run(z), policy(z), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda z: pt.keep.top_p(z, 1.5), ValueError),
        (lambda z: pt.keep.top_k(z, 0), ValueError),
        (lambda z: pt.keep.min_p(z[0, 0], 0.5), ValueError),
        (lambda z: pt.keep.min_p(z, torch.ones(3)), ValueError),
        (lambda z: pt.keep.min_p(z, "0.5"), TypeError),
        (lambda z: pt.keep.min_p(z.long(), 0.5), TypeError),
    ],
)
def test_wrong_calls_are_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(torch.tensor(Z))


@pytest.mark.parametrize("name", sorted({*VALUES} - {"top_n_sigma"}))  # they have none
def test_sets_agree_with_hugging_face(name: str) -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    processors = {
        "epsilon": "EpsilonLogitsWarper",
        "eta": "EtaLogitsWarper",
        "min_p": "MinPLogitsWarper",
        "top_k": "TopKLogitsWarper",
        "top_p": "TopPLogitsWarper",
        "typical": "TypicalLogitsWarper",
    }
    value, z = VALUES[name], torch.tensor(Z)
    options = {"device": "cpu"} if name == "eta" else {}
    theirs = getattr(process, processors[name])(value, **options)(None, z.clone()) > -torch.inf
    assert torch.equal(getattr(pt.keep, name)(z, value), theirs)
    assert 0 < theirs.sum() < theirs.numel()


def test_top_p_keeps_ties_that_hugging_face_parts() -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    z = torch.tensor([[1.0, 0.0, 0.0, -9.0]])
    theirs = process.TopPLogitsWarper(0.7)(None, z) > -torch.inf
    assert theirs.sum() == 2  # which of the two it is depends on the sort
    assert pt.keep.top_p(z, 0.7).tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("name", VALUES)
def test_jax_has_the_array_functions_sets(name: str) -> None:
    jax = pytest.importorskip("jax")
    from pyentmax.jax import keep as jax_keep

    function, value = getattr(jax_keep, name), VALUES[name]
    z = Z.astype(np.float32)
    expected = getattr(keep, name)(z, value, mask=MASK)
    with jax.numpy_dtype_promotion("strict"):
        run = jax.jit(lambda z, mask: function(z, value, mask=mask))
        np.testing.assert_array_equal(run(z, MASK), expected)
    columns = np.full(len(z), value, np.float32)
    run = jax.vmap(lambda z, value: function(z, value))
    np.testing.assert_array_equal(run(z, columns), getattr(keep, name)(z, columns))
    assert function(np.array([np.nan, 0, -np.inf]), value).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="must be"):
        function(z, -1)
