"""The check of losses accuses no right one, and names faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import planted_in_practice
import planted_losses
import pytest
from stages import sample

import pyentmax as pe
from pyentmax import check_loss
from pyentmax.checking import _loss


@pytest.mark.parametrize("name", planted_losses.RIGHT)
def test_right_loss_is_not_accused(name: str) -> None:
    fn, mapping, grad = planted_losses.RIGHT[name]
    report = check_loss(fn, mapping, grad=grad, dtypes=["float64"])
    assert report.verdict in ("right", "edges"), report
    grades = {one.name: one.verdict for one in report.results}
    assert grades["gradient"] == grades["gradient of a batch"] == "passed"


@pytest.mark.parametrize("name", sample(planted_losses.FAULTS, 3))
def test_planted_fault_of_loss_is_named(name: str) -> None:
    fn, mapping, grad, verdict, cause = planted_losses.FAULTS[name]
    report = check_loss(fn, mapping, grad=grad, dtypes=["float64"])
    assert report.verdict == verdict, report
    assert [one.partition(":")[0] for one in report.causes] == [cause][: bool(cause)]


@pytest.mark.parametrize("name", planted_in_practice.LOSS)
def test_fault_of_practice_is_found(name: str) -> None:
    fn, grad, verdict, cause = planted_in_practice.LOSS[name]
    report = check_loss(fn, "softmax", grad=grad, dtypes=["float64"])
    assert report.verdict == verdict, report
    assert [one.partition(":")[0] for one in report.causes] == [cause][: bool(cause)]


def test_own_loss_has_every_option_tried() -> None:
    grad = planted_losses.RIGHT["own, softmax"][2]
    report = check_loss(pe.softmax.loss, "softmax", grad=grad, strict=True).raise_if_failed()
    untried = [one.name for one in report.results if one.verdict != "passed"]
    assert untried == ["upstream gradient"]  # grad= takes none
    assert report.notes == ("of a batch fn gives mean",)


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("ignore_index", None, "ignored labels"), ("mask", None, "masks"), ("reduction", "sum",
                                                                       "reductions")],
)  # fmt: skip
def test_option_that_does_nothing_is_named(option: str, value: Any, named: str) -> None:
    def deaf(z: Any, y: Any, ignore_index: Any = None, mask: Any = None, reduction: Any = "mean"):
        options = {"ignore_index": ignore_index, "mask": mask, "reduction": reduction}
        return pe.softmax.loss(z, np.maximum(y, 0), **{**options, option: value})

    assert named in check_loss(deaf, "softmax", dtypes=["float64"]).failures


def test_one_row_loss_is_wrapped() -> None:
    def one(z: Any, y: Any) -> Any:
        return pe.softmax(z)[int(y)] * 0 + float(pe.softmax.loss(z, y))

    report = check_loss(one, "softmax", dtypes=["float64"])
    assert report.verdict == "right"
    assert report.notes == ("fn takes one row; it was called row by row",)


def test_loss_that_ignores_strides_is_wrong() -> None:
    def as_in_memory(z: Any, y: Any) -> Any:
        if min(z.strides) > 0:
            z = np.lib.stride_tricks.as_strided(z, (z.size,), (z.itemsize,)).reshape(z.shape)
        return pe.softmax.loss(z, y)

    report = check_loss(as_in_memory, "softmax", dtypes=["float64"])
    assert [*report.failures] == ["memory layouts"]
    assert report.verdict == "wrong"


def test_losses_in_one_buffer_are_an_edge() -> None:
    buffers: dict[Any, Any] = {}

    def reusing(z: Any, y: Any) -> Any:
        loss = pe.softmax.loss(z, y, reduction="none")
        buffer = buffers.setdefault((z.shape, z.dtype), np.empty_like(loss))
        buffer[...] = loss
        return buffer

    report = check_loss(reusing, "softmax", dtypes=["float64"])
    assert [*report.failures] == ["results left as they were"]
    assert report.verdict == "edges"


def test_gradient_that_is_written_over_the_scores_is_an_edge() -> None:
    def grad(z: Any, y: Any) -> Any:
        z -= z.max(-1, keepdims=True)
        return planted_losses.gradient_of("softmax")(z, y)

    report = check_loss(planted_losses.cross_entropy, "softmax", grad=grad, dtypes=["float64"])
    assert [*report.failures] == ["inputs left as they were"]
    assert report.verdict == "edges"


def test_calls_of_loss_are_as_many_as_stated() -> None:
    calls = []

    def counted(z: Any, y: Any) -> Any:
        calls.append(y)
        return planted_losses.cross_entropy(z, y)

    check_loss(counted, "softmax", grad=planted_losses.gradient_of("softmax"))
    assert len(calls) <= 6000
    assert "at most 6,000 times" in str(check_loss.__doc__)


def test_planted_causes_of_a_loss_are_known() -> None:
    names = {cause.name for cause in (*_loss.CAUSES, *_loss.GRADIENT_CAUSES)}
    planted = {fault[-1] for fault in planted_losses.FAULTS.values()} - {""}
    assert planted <= names
    assert len(planted) > 20


@pytest.mark.parametrize(
    ("fn", "mapping", "error", "message"),
    [
        (1, "softmax", TypeError, "fn must be a function, got 1"),
        (len, "hardmax", ValueError, "mapping must be one of softmax"),
        (str.upper, "softmax", TypeError, r"fn must map scores \(4, 3\) and labels \(4,\)"),
        (lambda z, y: z, "softmax", TypeError, r"a loss, or one for each row, got \(4, 3\)"),
    ],
)
def test_wrong_argument_of_check_loss_is_named(
    fn: Any, mapping: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_loss(fn, mapping)
