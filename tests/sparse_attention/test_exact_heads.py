"""Greedy, top-k, min-p and draws from a screen: the words of all products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax import ScreenedRows, linear_argmax, linear_min_p, linear_sample, linear_top_k
from pyentmax.engine.backends import choice
from pyentmax.sparse_attention import exact_heads

HEADS = "gaussian", "outlier columns", "heavy tails", "rows nearly equal", "equal rows"
has_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")


def head(kind: str, n: int, d: int, states: int, seed: int = 0) -> tuple[Any, Any]:
    """States and rows, of scores with a standard deviation of 3, but for equal rows."""
    rng = np.random.default_rng([seed, HEADS.index(kind)])
    x, rows = (rng.standard_normal((m, d), np.float32) for m in (states, n))
    if kind == "outlier columns":
        rows[:, rng.choice(d, 5, False)] *= rng.uniform(10, 20, 5).astype(np.float32)
    elif kind == "heavy tails":
        rows = rng.standard_t(2.5, (n, d)).astype(np.float32)
    elif kind == "rows nearly equal":
        rows += 150 * rng.standard_normal(d, np.float32)
    elif kind == "equal rows":
        rows[:] = rows[:1]
    spread = (x @ rows.T).std(axis=-1, keepdims=True).mean()
    return x * np.float32(3 / max(spread, 1)), rows


def rule_of(z: Any, k: int | None = None, min_p: float | None = None) -> Any:
    """The words of one row of scores, as a reader of NumPy would write it."""
    words = np.argsort(-z, kind="stable")[:k]
    if min_p is not None:
        words = words[z[words] >= z[words[0]] + np.log(min_p)]
    return words


def check_words(words: Any, z: Any, room: Any, k: int | None = None, **rule: Any) -> None:
    """They are those of the scores z, but for words within rounding of the cut."""
    expected = rule_of(z, k, **rule)
    cut = z[expected[-1]] if k is not None else z[expected[0]] + np.log(rule["min_p"])
    differ = np.setxor1d(words, expected)
    assert np.all(np.abs(z[differ] - cut) <= 2 * room.max()), (differ, z[differ], cut)
    assert np.all(np.diff(z[words]) <= 2 * room.max())


def rounding(x: Any, rows: Any) -> Any:
    norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(rows, axis=1)
    return (x.shape[1] + 16) * np.finfo(np.float32).eps * norms.max(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [(kind, 0) for kind in HEADS]
    + [pytest.param(k, i, marks=pytest.mark.slow) for k in HEADS for i in range(1, 41)],
)
def test_words_are_those_of_all_scores(kind: str, seed: int) -> None:
    n = int(np.random.default_rng(seed).choice([50, 700, 5000, 9000]))
    x, rows = head(kind, n, 64, 50, seed)
    exact, room = x.astype(np.float64) @ rows.T.astype(np.float64), rounding(x, rows)
    screened = ScreenedRows(rows)
    best, scores = linear_argmax(x, screened)
    np.testing.assert_allclose(scores, exact[range(50), best], rtol=0, atol=room.max())
    k = min(40, n)
    top, near = linear_top_k(x, screened, 40), linear_min_p(x, screened, 0.05)
    assert np.diff(top[2]).tolist() == [k] * 50
    for i, z in enumerate(exact):
        check_words(best[i : i + 1], z, room[i], 1)
        check_words(top[0][top[2][i] : top[2][i + 1]], z, room[i], k)
        check_words(near[0][near[2][i] : near[2][i + 1]], z, room[i], min_p=0.05)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(
    "rule",
    [{}, {"temperature": 0.3}, {"temperature": 4.0}, {"top_k": 20}, {"min_p": 0.1},
     {"temperature": 1.7, "top_k": 8, "min_p": 0.05}],
)  # fmt: skip
@pytest.mark.parametrize("draws", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_draws_are_those_of_all_scores(draws: int, kind: str, rule: dict[str, Any]) -> None:
    x, rows = head(kind, 5000, 32, draws)
    bias = np.random.default_rng(1).standard_normal(5000)
    options = {**rule, "bias": bias, "scale": 0.8}
    words, scores = linear_sample(x, ScreenedRows(rows), np.random.default_rng(5), **options)
    dense, others = linear_sample(x, rows, np.random.default_rng(5), **options)
    t, k, min_p = (rule.get(name) for name in ("temperature", "top_k", "min_p"))
    z = (0.8 * (x.astype(np.float64) @ rows.T.astype(np.float64)) + bias) / (t or 1)
    noise = -np.log(np.random.default_rng(5).standard_exponential((draws, 5000)))
    own = [rule_of(row, k, min_p) for row in z]
    by_hand = np.array([w[np.argmax(r[w] + g[w])] for r, g, w in zip(z, noise, own, strict=True)])
    assert np.count_nonzero(words != dense) == 0
    assert np.count_nonzero(words != by_hand) <= (kind == "rows nearly equal") * draws / 50
    np.testing.assert_allclose(scores, others, rtol=1e-5, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "draws"), [({}, 10**6), ({"top_k": 30}, 10**5), ({"min_p": 0.02}, 10**5)]
)
def test_a_million_draws_have_the_probabilities_of_softmax(
    rule: dict[str, Any], draws: int
) -> None:
    x, rows = head("gaussian", 5000, 24, 1, 3)
    z = (x.astype(np.float64) @ rows.T.astype(np.float64))[0] / 1.5
    kept = np.full(5000, -np.inf)
    words = rule_of(z, rule.get("top_k"), rule.get("min_p"))
    kept[words] = z[words]
    expected = draws * pe.softmax(kept)
    counts, rng, screened = np.zeros(5000), np.random.default_rng(6), ScreenedRows(rows)
    many = np.repeat(x, 1000, axis=0)
    for _ in range(draws // 1000):
        drawn, _ = linear_sample(many, screened, rng, temperature=1.5, **rule)
        counts += np.bincount(drawn, minlength=5000)
    assert counts[expected == 0].sum() == 0
    seldom = expected < 10
    groups = np.append(expected[~seldom], expected[seldom].sum())
    found = np.append(counts[~seldom], counts[seldom].sum())
    groups, found = groups[groups > 0], found[groups > 0]
    chi_square = float(((found - groups) ** 2 / groups).sum())
    free = len(groups) - 1
    assert abs(chi_square - free) < 4.5 * np.sqrt(2 * free), chi_square


@has_kernels
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_most_rows_are_not_scored(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, rows = head("gaussian", 20_000, 64, 9)
    x, rows = x.astype(np.float64), rows.astype(dtype)
    counts: list[int] = []
    kernels: dict[str, Any] = dict(choice.kernels())
    dots = kernels["rows_dots"]
    kernels["rows_dots"] = lambda *a, out: counts.append(len(out)) or dots(*a, out=out)
    monkeypatch.setattr(choice, "kernels", lambda: kernels)
    monkeypatch.setattr(exact_heads, "SCREENED_WORK", 100_000)
    screened = ScreenedRows(rows)
    expected = linear_top_k(x, rows, 10)
    for workers in (1, 3):
        with pe.set_workers(workers):
            words, scores, _ = linear_top_k(x, screened, 10)
        np.testing.assert_array_equal(words, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5)
    assert 90 <= sum(counts) / 2 < 9 * 20_000 / 50
    assert scores.dtype == (np.float64 if dtype == np.float64 else np.float32)


@has_kernels
def test_undecided_states_go_the_dense_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x, rows = head("gaussian", 8192, 32, 4)
    other, equal = head("rows nearly equal", 8192, 32, 4)
    dense = []
    monkeypatch.setattr(
        exact_heads.Head, "_all",
        lambda self, x, all=exact_heads.Head._all: dense.append(len(x)) or all(self, x),
    )  # fmt: skip
    np.testing.assert_array_equal(linear_argmax(x, ScreenedRows(rows))[0], (x @ rows.T).argmax(-1))
    assert dense == []
    linear_argmax(other, ScreenedRows(equal))
    assert dense == [4]
    x[2] = np.nan
    words, scores = linear_argmax(x, ScreenedRows(rows))
    assert dense == [4, 1]
    assert (words[2], np.isnan(scores).tolist()) == (0, [False, False, True, False])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [40, 5000])
def test_ties_and_what_is_not_finite(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(4)
    rows = rng.integers(-2, 3, (n, 8)).astype(dtype)  # many equal scores
    rows[7], rows[30, 2] = np.nan, np.inf
    x = rng.integers(-2, 3, (6, 8)).astype(dtype)
    x[1, 2], x[2, 2], x[3, 2], x[4] = 1, -1, 0, np.nan
    bias = np.zeros(n)
    bias[[3, 20]] = -np.inf
    with np.errstate(invalid="ignore"):
        z = x @ rows.T + bias
    for head_rows in (rows, ScreenedRows(rows)):
        words, scores = linear_argmax(x, head_rows, bias=bias)
        top = linear_top_k(x, head_rows, 12, bias=bias)
        near = linear_min_p(x, head_rows, 0.01, bias=bias)
        for i, row in enumerate(z):
            expected = np.argsort(-row, kind="stable")
            assert words[i] == expected[0]
            np.testing.assert_array_equal(scores[i], row[expected[0]])
            assert top[0][12 * i : 12 * i + 12].tolist() == expected[:12].tolist()
            some = near[0][near[2][i] : near[2][i + 1]]
            size = max(np.count_nonzero(row[expected] >= row[expected[0]] + np.log(0.01)), 1)
            assert some.tolist() == expected[:size].tolist()
        drawn, _ = linear_sample(x, head_rows, np.random.default_rng(2), bias=bias)
        noise = -np.log(np.random.default_rng(2).standard_exponential((6, n)))
        order = np.argsort(-(z.astype(np.float64) + noise), axis=-1, kind="stable")
        assert drawn.tolist() == order[:, 0].tolist()


def test_all_masked_but_few_words() -> None:
    x, rows = head("gaussian", 5000, 16, 2)
    bias = np.full(5000, -np.inf)
    bias[[9, 4000, 17]] = 0
    z = x @ rows.T + bias
    words, scores, offsets = linear_top_k(x, ScreenedRows(rows), 5, bias=bias)
    np.testing.assert_array_equal(words.reshape(2, 5), np.argsort(-z, -1, kind="stable")[:, :5])
    assert np.isneginf(scores.reshape(2, 5)[:, 3:]).all()
    assert offsets.tolist() == [0, 5, 10]


def test_shapes_and_empty_batches() -> None:
    x, rows = head("gaussian", 300, 8, 3)
    screened = ScreenedRows(rows)
    word, score = linear_argmax(x[0], screened)
    assert (word.shape, score.shape) == ((), ())
    assert word == linear_argmax(x, screened)[0][0]
    drawn, _ = linear_sample(x[0], screened, np.random.default_rng(0))
    assert drawn.shape == ()
    words, scores, offsets = linear_top_k(x[:0], screened, 4)
    assert (len(words), len(scores), offsets.tolist()) == (0, 0, [0])
    assert linear_argmax(x[:0], screened)[0].shape == (0,)
    words, _, offsets = linear_top_k(x, screened, 1000)
    assert offsets.tolist() == [0, 300, 600, 900]
    assert sorted(words[:300].tolist()) == list(range(300))


WRONG: list[tuple[str, Any, dict[str, Any]]] = [
    *(("k must be a whole number of at", linear_top_k, {"k": k}) for k in (0, -1, 2.5, True)),
    *(("min_p must be above 0 and 1", linear_min_p, {"min_p": p}) for p in (0, -0.1, 1.5, np.nan)),
    ("min_p must be above 0 and 1", linear_sample, {"min_p": 0}),
    *(("temperature must be above", linear_sample, {"temperature": t}) for t in (0, -1, np.nan)),
    *(("scale must be above 0", linear_argmax, {"scale": s}) for s in (0, -1, np.nan)),
    (r"expected x of shape \(d,\) or \(b, d\)", linear_argmax, {"x": np.ones(3)}),
    ("real numbers", linear_argmax, {"x": np.ones(8) * 1j}),
    (r"bias must have the shape \(30,\)", linear_argmax, {"bias": np.ones(3)}),
    ("expected at least one", linear_argmax, {"rows": ScreenedRows(np.ones((0, 8)))}),
]


@pytest.mark.parametrize(("message", "function", "options"), WRONG)
def test_wrong_arguments_say_what_to_do(message: str, function: Any, options: Any) -> None:
    x, rows = head("gaussian", 30, 8, 2)
    if function is linear_sample:
        options = {**options, "rng": np.random.default_rng(0)}
    with pytest.raises((TypeError, ValueError), match=message):
        function(**{"x": x, "rows": ScreenedRows(rows), **options})
