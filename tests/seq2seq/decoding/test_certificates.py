"""Certificates of all output mappings, against every string of small models in many digits.

"Exact and complete" says that no other string has a probability above zero. So the oracle asks for
more than floats show: each row's threshold is found in 100 digits, and a token above it is
possible, however small its probability.
"""

from __future__ import annotations

import numpy as np
import pytest
from automata import BOS, EOS, Table
from mpmath import mp, mpf
from stages import slow

from pyentmax.seq2seq.decoding import beam_search, exact_search
from pyentmax.seq2seq.models.ensemble import Ensemble
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

PROVED = [
    *("2", "1.5", "1.25", "1.02", "1.001", "1.0000001", "3", "50", "entmax:inf"),
    *("bisection:1.02", "bisection:1.5", "bisection:2", "bisection:3"),
    *("normmax:2", "normmax:1.01", "normmax:5", "normmax:inf"),
    *("topk_softmax:2", "topk_sparsemax:2"),
]
TINY = mpf(10) ** -90
UNPROVED = ["fusedmax:0.1", "oscarmax:0.1", "csparsemax:0.7", "budget_sparsemax:1"]
EVERYTHING = {beam_search: {"beam": 200}, exact_search: {"n_best": None}}


def powers(output):
    """What a mapping raises z − τ to, and the factor before: Σ [β(z_i − τ)]₊ᵏ = 1."""
    name, params = choose_mapping(output)
    alpha = {"sparsemax": mpf(2), "entmax15": mpf(1.5), "topk_sparsemax": mpf(2)}.get(name)
    alpha = mpf(params[0]) if alpha is None else alpha
    if name == "normmax":
        return (mpf(1) if alpha == mp.inf else alpha / (alpha - 1)), mpf(1)
    return 1 / (alpha - 1), alpha - 1


def threshold(z, output):
    """τ in 90 digits, by bracketing."""
    power, beta = powers(output)
    z = [mpf(float(x)) for x in z if x > -np.inf]

    def excess(tau):
        return mp.fsum((beta * (x - tau)) ** power for x in z if x > tau) - 1

    low, high = max(z) - 1 / beta, max(z) - len(z) ** (-1 / power) / beta
    if excess(low) == 0:
        return low
    if power >= 1:
        tau = mp.findroot(excess, (low, high), solver="anderson", maxsteps=400, verify=False)
    else:  # too steep for that
        tau = (low + high) / 2
        while high - low > TINY:
            low, high = (tau, high) if excess(tau) >= 0 else (low, tau)
            tau = (low + high) / 2
    assert excess(tau - TINY) > 0 > excess(tau + TINY)
    return tau


def probabilities(z, output):
    """Token → its probability in 90 digits, without those that have none."""
    name, params = choose_mapping(output)
    there = [int(i) for i in np.argsort(-z, kind="stable") if z[i] > -np.inf]
    if name == "topk_softmax":
        there = [i for i in there if z[i] >= z[there[: int(params[0])]].min()]
        weights = {i: mp.exp(mpf(float(z[i]))) for i in there}
    elif name == "entmax" and params == (np.inf,):
        weights = {i: mpf(1) for i in there if z[i] == z.max()}
    else:
        there = there[: int(params[0])] if name == "topk_sparsemax" else there
        tau, (power, beta) = threshold(z[there], output), powers(output)
        power = 1 / (mpf(params[0]) - 1) if name == "normmax" else power
        gaps = {i: beta * (mpf(float(z[i])) - tau) for i in there}
        weights = {i: gap**power for i, gap in gaps.items() if gap > TINY}
    total = mp.fsum(weights.values())
    return {i: weight / total for i, weight in weights.items()}


def strings(rows):
    """Every string with its probability, from each state's of tokens; the last has to end it."""
    found, level = {}, {(): mpf(1)}
    for p in rows:
        if EOS in p:
            found |= {prefix: q * p[EOS] for prefix, q in level.items()}
        level = {(*prefix, i): q * p[i] for prefix, q in level.items() for i in p if i != EOS}
    assert not level
    return found


def table(rng, output, dtype, near=0.5):
    """Scores with gaps up to 1000; in some rows one is next to the threshold of the others."""
    states, vocabulary = rng.integers(2, 4), rng.integers(4, 7)
    scores = rng.standard_normal((states, vocabulary))
    scores *= 10.0 ** rng.uniform(-2, 2.5, (states, 1))
    scores = np.clip(scores, -500, 500).astype(dtype)
    if "top" not in output and "inf" not in output:
        for row in (row for row in scores if rng.random() < near):
            # Near 0 floats are finer than the differences of scores are.
            place = rng.integers(1, vocabulary)
            row[1:] -= dtype(threshold(np.delete(row[1:], place - 1), output))
            tau = float(threshold(np.delete(row[1:], place - 1), output))
            row[place] = tau + rng.choice([-1, 0, 1]) * 10.0 ** -rng.integers(7, 25)
    scores[:, BOS] = -np.inf
    scores[-1, EOS + 1 :] = -np.inf
    return scores


def check(scores, output):
    """What the searches claim is true; returns whether both claim to list everything."""
    source, model = np.zeros((1, 1), int), Table.of_scores(scores, output)
    everything = strings(probabilities(row, output) for row in scores)
    alpha = choose_mapping(output).alpha or choose_mapping(output).params[0]
    complete = []
    for search, options in (
        (beam_search, {"beam": 200}),
        (exact_search, {"n_best": None, "width": 5}),
        (exact_search, {"n_best": 1}),
    ):
        [result] = search(model, source, source == 0, max_length=20, **options)
        listed = {h.tokens for h in result.hypotheses if h.finished}
        missing = [p for tokens, p in everything.items() if tokens not in listed]
        complete.append(result.exact)
        if result.exact:
            assert not missing, (scores, search, missing)
            np.testing.assert_allclose(result.mass, 1, rtol=1e-4)
        if alpha <= 2:  # above, p jumps with the rounding of a score
            rounding = 1000 * float(np.finfo(scores.dtype).eps)
            assert max(missing, default=0) <= result.bound + rounding
            assert mp.fsum(missing) <= result.mass_bound + rounding
    return all(complete[:2])


def cases(output, dtype, number, near=0.5):
    """For how many random models the searches claim to list everything."""
    rng = np.random.default_rng(PROVED.index(output))
    with mp.workdps(100):
        return sum(check(table(rng, output, dtype, near), output) for _ in range(number))


@pytest.mark.parametrize("output", PROVED)
@pytest.mark.parametrize("dtype", [np.float32, *slow(np.float64)])
def test_complete_lists_hold_every_possible_string(output, dtype):
    cases(output, dtype, 1)


@pytest.mark.slow
@pytest.mark.parametrize("output", PROVED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_complete_lists(output, dtype):
    cases(output, dtype, 15)


@pytest.mark.parametrize("output", [name for name in PROVED if name != "normmax:1.01"])
def test_lists_far_from_the_threshold_are_proved(output):
    # normmax:1.01 has p = x^100, which floats cannot show.
    assert cases(output, np.float64, 1, near=0) == 1


@pytest.mark.parametrize("output", ["1", "entmax:1", *UNPROVED])
def test_unproved_zeros_give_no_complete_list(output):
    scores = np.array([[-9.0, 0, 9, -9, 8], [-9, 9, -9, -9, -9]])
    source = np.zeros((1, 1), int)
    for search in (beam_search, exact_search):
        [result] = search(Table.of_scores(scores, output), source, source == 0, max_length=3)
        assert not result.exact
        assert "infinitely many strings" in result.reason
        assert ("zeros" if output in UNPROVED else "dense") in result.reason


@pytest.mark.parametrize("output", ["bisection:1.02", "1.02"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_underflow_near_softmax_is_listed(output, dtype):
    # 0.02⁵⁰ = 1e-85 in the second row.
    scores = np.full((2, 4), -np.inf, dtype)
    scores[0, 2:] = 0, -49
    scores[1, EOS] = 0
    source = np.zeros((1, 1), int)
    for search in (beam_search, exact_search):
        [result] = search(
            Table.of_scores(scores, output), source, source == 0, **EVERYTHING[search]
        )
        assert [h.tokens for h in result.hypotheses] == [(2,), (3,)]
        assert result.exact
        np.testing.assert_allclose(result.hypotheses[1].log_prob, 50 * np.log(0.02), rtol=1e-3)


def recurrent(seed, output):
    config = RNNSeq2SeqConfig(source_size=4, target_size=5, hidden=4, output=output)
    return RNNSeq2Seq.initialize(config, np.random.default_rng(seed), bos=BOS, eos=EOS)


def transformer(seed, output):
    config = TransformerConfig(4, 5, width=4, layers=1, heads=1, inner=4, output=output)
    return Transformer.initialize(config, np.random.default_rng(seed), bos=BOS, eos=EOS)


@pytest.mark.parametrize("kind", [recurrent, transformer])
@pytest.mark.parametrize("output", ["1.5", "2", "1.02", "bisection:1.02", "normmax:2"])
@pytest.mark.parametrize("scale", [30, *slow(3, 1000)])
def test_complete_lists_of_networks(kind, output, scale):
    source = np.array([[1, 2, 3]])

    def possible(model, prefix):
        read = np.array([[BOS, *prefix]])
        scores = model.scores(model.params, source, source > 0, read).data
        return probabilities(scores.reshape(-1, 5)[-1], output).keys()

    models = [kind(seed, output) for seed in range(3)]
    for model in models:
        model.params["output.weight"] *= scale
        model.params["output.bias"][[BOS, EOS]] = -9 * scale, scale / 3
    for members in ([models[0]], [models[1]], models[1:]):
        [result] = beam_search(Ensemble(members), source, source > 0, beam=40, max_length=4)
        if result.exact:
            listed = {h.tokens for h in result.hypotheses}
            level = [()]
            with mp.workdps(100):
                while level:
                    follow = {p: set().union(*(possible(m, p) for m in members)) for p in level}
                    assert {p for p in level if EOS in follow[p]} <= listed
                    level = [(*p, token) for p in level for token in follow[p] - {EOS}]
