"""The check of implementations names faults with a small input, and accuses no right one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import planted_causes
import planted_in_practice
import pytest
import scipy.special
from planted_faults import FIRST, OTHERS, PARAMETERS, RIGHT, Fault, functions
from stages import sample, slow

import pyentmax
from pyentmax import MAPPINGS, MappingReport, check_mapping, checking
from pyentmax.checking._causes import DERIVATIVE_CAUSES, VALUE_CAUSES
from pyentmax.regularized import separable_mapping

EXAMPLES = {"alpha": 1.5, "budget": 1, "k": 2, "strength": 0.2, "upper": 1}
DERIVATIVES = {
    "derivative",
    "derivative in arrays",
    "derivative of long rows",
    "derivative in the parameter",
    "derivative at masked entries",
}
TOP_K = "ties at the kth score"


def check(source: str, mapping: str, dtype: str = "float64") -> MappingReport:
    forward, vjp = functions(source)
    return check_mapping(forward, mapping, vjp=vjp, dtypes=[dtype], **PARAMETERS.get(mapping, {}))


def not_applicable(report: MappingReport) -> set[str]:
    return {result.name for result in report.results if result.verdict == "not applicable"}


# --- right and wrong implementations --------------------------------------------------------------


@pytest.mark.parametrize("mapping", sample(RIGHT, 5))
def test_right_implementation_passes(mapping: str) -> None:
    assert check(RIGHT[mapping], mapping).verdict == "right"


@pytest.mark.parametrize(
    "fault",
    [*FIRST[::4], *slow(*((x,) for x in [*FIRST, *OTHERS] if x not in FIRST[::4]))],
    ids=str,
)
def test_planted_fault_is_named(fault: Fault) -> None:
    dtype = "float32" if fault.name == "returns float64" else "float64"
    report = check(fault.source(), fault.mapping, dtype)
    failure = report.failures[fault.named]
    assert failure.finding is not None
    assert report.verdict == fault.verdict
    assert failure.finding.units > 4


@pytest.mark.parametrize("name", sample(planted_in_practice.MAPPING))
def test_fault_of_practice_is_found(name: str) -> None:
    fn, mapping, vjp, verdict, cause = planted_in_practice.MAPPING[name]
    report = check_mapping(fn, mapping, vjp=vjp, dtypes=["float64"])
    assert report.verdict == verdict, report
    assert [one.partition(":")[0] for one in report.causes] == [cause][: bool(cause)]


@pytest.mark.slow  # of a mapping and a kernel that other tests hold to the same contract
@pytest.mark.parametrize("name", MAPPINGS)
def test_own_mapping_passes_within_contract(name: str) -> None:
    record = MAPPINGS[name]
    parameters = {parameter: EXAMPLES[parameter] for parameter in record.parameters}
    vjp = partial(_vjp_of, record, tuple(parameters.values()))
    report = check_mapping(record, record, vjp=vjp, **parameters)
    assert report.verdict == "right"
    for result in report.results:
        # Of mappings outside Tsallis' family, no constant of the contract is calibrated.
        assert result.finding is None or result.finding.units <= 4, result


def _vjp_of(record: Any, parameters: tuple[Any, ...], p: Any, v: Any) -> Any:
    return record.vjp(p, v, *parameters)


@pytest.mark.slow
def test_scipy_softmax_passes() -> None:
    report = check_mapping(scipy.special.softmax, "softmax").raise_if_failed()
    assert not_applicable(report) == {TOP_K, *DERIVATIVES}


@pytest.mark.slow
def test_users_own_mapping_is_checked_by_its_record() -> None:
    cubic = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
    check_mapping(cubic, cubic, dtypes=["float64"]).raise_if_failed()
    report = check_mapping(pyentmax.sparsemax, cubic, dtypes=["float64"])
    assert "exact values" in report.failures


# --- faults that hid -----------------------------------------------------------------------------


def test_constant_function_is_reported() -> None:
    report = check_mapping(
        lambda z: z * 0 + 1 / z.shape[-1],
        "softmax",
        vjp=lambda p, v: np.zeros_like(v),
        dtypes=["float64"],
    )
    assert {"exact values", "derivative"} <= {*report.failures}


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 8])
def test_function_that_needs_k_scores_is_checked(k: int) -> None:
    def topk(z: Any) -> Any:
        if z.shape[-1] < k:
            raise IndexError("too few scores")
        return pyentmax.topk_softmax(z, k)

    report = check_mapping(topk, "topk_softmax", k=k, dtypes=["float64"]).raise_if_failed()
    tied = next(one for one in report.results if one.name == TOP_K)
    assert f"tied scores stay, k = {k}, " in str(tied)


def test_function_without_short_rows_is_told_so() -> None:
    def long_rows(z: Any) -> Any:
        if z.shape[-1] < 5:
            raise IndexError("too few scores")
        return pyentmax.softmax(z)

    report = check_mapping(long_rows, "softmax", dtypes=["float64"])
    assert [*report.failures] == ["row lengths"]


def mixed_over_batch(p: Any, v: Any) -> Any:
    return p * (v - np.sum(p * v) / max(1, p.size // p.shape[-1]))


def always_along_last_axis(p: Any, v: Any, axis: int = -1) -> Any:
    return pyentmax.softmax.vjp(p, v)


@pytest.mark.slow
@pytest.mark.parametrize("vjp", [mixed_over_batch, always_along_last_axis])
def test_derivative_that_is_wrong_in_arrays_fails(vjp: Any) -> None:
    report = check_mapping(pyentmax.softmax, "softmax", vjp=vjp, dtypes=["float64"])
    assert "derivative in arrays" in report.failures
    arrays = {"derivative in arrays", "memory layouts", "derivative of long rows"}
    assert {*report.failures} <= arrays
    assert report.verdict == "wrong"


def test_axis_lost_in_three_dimensions_fails() -> None:
    def squeezed(z: Any) -> Any:
        p = np.exp(z - z.max(-1, keepdims=True))
        total = p.sum(-1)
        return p / total.squeeze()[..., None].astype(z.dtype) if z.size else p

    report = check_mapping(squeezed, "softmax", dtypes=["float32"])
    assert "three dimensions" in report.failures
    assert "batches" not in report.failures


@pytest.mark.slow
def test_half_type_without_shift_fails() -> None:
    def unshifted(z: Any) -> Any:
        falling = -np.sort(-z, axis=-1)
        excess = (np.cumsum(falling, axis=-1, dtype=z.dtype) - 1).astype(z.dtype)
        rank = np.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        size = np.sum(rank * falling > excess, axis=-1, keepdims=True)
        tau = np.take_along_axis(excess, size - 1, axis=-1) / size.astype(z.dtype)
        return np.maximum(z - tau, 0)

    report = check_mapping(unshifted, "sparsemax", dtypes=["float16"])
    assert report.verdict == "imprecise"
    assert {"scores around 16", "rows and lengths"} <= {*report.failures}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["entmax15"])
def test_largest_128_scores_are_not_enough(name: str) -> None:
    def largest(z: Any) -> Any:
        low = np.sort(z, axis=-1)[..., -128:][..., :1]
        return MAPPINGS[name](np.where(z < low, -np.inf, z))

    failure = check_mapping(largest, name, dtypes=["float32"]).failures["exact values"]
    assert failure.finding is not None
    assert failure.finding.z.size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(("function", "stay"), [("topk_softmax", 3), ("topk_sparsemax", 2)])
def test_either_convention_for_ties_passes(function: str, stay: int) -> None:
    report = check_mapping(lambda z: MAPPINGS[function](z, 2), function, k=2, dtypes=["float64"])
    tied = next(one for one in report.results if one.name == TOP_K)
    assert tied.verdict == "passed"
    assert str(tied).startswith(f"{stay} of 3 tied scores stay, k = 2")


def test_function_that_ignores_strides_is_wrong() -> None:
    report = check_mapping(planted_causes.as_in_memory, "sparsemax", dtypes=["float64"])
    assert [*report.failures] == ["memory layouts"]
    assert report.verdict == "wrong"
    assert str(report.failures["memory layouts"]).startswith("transposed scores ")


def test_result_that_next_call_changes_is_an_edge() -> None:
    buffers: dict[Any, Any] = {}

    def reusing(z: Any) -> Any:
        buffer = buffers.setdefault((z.shape, z.dtype), np.empty_like(z))
        buffer[...] = pyentmax.softmax(z)
        return buffer

    report = check_mapping(reusing, "softmax", dtypes=["float64"])
    assert [*report.failures] == ["results left as they were"]
    assert report.verdict == "edges"


def test_result_kept_for_an_address_is_wrong() -> None:
    known: dict[Any, Any] = {}

    def cached(z: Any) -> Any:
        key = z.__array_interface__["data"][0], z.shape, z.dtype
        if key not in known:
            known.clear()
            known[key] = z, pyentmax.softmax(z)  # z lives on, so its address is its own
        return known[key][1].copy()

    report = check_mapping(cached, "softmax", dtypes=["float64"])
    assert [*report.failures] == ["arrays read anew"]
    assert report.verdict == "wrong"


def test_float64_computed_in_float32_is_an_edge() -> None:
    def single(z: Any) -> Any:
        return pyentmax.softmax(z.astype(np.float32)).astype(z.dtype)

    report = check_mapping(single, "softmax", dtypes=["float64", "float32"])
    assert [*report.failures] == ["float type and shape"]
    assert "float64 of float32's precision" in str(report.failures["float type and shape"])
    assert report.verdict == "edges"


# --- causes ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sample(planted_causes.VALUES, 3))
def test_cause_of_wrong_values_is_named(name: str) -> None:
    fn, mapping, parameters = planted_causes.VALUES[name]
    report = check_mapping(fn, mapping, dtypes=["float64"], **parameters)
    assert [one.partition(":")[0] for one in report.causes] == [name]
    assert f"likely cause: {name}: " in str(report)
    assert report.verdict in ("imprecise", "wrong")


@pytest.mark.slow
@pytest.mark.parametrize("name", sample(planted_causes.PRODUCTS, 3))
def test_cause_of_wrong_derivative_is_named(name: str) -> None:
    vjp = planted_causes.PRODUCTS[name]
    report = check_mapping(pyentmax.entmax15, "entmax15", vjp=vjp, dtypes=["float64"])
    assert [one.partition(":")[0] for one in report.causes] == [name]
    assert report.verdict == "wrong"


def test_every_cause_is_planted() -> None:
    names = {cause.name for cause in (*VALUE_CAUSES, *DERIVATIVE_CAUSES)}
    practice = {cause for *_, cause in planted_in_practice.MAPPING.values() if cause}
    assert names == {*planted_causes.VALUES, *planted_causes.PRODUCTS} | practice


def test_unknown_fault_has_no_cause() -> None:
    report = check_mapping(lambda z: pyentmax.softmax(0.9 * z), "softmax", dtypes=["float64"])
    assert report.causes == ()


# --- how a function is called ---------------------------------------------------------------------


@pytest.mark.slow
def test_parameters_reach_function_by_name_or_are_bound() -> None:
    def bound(z: Any) -> Any:
        return pyentmax.entmax(z, 4.0)

    report = check_mapping(pyentmax.entmax, "entmax", alpha=4.0).raise_if_failed()
    assert str(report).startswith("entmax (alpha = 4.0): right, float64, float32, float16")
    report = check_mapping(bound, "entmax", alpha=3.9, dtypes=["float64"])
    assert "exact values" in report.failures


@pytest.mark.slow
def test_axis_may_be_called_dim() -> None:
    def with_dim(z: Any, dim: int = 0) -> Any:
        return pyentmax.softmax(z, axis=dim)

    report = check_mapping(with_dim, "softmax", dtypes=["float64"]).raise_if_failed()
    assert "axes" not in not_applicable(report)


def test_matrices_only_functions_are_checked() -> None:
    def rows_only(z: Any) -> Any:
        rows, d = z.shape
        return pyentmax.sparsemax(z)

    report = check_mapping(rows_only, "sparsemax", dtypes=["float64"]).raise_if_failed()
    assert not_applicable(report) == {"axes", "three dimensions", TOP_K, *DERIVATIVES}


def test_error_of_function_is_a_failure_with_its_scores() -> None:
    def no_infinities(z: Any) -> Any:
        if np.isinf(z).any():
            raise ArithmeticError("no")
        return pyentmax.softmax(z)

    report = check_mapping(no_infinities, "softmax", dtypes=["float64"])
    assert {"masked entries", "masked rows", "batches"} <= {*report.failures}
    assert "gives ArithmeticError: no" in str(report.failures["masked rows"])


def on_device(z: Any) -> Any:
    raise RuntimeError("expected all tensors on the same device")


@pytest.mark.parametrize(
    ("fn", "arguments", "error", "message"),
    [
        (1, {"mapping": "softmax"}, TypeError, "fn must be a function, got 1"),
        (len, {"mapping": "hardmax"}, ValueError, "mapping must be one of softmax"),
        (len, {"mapping": "entmax"}, TypeError, r"takes the parameters \(alpha\), got \(\)"),
        (str.upper, {"mapping": "softmax"}, TypeError, "fn must map an array of scores"),
        (str.upper, {"mapping": "softmax"}, TypeError, "numpy: TypeError: descriptor 'upper'"),
        (dict, {"mapping": "softmax"}, TypeError, r"the class dict; pass an instance, dict\("),
        (on_device, {"mapping": "softmax"}, TypeError, r"lambda z: fn\(z.cuda\(\)\).cpu\(\)"),
        (
            pyentmax.softmax,
            {"mapping": "softmax", "dtypes": ["int8"]},
            ValueError,
            r"one that fn takes, of \['float64', .*\], got \['int8'\]",
        ),
    ],
)
def test_wrong_arguments_are_named(
    fn: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_mapping(fn, **arguments)


class Softmax:
    """A layer with an axis of its own, as in PyTorch."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __call__(self, z: Any) -> Any:
        return pyentmax.softmax(z, axis=self.axis)


@pytest.mark.parametrize("axis", [0, 1])
def test_axis_fixed_in_constructor_is_named(axis: int) -> None:
    report = check_mapping(Softmax(axis), "softmax", dtypes=["float64"])
    assert [one.partition(":")[0] for one in report.causes] == ["another axis"]
    assert "make it with axis=-1" in report.causes[0]


def test_axis_that_no_array_has_is_one_line() -> None:
    with pytest.raises(TypeError, match=r"make it with axis=-1 \(dim=-1\)$"):
        check_mapping(Softmax(2), "softmax")


# --- grades and messages ------------------------------------------------------------------------


def no_shift(z: Any) -> Any:
    e = np.exp(z)
    return e / e.sum(-1, keepdims=True)


@pytest.mark.slow
def test_edges_fail_only_strict_checks() -> None:
    report, strict = (
        check_mapping(no_shift, "softmax", strict=strict, dtypes=["float64"])
        for strict in (False, True)
    )
    assert report.verdict == strict.verdict == "edges"
    assert report
    assert not strict
    report.raise_if_failed()
    with pytest.raises(AssertionError, match="softmax: edges"):
        strict.raise_if_failed()


def test_small_errors_are_imprecise() -> None:
    report = check_mapping(lambda z: pyentmax.softmax(z) + 1e-9, "softmax", dtypes=["float64"])
    assert report.verdict == "imprecise"
    assert not report


def test_message_has_smallest_and_worst_input() -> None:
    def slightly(z: Any) -> Any:
        return pyentmax.softmax(z * np.where(np.abs(z) > 2, 1.2, 1.02))

    failure = check_mapping(slightly, "softmax", dtypes=["float64"]).failures["exact values"]
    assert failure.finding is not None
    assert failure.worst is not None
    assert 1e-3 < failure.finding.error < failure.worst.error
    assert "; worst: " in str(failure)
    assert "e+" not in str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax1", "softpick"])
def test_softmax1_and_softpick_are_truths(name: str) -> None:
    def softmax1(z: Any) -> Any:
        e = np.exp(z)
        return e / (1 + e.sum(-1, keepdims=True))

    def softpick(z: Any) -> Any:
        e = np.expm1(z)
        return np.maximum(e, 0) / (np.abs(e).sum(-1, keepdims=True) + 1e-6)

    report = check_mapping(
        {"softmax1": softmax1, "softpick": softpick}[name], name, dtypes=["float64"]
    )
    assert report.verdict == "edges"  # overflow
    assert check_mapping(no_shift, name, dtypes=["float64"]).verdict == "wrong"


def test_masks_that_are_not_tried_are_named() -> None:
    report = check_mapping(pyentmax.softmax, "softmax", dtypes=["float64"])
    assert report.notes == ("mask= was not tried: scores of −∞ mask entries here",)


def test_first_of_several_results_is_judged() -> None:
    report = check_mapping(lambda z: (pyentmax.softmax(z), z), "softmax", dtypes=["float64"])
    assert report.verdict == "right"
    assert report.notes == ("fn returns 2 values; the first was judged",)


def test_function_of_one_vector_is_wrapped() -> None:
    def one(z: Any) -> Any:
        (d,) = z.shape
        return pyentmax.softmax(z)

    report = check_mapping(one, "softmax", dtypes=["float64"])
    assert report.verdict == "right"
    assert report.notes == ("fn takes one vector; it was called row by row",)
    assert "batches" not in not_applicable(report)


def test_function_of_one_length_is_checked() -> None:
    def ten(z: Any) -> Any:
        if z.shape[-1] != 10:
            raise IndexError("ten scores")
        return pyentmax.sparsemax(z)

    report = check_mapping(ten, "sparsemax", dtypes=["float64"])
    assert [*report.failures] == ["row lengths"], report
    assert report.verdict == "edges"


@pytest.mark.slow
def test_function_is_called_as_often_as_stated() -> None:
    calls = []

    def counted(z: Any) -> Any:
        calls.append(z.shape)
        return pyentmax.softmax(z)

    check_mapping(counted, "softmax", vjp=pyentmax.softmax.vjp)  # in all float types
    assert len(calls) <= 3000
    assert "at most 3,000 times" in str(check_mapping.__doc__)


def test_each_property_is_a_test_of_its_own() -> None:
    calls = []

    def unshifted(z: Any) -> Any:
        calls.append(z.shape)
        return no_shift(z)

    cases = {
        str(one): one
        for one in checking.cases(
            check_mapping, unshifted, "softmax", dtypes=["float64", "float16"]
        )
    }
    assert not calls
    cases["shifts"].raise_if_failed()
    n = len(calls)
    with pytest.raises(AssertionError, match="▵ shifts  .*gives"):
        cases["shifts"].raise_if_failed(strict=True)
    assert cases["exact values"].raise_if_failed().grade == "edges"
    assert len(calls) == n > 100
    with pytest.raises(TypeError, match="check must be check_mapping, check_loss or check_att"):
        checking.cases(len, unshifted)


def test_failing_case_is_reproduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(z: Any) -> Any:
        return pyentmax.softmax(2 * z)

    report = check_mapping(fn, "softmax", dtypes=["float64"])
    case = report.reproduce("exact values")
    np.testing.assert_allclose(fn(**case.arrays), case.observed, rtol=1e-14)
    np.testing.assert_allclose(pyentmax.softmax(**case.arrays), case.expected, rtol=1e-14)
    monkeypatch.chdir(tmp_path)
    case.save()
    exec(case.script.replace("from mine import fn", "pass"), {"fn": fn})
    with pytest.raises(ValueError, match="no case of that name; properties are 'row lengths', "):
        report.reproduce("exact value")


def test_report_is_json() -> None:
    report = check_mapping(no_shift, "softmax", dtypes=["float32"])
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (found["verdict"], found["passed"]) == ("edges", True)
    shifts = next(one for one in found["results"] if one["name"] == "shifts")
    assert (shifts["grade"], shifts["error"]) == ("edges", "infinite")
    assert shifts["text"] == str(report.failures["shifts"])


# --- reports --------------------------------------------------------------------------------------


def test_report_prints_and_raises() -> None:
    report = check_mapping(lambda z: pyentmax.softmax(2 * z), "softmax", dtypes=["float64"])
    assert not report
    with pytest.raises(AssertionError, match=r"✗ exact values +\[0, 0.5\] gives \[0.268941, "):
        report.raise_if_failed()
    lines = len(report.results) + len(report.causes) + len(report.notes) + 1
    assert str(report).count("\n") == lines
