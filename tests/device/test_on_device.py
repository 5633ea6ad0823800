"""What differs on a device: nothing is looked at there, and nothing is copied without being asked.

What does not differ, the tables of `tests/claims` say, for the rules and for the kernels.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import fake_cupy
import numpy as np
import pytest
from fake_cupy import moved
from on_gpu import BODIES_THAT_LOOK

import pyentmax as pe
from pyentmax.engine.backends import choice
from pyentmax.regularized import separable_mapping
from pyentmax.seq2seq import analysis

RNG = np.random.default_rng(0)
Z, V = RNG.normal(size=(2, 3, 5)).astype(np.float32)
MASK = RNG.random((3, 5)) < 0.7


def assert_same(function: Any, *args: Any, rtol: float = 0, **kwargs: Any) -> None:
    """What a rule gives for device arrays is what it gives for their copies on the host."""
    there = [moved(x) for x in args]
    options = {key: moved(x) for key, x in kwargs.items()}
    fake_cupy.copies.reset()
    found = function(*there, **options)
    assert fake_cupy.copies.to_device == fake_cupy.copies.to_host == 0
    expected = getattr(function, "reference", function)(*args, **kwargs)
    pairs = (x if isinstance(x, tuple) else (x,) for x in (expected, found))
    for mine, theirs in zip(*pairs, strict=True):
        assert isinstance(theirs, fake_cupy.ndarray)
        assert theirs.dtype == mine.dtype
        np.testing.assert_allclose(theirs.get(), mine, rtol=rtol, atol=rtol)


VALUES = {"entmax": 1.3, "topk_softmax": 2, "topk_sparsemax": 2, "csoftmax": 0.4, "csparsemax": 0.4}
VALUES |= {"budget_sparsemax": 1.5}


@pytest.mark.parametrize("name", [name for name in pe.MAPPINGS if name not in BODIES_THAT_LOOK])
def test_rules_are_the_hosts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit."""
    monkeypatch.setattr(choice, "kernels", dict)
    mapping, value = pe.MAPPINGS[name], [VALUES[name]] if name in VALUES else []
    for mask in (None, MASK):
        assert_same(mapping, Z, *value, mask=mask)
        assert_same(mapping.jvp, mapping(Z, *value, mask=mask), V, *value, mask=mask)


@pytest.mark.parametrize("alpha", [0.5, 1, 1.5, 2, 3, np.inf])
def test_entropies(alpha: float) -> None:
    p = pe.entmax(Z, 1.5)
    for function in (pe.shannon_entropy, pe.gini_entropy):
        assert_same(function, p)
        assert_same(function, p, axis=None)
    assert_same(pe.tsallis_entropy, p, alpha)
    assert_same(pe.tsallis_entropy, p, np.full(3, alpha))
    if alpha >= 1:  # NumPy squares where others take a power with exponent 2
        assert_same(pe.norm_entropy, p, alpha, rtol=5e-7)
    for entropy in (pe.tsallis_entropy, pe.norm_entropy):
        for wrong in (-1.0, -np.inf, np.nan):  # an entropy came as a negative number
            fake_cupy.copies.reset()
            h = entropy(moved(p), moved(np.array([2.0, 1.5, wrong])))
            assert fake_cupy.copies.to_host == 0
            np.testing.assert_array_equal(np.isnan(h.get()), [False, False, True])


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("alpha", [1, 1.3, 2, np.array([1, 1.3, 1.5, 2, 3])])
def test_scores_by_themselves(alpha: Any, mask: Any) -> None:
    assert_same(pe.entmax_sigmoid, Z, alpha, rtol=5e-7)
    for y in (np.array([0, 4, 2]), Z > 0, np.clip(V, 0, 1)):
        assert_same(pe.one_vs_all_loss_and_grad, Z, y, alpha, mask=mask, rtol=5e-6)


@pytest.mark.slow
def test_own_mapping_and_finite_differences() -> None:
    cubic = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
    p = cubic(Z)
    # On the host the search ends when nothing moves; on the device nobody may ask.
    np.testing.assert_allclose(cubic(moved(Z)).get(), p, rtol=0, atol=1e-6)
    assert_same(cubic.jvp, p, V)
    assert_same(cubic.jacobian, p)
    assert pe.check_vjp(pe.entmax15, moved(Z), pe.entmax15.vjp).passed
    assert not pe.check_jacobian(pe.entmax15, moved(Z), pe.sparsemax.jacobian).passed


def test_host_only_functions_say_so() -> None:
    with pytest.raises(TypeError, match=r"use `.get\(\)`"):
        analysis.sparsemax_score(moved(Z), np.zeros(Z.shape[:-1], int))


BAD = [[0.1] * 5, [-0.5, 1, 1, 1, 1], [np.nan, 1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        *(("entmax", x, 1.3) for x in (0.0, np.nan)), ("normmax", 1.0, 1.3),
        *(("topk_softmax", x, 2) for x in (0.0, 1.5)), ("topk_sparsemax", 0.0, 2),
        *((name, -0.1, 0.2) for name in ("fusedmax", "oscarmax")),
        *(("budget_sparsemax", x, 1.5) for x in (-1.0, 5.5)),
        *((name, x, [0.4] * 5) for name in ("csoftmax", "csparsemax") for x in BAD),
        ("entmax_sigmoid", [0.0] * 5, [1.5] * 5),
    ],
)  # fmt: skip
def test_wrong_parameter_makes_its_row_nan(name: str, wrong: Any, right: Any) -> None:
    function, given = getattr(pe, name), np.array([wrong, right, wrong], float)
    p = function(moved(Z), moved(given)).get()
    assert np.isnan(p[[0, 2]]).all()
    np.testing.assert_allclose(p[1], function(Z[1], given[1]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("y", "weight"),
    [
        ([7, 1, 2], None), ([-1, 1, 2], None), ([0, 1, 2], [-1.0, 1.0, 1.0]),
        ([0, 1, 2], [np.inf, 1.0, 1.0]), ([[1, 1, 0, 0, 0], *np.eye(5)[:2].tolist()], None),
        ([[2, -1, 0, 0, 0], *np.eye(5)[:2].tolist()], None),
    ],
)  # fmt: skip
def test_wrong_target_makes_its_row_nan(y: Any, weight: Any) -> None:
    given = {} if weight is None else {"weight": moved(np.array(weight))}
    for loss in (pe.sparsemax.loss_and_grad, pe.one_vs_all_loss_and_grad):
        if loss is pe.sparsemax.loss_and_grad or np.shape(y) == (3,):
            loss, grad = loss(moved(Z), moved(np.array(y)), reduction="none", **given)
            assert np.isnan(loss.get()).tolist() == [True, False, False]
            assert np.isnan(grad.get()).all(axis=-1).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda here, there: pe.softmax(here(Z), mask=there(MASK)), "mask"),
        (lambda here, there: pe.entmax(here(Z), there(np.full(3, 1.5))), "alpha"),
        (lambda here, there: pe.topk_softmax(here(Z), there(np.full(3, 2))), "k"),
        (lambda here, there: pe.csoftmax(here(Z), there(np.full(5, 0.5))), "upper"),
        (lambda here, there: pe.sparsemax.jvp(here(Z), there(V)), "v"),
        (lambda here, there: pe.softmax.loss(here(Z), there(np.arange(3))), "y"),
        (lambda here, there: pe.softmax(here(Z), out=there(Z.copy())), "out"),
        (lambda here, there: pe.tsallis_entropy(here(Z), there(np.full(3, 2.0))), "alpha"),
    ],
)
def test_arguments_on_two_sides_are_an_error(call: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must lie on the GPU .* cupy.asarray\({name}\)"):
        call(moved, np.asarray)
    with pytest.raises(TypeError, match=rf"^{name} must lie on the host .* {name}.get\(\)"):
        call(np.asarray, moved)


@pytest.mark.parametrize("on_host", [True, False])
def test_rows_of_different_lengths(on_host: bool) -> None:
    offsets, (z, g) = np.array([0, 3, 3, 7, 8, 12]), RNG.normal(size=(2, 12))
    alpha, y = 1 + RNG.random(5), np.array([0, 9, 3, 0, 2])
    cuts = offsets if on_host else moved(offsets)
    p = pe.by_rows(pe.entmax, (z,), offsets, (alpha,))
    loss = partial(pe.entmax.loss_and_grad, reduction="none")
    for function, values, per_row in (
        (pe.entmax, (z,), (alpha,)), (pe.entmax.parameter_vjp, (p, g), (alpha,)),
        (loss, (z,), (y, alpha)),
    ):  # fmt: skip
        expected = pe.by_rows(function, values, offsets, per_row)
        found = pe.by_rows(function, [*map(moved, values)], cuts, tuple(map(moved, per_row)))
        pairs = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
        for one, other in zip(*pairs, strict=True):
            np.testing.assert_allclose(one.get(), other, rtol=1e-10, atol=1e-12)


def test_stand_in_is_as_strict_as_cupy() -> None:
    x = moved(np.array([1.0, 2.0]))
    for mix in (
        lambda: x + np.ones(2), lambda: np.ones(2) + x, lambda: x * np.array(2.0),
        lambda: np.where(x > 0, x, np.zeros(2)), lambda: np.concatenate([x, np.ones(2)]),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="Unsupported type"):
            mix()
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(x)
    with pytest.raises(TypeError, match="no implementation found"):
        np.put_along_axis(x, x.astype(int), 1, axis=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'initial'"):
        np.sum(x, initial=1.0)


def test_stand_ins_tables_are_cupys() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for declaration in fake_cupy.SIGNATURES:
        name = declaration[: declaration.index("(")]
        if name == "matmul":  # a generalised ufunc, which shows no signature
            continue
        theirs = inspect.signature(getattr(cupy, name)).parameters
        scope: dict = {}
        exec(f"def {declaration}: ...", scope)
        ours = inspect.signature(scope[name]).parameters
        assert list(ours) == list(theirs)[: len(ours)], declaration  # newer ones may take more
        for parameter, mine in ours.items():
            same = mine.kind, mine.default
            assert same == (theirs[parameter].kind, theirs[parameter].default), declaration
    for name in fake_cupy.UFUNCS:
        assert isinstance(getattr(cupy, name), cupy.ufunc), name
    for name in (*fake_cupy.METHODS, *fake_cupy.ATTRIBUTES, "get", "item", "tolist", "fill"):
        assert hasattr(cupy.ndarray, name), name
    for name in fake_cupy.SAME_AS_NUMPYS:
        assert getattr(cupy, name) is getattr(np, name) or callable(getattr(cupy, name)), name
