"""The check of attention names faults by known variants, and accuses no right one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import planted_attention
import pytest
from planted_attention import FAULTS, RIGHT, UNNAMED, build
from stages import sample

import pyentmax as pe
from pyentmax import AttentionReport, check_attention
from pyentmax.checking._attention import VARIANTS


def check(source: str, **options: Any) -> AttentionReport:
    return check_attention(build(source), **options)


def test_right_attention_passes_every_property() -> None:
    report = check(RIGHT)
    assert report.verdict == "right", report
    tried = {one.name for one in report.results if one.verdict == "passed"}
    assert {one.name for one in report.results} - tried == {"dropout", "gradients"}
    assert report.causal == "bottom-right"


@pytest.mark.parametrize(
    ("mapping", "parameters"),
    sample([("sparsemax", {}), ("entmax", {"alpha": 1.5}), ("entmax15", {}), ("normmax",
            {"alpha": 2.0}), ("topk_softmax", {"k": 2}), ("softmax", {})], 6),
)  # fmt: skip
def test_right_attention_of_other_mappings_passes(mapping: str, parameters: Any) -> None:
    forward = partial(pe.MAPPINGS[mapping].forward, **parameters)
    report = check_attention(build(RIGHT, forward), mapping, **parameters, dtypes=["float64"])
    assert report.verdict == "right", report


@pytest.mark.slow
def test_own_attention_passes() -> None:
    report = check_attention(pe.attention, "entmax", alpha=1.5)
    assert report.verdict == "right"
    assert "offsets" not in {one.name for one in report.results if one.finding is None}


@pytest.mark.parametrize("name", sample(FAULTS, 31))
def test_planted_fault_of_attention_is_named(name: str) -> None:
    (old, new), verdict, cause = FAULTS[name]
    source = RIGHT.replace("    scores = np.where", "    raw = scores\n    scores = np.where")
    assert source.count(old) == 1
    causal = "bottom-right" if "corner" in name else None
    report = check(source.replace(old, new), dtypes=["float64"], causal=causal)
    assert report.verdict == verdict, report
    assert [one.partition(":")[0] for one in report.causes] == [cause]


@pytest.mark.parametrize("name", sample(UNNAMED, 30))
def test_other_fault_of_attention_is_found(name: str) -> None:
    old, new, verdict = UNNAMED[name]
    assert RIGHT.count(old) == 1
    report = check(RIGHT.replace(old, new), dtypes=["float64"])
    assert report.verdict == verdict, report
    assert report.causes == ()


def test_every_variant_is_planted() -> None:
    assert {one.name for one in VARIANTS} == {*FAULTS}


@pytest.mark.slow
def test_inputs_fail_every_known_wrong_variant() -> None:
    report = check(RIGHT, dtypes=["float16"])
    half = {
        "lengths",
        "bias",
        "softcap",
        "sink",
        "window",
        "offset",
        "sequences",
        "nothing",
        "corner",
    }
    names = {one.name for one in VARIANTS}
    named = {name for name in names if not half & {*name.split()}}
    assert named <= {*report.distances}
    assert min(report.distances[name] for name in named) > 4, "of a half type's tolerance"
    distances = check(RIGHT, dtypes=["float32"]).distances
    assert min(distances.get(name, 0) for name in names if "corner" not in name) > 10


@pytest.mark.slow
def test_gradients_are_compared() -> None:
    attention = build(RIGHT)

    def simple(query: Any, key: Any, value: Any) -> Any:
        return attention(query, key, value)

    def grouped(query: Any, key: Any, value: Any, g: Any) -> Any:
        if query.shape[-3] != key.shape[-3]:
            raise NotImplementedError("groups")
        return planted_attention.vjp(query, key, value, g)

    def unscaled(*arrays: Any) -> Any:
        query, key, value = grouped(*arrays)
        return 2 * query, key, value

    assert check_attention(simple, vjp=grouped).verdict == "right"
    report = check_attention(simple, vjp=unscaled)
    assert [*report.failures] == ["gradients"]
    assert report.verdict == "wrong"
    assert str(report.failures["gradients"]).startswith("dquery, T = 3, S = 5 gives ")


@pytest.mark.slow
def test_dropout_without_rescaling_is_wrong() -> None:
    def attention(
        query: Any, key: Any, value: Any, dropout: float = 0.0, rescale: bool = True
    ) -> Any:
        p = pe.softmax(query @ np.swapaxes(key, -1, -2) / query.dtype.type(2))
        keep = np.random.default_rng().random(p.shape) >= dropout
        return (p * keep / p.dtype.type(1 - dropout if rescale else 1)) @ value

    def lossy(query: Any, key: Any, value: Any, dropout: float = 0.0) -> Any:
        return attention(query, key, value, dropout, rescale=False)

    assert "dropout" not in check_attention(attention, dtypes=["float32"]).failures
    assert [*check_attention(lossy, dtypes=["float32"]).failures] == ["dropout"]


def test_callers_corner_decides() -> None:
    assert check(RIGHT, causal="bottom-right", dtypes=["float64"])
    report = check(RIGHT, causal="top-left", dtypes=["float64"])
    assert {"causal, T < S", "causal, T > S"} <= {*report.failures}
    assert "causal, T = S" not in report.failures
    assert report.verdict == "wrong"


@pytest.mark.parametrize("rank", sample([2, 3], 2))
def test_arrays_of_fewer_axes_are_enough(rank: int) -> None:
    attention = build(RIGHT)

    def fewer(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        if query.ndim != rank:
            raise ValueError("axes")
        return attention(query, key, value, causal=causal)

    assert check_attention(fewer, dtypes=["float64"]).verdict == "right"


def test_names_of_keywords_may_be_given() -> None:
    attention = build(RIGHT)

    def other(query: Any, key: Any, value: Any, *, hidden: Any = None) -> Any:
        return attention(query, key, value, mask=hidden)

    report = check_attention(other, names={"mask": "hidden"}, dtypes=["float64"])
    assert "boolean masks" in {one.name for one in report.results if one.verdict == "passed"}


@pytest.mark.slow
def test_calls_of_attention_are_as_many_as_stated() -> None:
    calls, attention = [], build(RIGHT)

    def counted(query: Any, key: Any, value: Any, dropout: float = 0.0) -> Any:
        calls.append(1)
        return attention(query, key, value)

    check_attention(counted)
    assert 400 < len(calls) <= 1000
    assert "at most 1,000 times" in str(check_attention.__doc__)


@pytest.mark.parametrize(
    ("fn", "options", "error", "message"),
    [
        (1, {}, TypeError, "fn must be a function, got 1"),
        (len, {}, TypeError, r"fn must map query, key and value \(…, T, d\)"),
        (len, {"mapping": "hardmax"}, ValueError, "mapping must be one of softmax"),
        (len, {"causal": "left"}, ValueError, 'must be "bottom-right", "top-left" or None'),
    ],
)
def test_wrong_argument_of_check_attention_is_named(
    fn: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_attention(fn, **options)


@pytest.mark.parametrize("default", [None, (-1, -1)])
def test_window_may_be_a_pair(default: Any) -> None:
    attention = build(RIGHT)

    def flash(query: Any, key: Any, value: Any, causal: bool = False, window_size: Any = default):
        left, right = (-1, -1) if window_size is None else window_size
        window = left + 1 if causal and left >= right == 0 else None
        return attention(query, key, value, causal=causal, window=window)

    report = check_attention(flash, dtypes=["float64"])
    assert "sliding windows" in {one.name for one in report.results if one.verdict == "passed"}
    assert "a window of w keys was passed as (w − 1, 0)" in report.notes
