"""What holds for every public function: no error that `numpy.seterr` asks for, and numpy.matrix."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest
from compiled_functions import as_tuple
from parameter_values import EXAMPLES

import pyentmax
from pyentmax.engine.backends import choice
from pyentmax.engine.backends.function import Function
from pyentmax.reference.mappings import MAPPINGS

# Gaps from nothing to what underflows in every dtype, a tie, and probabilities as small.
SCORES = np.array([[0.0, -1.0, -20.0, -95.0, -745.0, -6e4], [3.0, 3.0, 0.0, 1e-30, -1e-300, 2.5]])
MASK = np.array([True, True, True, True, False, True])
FUNCTIONS: dict[str, Any] = {
    name: function
    for name, function in vars(pyentmax).items()
    if callable(function)
    and not isinstance(function, type)
    and {"z", "p"} & set(inspect.signature(function).parameters)
    and not name.startswith(("separable", "check", "regularized", "hessian"))
}
for _name, _mapping in MAPPINGS.items():
    for _key, _function in vars(_mapping).items():
        if isinstance(_function, Function) and _function.is_defined and not _function.with_scores:
            FUNCTIONS[f"{_name}.{_key}"] = _function


def dense(x: Any) -> Any:
    return x.toarray() if hasattr(x, "toarray") else x


def arguments(name: str, dtype: Any) -> dict[str, Any]:
    z = SCORES.astype(dtype)
    given: dict[str, Any] = {}
    for parameter in inspect.signature(FUNCTIONS[name]).parameters:
        if parameter == "p":
            given["p"] = pyentmax.softmax(z)
        elif parameter == "y":
            given["y"] = np.resize([1, 0, 1], z.shape[:1])
        elif parameter in ("z", "v", "g"):
            given[parameter] = z
        elif parameter == "mapping":
            given["mapping"] = "softmax"
        elif parameter in EXAMPLES:
            given[parameter] = EXAMPLES[parameter]
    return given


def forms(name: str) -> list[Any]:
    """The function with its kernel, and its body if it has one of its own."""
    function = FUNCTIONS[name]
    return [function, *filter(None, [getattr(function, "reference", None)])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_raises_where_all_errors_do(name: str) -> None:
    masks = [{"mask": MASK}] if "mask" in inspect.signature(FUNCTIONS[name]).parameters else []
    for dtype in (np.float64, np.float32, np.float16):
        given = arguments(name, dtype)
        for function in forms(name):
            for options in [{}, *masks]:
                assert_same_where_errors_raise(partial(function, **given, **options))


@pytest.mark.parametrize("alpha", [1, 1.5, 1.3])
@pytest.mark.parametrize("form", ["kernel", "reference"])
def test_no_attention_raises_where_all_errors_do(form: str, alpha: float, monkeypatch: Any) -> None:
    if form == "reference":
        monkeypatch.setattr(choice, "kernels", dict)
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32, np.float16):
        tiny = 1e-300 if dtype == np.float64 else 1e-7
        query, key, value = (
            (scale * rng.standard_normal((2, 40, 4))).astype(dtype) for scale in (30, 1, tiny)
        )
        arrays = query, key, value
        output, weights = pyentmax.attention(*arrays, alpha, return_weights=True)
        for call in (
            partial(pyentmax.attention, *arrays, alpha),
            partial(pyentmax.attention_vjp, weights, *arrays, value, alpha),
            partial(pyentmax.attention_vjp_alpha, weights, value, output, alpha),
        ):
            assert_same_where_errors_raise(call)


def assert_same_where_errors_raise(call: Any) -> None:
    with np.errstate(all="ignore"):
        expected = call()
    with np.errstate(all="raise"):
        found = call()
    for x, y in zip(as_tuple(found), as_tuple(expected), strict=True):
        np.testing.assert_array_equal(dense(x), dense(y))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrix_is_read_as_array(name: str) -> None:
    given = arguments(name, np.float64)
    matrices = {
        key: np.asmatrix(value) if np.ndim(value) == 2 else value for key, value in given.items()
    }
    for function in forms(name):
        for x, y in zip(as_tuple(function(**matrices)), as_tuple(function(**given)), strict=True):
            assert type(x) is type(y)
            np.testing.assert_array_equal(dense(x), dense(y))
