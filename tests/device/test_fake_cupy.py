"""The stand-in is as strict as CuPy, and its tables are CuPy's own."""

from __future__ import annotations

import inspect

import fake_cupy
import numpy as np
import pytest


def device(*values: float) -> fake_cupy.ndarray:
    return fake_cupy.asarray(np.array(values))


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + np.ones(2),
        lambda x: np.ones(2) + x,
        lambda x: x * np.array(2.0),
        lambda x: np.maximum(x, np.zeros(2)),
        lambda x: np.where(x > 0, x, np.zeros(2)),
        lambda x: np.where(np.array([True, False]), x, 0),
        lambda x: np.concatenate([x, np.ones(2)]),
        lambda x: x.__iadd__(np.ones(2)),
    ],
)
def test_host_and_device_do_not_mix(mix):
    with pytest.raises(TypeError, match="Unsupported type"):
        mix(device(1, 2))


def test_no_implicit_copy_to_the_host():
    x = device(1, 2)
    for convert in (np.asarray, np.array, lambda x: np.ones(2).__setitem__(..., x)):
        with pytest.raises(TypeError, match="Implicit conversion"):
            convert(x)
    with pytest.raises(ValueError, match="non-scalar numpy.ndarray"):
        x[...] = np.ones(2)


def test_functions_that_cupy_lacks_are_missing():
    x = device(1, 2)
    with pytest.raises(TypeError, match="no implementation found"):
        np.put_along_axis(x, device(0).astype(int), 1, axis=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'initial'"):
        np.sum(x, initial=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'device'"):
        np.eye(2, like=x)
    with pytest.raises(AttributeError, match="no attribute 'partition'"):
        x.partition(1)


def test_tables_match_cupy():
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
            assert mine.kind == theirs[parameter].kind, declaration
            assert mine.default == theirs[parameter].default, declaration
    for name in fake_cupy.UFUNCS:
        assert isinstance(getattr(cupy, name), cupy.ufunc), name
    for name in (*fake_cupy.METHODS, *fake_cupy.ATTRIBUTES, "get", "item", "tolist", "fill"):
        assert hasattr(cupy.ndarray, name), name
    for name in ("at", "reduceat"):
        assert hasattr(cupy.add, name), name
    for name in fake_cupy.SAME_AS_NUMPYS:
        assert getattr(cupy, name) is getattr(np, name) or callable(getattr(cupy, name)), name
