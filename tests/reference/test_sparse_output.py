"""Sparse results: the non-zeros of the dense function, bit for bit, in SciPy's CSR form."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import pyentmax
from pyentmax.engine.backends import choice
from pyentmax.reference import sparse_output

CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("sparsemax", ()),
    ("entmax15", ()),
    ("entmax", (1.3,)),
    ("entmax", (1,)),
    ("topk_softmax", (3,)),
]
every_case = pytest.mark.parametrize(
    ("name", "parameters"), CASES, ids=[f"{name}{parameters}" for name, parameters in CASES]
)


def test_sparse_scores_are_refused() -> None:
    scores = scipy.sparse.csr_array(np.eye(3))
    with pytest.raises(TypeError, match=r"z is a scipy array; pass its \.toarray\(\)"):
        pyentmax.sparsemax(scores)


@pytest.fixture(params=["compiled", "NumPy"])
def packer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to collect non-zeros."""
    if request.param == "NumPy":
        monkeypatch.setattr(choice, "packer", lambda: None)
    elif choice.packer() is None:
        pytest.skip("the kernels are not built")


def csr_of(name: str, z: Any, *parameters: Any, **options: Any) -> Any:
    named = dict(zip(pyentmax.MAPPINGS[name].parameters, parameters, strict=True))
    return pyentmax.csr(name, z, **named, **options)


def assert_same(p: Any, dense: np.ndarray) -> None:
    expected = scipy.sparse.csr_array(dense)
    assert isinstance(p, scipy.sparse.csr_array)
    assert (p.shape, p.dtype) == (dense.shape, dense.dtype)
    assert p.indices.dtype == p.indptr.dtype == np.int32
    np.testing.assert_array_equal(p.indptr, expected.indptr)
    np.testing.assert_array_equal(p.indices, expected.indices)
    np.testing.assert_array_equal(p.data, expected.data)
    assert p.has_canonical_format


@every_case
@pytest.mark.usefixtures("packer")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 64), (37, 200), (3, 70_000), (0, 5)])
def test_holds_the_nonzeros_of_the_dense_result(
    name: str, parameters: tuple[Any, ...], dtype: type, shape: tuple[int, int]
) -> None:
    z = (3 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    dense = getattr(pyentmax, name)
    assert_same(csr_of(name, z, *parameters), dense(z, *parameters))
    if shape[1] > 1:
        mask = np.random.default_rng(1).random(shape) < 0.5
        mask[:1] = False
        p = csr_of(name, z, *parameters, mask=mask)
        assert_same(p, dense(z, *parameters, mask=mask))
        row = mask[-1] if len(mask) else np.ones(shape[1], bool)
        p = csr_of(name, z, *parameters, mask=row)
        assert_same(p, dense(z, *parameters, mask=row))


@every_case
@pytest.mark.usefixtures("packer")
def test_blocks_are_put_together(
    name: str, parameters: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    z = np.random.default_rng(2).standard_normal((23, 40)) * np.geomspace(0.01, 9, 23)[:, None]
    whole = csr_of(name, z, *parameters)
    for block in (1, 40, 41, 120, 10**6):
        monkeypatch.setattr(sparse_output, "BLOCK", block)
        assert_same(csr_of(name, z, *parameters), whole.toarray())


@pytest.mark.usefixtures("packer")
def test_a_parameter_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_output, "BLOCK", 100)
    z = np.random.default_rng(3).standard_normal((9, 30))
    alpha, k = np.array([1, 1.2, 1.5, 1.7, 2, 2.5, 4, 9, np.inf]), np.arange(1, 10)
    upper = np.linspace(0.04, 1, 9)[:, None]
    assert_same(csr_of("entmax", z, alpha), pyentmax.entmax(z, alpha))
    assert_same(csr_of("topk_softmax", z, k), pyentmax.topk_softmax(z, k))
    assert_same(csr_of("csparsemax", z, upper), pyentmax.csparsemax(z, upper))


@every_case
@pytest.mark.usefixtures("packer")
def test_rows_without_a_maximum(name: str, parameters: tuple[Any, ...]) -> None:
    z = np.random.default_rng(4).standard_normal((5, 6))
    z[1], z[2, 3], z[3, 0] = -np.inf, np.nan, np.inf
    p = csr_of(name, z, *parameters)
    np.testing.assert_array_equal(p.toarray(), getattr(pyentmax, name)(z, *parameters))
    assert np.diff(p.indptr)[1] == 0
    assert np.diff(p.indptr)[[2, 3]].tolist() == [6, 6]


def test_dtypes() -> None:
    z = np.array([[3, 1, 2]])
    assert csr_of("entmax15", z).dtype == np.float64
    assert csr_of("sparsemax", z.tolist()).dtype == np.float64
    # SciPy has no sparse half floats: what is computed in float32 stays so.
    half = (z / 8).astype(np.float16)
    assert_same(csr_of("entmax15", half), pyentmax.entmax15(half.astype(np.float32)))


@pytest.mark.usefixtures("packer")
def test_indices_beyond_int32_are_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    z = np.random.default_rng(6).standard_normal((20, 30)).astype(np.float32)
    expected = pyentmax.entmax15(z)
    for largest in (50, 29):  # too many entries, too many columns
        monkeypatch.setattr(sparse_output, "INT32_MAX", largest)
        p = csr_of("entmax15", z)
        assert p.indices.dtype == p.indptr.dtype == np.int64
        np.testing.assert_array_equal(p.toarray(), expected)


def test_what_does_not_fit_is_refused() -> None:
    for shape in ((4,), (2, 3, 4)):
        with pytest.raises(ValueError, match=r"z must be 2-D for a sparse result, got shape \("):
            csr_of("sparsemax", np.zeros(shape))
    with pytest.raises(ValueError, match=r"k of shape \(2, 1\) does not broadcast"):
        csr_of("topk_softmax", np.zeros((2, 3)), [[1], [2]])


def test_missing_scipy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ImportError, match=r"pip install 'pyentmax\[sparse\]'"):
        csr_of("sparsemax", [[1.0, 0.0]])
