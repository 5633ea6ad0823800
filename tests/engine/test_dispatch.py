"""Which code runs for which array, and what the environment variable does about it."""

from __future__ import annotations

import inspect
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax.engine.backends import choice
from pyentmax.seq2seq.autograd import Tensor


class Recorder:
    """A kernel that notes its calls and gives the body's result."""

    signature = "(n),(n),()->(n)"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        self.calls.append((*operands, out))
        z, mask, *alpha = operands
        return pyentmax.entmax.reference(z, *(alpha or [1.5]), mask=mask, out=out)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    kernels = {"entmax15": recorder, "entmax": recorder}
    monkeypatch.setattr(choice, "kernels", lambda: kernels)
    return recorder


def test_scores_and_masks_reach_the_kernel_uncopied(kernel: Recorder) -> None:
    z, mask = np.zeros((500, 4)), np.array([True, True, False, True])
    pyentmax.entmax15(z)
    pyentmax.entmax15(z, mask=mask)
    pyentmax.entmax15(z, axis=0, mask=np.ones((500, 1), bool))
    assert kernel.calls[0][0] is kernel.calls[1][0] is z
    assert kernel.calls[0][1].strides == (0,)
    assert kernel.calls[1][1] is mask
    assert kernel.calls[2][1].strides == (0, 1)


HEADS = np.array([[1.1], [1.5], [1.7], [2.0]])


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize(
    ("batch", "alpha", "mask", "spread"),
    [
        ((64, 4, 1), HEADS, (64, 1, 1), (True, True)),  # one query per head: 4 rows at a time
        ((64, 4, 7), HEADS, (7,), (True, True)),  # 7 at a time, and so with a causal mask
        ((64, 4, 13), HEADS, (64, 1, 1), (True, False)),  # a sentence's 52 rows share a mask
        ((64, 4, 64), HEADS, (64,), (False, False)),  # whole blocks as they are
        ((64, 4, 1), HEADS[:1], (1, 1, 1), (False, False)),  # all rows have the same
        ((2, 2, 1), HEADS[:2], (2, 1, 1), (False, False)),  # nothing to gain
    ],
)
def test_broadcast_operands_are_spread_over_blocks(
    kernel: Recorder,
    batch: tuple[int, ...],
    alpha: np.ndarray,
    mask: tuple[int, ...],
    spread: tuple[bool, bool],
    dtype: Any,
) -> None:
    # NumPy hands a kernel rows as far as all operands step evenly, and it does 32 in the time of
    # one. A decoder's heads with an α each took four times as long, a mask per sentence twice.
    rng = np.random.default_rng(0)
    z, seen = rng.standard_normal((*batch, 9)).astype(dtype), rng.random((*mask, 9)) < 0.8
    p = pyentmax.entmax(z, alpha, mask=seen)
    expected = pyentmax.entmax.reference(z, alpha, mask=seen)
    np.testing.assert_array_equal(p, expected)
    _, mask_given, alpha_given, _ = kernel.calls[-1]
    found = (alpha_given, batch), (mask_given, z.shape)
    assert tuple(x.shape == full and x.flags.c_contiguous for x, full in found) == spread


@pytest.mark.parametrize("backend", ["", "reference", "cpu", "gpu"])
@pytest.mark.parametrize("built", [True, False])
def test_variable_chooses_the_backend(
    backend: str, built: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if built:
        pytest.importorskip("pyentmax._cpu", reason="the kernels are not built")
    else:
        monkeypatch.setitem(sys.modules, "pyentmax._cpu", None)
    load = choice.kernels.__wrapped__
    monkeypatch.setattr(choice, "kernels", load)
    monkeypatch.setenv("PYENTMAX_BACKEND", backend)
    if backend == "gpu":
        with pytest.raises(ValueError, match="must be reference, cpu or empty, got 'gpu'"):
            pyentmax.softmax([1.0])
    elif backend == "cpu" and not built:
        with pytest.raises(ImportError, match="PYENTMAX_BACKEND=cpu asks for the compiled kernels"):
            pyentmax.entmax15([1.0, 0.0])
    else:
        uses = built and backend != "reference"
        assert pyentmax.show_config()["backend"] == ("cpu" if uses else "reference")
        assert ("entmax15" in load()) == uses
        why = "as PYENTMAX_BACKEND=reference asks" if backend else "was not built"
        assert uses or why in capsys.readouterr().out


def test_kernels_that_do_not_load_say_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As built for a newer libc, or with flags that leave a symbol undefined."""
    (tmp_path / "_cpu.py").write_text("raise ImportError('undefined symbol: newer')")
    monkeypatch.setattr(pyentmax, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pyentmax._cpu", raising=False)
    monkeypatch.delenv("PYENTMAX_BACKEND", raising=False)
    monkeypatch.setattr(choice, "kernels", choice.kernels.__wrapped__)
    pyentmax.show_config()
    assert "_cpu cannot be imported (undefined symbol: newer)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("library", "hint"),
    [("torch", "pyentmax.torch"), ("jaxlib", "pyentmax.jax"), ("sparse", r"pass its \.todense")],
)
def test_arrays_of_other_libraries_get_a_hint(library: str, hint: str) -> None:
    tensor = type("Tensor", (), {"__module__": library, "__array__": lambda self: np.zeros(3)})
    with pytest.raises(TypeError, match=f"z is a {library} array; {hint}"):
        pyentmax.entmax15(tensor())


def test_tensor_with_a_gradient_gets_a_hint_that_helps() -> None:
    tensor = type("Tensor", (), {"__module__": "torch"})
    with pytest.raises(TypeError, match=r"tensor\.detach\(\)\.cpu\(\)\.numpy\(\)"):
        pyentmax.softmax(tensor())


class OnHost:
    """As pint's Quantity: NumPy's functions of its own, and not on a GPU."""

    dtype = np.dtype(float)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise AssertionError("converted, without its units")

    def __array_function__(self, *_: Any) -> Any:
        raise AssertionError("computed by a body")


Z = np.ones((2, 3))
ROLES = {
    "z": pyentmax.sparsemax,
    "v": lambda x: pyentmax.sparsemax.jvp(Z, x),
    "p": pyentmax.softmax.jacobian,
    "y": lambda x: pyentmax.sparsemax.loss(Z, x),
    "mask": lambda x: pyentmax.softmax(Z, mask=x),
    "upper": lambda x: pyentmax.csoftmax(Z, x),
    "alpha": lambda x: pyentmax.entmax(Z, x),
    "weight": lambda x: pyentmax.softmax.loss(Z, [0, 1], weight=x),
    "query": lambda x: pyentmax.attention(x, Z, Z),
}


@pytest.mark.parametrize("role", ROLES)
def test_host_arrays_with_functions_of_their_own_are_refused(role: str) -> None:
    unit = type("Quantity", (OnHost,), {"__module__": "pint"})
    with pytest.raises(TypeError, match=f"{role} is a pint array; pass array.m_as"):
        ROLES[role](unit())
    other = type("Other", (OnHost,), {"__module__": "other"})
    with pytest.raises(TypeError, match=f"{role} is a other array; pass numpy.asarray"):
        ROLES[role](other())


@pytest.mark.parametrize("role", ROLES)
def test_tensors_of_the_tape_name_its_functions(role: str) -> None:
    """Each of 90,000 entries became a tensor, and the advice was another dtype."""
    x = Tensor(np.zeros((300, 300)), requires_grad=True)
    with pytest.raises(
        TypeError, match=rf"{role} is a pyentmax array; pyentmax\.seq2seq\.autograd"
    ):
        ROLES[role](x)


@pytest.mark.parametrize("role", ROLES)
def test_what_is_no_sequence_is_named(role: str) -> None:
    scores = {"cat": 2.0, "dog": 1.0}
    kinds = {
        f"dict_values; pass list({role})": scores.values(),
        f"generator; pass list({role})": (score for score in scores.values()),
        f"zip; pass list({role})": zip([1.0], [2.0], strict=True),
        f"set; pass list({role})": {1.0, 2.0},
        f"dict; pass list({role}.values())": scores,
        "LazyFrame": type("LazyFrame", (), {})(),
    }
    for message, value in kinds.items():
        with pytest.raises(
            TypeError,
            match=re.escape(f"{role} must hold real numbers, got a {message}"),
        ):
            ROLES[role](value)


def test_column_of_lists_is_to_be_stacked() -> None:
    pandas = pytest.importorskip("pandas")
    for column in (pandas.Series([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [2, 3]], object)):
        with pytest.raises(
            TypeError, match=r"z must hold real numbers, got sequences; pass numpy\.stack\(z\)"
        ):
            pyentmax.softmax(column)
        with pytest.raises(TypeError, match=r"pass numpy\.stack\(y\)"):
            pyentmax.softmax.loss(np.eye(2), column)


def test_data_of_other_arrays_are_not_asked_for() -> None:
    """`pyarrow.ChunkedArray.data` warns that it is deprecated."""

    class Column:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1.0, 2.0, 0.5])

        @property
        def data(self) -> Any:
            raise AssertionError("asked for")

    np.testing.assert_array_equal(pyentmax.softmax(Column()), pyentmax.softmax([1.0, 2.0, 0.5]))


class Awkward:
    """As an array of awkward: functions of its own, but no dtype."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.rows, dtype)

    def __array_function__(self, *_: Any) -> Any:
        return NotImplemented


def test_arrays_without_a_dtype_are_converted() -> None:
    rows = [[1.0, 2.0], [3.0, 0.5]]
    np.testing.assert_array_equal(pyentmax.softmax(Awkward(rows)), pyentmax.softmax(rows))


@pytest.mark.parametrize("kind", [Awkward, list])
def test_rows_of_different_lengths_name_by_rows(kind: Any) -> None:
    for call in (pyentmax.softmax, pyentmax.sparsemax.jacobian):
        with pytest.raises(ValueError, match=r"by_rows\(function, \(np\.concatenate\(rows\)"):
            call(kind([[1.0, 2.0], [3.0]]))


class Quantity(np.ndarray):
    """As an array with units: it knows NumPy's functions by a list."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if getattr(np, ufunc.__name__, None) is not ufunc:
            raise TypeError(f"unknown ufunc {ufunc.__name__}")
        plain = [x.view(np.ndarray) if isinstance(x, Quantity) else x for x in inputs]
        if "out" in options:
            options["out"] = tuple(x.view(np.ndarray) for x in options["out"])
        return getattr(ufunc, method)(*plain, **options)


def test_subclasses_with_their_own_ufuncs_run_the_body() -> None:
    z = np.array([[1.0, 2.0, 0.5], [0.0, 0.1, 0.2]])
    p, units = pyentmax.entmax15(z), z.view(Quantity)
    np.testing.assert_allclose(pyentmax.entmax15(units), p, rtol=1e-14)
    np.testing.assert_allclose(pyentmax.entmax(units, [1.5, 1.5]), p, rtol=1e-14)
    product = pyentmax.entmax15.vjp(p.view(Quantity), z)
    np.testing.assert_allclose(product, pyentmax.entmax15.vjp(p, z), rtol=1e-14, atol=1e-16)
    loss = pyentmax.entmax15.loss(units, [0, 1])
    np.testing.assert_allclose(loss, pyentmax.entmax15.loss(z, [0, 1]), rtol=1e-14)
    single = pyentmax.entmax_sigmoid(units, 1.5)
    np.testing.assert_allclose(single, pyentmax.entmax_sigmoid(z, 1.5), rtol=1e-14)
    dense = pyentmax.csr("entmax15", units).toarray()
    np.testing.assert_allclose(dense, p, rtol=1e-14)


def test_long_double_runs_the_body() -> None:
    z = np.array([[0.3, 1.0, -2.0]], np.longdouble)
    near = {"rtol": 1e-12, "atol": 1e-15}
    single = pyentmax.entmax_sigmoid(z, 1.5)
    assert single.dtype == np.longdouble
    np.testing.assert_allclose(single, pyentmax.entmax_sigmoid(z.astype(float), 1.5), **near)
    y = [[0, 1, 0]]
    loss = pyentmax.one_vs_all_loss_and_grad(z, y)
    for got, expected in zip(
        loss, pyentmax.one_vs_all_loss_and_grad(z.astype(float), y), strict=True
    ):
        np.testing.assert_allclose(got, expected, **near)
    for name in ("softmax", "sparsemax", "entmax15"):
        dense = pyentmax.csr(name, z.astype(float)).toarray()
        np.testing.assert_allclose(pyentmax.csr(name, z).toarray(), dense, **near)


@pytest.mark.parametrize(
    ("call", "digits"),
    [
        (lambda z: pyentmax.topk_softmax(z, 2.0000000001), "2.0000000001"),
        (lambda z: pyentmax.keep.top_p(z, 1 + 1e-12), "1.000000000001"),
        (lambda z: pyentmax.budget_sparsemax(z, 3 + 1e-12), "got 3.000000000001"),
    ],
)
def test_errors_show_the_digits_that_differ(call: Any, digits: str) -> None:
    with pytest.raises(ValueError, match=digits):
        call(np.array([0.5, -0.2, 0.1]))


def test_names_of_other_libraries_get_a_hint() -> None:
    z = np.zeros((2, 4, 3))
    with pytest.raises(TypeError, match="for is_causal pass causal="):
        pyentmax.attention(z, z, z, is_causal=True)
    with pytest.raises(TypeError, match="for dim pass axis="):
        pyentmax.fenchel_young_loss(z, z, "softmax", dim=1)
    calls: list[Any] = [
        pyentmax.entmax15,
        pyentmax.entmax15.log,
        partial(pyentmax.entmax15.loss, y=z),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"argument 'dim'; of arrays it is axis$"):
            call(z, dim=1)
    with pytest.raises(ValueError, match=r"are the classes along axis=1 "):
        pyentmax.entmax15.loss(z, np.zeros((2, 3), int))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_rows_that_no_kernel_takes_go_alone(dtype: Any) -> None:
    """One α below 1 sent thousands of rows to the body, 140 times slower."""
    rng = np.random.default_rng(0)
    z, g = rng.standard_normal((2, 5, 7, 3)).astype(dtype)
    mask, y = rng.random((5, 7, 3)) < 0.8, rng.integers(0, 7, (5, 3))
    mask[:, 0], y[0, 0] = True, -1
    y = np.where(np.take_along_axis(mask, y[:, None], axis=1)[:, 0], y, -1)
    alpha = np.full((5, 1), 1.5)
    alpha[2] = 0.6
    others = np.arange(5) != 2
    p = pyentmax.entmax(z, alpha, axis=1, mask=mask)
    options = {"axis": 1, "mask": mask}
    labels: dict[str, Any] = {**options, "ignore_index": -1, "weight": rng.random((5, 3))}
    calls: list[Any] = [
        lambda a, s: [pyentmax.entmax(z[s], a[s], **_at(options, s))],
        lambda a, s: [pyentmax.entmax.vjp(p[s], g[s], a[s], **_at(options, s))],
        lambda a, s: [pyentmax.entmax.parameter_vjp(p[s], g[s], a[s], **_at(options, s))],
        lambda a, s: [
            *pyentmax.entmax.loss_and_grad(z[s], y[s], a[s], **_at(labels, s), reduction="none")
        ],
    ]
    near = 20 * float(np.finfo(dtype).eps)
    for call in calls:
        everything = call(alpha, slice(None))
        for got, expected in zip(everything, call(alpha, others), strict=True):
            exact = len(everything) == 1
            np.testing.assert_allclose(
                got[others], expected, rtol=0 if exact else near, atol=0 if exact else near
            )
        for got, expected in zip(everything, call(alpha, ~others), strict=True):
            np.testing.assert_allclose(got[~others], expected, rtol=near, atol=near)
    loss, gradient = pyentmax.entmax.loss_and_grad(z, y, alpha, **labels)
    expected, direction = pyentmax.entmax.loss_and_grad.reference(z, y, alpha, **labels)
    np.testing.assert_allclose(loss, expected, rtol=near)
    np.testing.assert_allclose(gradient, direction, rtol=near, atol=near)


def _at(options: dict[str, Any], some: Any) -> dict[str, Any]:
    return {k: v[some] if isinstance(v, np.ndarray) else v for k, v in options.items()}


def test_mistyped_arguments_name_the_function() -> None:
    with pytest.raises(TypeError, match=r"^Product\.__call__\(\) missing 2 required"):
        pyentmax.sparsemax.vjp()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"entmax\(\) got an unexpected keyword argument 'alhpa'"):
        pyentmax.entmax([1.0], alhpa=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Loss\.__call__\(\) missing 1 required .* 'y'"):
        pyentmax.entmax15.loss([1.0])  # type: ignore[call-arg]
    for attribute in (pyentmax.entmax15.jacobian, pyentmax.entmax15.regularizer):
        with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'out'"):
            attribute(np.ones((2, 3)), out=np.ones(2))


def test_signatures_are_those_of_the_declaration() -> None:
    assert str(inspect.signature(pyentmax.entmax.reference)).startswith(
        "(z: 'ArrayLike', alpha: 'ArrayLike' = 1.5"
    )
    names = list(inspect.signature(pyentmax.entmax.loss).parameters)
    options = ["mask", "reduction", "weight", "ignore_index", "label_smoothing"]
    assert names == ["z", "y", "alpha", "axis", *options]
    for attribute in (pyentmax.entmax.jvp, pyentmax.entmax.reference.jvp):
        assert list(inspect.signature(attribute).parameters) == [
            "p", "v", "alpha", "axis", "mask", "out",
        ]  # fmt: skip
    assert "out" not in inspect.signature(pyentmax.entmax.jacobian).parameters


@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 2, 3), (2, 0, 4, 3)])
def test_parameters_per_head_of_empty_batches(shape):
    z, heads = np.zeros(shape), (shape[0],) + (1,) * (len(shape) - 2)
    alpha, mask = np.full(heads, 1.5), np.ones((*heads, 1), bool)
    for found in (
        pyentmax.entmax(z, alpha),
        pyentmax.entmax(z, 1.5, mask=mask),
        pyentmax.entmax.jvp(z, z, alpha),
        pyentmax.topk_softmax(z, np.full(heads, 2)),
    ):
        assert found.shape == shape
    assert not pyentmax.entmax.parameter_vjp(z, z, alpha).any()
    assert pyentmax.entmax.loss(z, np.zeros(shape[:-1], int), alpha) == 0
    assert pyentmax.attention(z, z, z, np.full(shape[:-2], 1.5)).shape == shape
