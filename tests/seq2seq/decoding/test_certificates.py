"""What a step says is possible, against many digits: of mappings, and of ensembles.

"Exact and complete" says that no other string has a probability above zero. So the oracle asks for
more than floats show: each row's threshold is found in 90 digits, and a token above it is possible,
however small its probability. A member of an ensemble may find a token possible without a number
for its probability; then the oracle puts it anywhere up to what the member says it is at most. That
searches conclude no more from steps is `test_search`'s.
"""

from __future__ import annotations

import numpy as np
import pytest
from automata import BOS, EOS, Table
from mpmath import mp, mpf
from stages import deep, slow

from pyentmax.seq2seq.decoding import beam_search, exact_search
from pyentmax.seq2seq.models.ensemble import Ensemble
from pyentmax.seq2seq.models.protocol import unseen
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

PROVED = [
    *("2", "1.5", "1.25", "1.02", "1.001", "1.0000001", "3", "50", "entmax:inf"),
    *("normmax:2", "normmax:1.01", "normmax:5", "normmax:inf"),
    *("topk_softmax:2", "topk_sparsemax:2"),
]
UNPROVED = ["fusedmax:0.1", "oscarmax:0.1", "csparsemax:0.7", "budget_sparsemax:1"]
MEMBERS = [*PROVED, "1", "fusedmax:0.1"]
TINY, SOURCE = mpf(10) ** -90, np.zeros((1, 1), int)
SEARCHES = [
    (beam_search, {"beam": 200}),
    (exact_search, {"n_best": None}),
    (beam_search, {"beam": 2, "n_best": 1}),
    (exact_search, {"n_best": 3, "budget": 2}),
]


def assert_claims(step, rows, error=None, rounding=0.0):
    """What a step claims of each row is true of the tokens' probabilities in many digits.

    Parameters
    ----------
    error : callable, optional
        From a log-probability to its error; none where rounding may change a probability much.
    rounding : float
        Of a probability.
    """
    claims = step.log_prob, step.support, unseen(step)
    for row, log_prob, support, most in zip(rows, *claims, strict=True):
        assert row.keys() <= {*np.flatnonzero(support)}, (row, step)
        for token in np.flatnonzero(support).tolist():
            p, log_p = row.get(token, mpf(0)), float(log_prob[token])
            if log_p == -np.inf:
                bound = mp.exp(mpf(float(most)))
                assert p <= bound * (1 + 1e-12) + rounding, (row, step)
            elif error is None:
                assert abs(mp.exp(log_p) - p) <= rounding, (row, step)
            else:
                assert abs(log_p - mp.log(p)) <= error(log_p), (row, step)


# --- mappings -------------------------------------------------------------------------------------
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


def cases(output, dtype, number, near=0.5):
    """The steps of random models, and their probabilities in many digits; claims hold of all."""
    rng, chosen = np.random.default_rng(PROVED.index(output)), choose_mapping(output)
    with mp.workdps(100):
        for _ in range(number):
            scores = table(rng, output, dtype, near)
            rows = [probabilities(row, output) for row in scores]
            step, _ = Table.of_scores(scores, output).step(np.arange(len(scores)), None)
            # Above α = 2, p jumps with the rounding of a score: only what is listed is compared.
            jumps = (chosen.alpha or chosen.params[0]) > 2
            assert_claims(step, rows, rounding=1.0 if jumps else 1000 * float(np.finfo(dtype).eps))
            yield step, rows


@pytest.mark.parametrize("output", PROVED)
@pytest.mark.parametrize(
    ("dtype", "number"), [(np.float32, 4), *slow((np.float64, 40), (np.float32, 40))]
)
def test_no_possible_token_is_ruled_out(output, dtype, number):
    assert len([*cases(output, dtype, number)]) == number


@pytest.mark.parametrize("output", [name for name in PROVED if name != "normmax:1.01"])
def test_zeros_far_from_the_threshold_are_proved(output):
    # normmax:1.01 has p = x^100, which floats cannot show.
    [(step, rows)] = cases(output, np.float64, 1, near=0)
    assert [{*np.flatnonzero(support)} for support in step.support] == [*map(set, rows)]
    assert np.isfinite(step.log_prob[step.support]).all()


@pytest.mark.parametrize("output", ["1", "entmax:1", *UNPROVED])
def test_unproved_zeros_give_no_complete_list(output):
    scores = np.array([[-9.0, 0, 9, -9, 8], [-9, 9, -9, -9, -9]])
    for search in (beam_search, exact_search):
        [result] = search(Table.of_scores(scores, output), SOURCE, SOURCE == 0, max_length=3)
        assert not result.exact
        assert "infinitely many strings" in result.reason
        assert ("zeros" if output in UNPROVED else "dense") in result.reason


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_underflow_near_softmax_is_listed(dtype):
    # 0.02⁵⁰ = 1e-85 in the second row.
    scores = np.full((2, 4), -np.inf, dtype)
    scores[0, 2:] = 0, -49
    scores[1, EOS] = 0
    for search, options in SEARCHES[:2]:
        [result] = search(Table.of_scores(scores, "1.02"), SOURCE, SOURCE == 0, **options)
        assert [h.tokens for h in result.hypotheses] == [(2,), (3,)]
        assert result.exact
        np.testing.assert_allclose(result.hypotheses[1].log_prob, 50 * np.log(0.02), rtol=1e-3)


# --- ensembles ------------------------------------------------------------------------------------
def truth(member, rng):
    """What the member's probabilities may be: of each state, those of the possible tokens."""
    rows = []
    bounds = unseen(member.step(np.arange(len(member.log_prob)), None)[0])
    for log_prob, support, bound in zip(member.log_prob, member.support, bounds, strict=True):
        p = {int(i): mp.exp(mpf(float(log_prob[i]))) for i in np.flatnonzero(support)}
        # Hidden ones are no more than the others leave, which sum to 1 as floats do.
        left = max(1 - mp.fsum(p.values()), 0) + 64 * mpf(float(np.finfo(log_prob.dtype).eps))
        most = min(mp.exp(mpf(float(bound))), left)
        hidden = [i for i in p if np.isneginf(log_prob[i])]
        share = rng.choice([1, rng.random(), 10.0 ** -rng.integers(1, 300)])
        rows.append(p | {i: most * mpf(share) / len(hidden) for i in hidden})
    return rows


def at_the_threshold(scores, place, output):
    """The neighbouring scores of one token off and on the support."""
    low, high = -600.0, float(np.delete(scores, place).max())
    for _ in range(70):
        middle = (low + high) / 2
        scores[place] = middle
        log_prob, _, _ = choose_mapping(output).certified(scores[None])
        low, high = (low, middle) if log_prob[0, place] > -np.inf else (middle, high)
    return low, high


def with_a_mapping(rng, states, vocabulary, output, dtype):
    """A member with scores of any scale, of which some lie on a threshold or next to it."""
    scores = rng.standard_normal((states, vocabulary)) * 10.0 ** rng.uniform(-2, 2.5, (states, 1))
    scores = np.clip(scores, -500, 500)
    scores[:, 3:][rng.random((states, vocabulary - 3)) < 0.2] = -np.inf
    scores[:, BOS] = -np.inf
    scores[-1, EOS + 1 :] = -np.inf
    scores = scores.astype(dtype)
    for row in scores[:-1]:
        place = int(rng.integers(1, vocabulary))
        # Near 0 floats are finer than the differences of scores are.
        _, above = at_the_threshold(row.astype(np.float64), place, output)
        row -= dtype(above) * (rng.random() < 0.5)
        low, high = at_the_threshold(row.copy(), place, output)
        row[place] = rng.choice([low, high, 10.0 ** -rng.integers(7, 40)])
    return Table.of_scores(scores, output)


def with_any_bound(rng, states, vocabulary, dtype):
    """A member that hides tokens of any probability."""
    support = rng.random((states, vocabulary)) < 0.7
    support[:, BOS], support[:, 2] = False, True
    support[-1] = np.arange(vocabulary) == EOS
    hidden = support & (rng.random(support.shape) < 0.3)
    hidden[:, 2], hidden[-1] = False, False
    weights = np.where(support & ~hidden, np.exp(-(10.0 ** rng.uniform(-3, 2.5, support.shape))), 0)
    room = np.where(hidden.any(axis=1), 1 - 10.0 ** -rng.uniform(0.1, 12, states), 1)
    with np.errstate(divide="ignore"):
        log_prob = np.log(room[:, None] * weights / weights.sum(axis=1, keepdims=True))
    return Table(log_prob.astype(dtype), support, -(10.0 ** rng.uniform(0, 2.7, states)))


def mean(rows):
    """The mean of several dictionaries of probabilities."""
    return {i: mp.fsum(p.get(i, 0) for p in rows) / len(rows) for i in set().union(*rows)}


def hiding(output, dtype, number):
    """How many of some random ensembles with this mapping hide something; claims hold of all."""
    rng = np.random.default_rng(MEMBERS.index(output))
    hide = 0
    with mp.workdps(40):
        for _ in range(number):
            shape = int(rng.integers(2, 4)), int(rng.integers(4, 6))
            members = [with_a_mapping(rng, *shape, output, dtype)]
            for _ in range(rng.integers(1, 4)):
                own = dtype if rng.random() < 0.9 else np.float64
                if rng.random() < 0.5:
                    members.append(with_a_mapping(rng, *shape, str(rng.choice(MEMBERS)), own))
                else:
                    members.append(with_any_bound(rng, *shape, own))
            rows = map(mean, zip(*(truth(m, rng) for m in members), strict=True))
            epsilon = max(float(np.finfo(m.log_prob.dtype).eps) for m in members)
            step, _ = Ensemble(members).step((np.arange(shape[0]),) * len(members), None)
            assert_claims(step, rows, lambda log_p, e=epsilon: 6 * e * (2 + abs(log_p)))
            hide += bool((step.support & np.isneginf(step.log_prob)).any())
    return hide


@pytest.mark.parametrize(
    ("output", "dtype"),
    [
        ("1.5", np.float32),
        *slow(*((output, np.float32) for output in MEMBERS if output != "1.5")),
        *deep(*((output, np.float64) for output in MEMBERS)),
    ],
)  # fmt: skip
def test_claims_about_an_ensemble_hold(output, dtype):
    hiding(output, dtype, 2)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["1.5", *deep(*(x for x in MEMBERS if x != "1.5"))])
@pytest.mark.parametrize("dtype", [np.float32, *deep(np.float64)])
def test_claims_about_many_ensembles_hold(output, dtype):
    assert hiding(output, dtype, 40) > 5


@pytest.mark.parametrize(("dtype", "tiny"), [(np.float32, 1e-8), (np.float64, 1e-17)])
def test_hidden_tokens_are_bounded_but_not_ranked(dtype, tiny):
    # sparsemax gives token 4 two thirds of tiny, and cannot say so; it rules out token 5.
    none, ends = -np.inf, [-np.inf, 0, *4 * [-np.inf]]
    hides = np.array([[none, none, 0.5, 0.5, tiny, none], ends], dtype)
    sees = np.array([[none, none, 0, 0, -48, -30], ends], dtype)
    ensemble = Ensemble([Table.of_scores(hides, "2"), Table.of_scores(sees, "1.02")])
    true = tiny / 3
    for search, options in SEARCHES:
        [result] = search(ensemble, SOURCE, SOURCE == 0, **options)
        assert not result.exact
        assert result.proved <= 2
        assert {h.tokens for h in result.hypotheses} <= {(2,), (3,), (5,)}
        assert result.bound >= true
        assert result.mass_bound >= true
    [everything] = exact_search(ensemble, SOURCE, SOURCE == 0, n_best=None)
    [listed] = beam_search(ensemble, SOURCE, SOURCE == 0)
    for result in (everything, listed):
        assert "too improbable for the model's floating-point type" in result.reason
