"""The Transformer: its gradients, padding, and that training and decoding compute the same."""

from dataclasses import replace

import numpy as np
import pytest
from batches import BATCH, SOURCE, SOURCE_MASK, TARGET_IN, TARGET_MASK, TARGET_OUT, loss_of
from finite_differences import assert_parameter_gradients
from stages import slow

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.data import TokenBatches
from pyentmax.seq2seq.decoding import greedy_search
from pyentmax.seq2seq.models.protocol import take
from pyentmax.seq2seq.models.transformer import KINDS, Transformer, TransformerConfig
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.training import RunOptions, TrainingConfig, Validation, train

DROPOUTS = {"dropout": 0.2, "attention_dropout": 0.1, "inner_dropout": 0.15}


def small(seed=0, dtype=np.float64, sharpness=1.0, **changes):
    """A model of two layers; its heads and output are sharper the larger ``sharpness``."""
    options = {
        "source_size": 8,
        "target_size": 6,
        "width": 4,
        "layers": 2,
        "heads": 2,
        "inner": 6,
        "dropout": 0.0,
    }
    rng = np.random.default_rng(seed)
    config = TransformerConfig(**options | changes)
    model = Transformer.initialize(config, rng, bos=1, eos=2, dtype=dtype)
    for name, x in model.params.items():
        if "bias" in name or "gain" in name:  # zeros and ones would hide a wrong factor
            x += rng.normal(0, 0.3, x.shape).astype(dtype)
        if "query" in name or name.startswith("output"):
            x *= sharpness
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 2, "attention": "learned", "alpha_per": "kind", "tied": "output"},
        {"attention": "topk_softmax:2", "output": "softmax", "label_smoothing": 0.1},
        {"attention": "2", "output": "1.33", "tied": "all", "source_size": 6, "score": "additive"},
        {"attention": "softmax", "score": "dot", "norm": "pre", "scale_embeddings": False},
        {"attention": "1.25", "score": "bilinear", "attention_bias": False, "label_smoothing": 0.2},
        {"attention": "learned", "norm": "pre"} | DROPOUTS,
        {"attention": "topk_softmax:2", "inference_attention": "softmax"} | DROPOUTS,
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_gradient_of_every_parameter(changes):
    model = small(sharpness=3.0, **{"layers": 1} | changes)
    seed = 5 if "dropout" in changes else None
    batch = replace(BATCH, source=np.minimum(SOURCE, model.config.source_size - 1))

    def loss(params):
        return model.loss(params, batch, None if seed is None else np.random.default_rng(seed))

    assert_parameter_gradients(model.params, loss)


def test_loss_is_the_mean_over_tokens():
    model = small(label_smoothing=0.1)
    scores = model.scores(model.params, SOURCE, SOURCE_MASK, TARGET_IN).data
    mapping, chosen = choose_mapping("1.5"), TARGET_MASK
    expected = mapping.loss(
        Tensor(scores[chosen]), TARGET_OUT[chosen], label_smoothing=0.1, reduction="mean"
    )
    assert loss_of(model, model.params).item() == pytest.approx(expected.item(), rel=1e-12, abs=0)


@pytest.mark.parametrize("attention", ["1.5", "softmax", "topk_softmax:2", "learned"])
def test_padding_changes_nothing(attention):
    model = small(attention=attention, sharpness=3.0, dtype=np.float32)
    together = model.scores(model.params, SOURCE, SOURCE_MASK, TARGET_IN).data
    for i, (n, m) in enumerate([(4, 3), (3, 2), (2, 3)]):
        one = (SOURCE[i : i + 1, :n], SOURCE_MASK[i : i + 1, :n], TARGET_IN[i : i + 1, :m])
        alone = model.scores(model.params, *one).data[0]
        np.testing.assert_allclose(together[i, :m], alone, rtol=1e-5, atol=1e-5)


def test_tokens_do_not_see_later_ones():
    model = small()
    scores = model.scores(model.params, SOURCE, SOURCE_MASK, TARGET_IN).data
    for t in range(1, 3):
        changed = TARGET_IN.copy()
        changed[:, t:] = 5
        other = model.scores(model.params, SOURCE, SOURCE_MASK, changed).data
        np.testing.assert_allclose(other[:, :t], scores[:, :t], rtol=1e-12, atol=1e-13)
        assert np.abs(other[:2, t:] - scores[:2, t:]).max() > 1e-3


def test_positions_matter():
    model = small()
    one, other = (
        model.scores(model.params, np.array([s]), np.ones((1, 3), bool), TARGET_IN[:1]).data
        for s in ([4, 5, 6], [6, 5, 4])
    )
    assert np.abs(one - other).max() > 1e-3


# --- the cache ------------------------------------------------------------------------------------
def copier(sharpness=6.0, seed=3, **changes):
    return small(seed=seed, sharpness=sharpness, **changes)


OPTIONS = [
    {"attention": "learned"},
    {"attention": "topk_softmax:2", "inference_attention": "softmax", "norm": "pre"},
    {"score": "additive", "tied": "output", "output": "softmax"},
]


@pytest.mark.parametrize("changes", [*slow(*OPTIONS[:-1]), OPTIONS[-1]])
def test_steps_equal_scores_without_a_cache(changes):
    model, written = copier(**changes), np.random.default_rng(0).integers(1, 6, (3, 8))
    scores = model.scores(model.params, SOURCE, SOURCE_MASK, written).data
    weights = model.attention_weights(SOURCE, SOURCE_MASK, written)["context"][-1].mean(axis=1)
    state = model.encode(SOURCE, SOURCE_MASK)
    for t, tokens in enumerate(written.T):
        step, state = model.step(state, tokens)
        log_prob, support = model.output.log_probabilities(scores[:, t])
        np.testing.assert_array_equal(step.support, support)
        np.testing.assert_allclose(step.log_prob, log_prob, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(step.attention, weights[:, t], rtol=1e-9, atol=1e-12)


def test_taken_rows_are_arrays_of_their_own():
    model, rows = copier(), np.arange(3)
    state = model.encode(SOURCE, SOURCE_MASK)
    first, after = model.step(take([state], None, rows), np.array([1, 1, 1]))
    both = take([after, state], np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 2, 0]))
    again, _ = model.step(state, np.array([1, 1, 1]))
    np.testing.assert_array_equal(again.log_prob, first.log_prob)
    mixed, _ = model.step(both, np.array([3, 4, 5, 1, 1]))
    np.testing.assert_allclose(mixed.log_prob[3:], first.log_prob[[2, 0]], rtol=1e-9, atol=1e-12)
    alone, _ = model.step(after, np.array([3, 4, 5]))
    np.testing.assert_allclose(mixed.log_prob[:3], alone.log_prob, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "rows", [[0, 0, 1, 1, 2, 2], [0, 0, 1], [2, 0, 0, 1, 2, 2], [1, 1, 1, 0, 1, 1, 1, 1]]
)
def test_rows_step_together_as_alone(rows):
    """However many rows read a source, in whatever order, each gets what it gets alone."""
    model = copier(attention="learned")
    state = model.encode(SOURCE, SOURCE_MASK)
    tokens = np.arange(len(rows)) % 3 + 3
    chosen = take([state], None, np.array(rows))
    together, after = model.step(chosen, tokens)
    again, _ = model.step(after, tokens)
    for i, row in enumerate(rows):
        one, then = model.step(take([state], None, np.array([row])), tokens[i : i + 1])
        two, _ = model.step(then, tokens[i : i + 1])
        for found, alone in ((together, one), (again, two)):
            np.testing.assert_allclose(found.log_prob[i], alone.log_prob[0], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(
                found.attention[i], alone.attention[0], rtol=1e-9, atol=1e-12
            )


# --- attention ------------------------------------------------------------------------------------
def test_every_head_has_its_alpha():
    counts = {
        per: sum(
            x.size
            for n, x in small(attention="learned", alpha_per=per).params.items()
            if "alpha" in n
        )
        for per in ("head", "layer", "kind", "model")
    }
    assert counts == {"head": 3 * 2 * 2, "layer": 3 * 2, "kind": 3, "model": 1}
    for per in counts:
        alphas = small(attention="learned", alpha_per=per).alphas()
        assert sorted(alphas) == sorted(KINDS)
        assert {a.shape for a in alphas.values()} == {(2, 2)}
        together = np.concatenate([a.ravel() for a in alphas.values()])
        assert ((together > 1) & (together < 2)).all()
        assert len(set(together.tolist())) == counts[per]
    assert small().alphas() == {}
    one = small(attention="learned", alpha_std=0.0).params
    drawn = small(attention="learned").params
    for name, x in one.items():
        assert np.array_equal(x, 0 * x if name.endswith("alpha_logit") else drawn[name])
    model = small(attention="learned")
    assert model.diagnostics() == {kind: x.tolist() for kind, x in model.alphas().items()}
    assert small().diagnostics() == {}


def test_learned_alphas_are_used_by_their_heads():
    model = small(attention="learned", sharpness=4.0)
    free = model.attention_weights(SOURCE, SOURCE_MASK, TARGET_IN)
    model.params["attention.context.1.alpha_logit"][1] = 40.0
    other = model.attention_weights(SOURCE, SOURCE_MASK, TARGET_IN)
    for kind in KINDS:
        for layer in range(2):
            changed = np.abs(free[kind][layer] - other[kind][layer]).max(axis=(0, 2, 3)) > 1e-9
            assert changed.tolist() == [False, (kind, layer) == ("context", 1)]


def test_training_and_inference_mappings_may_differ():
    both = small(attention="topk_softmax:1", inference_attention="topk_softmax:3", dropout=0.0)
    one, three = (
        replace(both.config, attention=a, inference_attention=None)
        for a in ("topk_softmax:1", "topk_softmax:3")
    )
    trained, used = (Transformer(c, both.params, 1, 2) for c in (one, three))
    assert loss_of(both, both.params, seed=0).item() == loss_of(trained, both.params, seed=0).item()
    assert loss_of(both, both.params).item() == loss_of(used, both.params).item()
    state = both.encode(SOURCE, SOURCE_MASK)
    for weights in both.attention_weights(SOURCE, SOURCE_MASK, TARGET_IN)["encoder"]:
        assert (weights > 0).sum(axis=-1).max() == 3
    step, _ = both.step(state, np.array([1, 1, 1]))
    other, _ = used.step(used.encode(SOURCE, SOURCE_MASK), np.array([1, 1, 1]))
    np.testing.assert_array_equal(step.log_prob, other.log_prob)


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "width: expected a whole number from 1 up, got 0"),
        ({"width": 3, "heads": 1}, "width: expected an even number, got 3"),
        ({"heads": 3}, "heads: expected a divisor of the width 4, got 3"),
        ({"inner_dropout": 1.0}, "inner_dropout: expected a rate"),
        ({"label_smoothing": -0.1}, "label_smoothing: expected a rate"),
        ({"norm": "both"}, "norm: expected one of post, pre, got 'both'"),
        ({"tied": "all"}, "tied: 'all' needs one vocabulary"),
        ({"alpha_per": "token"}, "alpha_per: expected one of head, layer, kind, model"),
        ({"alpha_std": -1.0}, "alpha_std: expected a number from 0 up"),
        ({"attention": "hardmax"}, "mapping: expected"),
        ({"inference_attention": "topk_softmax"}, "mapping: expected topk_softmax:K"),
        ({"inference_attention": "learned"}, "needs the attention to be 'learned' too"),
        ({"output": "learned"}, "output: expected a fixed α"),
        ({"score": "cosine"}, "score: expected one of"),
    ],
)
def test_bad_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)


def test_parameters_that_do_not_fit_are_named():
    model = small()
    model.check_parameters()
    model.params["output.bias"] = np.zeros(7)
    with pytest.raises(ValueError, match=r"output.bias: expected shape \(6,\), got \(7,\)"):
        model.check_parameters()
    del model.params["output.bias"]
    with pytest.raises(ValueError, match=r"output.bias: expected shape \(6,\), got none"):
        model.check_parameters()


def test_an_empty_source_is_an_error():
    model = small()
    empty = np.array([[True, True], [False, False]])
    with pytest.raises(ValueError, match="source_mask: row 1 has no token to attend to"):
        model.encode(np.array([[4, 5], [0, 0]]), empty)


def test_float32_stays_float32():
    model = small(dtype=np.float32, attention="learned", norm="pre", tied="output")
    params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
    loss = loss_of(model, params, seed=0)
    loss.backward()
    assert {loss.dtype, *(x.grad.dtype for x in params.values())} <= {np.dtype(np.float32)}
    step, state = model.step(model.encode(SOURCE, SOURCE_MASK), np.array([1, 1, 1]))
    assert {step.log_prob.dtype, state.cache.pairs[0][0].dtype} == {np.dtype(np.float32)}


# --- training -------------------------------------------------------------------------------------
@pytest.mark.slow
def test_transformer_learns_to_reverse():
    rng = np.random.default_rng(0)
    words = [rng.integers(3, 8, size=n) for n in rng.integers(1, 6, size=300)]
    config = TransformerConfig(8, 8, width=32, layers=1, heads=2, inner=32, dropout=0.0, norm="pre")
    model = Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    settings = TrainingConfig(updates=300, rate=1e-2, schedule="inverse_sqrt", warmup=50)
    batches = TokenBatches([(w, w[::-1]) for w in words], 200)

    def validate(model):
        return Validation(0.0, 0.0)

    history = train(model, batches, settings, validate, RunOptions(progress=False, keep="last"))
    assert history.loss[-1] < 0.1 * history.loss[0]
    new = np.array([[3, 7, 5, 4]])
    [found] = greedy_search(model, new, new > 0)
    assert found.tolist() == [4, 5, 7, 3]
