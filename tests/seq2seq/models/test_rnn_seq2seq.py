"""The model: its gradients, and that training and decoding compute the same thing."""

from dataclasses import replace

import numpy as np
import pytest
from batches import BATCH, SOURCE, SOURCE_MASK, TARGET_IN, TARGET_MASK, TARGET_OUT, loss_of
from finite_differences import assert_parameter_gradients

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.data import Batch
from pyentmax.seq2seq.decoding import beam_search, greedy_search
from pyentmax.seq2seq.models.protocol import take
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig


def small(attention="1.5", output="1.5", layers=1, dropout=0.0, seed=0, dtype=np.float64, **more):
    named = {"attention": attention, "output": output, "layers": layers, "dropout": dropout}
    config = RNNSeq2SeqConfig(8, 6, hidden=4, **named, **more)
    rng = np.random.default_rng(seed)
    model = RNNSeq2Seq.initialize(config, rng, bos=1, eos=2, dtype=dtype)
    for name, x in model.params.items():
        if "bias" in name or "logit" in name:  # zeros would hide a wrong factor
            x += rng.normal(0, 0.3, x.shape).astype(dtype)
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "1", "output": "1"},
        {"attention": "1.25", "output": "1.33", "layers": 2, "dropout": 0.3},
        {"output": "2", "label_smoothing": 0.1},
        *({"score": score} for score in ("additive", "dot", "scaled")),
        {"attention": "2", "layers": 2},
        {"attention": "learned", "dropout": 0.3},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_gradient_of_every_parameter(changes):
    model = small(**changes)
    seed = 5 if "dropout" in changes else None
    assert_parameter_gradients(model.params, lambda params: loss_of(model, params, seed))


def test_learned_alpha_is_used_by_the_attention():
    learned = small("learned", seed=4)
    learned.params["attention.alpha_logit"][...] = np.log(0.3 / 0.7)
    fixed = small("1.3", seed=4)
    fixed.params = {k: x for k, x in learned.params.items() if k != "attention.alpha_logit"}
    assert learned.attention_alpha == pytest.approx(1.3, rel=1e-12, abs=0)
    assert fixed.attention_alpha == 1.3
    args = (SOURCE, SOURCE_MASK, TARGET_IN)
    np.testing.assert_allclose(
        learned.scores(learned.params, *args).data,
        fixed.scores(fixed.params, *args).data,
        rtol=1e-12,
    )
    one, other = (
        m.step(m.encode(SOURCE, SOURCE_MASK), np.array([1] * 3))[0] for m in (learned, fixed)
    )
    np.testing.assert_allclose(one.attention, other.attention, rtol=1e-12)


def test_the_alpha_of_the_attention():
    names = ["1", "1.25", "1.5", "2", "normmax:2", "fusedmax:1"]
    alphas = [small(name).attention_alpha for name in names]
    assert alphas == [1.0, 1.25, 1.5, 2.0, None, None]
    untrained = RNNSeq2Seq.initialize(
        RNNSeq2SeqConfig(8, 6, hidden=4, attention="learned"), np.random.default_rng(0), 1, 2
    )
    assert untrained.attention_alpha == 1.5


@pytest.mark.parametrize(
    "options", [{}, {"attention": "2", "score": "additive"}, {"attention": "learned"}]
)
@pytest.mark.parametrize("output", ["1", "1.5", "2"])
def test_steps_equal_training_probabilities(output, options):
    model = small(output=output, layers=2, **options)
    scores = model.scores(model.params, SOURCE, SOURCE_MASK, TARGET_IN).data
    state = model.encode(SOURCE, SOURCE_MASK)
    for t in range(TARGET_IN.shape[1]):
        step, state = model.step(state, TARGET_IN[:, t])
        p, support = model.output.probabilities(scores[t])
        np.testing.assert_allclose(np.exp(step.log_prob), p, rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(step.support, support)
        np.testing.assert_allclose(step.attention.sum(axis=1), 1, rtol=1e-12)
        assert not step.attention[~SOURCE_MASK].any(), "attention on padding"


def test_padding_changes_nothing():
    model = small(layers=2)
    together = model.scores(model.params, SOURCE, SOURCE_MASK, TARGET_IN).data
    for i, (row, mask) in enumerate(zip(SOURCE, SOURCE_MASK, strict=True)):
        alone = row[mask][None]
        scores = model.scores(model.params, alone, alone > 0, TARGET_IN[i : i + 1]).data
        np.testing.assert_allclose(together[:, i], scores[:, 0], rtol=1e-11, atol=1e-13)


def test_padded_targets_do_not_count():
    model = small()
    changed = TARGET_OUT.copy()
    changed[~TARGET_MASK] = 5
    kept = loss_of(model, model.params).item()
    assert model.loss(model.params, replace(BATCH, target_out=changed)).item() == kept
    # The mean is over tokens: that of the rows, weighted by their lengths.
    arrays = (SOURCE, SOURCE_MASK, TARGET_IN, TARGET_OUT, TARGET_MASK, np.arange(3))
    batches = [Batch(*(x[i : i + 1] for x in arrays)) for i in range(3)]
    rows = [model.loss(model.params, batch).item() for batch in batches]
    np.testing.assert_allclose(kept, np.average(rows, weights=TARGET_MASK.sum(axis=1)), rtol=1e-12)


@pytest.mark.parametrize(
    "changes",
    [{}, {"layers": 3}, {"attention": "2"}, {"score": "additive"}],
    ids=["one layer", "three", "sparsemax", "additive"],
)
@pytest.mark.parametrize(
    "rows",
    [[0, 0, 1, 1, 2, 2], [2, 0, 0, 1], [1, 1, 1, 1, 0], [2]],
    ids=["all", "mixed", "two", "one"],
)
def test_selected_rows_decode_as_alone(changes, rows):
    model = small(**changes)
    _, first = model.step(model.encode(SOURCE, SOURCE_MASK), np.array([1, 1, 1]))
    tokens = np.arange(len(rows)) % 4 + 2
    selected = take([first], None, np.array(rows))
    again = take([selected], None, np.arange(len(rows))[::-1])
    odd = np.arange(len(rows)) % 2
    joined = take([first, again], odd, np.where(odd, np.arange(len(rows))[::-1], rows))
    states = [(selected, rows), (again, rows[::-1]), (joined, rows)]
    for state, sources in states:
        step, after = model.step(state, tokens)
        later, _ = model.step(after, tokens)
        for k, row in enumerate(sources):
            one, then = model.step(take([first], None, np.array([row])), tokens[k : k + 1])
            two, _ = model.step(then, tokens[k : k + 1])
            for found, alone in ((step, one), (later, two)):
                np.testing.assert_allclose(found.log_prob[k], alone.log_prob[0], rtol=1e-11)
                np.testing.assert_allclose(
                    found.attention[k], alone.attention[0], rtol=1e-11, atol=1e-13
                )


def test_unproved_step_equals_the_proved_one(monkeypatch):
    model = small("1.5", "2")
    tokens = np.array([3, 1, 2])
    proved, _ = model.step(model.encode(SOURCE, SOURCE_MASK), tokens)
    plain, after = model.step(model.encode(SOURCE, SOURCE_MASK), tokens, prove=False)
    np.testing.assert_array_equal(plain.log_prob, proved.log_prob)
    np.testing.assert_array_equal(plain.attention, proved.attention)
    np.testing.assert_array_equal(plain.support, plain.log_prob > -np.inf)
    assert not (plain.support & ~proved.support).any()
    expected = greedy_search(model, SOURCE, SOURCE_MASK)
    beams = beam_search(model, SOURCE, SOURCE_MASK, n_best=5)
    monkeypatch.setattr(type(model.output), "certified", None)  # greedy search proves nothing
    for found, wanted in zip(greedy_search(model, SOURCE, SOURCE_MASK), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    for plain, result in zip(
        beam_search(model, SOURCE, SOURCE_MASK, prove=False), beams, strict=True
    ):
        assert plain.best.tokens == result.best.tokens


def test_dropout_only_with_a_generator():
    model = small(dropout=0.5)
    plain = loss_of(model, model.params).item()
    assert loss_of(model, model.params).item() == plain
    assert loss_of(model, model.params, seed=1).item() != plain
    assert (
        loss_of(model, model.params, seed=1).item() == loss_of(model, model.params, seed=1).item()
    )


def test_float32_stays_float32():
    model = small("learned", dtype=np.float32, layers=2, dropout=0.3)
    params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
    loss = loss_of(model, params, seed=0)
    loss.backward()
    assert loss.dtype == np.float32
    assert {tensor.grad.dtype for tensor in params.values()} == {np.dtype(np.float32)}


def test_sparse_or_not():
    assert not small(output="1").output_is_sparse
    assert not small(output="entmax:1").output_is_sparse
    assert small(output="1.01").output_is_sparse
    assert small(output="2").output_is_sparse


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden", 5, "hidden: expected an even number, got 5"),
        ("layers", 0, "layers: expected a whole number from 1 up, got 0"),
        ("dropout", 1.0, r"dropout: expected a rate in \[0, 1\), got 1.0"),
        ("attention", "hardmax", "expected α > 0 or one of .*entmax15.*; got 'hardmax'"),
        ("output", "-0.5", "got '-0.5'"),
        ("score", "cosine", "score: expected one of additive, .*; got 'cosine'"),
        ("output", "learned", "only the attention's α .* since the loss L_α falls as α grows"),
        ("output", "entmax", "expected entmax:ALPHA, numbers in place of .*; got 'entmax'"),
        ("output", "budget_sparsemax:1.5", "sum to 1, got budget_sparsemax with a sum of 1.5"),
    ],
)
def test_bad_configurations_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        RNNSeq2SeqConfig(**{"source_size": 8, "target_size": 6, field: value})
