"""Dask arrays and xarray stay lazy, give the same bits, and need the memory of a few chunks."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import warnings
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from compiled_functions import arguments, compiled_functions

import pyentmax
from pyentmax.backends import choice
from pyentmax.calls.kinds import OfProbabilities
from pyentmax.mappings import MAPPINGS

da = pytest.importorskip("dask.array", reason="dask is not installed")
xr = pytest.importorskip("xarray", reason="xarray is not installed")

needs_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")

NO_KERNEL = np.longdouble  # a dtype that kernels do not take
RNG = np.random.default_rng(0)
Z = RNG.standard_normal((6, 40, 30)).astype(np.float32)
MASK = RNG.random((40, 30)) < 0.7
K = RNG.integers(1, 9, 40)
LAZY = da.from_array(Z, chunks=(4, 15, 30))  # of whole rows along the last axis


def assert_lazily_equal(lazy: Any, expected: np.ndarray) -> None:
    assert isinstance(lazy, da.Array)
    assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(lazy.compute(), expected)


@needs_kernels
def test_a_mask_of_one_row_may_have_a_chunk_without_rows() -> None:
    """It was said not to broadcast."""
    rows = da.from_array(MASK[:2], chunks=(1, 30))
    one = rows[da.from_array(np.array([False, True]), chunks=1)]
    one.compute_chunk_sizes()
    assert 0 in one.chunks[0]
    for function in (pyentmax.sparsemax, pyentmax.entmax_sigmoid, pyentmax.log_softmax):
        expected = function(Z, mask=MASK[1])
        np.testing.assert_array_equal(function(LAZY, mask=one).compute(), expected)


@pytest.mark.parametrize("labels", [False, True])
def test_targets_of_one_row_may_have_a_chunk_without_rows(labels: bool) -> None:
    """They counted twice, or Dask raised an internal error."""
    z = Z[:1].astype(float)
    targets = [z[..., 0].astype(int) * 0 + 2, (z > 0).astype(int)][not labels]
    two = da.from_array(np.concatenate([1 - targets, targets]), chunks=1)
    one = two[da.from_array(np.array([False, True]), chunks=1)]
    one.compute_chunk_sizes()
    assert 0 in one.chunks[0]
    lazy = da.from_array(z, chunks=(1, 11, -1))
    for ignored in (None, 0):
        expected = pyentmax.one_vs_all_loss(z, targets, ignore_index=ignored)
        found = pyentmax.one_vs_all_loss(lazy, one, ignore_index=ignored)
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-14)


def test_masked_chunks_are_called_so_whatever_they_are() -> None:
    masked = da.ma.masked_array(LAZY > 0, LAZY > 0)
    for call, name in (
        (lambda: pyentmax.sparsemax(LAZY, mask=masked), "mask"),
        (lambda: pyentmax.one_vs_all_loss(LAZY, masked), "y"),
        (lambda: pyentmax.softmax_loss(Z, masked), "y"),
    ):
        with pytest.raises(TypeError, match=f"^{name} is a Dask array of masked chunks"):
            call()


@needs_kernels
@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("mask", [None, MASK, MASK[0], da.from_array(MASK, chunks=(7, 11))])
def test_mappings_of_dask_arrays(name: str, mask: Any) -> None:
    function, dense = getattr(pyentmax, name), mask if mask is None else np.asarray(mask)
    assert_lazily_equal(function(LAZY, mask=mask), function(Z, mask=dense))
    for axis in (1, (1, 2), None):
        whole_rows = LAZY.rechunk((-1 if axis is None else 2, -1, -1))
        expected = function(Z, axis, mask=dense)
        assert_lazily_equal(function(whole_rows, axis, mask=mask), expected)
    for dtype in (np.float16, np.float64, np.int64, ">f4"):
        z = (10 * Z).astype(dtype)
        lazy = da.from_array(z, chunks=LAZY.chunks)
        assert_lazily_equal(function(lazy, mask=mask), function(z, mask=dense))


@pytest.mark.parametrize("name", [n for n in compiled_functions() if "_loss" not in n])
def test_every_compiled_function(name: str) -> None:
    function = getattr(pyentmax, name)
    given = arguments(function, Z.shape, Z.dtype)
    lazy = [da.from_array(x, chunks=LAZY.chunks) if np.shape(x) == Z.shape else x for x in given]
    result, expected = function(*lazy), function(*given)
    if expected.ndim:
        assert_lazily_equal(result, expected)
    else:  # a sum over all rows, which Dask takes chunk by chunk
        np.testing.assert_allclose(result.compute(), expected, rtol=1e-6, atol=0)


@needs_kernels
@pytest.mark.parametrize("k", [3, K, K[:1], da.from_array(K, chunks=7)])
def test_parameters_follow_their_rows(k: Any) -> None:
    expected = pyentmax.topk_softmax(Z, np.asarray(k))
    assert_lazily_equal(pyentmax.topk_softmax(LAZY, k), expected)


@needs_kernels
def test_wrong_parameters_are_seen_at_once_where_they_are_at_hand() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        pyentmax.topk_softmax(LAZY, 0)
    d = LAZY.shape[-1]
    for mapping in (pyentmax.csoftmax, pyentmax.csparsemax):
        for upper in (-1, np.nan):
            with pytest.raises(ValueError, match="upper must be at least 0, got"):
                mapping(LAZY, upper)
        with pytest.raises(ValueError, match="upper is infeasible: .* got a sum of 0.9"):
            mapping(LAZY, 0.9 / d)
        # What a mask and the scores decide is seen by nobody: NaN says so.
        assert np.isnan(mapping(LAZY, 1.1 / d, mask=np.arange(d) < 1).compute()).all()
        assert not np.isnan(mapping(LAZY, 1 / d).compute()).any()
        assert mapping(LAZY[:0], 0.1 / d).compute().shape == (0, *LAZY.shape[1:])
    with pytest.raises(ValueError, match=f"budget must be at most .*, {d}, got {d + 1}"):
        pyentmax.budget_sparsemax(LAZY, d + 1)
    np.testing.assert_array_equal(pyentmax.budget_sparsemax(LAZY, d).compute(), 1)


@needs_kernels
def test_jacobian_products() -> None:
    p = pyentmax.entmax15(Z)
    v = np.ascontiguousarray(Z[::-1])
    lazy_v = da.from_array(v, chunks=(6, 11, 17))
    lazy_p = pyentmax.entmax15(LAZY)
    assert_lazily_equal(pyentmax.entmax15_vjp(lazy_p, lazy_v), pyentmax.entmax15_vjp(p, v))
    assert_lazily_equal(pyentmax.entmax15_vjp(lazy_p, v), pyentmax.entmax15_vjp(p, v))


@pytest.mark.parametrize("shape", [(5, 1), (2, 3, 1), (0, 4)])
def test_jacobians_of_rows_without_neighbours(shape: tuple[int, ...]) -> None:
    p = np.ones(shape)
    lazy = da.from_array(p, chunks=(*(max(1, n // 2) for n in shape[:-1]), -1))
    for jacobian in (pyentmax.fusedmax_jacobian, pyentmax.oscarmax_jacobian):
        assert_lazily_equal(jacobian(lazy), jacobian(p))


def test_rows_in_pieces_are_refused_with_the_remedy() -> None:
    if choice.kernels():
        with pytest.raises(
            ValueError, match=r"lie in one chunk each, here they lie in 3; .*rechunk"
        ):
            pyentmax.softmax(LAZY, axis=1)
    whole = LAZY.rechunk({1: -1})
    mapped = whole.map_blocks(pyentmax.softmax, axis=1, dtype=whole.dtype)
    np.testing.assert_array_equal(mapped.compute(), pyentmax.softmax(Z, axis=1))


def test_what_no_kernel_does_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"compiled kernel .*map_blocks"):
        pyentmax.sparsemax_support(LAZY)
    support = LAZY.map_blocks(pyentmax.sparsemax_support, dtype=bool)
    assert_lazily_equal(support, pyentmax.sparsemax_support(Z))


@pytest.mark.parametrize("form", ["sparsemax_loss", "normmax_loss", "softmax_loss.reference"])
def test_a_loss_asks_for_computed_scores_or_to_be_planned_by_rows(form: str) -> None:
    """It said that it needs a compiled kernel, which it has."""
    loss = attrgetter(form)(pyentmax)
    labels = np.arange(Z[..., 0].size).reshape(Z.shape[:-1]) % Z.shape[-1]
    remedy = r"^z is a lazy Dask array, and a loss is computed at once; .*apply_gufunc"
    with pytest.raises(TypeError, match=remedy):
        loss(LAZY, labels)
    each, cut = partial(loss, reduction="none"), da.from_array(labels, chunks=LAZY.chunks[:-1])
    planned = da.apply_gufunc(each, "(n),()->()", LAZY, cut, output_dtypes=Z.dtype)
    assert_lazily_equal(planned, each(Z, labels))


def test_a_sparse_result_asks_for_the_computed_array() -> None:
    """It said "copy it to the host", where it lies."""
    with pytest.raises(TypeError, match=r"^z is a lazy Dask array.*pass z\.compute\(\)"):
        pyentmax.sparsemax_csr(LAZY[0])


def test_a_mask_that_does_not_fit_a_lazy_array() -> None:
    for wrong in (np.ones(7, bool), np.ones((2, 6, 40, 30), bool), np.ones((4, 30), bool)):
        with pytest.raises(ValueError, match=r"mask of shape .* does not broadcast to z, of shape"):
            pyentmax.softmax(LAZY, mask=wrong)


def test_nothing_is_computed_behind_the_callers_back() -> None:
    def explode(block: np.ndarray) -> np.ndarray:
        raise AssertionError("computed")

    trap = LAZY.map_blocks(explode, dtype=LAZY.dtype, meta=LAZY._meta)
    frame = xr.DataArray(trap, dims=("a", "b", "word"))
    with pytest.raises(TypeError, match="a lazy DataArray, which would be computed whole here"):
        pyentmax.softmax(frame)
    with pytest.raises(TypeError, match="out must be left out"):
        pyentmax.softmax(trap, out=np.empty_like(Z))
    if choice.kernels():
        for lazy in (pyentmax.softmax(trap, mask=MASK), pyentmax.softmax_jvp(trap, trap)):
            with pytest.raises(AssertionError, match="computed"):
                lazy.compute()


@needs_kernels
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda hidden: pyentmax.softmax(hidden), "z"),
        (lambda hidden: pyentmax.sparsemax.reference(hidden), "z"),
        (lambda hidden: pyentmax.softmax_jvp(hidden, LAZY), "p"),
        (lambda hidden: pyentmax.softmax_jvp(LAZY, hidden), "v"),
        (lambda hidden: pyentmax.entmax(LAZY, hidden[..., 0]), "alpha"),
        (lambda hidden: pyentmax.csoftmax(LAZY, hidden), "upper"),
        (lambda hidden: pyentmax.softmax(LAZY, mask=hidden > 0), "mask"),
        (lambda hidden: pyentmax.softmax_loss(Z, hidden), "y"),
    ],
)
def test_dask_arrays_of_masked_chunks_are_refused_as_those_of_numpy_are(
    call: Any, name: str
) -> None:
    """A kernel sees the data below the mask: hidden scores got probability."""
    with pytest.raises(TypeError, match=rf"^{name} is a (Dask array of masked chunks|numpy\.ma)"):
        call(da.ma.masked_greater(LAZY, 0.5))


def selected(array: np.ndarray) -> Any:
    """All rows, of which Dask does not know how many they are before it computes the condition."""
    return da.from_array(array, chunks=(15, -1))[da.ones(len(array), chunks=15, dtype=bool)]


SELECTED = selected(Z[0])


@needs_kernels
@pytest.mark.parametrize("name", [n for n in compiled_functions() if "_loss" not in n])
def test_chunks_of_unknown_sizes_work_or_the_error_says_what_to_do(name: str) -> None:
    """They raised Dask's inner errors, or "v must have the shape of p, (nan, 8), got (nan, 8)"."""
    function = getattr(pyentmax, name)
    given = arguments(function, Z[0].shape, Z.dtype)
    lazy = [selected(x) if np.shape(x) == Z[0].shape else x for x in given]
    if isinstance(function.kind, OfProbabilities) and function.kind.direction:
        works = False
    else:
        works = all(np.ndim(x) == 0 for x in given[1:]) and "budget" not in name
    if works:
        result = function(*lazy)
        assert np.isnan(result.shape[0])
        np.testing.assert_array_equal(result.compute(), function(*given))
        return
    with pytest.raises(ValueError, match=r"chunks of unknown sizes.*compute_chunk_sizes\(\)"):
        function(*lazy)
    known = [x.compute_chunk_sizes() if isinstance(x, da.Array) else x for x in lazy]
    # A gradient in a parameter is a sum over chunks, which rounds in another order.
    rtol = 8 * np.finfo(Z.dtype).eps if getattr(function.kind, "gradient", False) else 0
    np.testing.assert_allclose(function(*known).compute(), function(*given), rtol=rtol, atol=0)


@needs_kernels
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: pyentmax.softmax(SELECTED, mask=SELECTED > 0), "z"),
        (lambda: pyentmax.softmax(SELECTED, mask=MASK[0]), "z"),
        (lambda: pyentmax.softmax(SELECTED, axis=None), "z"),
        (lambda: pyentmax.softmax(SELECTED, axis=0), "z"),
        (lambda: pyentmax.softmax(SELECTED.T), "z"),
        (lambda: pyentmax.entmax(SELECTED, K), "the array that alpha goes with"),
        (lambda: pyentmax.entmax(LAZY[0], SELECTED[:, 0] * 0 + 1.5), "alpha"),
        (lambda: pyentmax.softmax_jvp(SELECTED, SELECTED), "p"),
        (lambda: pyentmax.softmax_jvp(LAZY[0], SELECTED), "v"),
        (lambda: pyentmax.budget_sparsemax_vjp_budget(SELECTED, SELECTED, 2), "p"),
        (lambda: pyentmax.csoftmax(SELECTED, 1), "z"),
        (lambda: pyentmax.softmax(LAZY[0], mask=SELECTED > 0), "mask"),
        (lambda: pyentmax.entmax_sigmoid(LAZY[0], SELECTED * 0 + 1.5), "alpha"),
        (lambda: pyentmax.one_vs_all_loss(LAZY[0], SELECTED > 0), "y"),
    ],
)
def test_what_cannot_be_fitted_to_unknown_sizes_is_named(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} is a Dask array with chunks of unknown sizes"):
        call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: pyentmax.softmax(Z, mask=LAZY > 0), "mask"),
        (lambda: pyentmax.softmax.reference(Z, mask=LAZY > 0), "mask"),
        (lambda: pyentmax.sparsemax_support(Z, mask=LAZY > 0), "mask"),
        (lambda: pyentmax.entmax(Z[0], da.from_array(K / 2 + 1, chunks=7)), "alpha"),
        (lambda: pyentmax.topk_softmax(Z, da.from_array(K, chunks=7)), "k"),
        (lambda: pyentmax.csparsemax(Z, LAZY * 0 + 1), "upper"),
        (lambda: pyentmax.budget_sparsemax(Z, da.from_array(K, chunks=7)), "budget"),
        (lambda: pyentmax.sparsemax_jvp(pyentmax.sparsemax(Z), LAZY), "v"),
        (lambda: pyentmax.softmax_loss(Z[0], da.from_array(K, chunks=7)), "y"),
        (lambda: pyentmax.softmax_loss(Z[0], K, weight=da.ones(40, chunks=7)), "weight"),
    ],
)
def test_what_is_lazy_beside_scores_in_memory_is_refused_with_the_remedy(
    call: Any, name: str
) -> None:
    """Dask complained of "different chunksize present", or computed it behind the caller's back."""
    with pytest.raises(TypeError, match=rf"^{name} is a lazy Dask array.*{name}\.compute\(\)"):
        call()


@pytest.mark.parametrize(
    "how", ["parallelized", pytest.param("allowed", marks=needs_kernels), "in memory"]
)
def test_xarray(how: str) -> None:
    data = Z if how == "in memory" else LAZY
    mapped = xr.apply_ufunc(
        pyentmax.sparsemax,
        xr.DataArray(data, dims=("sentence", "head", "word")).transpose("word", ...),
        input_core_dims=[["word"]],
        output_core_dims=[["word"]],
        dask="forbidden" if how == "in memory" else how,
        output_dtypes=[Z.dtype],
        kwargs={"mask": MASK[0]},
    )
    assert mapped.dims == ("sentence", "head", "word")
    assert isinstance(mapped.data, np.ndarray if how == "in memory" else da.Array)
    np.testing.assert_array_equal(mapped.values, pyentmax.sparsemax(Z, mask=MASK[0]))


def test_apply_gufunc_on_a_public_function() -> None:
    mapped = da.apply_gufunc(pyentmax.entmax, "(n),()->(n)", LAZY, 1.2, output_dtypes=Z.dtype)
    assert_lazily_equal(mapped, pyentmax.entmax(Z, 1.2))


# --- more than fits -----------------------------------------------------------------------------

CHUNK = 16  # MiB
MOST = 288  # MiB beyond what a process holds anyway: 9 chunks for each of two threads
PROGRAM = """
import json, resource, sys

import dask.array as da
import numpy as np
import pyentmax

def peak():  # in MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def work(gigabytes):
    words = 1 << 14
    rows = gigabytes * (1 << 28) // words
    z = da.random.default_rng(0).random((rows, words), dtype=np.float32, chunks=(CHUNK * 16, -1))
    p = pyentmax.entmax15(4 * z, mask=np.arange(words) % 5 > 0)
    return z.nbytes, p.sum(axis=-1), p[:, ::5].max()

if __name__ == "__main__":
    gigabytes, where = int(sys.argv[1]), sys.argv[2]
    nbytes, totals, masked = work(gigabytes)
    pyentmax.entmax15(np.zeros((CHUNK * 16, 1 << 14), np.float32))
    if where == "threads":
        before = [peak()]
        totals, masked = da.compute(totals, masked, num_workers=2)
        after = [peak()]
    else:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            before = list(client.run(peak).values())
            totals, masked = client.compute([totals, masked], sync=True)
            after = list(client.run(peak).values())
    grown = [b - a for a, b in zip(before, after)]
    print(json.dumps([nbytes, len(totals), float(abs(totals - 1).max()), float(masked), grown]))
"""


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize("where", ["threads", "cluster"])
@pytest.mark.parametrize("gigabytes", [1, pytest.param(20, marks=pytest.mark.deep)])
def test_memory_is_bounded_by_the_chunks(gigabytes: int, where: str, tmp_path: Any) -> None:
    """In processes of its own, since the peak of one that lives on says nothing."""
    program = tmp_path / "program.py"  # a file, for worker processes import it
    program.write_text(PROGRAM.replace("CHUNK", str(CHUNK)))
    done = subprocess.run(
        [sys.executable, program, str(gigabytes), where],
        capture_output=True,
        text=True,
        timeout=60 + 60 * gigabytes,
    )
    assert done.returncode == 0, done.stderr
    nbytes, rows, error, masked, grown = json.loads(done.stdout.splitlines()[-1])
    assert (nbytes, rows) == (gigabytes << 30, gigabytes << 14)
    assert error < 1e-5
    assert masked == 0
    assert max(grown) < MOST, f"MiB per process: {grown}"


@pytest.mark.filterwarnings("error")  # what is computed later has nothing to keep it quiet
@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2, 3, 3.7])
@pytest.mark.parametrize("kernels", [True, False])
def test_scores_by_themselves_stay_lazy(
    kernels: bool, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels:
        monkeypatch.setattr(choice, "kernels", dict)
    for name in ("entmax_sigmoid", "entmax_sigmoid_grad"):
        function = getattr(pyentmax, name)
        assert_lazily_equal(function(LAZY[:2, :5], alpha), function(Z[:2, :5], alpha))


@pytest.mark.slow
def test_what_goes_entry_by_entry_takes_few_tasks_per_chunk() -> None:
    # Each NumPy call of a body was a task per chunk: of a derivative 23.
    z = da.from_array(Z, chunks=(1, 2, *Z.shape[2:]))
    chunks, alpha = z.npartitions, np.linspace(1, 2, Z.shape[-1])
    targets = da.zeros_like(z)
    results = {
        "entmax_sigmoid": (pyentmax.entmax_sigmoid(z, alpha), 4),
        "entmax_sigmoid_jvp": (pyentmax.entmax_sigmoid_jvp(z, z, alpha), 9),
        "entmax_sigmoid_grad2": (pyentmax.entmax_sigmoid_grad2(z, alpha), 7),
        "entmax_sigmoid_grad_alpha": (pyentmax.entmax_sigmoid_grad_alpha(z, alpha), 7),
        "entmax_sigmoid_loss": (
            pyentmax.entmax_sigmoid_loss(z, targets, alpha, reduction="none"),
            31,
        ),
    }
    for name, (result, most) in results.items():
        tasks = len(result.__dask_graph__())
        assert tasks <= most * chunks + 20, f"{name}: {tasks} tasks for {chunks} chunks"
        host = {"entmax_sigmoid_jvp": (Z, Z), "entmax_sigmoid_loss": (Z, np.zeros_like(Z))}
        options = {"reduction": "none"} if name.endswith("loss") else {}
        expected = getattr(pyentmax, name)(*host.get(name, (Z,)), alpha, **options)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, NO_KERNEL])
def test_scores_in_memory_follow_lazy_probabilities(dtype: type) -> None:
    """Where a kernel ran, Dask complained of "different chunksize present"."""
    z, upper = Z.astype(dtype), np.full(Z.shape, 0.2, dtype)
    p = pyentmax.csparsemax(z, upper)
    lazy = da.from_array(p, chunks=(4, 15, 30))
    found = pyentmax.csparsemax_vjp_upper(lazy, lazy, upper, z)
    assert_lazily_equal(found, pyentmax.csparsemax_vjp_upper(p, p, upper, z))
    with pytest.raises(TypeError, match=r"^z is a lazy Dask array.*z\.compute\(\)"):
        pyentmax.csparsemax_vjp_upper(p, p, upper, da.from_array(z, chunks=(4, 15, 30)))


@pytest.mark.parametrize("shape", [(6, 5), (2, 6, 5)])
@pytest.mark.parametrize(
    "name", [n for n in compiled_functions() if n.endswith(("_jvp", "_upper", "_alpha"))]
)
def test_derivatives_without_a_kernel_are_planned_or_named(
    name: str, shape: tuple[int, ...]
) -> None:
    """Beyond two dimensions they asked for the array's strides, and groups for a ufunc's "at"."""
    function = getattr(pyentmax, name)
    given = [
        x.astype(NO_KERNEL) if isinstance(x, np.ndarray) else x
        for x in arguments(function, shape, np.float64)
    ]
    cuts = (2,) * (len(shape) - 1) + (-1,)
    lazy = [da.from_array(x, chunks=cuts) if isinstance(x, np.ndarray) else x for x in given]
    if name.startswith(("fusedmax", "oscarmax")):
        with pytest.raises(TypeError, match=r"^p is a lazy Dask array, whose groups.*map_blocks"):
            function(*lazy)
        return
    found = function(*lazy)
    assert isinstance(found, da.Array)
    np.testing.assert_allclose(found, function(*given), rtol=1e-15, atol=1e-17)


@pytest.mark.parametrize("name", ["fusedmax_vjp_strength", "oscarmax_vjp_strength"])
def test_groups_of_lazy_rows_are_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(TypeError, match=r"^p is a lazy Dask array, whose groups.*map_blocks"):
        getattr(pyentmax, name)(LAZY, LAZY, 0.1)


def test_oscarmaxs_regulariser_of_lazy_rows_is_refused_too() -> None:
    """NumPy's sort computed all of it, with a warning of Dask's."""
    omega = pyentmax.MAPPINGS["oscarmax"].omega
    assert omega is not None
    with pytest.raises(TypeError, match=r"^p is a lazy Dask array, whose groups.*map_blocks"):
        omega(LAZY, 0.1)


def test_entry_by_entry_and_in_jacobians_unknown_sizes_are_mapped_or_named() -> None:
    unknown = LAZY[LAZY.sum(axis=(1, 2)) > -np.inf]
    np.testing.assert_array_equal(
        pyentmax.entmax_sigmoid(unknown, 1.3), pyentmax.entmax_sigmoid(Z, 1.3)
    )
    for call in (
        lambda: pyentmax.entmax_sigmoid(unknown, np.full(Z.shape[-1], 1.3)),
        lambda: pyentmax.entmax_sigmoid_jvp(unknown, unknown),
        lambda: pyentmax.entmax_sigmoid(unknown, mask=MASK),
        lambda: pyentmax.norm_entropy(unknown, np.full(Z.shape[:-1], 1.3)),
        lambda: pyentmax.tsallis_entropy(LAZY, unknown[..., 0]),
        lambda: pyentmax.entmax_sigmoid_grad(unknown, mask=unknown > 0),
        lambda: pyentmax.entmax_sigmoid_loss(unknown, unknown > 0),
        lambda: pyentmax.sparsemax_jacobian(unknown),
    ):
        with pytest.raises(ValueError, match="chunks of unknown sizes"):
            call()


@pytest.mark.parametrize("name", ["tsallis_entropy", "norm_entropy"])
def test_the_entropy_of_a_wrong_lazy_alpha_is_nan(name: str) -> None:
    """It was a negative number."""
    entropy = getattr(pyentmax, name)
    p = pyentmax.softmax(Z[0])
    alpha = np.full(len(p), 1.5)
    expected = entropy(p, alpha)
    alpha[[3, 8]], expected[[3, 8]] = (-1.0, np.nan), np.nan
    lazy = da.from_array(p, chunks=(15, 30))
    assert_lazily_equal(entropy(lazy, da.from_array(alpha, chunks=7)), expected)
    with pytest.raises(ValueError, match="^alpha must be "):
        entropy(lazy, alpha)


@pytest.mark.parametrize("dtype", [np.float32, NO_KERNEL])
def test_chunks_without_rows_are_as_good_as_others(dtype: type) -> None:
    """As after rows have been selected; Dask's own maximum of such an array is an error."""
    p = pyentmax.entmax(Z[0], 1.3).astype(dtype)
    lazy = da.from_array(p, chunks=((15, 0, 25), 30))
    v = RNG.standard_normal(p.shape).astype(dtype)
    for function in (
        partial(pyentmax.norm_entropy, alpha=3),
        partial(pyentmax.entmax_jacobian, alpha=1.3),
        partial(pyentmax.normmax_jacobian, alpha=2),
        lambda p: pyentmax.entmax_jvp(p, v, 1.3),
        lambda p: pyentmax.normmax_jvp(p, v, 2),
    ):
        np.testing.assert_array_equal(function(lazy).compute(), function(p))


@needs_kernels
@pytest.mark.parametrize("shape", [(0, 5), (4, 0, 5)])
def test_one_parameter_for_no_rows(shape: tuple[int, ...]) -> None:
    """NumPy stretches one entry to none, Dask does not."""
    z, half, two = np.zeros(shape), np.array([0.5]), np.array([2])
    lazy = da.from_array(z)
    for function in (
        lambda z: pyentmax.entmax(z, two * 0.7),
        lambda z: pyentmax.entmax(z, da.from_array(two)),
        lambda z: pyentmax.normmax(z, two),
        lambda z: pyentmax.fusedmax(z, half),
        lambda z: pyentmax.oscarmax(z, half),
        lambda z: pyentmax.topk_softmax(z, two),
        lambda z: pyentmax.entmax_vjp(z, z, half + 1),
        lambda z: pyentmax.entmax_jvp(z, np.zeros(shape), np.full((*shape[:-2], 1), 1.5)),
    ):
        found = function(lazy)
        assert found.shape == found.compute().shape == shape


@needs_kernels
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "chunks", [((0,), (2, 3), (6,)), ((0, 0), (5,), (6,)), ((1, 1), (0,), (6,))], ids=str
)
def test_no_rows_in_several_chunks_are_none_of_a_mapping(
    chunks: tuple[tuple[int, ...], ...], masked: bool
) -> None:
    shape = tuple(map(sum, chunks))
    z = da.zeros(shape, chunks=chunks)
    mask = np.ones(shape, bool) if masked else None
    parameters = {"k": 2, "alpha": 1.7, "upper": 0.9, "budget": 1.5, "strength": 0.3}
    for name, record in MAPPINGS.items():
        given = [parameters[parameter] for parameter in record.parameters]
        for found in (record.forward(z, *given, mask=mask), record.vjp(z, z, *given, mask=mask)):
            assert found.shape == found.compute().shape == shape, name
    alphas = da.full(shape[1:2], 1.3)
    assert pyentmax.entmax(z, alphas, mask=mask).compute().shape == shape
    assert pyentmax.log_softmax(z, mask=mask).compute().shape == shape


def test_no_rows_in_several_chunks_are_reshaped() -> None:
    p = np.zeros((0, 5, 8, 3))
    lazy = da.from_array(p, chunks=((0,), (4, 1), (3, 2, 3), (3,)))
    assert pyentmax.normmax_vjp(lazy, p, 3.0).compute().shape == p.shape
    with pytest.raises(TypeError, match="p is a lazy Dask array, whose groups"):
        pyentmax.fusedmax_vjp_strength(lazy, p, 0.2)


EMPTY_CHUNKS = [
    ((0,), (2, 3), (6,)),
    ((0,), (2,), (1, 2, 2), (6,)),
    ((2, 2), (0,), (6,)),
    ((1, 1), (2, 1, 1), (0,), (6,)),
]


@pytest.mark.parametrize("chunks", EMPTY_CHUNKS, ids=str)
@pytest.mark.parametrize("own", [False, True])
def test_no_rows_in_several_chunks_have_derivatives_of_the_right_shape(
    chunks: tuple[tuple[int, ...], ...], own: bool
) -> None:
    """What a derivative gave, or its parameter, was reshaped by Dask, which raised."""
    shape = tuple(map(sum, chunks))
    p = np.zeros(shape)
    lazy = da.zeros(shape, chunks=chunks)
    parameters: dict[str, Any] = {"k": 2, "alpha": 1.7, "budget": 1.5, "strength": 0.3}
    parameters["upper"] = np.full(shape, 0.9)
    for record in MAPPINGS.values():
        given = [parameters[name] for name in record.parameters]
        if own:
            given = [np.full(shape[:-1], x) if np.ndim(x) == 0 else x for x in given]
        lazily = [da.from_array(x, chunks=1) if np.ndim(x) else x for x in given]
        calls = [partial(record.jacobian, p, *given), partial(record.jacobian, lazy, *lazily)]
        assert calls[1]().compute().shape == calls[0]().shape == (*shape, shape[-1])
        for name in record.parameters:
            wrt = getattr(pyentmax, f"{record.name}_vjp_{name}", None)
            if wrt is None:
                continue
            if record.name in ("fusedmax", "oscarmax"):
                with pytest.raises(TypeError, match="p is a lazy Dask array, whose groups"):
                    wrt(lazy, lazy, *lazily)
            else:
                scores = "z" in inspect.signature(wrt).parameters
                found = wrt(lazy, lazy, *lazily, *[lazy][:scores])
                assert found.compute().shape == wrt(p, p, *given, *[p][:scores]).shape
        with pytest.raises(TypeError, match="scores in a lazy Dask array need a function"):
            getattr(pyentmax, f"{record.name}_support")(lazy, *lazily)


@pytest.mark.parametrize("chunks", EMPTY_CHUNKS, ids=str)
def test_no_rows_in_several_chunks_with_one_parameter_for_some(
    chunks: tuple[tuple[int, ...], ...],
) -> None:
    shape = tuple(map(sum, chunks))
    lazy, p = da.zeros(shape, chunks=chunks), np.zeros(shape)
    few = (*shape[:-2], 1)
    budget = da.zeros(few, chunks=tuple((1,) * n or (0,) for n in few))
    found = pyentmax.budget_sparsemax_vjp_budget(lazy, p, budget)
    assert found.compute().shape == few


@pytest.mark.parametrize("alpha", [1.5, np.full((1, 4), 1.5)], ids=np.ndim)
def test_no_scores_at_all_have_no_sigmoid(alpha: Any) -> None:
    """Dask raised errors of its own: one entry for none, and nothing in several chunks."""
    none = da.zeros((6, 4), chunks=(2, 4))[da.zeros(6, dtype=bool, chunks=2)]
    none.compute_chunk_sizes()
    p = np.zeros((0, 4))
    for z in (da.zeros((0, 4)), none):
        for name in ("", "_grad", "_grad2", "_grad_alpha"):
            function = getattr(pyentmax, f"entmax_sigmoid{name}")
            assert function(z, alpha).compute().shape == p.shape
            assert function(z, alpha, mask=p == 0).compute().shape == p.shape
        assert pyentmax.entmax_sigmoid_jvp(z, z, alpha).compute().shape == p.shape
        assert pyentmax.entmax_sigmoid_vjp_alpha(z, z, alpha).compute().shape == np.shape(alpha)
        assert pyentmax.entmax_sigmoid_loss(z, z, alpha, mask=p == 0).compute() == 0
        weight = z[:, 0]
        assert pyentmax.one_vs_all_loss(z, z, alpha, weight=weight).compute() == 0


JACOBIANS = ("softmax_jacobian", "entmax_jacobian", "fusedmax_jacobian", "topk_sparsemax_jacobian")


@needs_kernels
@pytest.mark.parametrize("name", [*MAPPINGS, *JACOBIANS])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kept", [[False, True], [True, False]])
def test_chunks_without_rows_that_selecting_leaves(name: str, axis: int, kept: list[bool]) -> None:
    """Dask took the one beside an only row for the whole axis, and did not reshape any."""
    chunks = ((2, 2), (1, 2), (5,))
    rows = np.repeat(kept, chunks[axis])
    mapping = MAPPINGS[name.removesuffix("_jacobian")]
    parameters = {"k": 2, "alpha": 1.7, "upper": 0.9, "budget": 1.5, "strength": 0.3}
    given = [parameters[parameter] for parameter in mapping.parameters]
    x = RNG.standard_normal((4, 3, 5))
    x = mapping.forward(x, *given) if name in JACOBIANS else x
    lazy = da.from_array(x, chunks=chunks)
    chosen = da.from_array(rows, chunks=(chunks[axis],))
    lazy = lazy[chosen] if axis == 0 else lazy[:, chosen]
    lazy.compute_chunk_sizes()
    assert 0 in lazy.chunks[axis]
    function = getattr(pyentmax, name)
    assert_lazily_equal(function(lazy, *given), function(x.compress(rows, axis), *given))


@needs_kernels
@pytest.mark.filterwarnings("error")
def test_a_lazy_k_that_is_not_whole_makes_its_row_nan_without_a_warning() -> None:
    k = K.astype(float)
    k[[3, 20]] = 1.5, np.nan
    found = pyentmax.topk_softmax(LAZY[0], da.from_array(k, chunks=15)).compute()
    expected = pyentmax.topk_softmax(Z[0], K)
    expected[[3, 20]] = np.nan
    np.testing.assert_array_equal(found, expected)


def test_the_jacobian_of_a_row_of_zeros_is_computed_in_silence() -> None:
    p = np.array([[0.5, 0.5, 0], [0, 0, 0]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pyentmax.entmax_jacobian(da.from_array(p, chunks=(1, 3)), 1.5).compute()
    np.testing.assert_array_equal(found, pyentmax.entmax_jacobian(p, 1.5))
