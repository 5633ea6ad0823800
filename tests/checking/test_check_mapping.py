"""The check of implementations names faults with a small input, and accuses no right one."""

from __future__ import annotations

from functools import partial
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.special
from planted_faults import FIRST, OTHERS, PARAMETERS, RIGHT, Fault, functions
from stages import sample, slow

import pyentmax
from pyentmax import MAPPINGS, MappingReport, check_mapping
from pyentmax.mappings.regularized import separable_mapping

EXAMPLES = {"alpha": 1.5, "budget": 1, "k": 2, "strength": 0.2, "upper": 1}
DERIVATIVES = {"derivative", "derivative and differences", "derivative at masked entries"}


def check(source: str, mapping: str) -> MappingReport:
    forward, vjp = functions(source)
    return check_mapping(forward, mapping, vjp=vjp, **PARAMETERS.get(mapping, {}))


def not_applicable(report: MappingReport) -> set[str]:
    return {result.name for result in report.results if result.verdict == "not applicable"}


# --- right and wrong implementations --------------------------------------------------------------


@pytest.mark.parametrize("mapping", sample(RIGHT, 5))
def test_right_implementation_passes(mapping: str) -> None:
    check(RIGHT[mapping], mapping).raise_if_failed()


@pytest.mark.parametrize("fault", [*FIRST, *slow(*((fault,) for fault in OTHERS))], ids=str)
def test_planted_fault_is_named(fault: Fault) -> None:
    failure = check(fault.source(), fault.mapping).failures[fault.named]
    assert failure.finding is not None
    assert failure.finding.units > 4
    if fault in FIRST:
        assert failure.finding.z.size <= 3, "the smallest input"


@pytest.mark.parametrize("name", sample(MAPPINGS, 20))
def test_own_mapping_passes_within_contract(name: str) -> None:
    record = MAPPINGS[name]
    parameters = {parameter: EXAMPLES[parameter] for parameter in record.parameters}
    vjp = partial(_vjp_of, record, tuple(parameters.values()))
    report = check_mapping(record.forward, record, vjp=vjp, **parameters).raise_if_failed()
    for result in report.results:
        # Of mappings outside Tsallis' family, no constant of the contract is calibrated.
        assert result.finding is None or result.finding.units <= 4, result


def _vjp_of(record: Any, parameters: tuple[Any, ...], p: Any, v: Any) -> Any:
    return record.vjp(p, v, *parameters)


@pytest.mark.slow
def test_scipy_softmax_passes() -> None:
    report = check_mapping(scipy.special.softmax, "softmax").raise_if_failed()
    assert not_applicable(report) == DERIVATIVES


@pytest.mark.slow
def test_users_own_mapping_is_checked_by_its_record() -> None:
    cubic = separable_mapping("cubic", lambda p: p**3 / 3, np.sqrt, lambda p: 2 * p)
    check_mapping(cubic.forward, cubic, dtypes=["float64"]).raise_if_failed()
    report = check_mapping(pyentmax.sparsemax, cubic, dtypes=["float64"])
    assert "exact values" in report.failures


# --- how a function is called ---------------------------------------------------------------------


def test_parameters_reach_function_by_name_or_are_bound() -> None:
    def bound(z: Any) -> Any:
        return pyentmax.entmax(z, 4.0)

    report = check_mapping(pyentmax.entmax, "entmax", alpha=4.0).raise_if_failed()
    assert str(report).startswith("entmax (alpha = 4.0): passed, float64, float32, float16")
    assert "exact values" in check_mapping(bound, "entmax", alpha=3.9).failures


@pytest.mark.slow
def test_axis_may_be_called_dim() -> None:
    def with_dim(z: Any, dim: int = 0) -> Any:
        return pyentmax.softmax(z, axis=dim)

    assert "axes" not in not_applicable(check_mapping(with_dim, "softmax").raise_if_failed())


def test_matrices_only_functions_are_checked() -> None:
    def rows_only(z: Any) -> Any:
        rows, d = z.shape
        return pyentmax.sparsemax(z)

    report = check_mapping(rows_only, "sparsemax").raise_if_failed()
    assert not_applicable(report) == {"axes", *DERIVATIVES}


def test_error_of_function_is_a_failure_with_its_scores() -> None:
    def no_infinities(z: Any) -> Any:
        if np.isinf(z).any():
            raise ArithmeticError("no")
        return pyentmax.softmax(z)

    report = check_mapping(no_infinities, "softmax")
    assert [*report.failures] == ["masked entries", "masked rows", "batches"]
    assert str(report.failures["masked rows"]).startswith("[-inf] gives ArithmeticError: no")


@pytest.mark.parametrize(
    ("fn", "arguments", "error", "message"),
    [
        (1, {"mapping": "softmax"}, TypeError, "fn must be a function, got 1"),
        (len, {"mapping": "hardmax"}, ValueError, "mapping must be one of softmax"),
        (len, {"mapping": "entmax"}, TypeError, r"takes the parameters \(alpha\), got \(\)"),
        (str.upper, {"mapping": "softmax"}, TypeError, "fn must map an array of scores"),
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


# --- reports --------------------------------------------------------------------------------------


def test_report_prints_raises_and_draws() -> None:
    report = check_mapping(lambda z: pyentmax.softmax(2 * z), "softmax")
    with pytest.raises(AssertionError, match=r"✗ exact values +\[0, 0.5\] gives \[0.268941, "):
        report.raise_if_failed()
    assert str(report).count("\n") == len(report.results)
    drawn = ElementTree.fromstring(report._repr_html_())
    assert len(drawn.findall(".//{*}g")) == sum(r.finding is not None for r in report.results)
