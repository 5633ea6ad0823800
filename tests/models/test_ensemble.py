"""Ensembles: the mean of probabilities, the union of supports, and searches on the mean."""

import numpy as np
import pytest

from pyentmax.decoding import Step, beam_search, exact_search
from pyentmax.models.ensemble import Ensemble
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig

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


class Table:
    """The same distribution at every step."""

    bos, eos, output_is_sparse = 0, 1, True

    def __init__(self, p, support=None, dtype=float):
        with np.errstate(divide="ignore"):
            self.log_prob = np.log(np.array(p, dtype))
        self.support = np.array(p) > 0 if support is None else np.array(support)

    def encode(self, source, source_mask):
        return np.ones(source.shape)

    def step(self, state, tokens):
        rows = len(tokens)
        return Step(
            np.tile(self.log_prob, (rows, 1)), np.tile(self.support, (rows, 1)), state
        ), state

    def select(self, state, rows):
        return state[rows]

    def join(self, states):
        return np.concatenate(states)


def first_step(ensemble):
    source = np.array([[4]])
    step, _ = ensemble.step(ensemble.encode(source, source > 0), np.array([ensemble.bos]))
    return step


def test_steps_are_means_and_unions_along_every_prefix():
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


def test_one_model_or_the_same_one_twice_changes_nothing():
    model = network(1)
    [alone, _] = exact_search(model, SOURCE, MASK, n_best=3, max_length=8)
    for ensemble in (Ensemble([model]), Ensemble([model, model])):
        [result, _] = exact_search(ensemble, SOURCE, MASK, n_best=3, max_length=8)
        assert [h.tokens for h in result.hypotheses] == [h.tokens for h in alone.hypotheses]
        np.testing.assert_allclose(
            [h.log_prob for h in result.hypotheses],
            [h.log_prob for h in alone.hypotheses],
            rtol=1e-12,
        )


def test_exactness_is_that_of_the_averaged_model():
    # Each alone has one string; together they go on for ever, as only one of them ends.
    ends, goes_on = Table([0, 1, 0]), Table([0, 0, 1])
    source = np.array([[4]])
    assert beam_search(ends, source, source > 0)[0].exact
    [result] = exact_search(
        Ensemble([ends, goes_on]), source, source > 0, n_best=None, max_length=4
    )
    assert not result.exact
    assert [h.probability for h in result.hypotheses] == pytest.approx(
        [2.0**-n for n in range(1, 6)], rel=1e-14, abs=0
    )
    assert result.mass_bound == pytest.approx(2.0**-5, rel=1e-14, abs=0)


def test_agreeing_on_a_certainty_gives_exactly_one():
    step = first_step(Ensemble([Table([0, 0, 1])] * 3))
    np.testing.assert_array_equal(step.log_prob, [[-np.inf, -np.inf, 0.0]])


def test_improbable_tokens_do_not_underflow_in_the_mean():
    tables = [Table([0, 0, 1]), Table([0, 0, 1])]
    for table, far in zip(tables, (-800.0, -801.0), strict=True):
        table.log_prob[1], table.support[1] = far, True
    expected = -800 + np.log((1 + np.exp(-1)) / 2)
    assert first_step(Ensemble(tables)).log_prob[0, 1] == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_underflow_in_every_member_is_bounded_by_their_float_type(dtype):
    tables = [Table([0, 1, 0], [False, True, True], dtype) for _ in range(2)]
    assert first_step(Ensemble(tables)).log_prob.dtype == dtype
    source = np.array([[4]])
    [result] = exact_search(Ensemble(tables), source, source > 0, n_best=None)
    assert not result.exact
    assert result.bound == pytest.approx(float(np.finfo(dtype).tiny), rel=1e-12, abs=0)


def test_one_dense_model_makes_a_dense_ensemble():
    assert Ensemble([network(0), network(1)]).output_is_sparse
    assert not Ensemble([network(0), network(1, output="1")]).output_is_sparse


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="at least one model"):
        Ensemble([])
    with pytest.raises(ValueError, match=r"begin and end symbols, but have \(0, 1\) and \(1, 2\)"):
        Ensemble([network(0), Table([0, 1, 0])])
    ensemble = Ensemble([network(0), network(0, target_size=5)])
    with pytest.raises(ValueError, match=r"share a vocabulary, but theirs have \[6, 5\] tokens"):
        beam_search(ensemble, SOURCE, MASK)
