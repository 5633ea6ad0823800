"""Ensembles: the mean of probabilities, the union of supports, and searches on the mean."""

import numpy as np
import pytest
from automata import Table
from mpmath import mp, mpf

from pyentmax.seq2seq.decoding import (
    Step,
    ancestral_sampling,
    beam_search,
    exact_search,
    forced_decoding,
    greedy_search,
)
from pyentmax.seq2seq.models.ensemble import Ensemble
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig

SOURCE = np.array([[4, 5, 6, 7], [5, 4, 3, 0]])
MASK = SOURCE > 0


def network(seed, output="2", **changes):
    sizes = {"source_size": 8, "target_size": 6, "hidden": 4} | changes
    config = RNNSeq2SeqConfig(output=output, **sizes)
    rng = np.random.default_rng(seed)
    model = RNNSeq2Seq.initialize(config, rng, bos=1, eos=2, dtype=np.float64)
    # Large enough scores for zeros, and for strings that end.
    model.params["output.weight"] *= 4
    model.params["output.bias"] += np.array([-5, -5, 0.3, 0, 0, 0])[: sizes["target_size"]]
    return model


def table(p, support=None, dtype=float, unseen=None):
    """A model with the same distribution at every step."""
    with np.errstate(divide="ignore"):
        log_prob = np.log(np.array([p], dtype))
    support = np.array([p]) > 0 if support is None else np.array([support])
    return Table(log_prob, support, None if unseen is None else np.array([unseen]))


def first_step(ensemble):
    source = np.array([[4]])
    step, _ = ensemble.step(ensemble.encode(source, source > 0), np.array([ensemble.bos]))
    return step


def test_steps_average_probabilities_and_join_supports():
    members = [network(seed) for seed in range(3)]
    ensemble = Ensemble(members)
    state, states = ensemble.encode(SOURCE, MASK), [m.encode(SOURCE, MASK) for m in members]
    for tokens in ([1, 1], [3, 4], [5, 3]):
        step, state = ensemble.step(state, np.array(tokens))
        pairs = [m.step(s, np.array(tokens)) for m, s in zip(members, states, strict=True)]
        states = [s for _, s in pairs]
        p = np.mean([np.exp(s.log_prob) for s, _ in pairs], axis=0)
        np.testing.assert_allclose(np.exp(step.log_prob), p, rtol=1e-13)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_array_equal(step.support, np.any([s.support for s, _ in pairs], axis=0))
        attention = np.mean([s.attention for s, _ in pairs], axis=0)
        np.testing.assert_allclose(step.attention, attention, rtol=1e-13)


def test_mean_of_improbable_tokens_does_not_underflow():
    tables = [table([0, 0, 1]), table([0, 0, 1])]
    for one, far in zip(tables, (-800.0, -801.0), strict=True):
        one.log_prob[0, 1], one.support[0, 1] = far, True
    expected = -800 + np.log((1 + np.exp(-1)) / 2)
    assert first_step(Ensemble(tables)).log_prob[0, 1] == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_underflow_in_all_members_is_bounded(dtype):
    tables = [table([0, 1, 0], [False, True, True], dtype) for _ in range(2)]
    assert first_step(Ensemble(tables)).log_prob.dtype == dtype
    source = np.array([[4]])
    [result] = exact_search(Ensemble(tables), source, source > 0, n_best=None)
    assert not result.exact
    assert result.bound == pytest.approx(float(np.finfo(dtype).tiny), rel=1e-12, abs=0)


def test_bound_of_the_mean_rounds_upwards():
    rng = np.random.default_rng(0)
    with mp.workdps(40):
        for _ in range(100):
            count = int(rng.integers(2, 12))
            size = np.sort(-(10.0 ** rng.uniform(-8, 2.8, count)))
            tables = [table([0, 1, 0], [False, True, True], unseen=x) for x in size]
            for one in tables[: rng.integers(count)]:  # the largest is hidden
                one.log_prob[0, 2] = one.unseen[0]
            [bound] = first_step(Ensemble(tables)).unseen
            exact = mp.log(mp.fsum(mp.exp(mpf(float(x))) for x in size) / count)
            assert exact <= bound
            assert bound <= exact + 1e-12 * max(1, abs(exact))


def test_bounds_are_per_row():
    class Rows(Table):
        def step(self, state, tokens, prove=True):
            step, state = super().step(state, tokens)
            hidden = np.array([[2, 3], [2, 2], [1, 1]])
            log_prob, support = np.full((3, 4), -10.0), np.ones((3, 4), bool)
            log_prob[:2][np.arange(2)[:, None], hidden[:2]] = -np.inf
            unseen = np.array([-5.0, -6.0, -0.1])
            return Step(log_prob, support, step.attention, unseen), state

    other = Table(np.array([[-1.0, -2.0, -4.0, -3.0]]), np.ones((1, 4), bool), None)
    source = np.array([[4], [4], [4]])
    ensemble = Ensemble([Rows(other.log_prob, other.support, None), other])
    step, _ = ensemble.step(ensemble.encode(source, source > 0), np.zeros(3, int))
    expected = np.log((np.exp([-5, -6]) + np.exp([-3, -4])) / 2)
    np.testing.assert_allclose(step.unseen, [*expected, -np.inf], rtol=1e-13)
    np.testing.assert_array_equal(np.isneginf(step.log_prob).sum(axis=1), [2, 1, 0])


def test_unproved_searches_keep_hidden_tokens():
    # The first member cannot tell how probable token 2 is; it is the most probable in the mean.
    hides = table([0, 0.6, 0, 0.4], [False, True, True, True], unseen=np.log(1e-6))
    sees = table([0, 0, 1, 0])
    ensemble, source = Ensemble([hides, sees]), np.array([[4]])
    given = ensemble, source, source > 0
    assert greedy_search(*given, max_length=3)[0].tolist() == [2, 2, 2]
    [[drawn]] = ancestral_sampling(*given, np.random.default_rng(1), max_length=3)
    assert 2 in drawn.tokens
    [plain] = beam_search(*given, prove=False, max_length=3)
    assert plain.best.tokens in {(), (2,)}
    assert {(2,), (2, 2)} <= {h.tokens for h in plain.hypotheses}
    # One that proves says instead what it does not know.
    for search in (beam_search, exact_search):
        [result] = search(*given, n_best=1, max_length=3)
        assert result.proved == 0
        assert result.bound == pytest.approx(0.5 + 0.5e-6, rel=1e-12, abs=0)
    [said] = forced_decoding(*given, [[2]])
    assert said.steps[0].possible
    assert said.steps[0].probability == 0


@pytest.mark.parametrize("first", [False, True])
def test_searches_report_prefixes_with_hidden_continuations(first):
    # Each hides what the other is sure of, so that the mean has no number for any token.
    sure = np.array([[0.0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]])[first:]
    other = np.array([[0.0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]])[first:]
    support = np.array([[False, False, True, False], *2 * [[False, False, True, True]]])[first:]
    unseen = np.full(len(sure), np.log(0.01))
    with np.errstate(divide="ignore"):
        members = [Table(np.log(p), support, unseen) for p in (sure, other)]
    ensemble, source = Ensemble(members), np.array([[4]])
    given = ensemble, source, source > 0
    for search, options in (
        (beam_search, {}),
        (beam_search, {"n_best": 1}),
        (exact_search, {}),
        (exact_search, {"n_best": None}),
    ):
        [result] = search(*given, max_length=3, **options)
        assert [h.tokens for h in result.hypotheses] == [() if first else (2,)]
        assert not result.best.finished
        assert not result.exact
        assert result.proved == 0
        assert result.bound >= 0.5
        assert "too improbable" in result.reason
    [said] = forced_decoding(*given, [[2, 3]])
    assert said.possible.tolist() == [True, True, False]
    assert greedy_search(*given, max_length=2)[0].tolist() == [2, 2]


def test_one_dense_model_makes_a_dense_ensemble():
    assert Ensemble([network(0), network(1)]).output_is_sparse
    assert not Ensemble([network(0), network(1, output="1")]).output_is_sparse


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="at least one model"):
        Ensemble([])
    with pytest.raises(ValueError, match=r"begin and end symbols, but have \(0, 1\) and \(1, 2\)"):
        Ensemble([network(0), table([0, 1, 0])])
    ensemble = Ensemble([network(0), network(0, target_size=5)])
    with pytest.raises(ValueError, match=r"share a vocabulary, but theirs have \[6, 5\] tokens"):
        beam_search(ensemble, SOURCE, MASK)
