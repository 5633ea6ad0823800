"""The check of attention names faults by known variants, and accuses no right one."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import planted_attention
import planted_in_practice
import pytest
from planted_attention import BACKWARD, BACKWARD_FAULTS, FAULTS, RIGHT, UNNAMED, build
from stages import sample

import pyentmax as pe
from pyentmax import AttentionReport, check_attention
from pyentmax.checking._attention import VARIANTS


def check(source: str, **options: Any) -> AttentionReport:
    return check_attention(build(source), **options)


def test_right_attention_passes_every_property() -> None:
    report = check(RIGHT, dtypes=["float64"])
    assert report.verdict == "right", report
    tried = {one.name for one in report.results if one.verdict == "passed"}
    untried = {one.name for one in report.results} - tried
    assert {one.partition(" ")[0] for one in untried} == {
        "dropout", "gradient", "gradients", "masks", "slopes"}  # fmt: skip
    assert report.causal == "bottom-right"


@pytest.mark.parametrize(
    ("mapping", "parameters"),
    sample([("sparsemax", {}), ("entmax", {"alpha": 1.5}), ("entmax15", {}), ("normmax",
            {"alpha": 2.0}), ("topk_softmax", {"k": 2}), ("softmax", {})], 6),
)  # fmt: skip
def test_right_attention_of_other_mappings_passes(mapping: str, parameters: Any) -> None:
    forward = partial(pe.MAPPINGS[mapping], **parameters)
    report = check_attention(build(RIGHT, forward), mapping, **parameters, dtypes=["float64"])
    assert report.verdict == "right", report


@pytest.mark.slow
def test_own_attention_passes() -> None:
    report = check_attention(pe.attention, "entmax", alpha=1.5)
    assert report.verdict == "right"
    assert "offsets" not in {one.name for one in report.results if one.finding is None}


@pytest.mark.parametrize("name", sample(FAULTS, 37))
def test_planted_fault_of_attention_is_named(name: str) -> None:
    (old, new), verdict, cause = FAULTS[name]
    assert RIGHT.count(old) == 1
    causal = "bottom-right" if "corner" in name else None
    report = check(RIGHT.replace(old, new), dtypes=["float64"], causal=causal)
    assert report.verdict == verdict, report
    assert [one.partition(":")[0] for one in report.causes] == [cause]


@pytest.mark.slow
@pytest.mark.parametrize("name", sample(UNNAMED, 30))
def test_other_fault_of_attention_is_found(name: str) -> None:
    old, new, verdict = UNNAMED[name]
    assert RIGHT.count(old) == 1
    report = check(RIGHT.replace(old, new), dtypes=["float64"])
    assert report.verdict == verdict, report
    assert report.causes == ()


def check_backward(text: str) -> AttentionReport:
    right = build(RIGHT)

    def attention(query: Any, key: Any, value: Any, causal: bool = False, window: Any = None,
                  lengths: Any = None, softcap: Any = None) -> Any:  # fmt: skip
        return right(
            query, key, value, causal=causal, window=window, lengths=lengths, softcap=softcap
        )

    return check_attention(attention, vjp=build(text, name="vjp"), dtypes=["float64"])


def test_right_backward_pass_with_options_passes() -> None:
    report = check_backward(BACKWARD)
    assert report.verdict == "right", report
    assert "gradients" in {one.name for one in report.results if one.verdict == "passed"}


@pytest.mark.parametrize("name", sample(BACKWARD_FAULTS, 9))
def test_planted_fault_of_backward_pass_is_named(name: str) -> None:
    old, new = BACKWARD_FAULTS[name]
    assert BACKWARD.count(old) == 1
    report = check_backward(BACKWARD.replace(old, new))
    assert report.verdict == "wrong", report
    assert [one.partition(":")[0] for one in report.causes] == [name]


@pytest.mark.slow
@pytest.mark.parametrize("name", planted_in_practice.ATTENTION)
def test_fault_of_practice_is_found(name: str) -> None:
    changes, verdict, cause = planted_in_practice.ATTENTION[name]
    text = planted_in_practice.TILED
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert text.count(old) == 1
        text = text.replace(old, new)
    report = check(text, dtypes=["float64"], causal="bottom-right")
    assert report.verdict == verdict, report
    assert [one.partition(":")[0] for one in report.causes] == [cause][: bool(cause)]


@pytest.mark.slow
def test_tiled_attention_passes() -> None:
    assert check(planted_in_practice.TILED).verdict == "right"


@pytest.mark.slow
@pytest.mark.parametrize("name", planted_in_practice.BACKWARD)
def test_fault_of_practice_in_backward_pass_is_found(name: str) -> None:
    old, new, verdict = planted_in_practice.BACKWARD[name]
    assert BACKWARD.count(old) == 1
    report = check_backward(BACKWARD.replace(old, new))
    assert report.verdict == verdict, report
    known = name in {one.name for one in VARIANTS}
    assert [one.partition(":")[0] for one in report.causes] == [name][:known]


def test_positions_before_heads_in_three_axes_are_found() -> None:
    right = build(RIGHT)

    def packed(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int,
               max_seqlen_k: int, causal: bool = False) -> Any:  # fmt: skip
        assert q.ndim == 3
        assert max_seqlen_q == np.diff(cu_seqlens_q).max()
        assert max_seqlen_k == np.diff(cu_seqlens_k).max()
        parts = []
        for (a, b), (c, d) in zip(pairwise(cu_seqlens_q), pairwise(cu_seqlens_k), strict=True):
            x, y, z = (np.swapaxes(one, 0, 1) for one in (q[a:b], k[c:d], v[c:d]))
            parts.append(np.swapaxes(right(x, y, z, causal=causal), 0, 1))
        return np.concatenate(parts)

    report = check_attention(packed, dtypes=["float64"])
    assert 'its arrays are (T, H, d); layout="BTHd" declares it' in report.notes
    assert report.verdict == "right", report
    assert "packed sequences" in {one.name for one in report.results if one.verdict == "passed"}


def test_planted_variants_are_known() -> None:
    assert {*FAULTS} <= {one.name for one in VARIANTS}


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
    assert {"gradients", "gradients of long rows"} <= {*report.failures}
    assert report.verdict == "wrong"
    assert str(report.failures["gradients"]).startswith("dquery, T = 3, S = 5 gives ")


@pytest.mark.slow
def test_dropout_without_rescaling_is_wrong() -> None:
    def attention(
        query: Any, key: Any, value: Any, dropout: float = 0.0, rescale: bool = True
    ) -> Any:
        width = query.dtype.type(query.shape[-1])
        p = pe.softmax(query @ np.swapaxes(key, -1, -2) / np.sqrt(width))
        keep = np.random.default_rng().random(p.shape) >= dropout
        return (p * keep / p.dtype.type(1 - dropout if rescale else 1)) @ value

    def lossy(query: Any, key: Any, value: Any, dropout: float = 0.0) -> Any:
        return attention(query, key, value, dropout, rescale=False)

    assert "dropout" not in check_attention(attention, dtypes=["float32"]).failures
    assert [*check_attention(lossy, dtypes=["float32"]).failures] == ["dropout"]


@pytest.mark.slow
def test_callers_corner_decides() -> None:
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


def test_attention_that_ignores_strides_is_wrong() -> None:
    attention = build(RIGHT)

    def as_in_memory(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        if min(query.strides) > 0:
            memory = np.lib.stride_tricks.as_strided(query, (query.size,), (query.itemsize,))
            query = memory.reshape(query.shape)
        return attention(query, key, value, causal=causal)

    report = check_attention(as_in_memory, dtypes=["float64"])
    assert [*report.failures] == ["memory layouts"]
    assert report.verdict == "wrong"


def test_output_in_one_buffer_is_an_edge() -> None:
    attention, buffers = build(RIGHT), {}

    def reusing(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        out = attention(query, key, value, causal=causal)
        buffer = buffers.setdefault((out.shape, out.dtype), np.empty_like(out))
        buffer[...] = out
        return buffer

    report = check_attention(reusing, dtypes=["float64"])
    assert [*report.failures] == ["results left as they were"]
    assert report.verdict == "edges"


@pytest.mark.slow
def test_half_types_alone_are_judged_in_them() -> None:
    def kernel(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        if query.dtype != np.float16:
            raise TypeError("float16 only")
        arrays = [x.astype(np.float32) for x in (query, key, value)]
        return build(RIGHT)(*arrays, causal=causal).astype(np.float16)

    def unscaled(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        return kernel(query / query.dtype.type(query.shape[-1] ** 0.5), key, value, causal)

    assert check_attention(kernel).verdict == "right"
    report = check_attention(unscaled)
    assert report.verdict == "wrong"
    assert [one.partition(":")[0] for one in report.causes] == ["scaled by 1/d"]


def test_tiles_and_positions_before_heads_are_found_out() -> None:
    def kernel(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        if query.shape[1] % 16 or key.shape[1] % 16 or query.shape[-1] < 16:
            raise ValueError("tiles of 16")
        arrays = [np.swapaxes(x, 1, 2) for x in (query, key, value)]
        return np.swapaxes(build(RIGHT)(*arrays, causal=causal), 1, 2)

    report = check_attention(kernel, dtypes=["float64"])
    assert report.verdict == "right", report
    words = " ".join(report.notes)
    assert 'its arrays are (B, T, H, d); layout="BTHd" declares it' in words
    assert "T and S are multiples of 16, keys at least 16 wide" in words


def test_built_in_causality_is_found_out() -> None:
    def always(query: Any, key: Any, value: Any) -> Any:
        return build(RIGHT)(query, key, value, causal=True)

    report = check_attention(always, dtypes=["float64"])
    assert report.verdict == "right", report
    assert any("it is causal always" in note for note in report.notes)


def test_option_that_always_raises_is_an_edge() -> None:
    def declared(query: Any, key: Any, value: Any, causal: bool = False, sink: Any = None) -> Any:
        if sink is not None:
            raise NotImplementedError("sinks")
        return build(RIGHT)(query, key, value, causal=causal)

    report = check_attention(declared, dtypes=["float64"])
    assert report.verdict == "edges"
    assert "NotImplementedError: sinks" in str(report.failures["sinks"])


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

    check_attention(lambda query, key, value: counted(query, key, value))
    assert len(calls) >= 100
    check_attention(counted)
    assert len(calls) <= 2000
    assert "100 to 2,000 times" in str(check_attention.__doc__)


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


def test_single_query_may_be_the_newest() -> None:
    decoding = RIGHT.replace("s - t if offset", "(s - t) * (t == 1) if offset")
    report = check(decoding, dtypes=["float64"])
    assert report.causal == "top-left"
    assert "a single query sees all keys" in report.notes
    assert {*report.failures} <= {"offsets"}, report
