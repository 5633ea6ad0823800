"""What holds for every language model: causality, and steps that equal whole texts."""

import numpy as np

from pyentmax.seq2seq.models.protocol import take

TEXT = np.array([[3, 4, 5, 3, 2, 4], [5, 5, 4, 3, 3, 2]])


def small(network, shape, seed=0, dtype=np.float64, sharpness=1.0, **changes):
    """A model of two layers; its heads and output are sharper the larger ``sharpness``."""
    options = {"size": 6, "width": 4, "layers": 2, "heads": 2, "inner": 6, "dropout": 0.0}
    rng = np.random.default_rng(seed)
    model = network.initialize(shape(**options | changes), rng, bos=1, eos=2, dtype=dtype)
    for name, x in model.params.items():
        # Zeros and ones would hide a wrong factor.
        if any(part in name for part in ("bias", "gain", "distance_query", "length")):
            x += rng.normal(0, 0.3, x.shape).astype(dtype)
        if "query.weight" in name or name.startswith("output"):
            x *= sharpness
    return model


def log_prob(model, text):
    log_p, _ = model.output.log_probabilities(model.scores(model.params, text).data)
    return log_p


def check_tokens_do_not_see_later_ones(model):
    scores = model.scores(model.params, TEXT).data
    for t in range(1, TEXT.shape[1]):
        changed = TEXT.copy()
        changed[:, t:] = (changed[:, t:] + 1) % 6
        other = model.scores(model.params, changed).data
        np.testing.assert_allclose(other[:, :t], scores[:, :t], rtol=1e-12, atol=1e-13)
        assert np.abs(other[:, t:] - scores[:, t:]).max() > 1e-3


def check_positions_matter(model):
    one, other = (model.scores(model.params, np.array([t])).data for t in ([3, 4, 5], [4, 3, 5]))
    assert np.abs(one[0, -1] - other[0, -1]).max() > 1e-4


def check_cached_steps(model, read):
    """Steps after the first ``read`` tokens of a text equal its scores."""
    expected, source = log_prob(model, TEXT), TEXT[:, :read]
    state = model.encode(source, np.ones_like(source, bool))
    tokens = np.array([model.bos, model.bos])  # which is not read
    for t in range(read - 1, TEXT.shape[1]):
        step, state = model.step(state, tokens)
        assert step.attention.shape == source.shape
        np.testing.assert_allclose(step.log_prob, expected[:, t], rtol=1e-10, atol=1e-12)
        tokens = TEXT[:, t + 1] if t + 1 < TEXT.shape[1] else tokens


def check_texts_of_several_lengths(model):
    """Texts of one batch, reordered and joined, continue as alone."""
    source = np.array([[3, 4, 5, 3], [5, 0, 0, 0], [4, 4, 0, 0]])
    state = model.encode(source, source > 0)
    rows = np.array([2, 0, 1, 0])
    state = take([state, take([state], None, rows)], np.array([0, 1, 0, 0]), np.array([2, 1, 1, 0]))
    for tokens in ([1, 1, 1, 1], [3, 4, 5, 3], [5, 5, 5, 4]):
        step, state = model.step(state, np.array(tokens))
    for row, (which, read) in enumerate(zip(rows, [[3, 5], [4, 5], [5, 5], [3, 4]], strict=True)):
        text = np.array([[*source[which][source[which] > 0], *read]])
        expected = log_prob(model, text)[0, -1]
        np.testing.assert_allclose(step.log_prob[row], expected, rtol=1e-10, atol=1e-12)


CHECKS = {
    "causal": check_tokens_do_not_see_later_ones,
    "positions": check_positions_matter,
    "steps": lambda model: check_cached_steps(model, 2),
    "steps from one token": lambda model: check_cached_steps(model, 1),
    "several lengths": check_texts_of_several_lengths,
}
