"""The judge names planted faults, accuses no right function, and says what it found out."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from planted import PLANTED, RIGHT, Plant, build, entropy, four, soft
from stages import sample

import pyentmax as pe
from pyentmax import check_attention, check_loss, check_mapping, checking

EXAMPLES = {"alpha": 1.5, "budget": 1, "k": 2, "strength": 0.2, "upper": 1}
F64: Any = {"dtypes": ["float64"]}


@pytest.mark.parametrize("i", sample(range(len(PLANTED)), 60))
def test_planted_fault_has_its_verdict_and_cause(i: int) -> None:
    plant: Plant = PLANTED[i]
    report = plant.report()
    assert report.verdict == plant.verdict, report
    (cause,) = report.causes or ("",)
    assert cause.startswith(plant.cause), report.causes
    assert bool(cause) == bool(plant.cause), report.causes


def test_the_guide_counts_the_planted_faults() -> None:
    guide = Path(__file__).parents[2] / "docs/guide/check-implementation.md"
    faults = [plant for plant in PLANTED if plant.verdict != "right"]
    caused = sum(bool(plant.cause) for plant in faults)
    text = guide.read_text(encoding="utf-8")
    assert f"plant {len(faults)} faults" in text
    assert f"the {caused} that are among the known ones" in text


@pytest.mark.slow  # of a mapping and a kernel that other tests hold to the same contract
@pytest.mark.parametrize("name", pe.MAPPINGS)
def test_own_mapping_passes_within_contract(name: str) -> None:
    record: Any = pe.MAPPINGS[name]
    parameters = {parameter: EXAMPLES[parameter] for parameter in record.parameters}
    report = check_mapping(
        record, record, vjp=lambda p, v: record.vjp(p, v, *parameters.values()), **parameters
    )
    assert report.verdict == "right", report
    for result in report.results:  # outside Tsallis' family no constant is calibrated
        assert result.finding is None or result.finding.units <= 4, result


@pytest.mark.slow
def test_own_attention_and_loss_pass() -> None:
    assert check_attention(pe.attention, "entmax", alpha=1.5).verdict == "right"
    grad = lambda z, y: pe.softmax.loss_and_grad(z, y)[1]  # noqa: E731
    report = check_loss(pe.softmax.loss, "softmax", grad=grad).raise_if_failed()
    untried = [one.name for one in report.results if one.verdict != "passed"]
    views, again = "strided gradients from above", "a second backward pass"
    assert untried == ["upstream gradient", views, again]


@pytest.mark.slow
def test_half_types_beside_others_are_edges() -> None:
    def rounded(z: Any) -> Any:
        return pe.softmax(z * z.dtype.type(1.5 if z.dtype == np.float16 else 1))

    report = check_mapping(rounded, "softmax")
    assert (report.verdict, report.passed) == ("edges", True)
    assert report.by_dtype == {"float64": "right", "float32": "right", "float16": "wrong"}
    assert "float16 wrong" in str(report).splitlines()[0]
    assert check_mapping(rounded, "softmax", dtypes=["float16"]).verdict == "wrong"


def test_half_types_alone_are_judged_in_them() -> None:
    def kernel(query: Any, key: Any, value: Any, causal: bool = False, by: Any = 1) -> Any:
        if query.dtype != np.float16:
            raise TypeError("float16 only")
        arrays = [x.astype(np.float32) for x in (query, key, value)]
        return build(RIGHT)(arrays[0] * np.float32(by), *arrays[1:], causal=causal).astype("f2")

    assert check_attention(lambda query, key, value: kernel(query, key, value)).verdict == "right"
    report = check_attention(lambda query, key, value: kernel(query, key, value, by=2))
    assert report.verdict == "wrong"


# --- what is found out ----------------------------------------------------------------------------
def swapped(*arrays: Any) -> Any:
    return [np.swapaxes(x, -2, -3) for x in arrays]


def tiles(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
    if query.shape[1] % 16 or key.shape[1] % 16 or query.shape[-1] < 16:
        raise ValueError("tiles of 16")
    return swapped(four(*swapped(query, key, value), causal=causal))[0]


def packed(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int,
           max_seqlen_k: int, causal: bool = False) -> Any:  # fmt: skip
    assert q.ndim == 3
    assert max_seqlen_q == np.diff(cu_seqlens_q).max()
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for (a, b), (c, d) in zip(pairwise(cu_seqlens_q), pairwise(cu_seqlens_k), strict=True):
        if b > a:
            out[a:b] = swapped(four(*swapped(q[a:b], k[c:d], v[c:d]), causal=causal))[0]
    return out


def single(query: Any, key: Any, value: Any) -> Any:
    if query.shape[-2] > 1:
        raise ValueError("one query")
    return four(query, key, value)


def one_of(query: Any, key: Any, value: Any) -> Any:
    if query.ndim != 3 or key.ndim != 4:
        raise ValueError("(B, H, d) and (B, S, H, d)")
    return four(query[:, :, None], *swapped(key, value))[:, :, 0]


def square(query: Any, key: Any, value: Any) -> Any:
    if query.shape[-2] != key.shape[-2]:
        raise ValueError("T = S")
    return four(query, key, value)


def rank(n: int) -> Any:
    def fewer(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
        if query.ndim != n:
            raise ValueError("axes")
        return four(query, key, value, causal=causal)

    return fewer


def flash(query: Any, key: Any, value: Any, causal: bool = False, window_size: Any = None) -> Any:
    left, right = (-1, -1) if window_size is None else window_size
    window = left + 1 if causal and left >= right == 0 else None
    return four(query, key, value, causal=causal, window=window)


def newest(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
    t, s = query.shape[-2], key.shape[-2]
    return four(query, key, value, causal=causal, offset=s - t if t == 1 else 0)


@pytest.mark.parametrize(
    ("fn", "note"),
    sample([
        (tiles, "T and S are multiples of 16, keys at least 16 wide"),
        (tiles, 'its arrays are (B, T, H, d); layout="BTHd" declares it'),
        (packed, "packed sequences are (N, H, d)"),
        (lambda query, key, value: swapped(four(query, key, value))[0],
         "of BHTd it gives BTHd, as transformers' attention does"),
        (lambda query, key, value: four(query, key, value, causal=True),
         'it is causal always; always={"causal": True} declares it'),
        (single, "it takes one query alone"), (square, "T and S have to be equal"),
        (one_of, "it takes one query alone, without its axis"),
        (flash, "a window of w keys was passed as (w − 1, 0)"),
        (newest, "a single query sees all keys"), (rank(2), ""), (rank(3), ""),
        (lambda query, key, value, dropout=0.0, more=None: four(query, key, value) * (
            np.random.default_rng().random(value.shape[-1:]) >= dropout).astype(query.dtype)
         / query.dtype.type(1 - dropout), "more= was not tried"),
    ], 6),
)  # fmt: skip
def test_what_attention_takes_is_found_out(fn: Any, note: str) -> None:
    report = check_attention(fn, **F64)
    assert report.verdict == "right", report
    assert not note or note in report.notes


@pytest.mark.parametrize(
    ("check", "fn", "verdict", "notes"),
    [
        (check_mapping, lambda z: (pe.softmax(z), z), "right",
         ("fn returns 2 values; the first was judged",)),
        (check_mapping, pe.softmax, "right", ("mask= was not tried", "out= was not tried")),
        (check_mapping, lambda z: pe.softmax(z) if z.ndim == 1 else 1 / 0, "right",
         ("fn takes one vector; it was called row by row",)),
        (check_mapping, lambda z: pe.softmax(z) if z.ndim == 2 else 1 / 0, "right", ()),
        (check_mapping, lambda z: pe.softmax(z) if z.shape[-1] == 10 else 1 / 0, "edges", ()),
        (check_loss, lambda z, y: pe.softmax.loss(z[None], [int(y)]), "right",
         ("fn takes one row; it was called row by row",)),
    ],
)  # fmt: skip
def test_what_fn_takes_is_found_out(check: Any, fn: Any, verdict: str, notes: Any) -> None:
    report = check(fn, "softmax", **F64)
    assert report.verdict == verdict, report
    assert report.notes == notes


def test_parameters_reach_fn_by_name_and_axes_may_be_called_dim() -> None:
    fn = lambda z, alpha, dim=0: pe.entmax(z, alpha, axis=dim)  # noqa: E731
    check_mapping(fn, "entmax", alpha=4.0, strict=True, **F64).raise_if_failed()
    report = check_mapping(lambda z: pe.entmax(z, 4.0), "entmax", alpha=3.9, **F64)
    assert "exact values" in report.failures


# --- reports --------------------------------------------------------------------------------------
def no_shift(z: Any) -> Any:
    return np.exp(z) / np.exp(z).sum(-1, keepdims=True)


def test_edges_fail_only_strict_checks() -> None:
    report, strict = (check_mapping(no_shift, "softmax", strict=x, **F64) for x in (False, True))
    assert report.verdict == strict.verdict == "edges"
    assert report.raise_if_failed()
    with pytest.raises(AssertionError, match="softmax: edges"):
        strict.raise_if_failed()


def test_message_has_smallest_and_worst_input() -> None:
    report = check_mapping(lambda z: pe.softmax(z * np.where(np.abs(z) > 2, 1.2, 1.02)), "softmax",
                           **F64)  # fmt: skip
    failure: Any = report.failures["exact values"]
    assert 1e-3 < failure.finding.error < failure.worst.error
    assert "; worst: " in str(failure)
    with pytest.raises(AssertionError, match=r"✗ exact values +\[0, 0.5\] gives \["):
        report.raise_if_failed()
    lines = len(report.results) + len(report.causes) + len(report.notes) + 1
    assert str(report).count("\n") == lines


def test_each_property_is_a_test_of_its_own() -> None:
    calls: list[int] = []
    cases = {str(one): one for one in checking.cases(
        check_mapping, lambda z: calls.append(1) or no_shift(z), "softmax", **F64)}  # fmt: skip
    assert not calls
    cases["exact values"].raise_if_failed(strict=True)
    n = len(calls)
    with pytest.raises(AssertionError, match="▵ shifts  .*gives"):
        cases["shifts"].raise_if_failed(strict=True)
    assert cases["shifts"].raise_if_failed().grade == "edges"
    with pytest.raises(SkipTest, match="numpy has no gradients"):
        cases["derivative"].raise_if_failed()
    assert len(calls) == n > 100
    with pytest.raises(TypeError, match="check must be check_mapping, check_loss or check_att"):
        checking.cases(len)


def test_failing_case_is_reproduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(z: Any) -> Any:
        return pe.softmax(2 * z)

    report = check_mapping(fn, "softmax", **F64)
    case = report.reproduce("exact values")
    np.testing.assert_allclose(fn(**case.arrays), case.observed, rtol=1e-14)
    np.testing.assert_allclose(pe.softmax(**case.arrays), case.expected, rtol=1e-14)
    monkeypatch.chdir(tmp_path)
    case.save()
    exec(case.script.replace("from mine import fn", "pass"), {"fn": fn})
    with pytest.raises(ValueError, match="no case of that name; properties are 'row lengths', "):
        report.reproduce("exact value")


@pytest.mark.parametrize("check", [check_mapping, check_loss, check_attention])
def test_report_is_json_and_can_be_pickled(check: Any) -> None:
    fn: Any = no_shift if check is check_mapping else lambda z, y: 2 * entropy(z, y)
    if check is check_attention:
        fn = lambda query, key, value: four(query, key, 2 * value)  # noqa: E731
    report = check(fn, "softmax", dtypes=["float32"])
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (found["verdict"], found["passed"]) == (report.verdict, report.passed)
    again = pickle.loads(pickle.dumps(report))
    assert str(again) == str(report)
    name = next(iter(report.failures))
    assert again.reproduce(name).script == report.reproduce(name).script


@pytest.mark.slow
def test_calls_are_as_many_as_stated() -> None:
    calls: list[int] = []
    for check, fn, more, least, most in (
        (check_mapping, lambda z: calls.append(1) or pe.softmax(z), {"vjp": pe.softmax.vjp}, 0,
         "at most 4,000"),
        (check_loss, lambda z, y: calls.append(1) or entropy(z, y), {"grad": soft}, 0,
         "at most 6,000"),
        (check_attention, lambda query, key, value, dropout=0.0: calls.append(1) or four(
            query, key, value), {}, 100, "100 to 2,000"),
    ):  # fmt: skip
        calls.clear()
        check(fn, "softmax", **more)
        assert least <= len(calls) <= int(most.split()[-1].replace(",", ""))
        assert f"{most} times" in str(check.__doc__)


def on_device(z: Any) -> Any:
    raise RuntimeError("expected all tensors on the same device")


@pytest.mark.parametrize(
    ("check", "fn", "options", "error", "message"),
    [
        *((check, 1, {"mapping": "softmax"}, TypeError, "fn must be a function, got 1")
          for check in (check_mapping, check_loss, check_attention)),
        (check_mapping, len, {"mapping": "hardmax"}, ValueError, "mapping must be one of softmax"),
        (check_mapping, len, {"mapping": "entmax"}, TypeError, r"takes the parameters \(alpha\)"),
        (check_mapping, str.upper, {"mapping": "softmax"}, TypeError, "must map an array of"),
        (check_mapping, dict, {"mapping": "softmax"}, TypeError, r"class dict; pass an instance"),
        (check_mapping, on_device, {"mapping": "softmax"}, TypeError, r"fn\(z.cuda\(\)\).cpu\(\)"),
        (check_mapping, lambda z: pe.softmax(z, axis=2), {"mapping": "softmax"}, TypeError,
         r"make it with axis=-1 \(dim=-1\)$"),
        (check_mapping, pe.softmax, {"mapping": "softmax", "dtypes": ["int8"]}, ValueError,
         r"one that fn takes, of \['float64', .*\], got \['int8'\]"),
        (check_mapping, pe.softmax, {"mapping": "softmax", "tolerances": {"float8": 1}}, ValueError,
         "tolerances must be numbers above 0"),
        (check_loss, lambda z, y: z, {"mapping": "softmax"}, TypeError, r"scores \(4, 3\) and"),
        (check_loss, len, {"mapping": "softmax", "targets": "x"}, ValueError, "targets must be"),
        (check_attention, len, {}, TypeError, r"fn must map query, key and value \(…, T, d\)"),
        (check_attention, len, {"causal": "left"}, ValueError, 'must be "bottom-right", '),
        (check_attention, len, {"always": {"x": 1}}, ValueError, "always takes scale, mask"),
    ],
)  # fmt: skip
def test_wrong_argument_is_named(
    check: Any, fn: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check(fn, **options)
