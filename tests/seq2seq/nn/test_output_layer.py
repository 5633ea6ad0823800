"""A model's last layer: losses and decoding are the same with and without all scores."""

from functools import partial

import numpy as np
import pytest

from pyentmax.engine.backends import choice
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.data import make_batch
from pyentmax.seq2seq.data.segments import Segment
from pyentmax.seq2seq.decoding import ancestral_sampling, beam_search, greedy_search
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.nn import output_layer
from pyentmax.seq2seq.nn.linear import linear
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.nn.output_layer import NextScores

SIZE = 60


def translation(rng):
    pairs = [(rng.integers(3, 20, n), rng.integers(3, SIZE, n + 2)) for n in (3, 5, 4)]
    return make_batch(pairs, range(3))


def models(dtype, output, smoothing):
    """A model of each kind, tied and not, with a batch."""
    rng = np.random.default_rng(0)
    shared = {"output": output, "label_smoothing": smoothing}
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8, **shared}
    sizes = {"source_size": 20, "target_size": SIZE}
    batch = translation(rng)
    rnn = RNNSeq2SeqConfig(**sizes, hidden=8, **shared)
    yield RNNSeq2Seq.initialize(rnn, rng, bos=1, eos=2, dtype=dtype), batch
    for tied in ("none", "output"):
        config = TransformerConfig(**sizes, tied=tied, **shape)
        yield Transformer.initialize(config, rng, bos=1, eos=2, dtype=dtype), batch
    tokens = rng.integers(3, SIZE, (2, 9))
    segment = Segment(tokens[:, :-1], tokens[:, 1:])
    config = LanguageModelConfig(size=SIZE, **shape)
    yield LanguageModel.initialize(config, rng, bos=1, eos=2, dtype=dtype), segment


@pytest.mark.parametrize(
    ("output", "smoothing"),
    [("1", 0.1), ("1.5", 0.0), ("entmax:1.25", 0.1), ("topk_sparsemax:3", 0.0)],
)
def test_both_routes_give_one_loss_and_gradient(monkeypatch, output, smoothing):
    for model, batch in models(np.float64, output, smoothing):
        found = []
        for least in (SIZE + 1, 1):
            monkeypatch.setattr(output_layer, "LARGE_VOCABULARY", least)
            params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
            loss = model.loss(params, batch)
            loss.backward()
            found.append((loss.item(), {name: x.grad for name, x in params.items()}))
        (loss, dense), (chunked, sparse) = found
        assert chunked == pytest.approx(loss, rel=1e-10, abs=0)
        for name in dense:
            np.testing.assert_allclose(sparse[name], dense[name], rtol=1e-8, atol=1e-12)


has_kernels = pytest.mark.skipif(not choice.kernels(), reason="the kernels are not built")


@has_kernels
@pytest.mark.parametrize("output", ["1.5", "entmax:1.25"])
def test_decoding_without_most_scores_is_the_same(monkeypatch, output):
    """Strings, probabilities and certificates of beams, greedy search and sampling."""
    monkeypatch.setattr(output_layer, "PAID", 0)
    certificates = set()
    for model, batch in models(np.float64, output, 0.0):
        model.params["output.bias"] += np.linspace(-6, 6, SIZE)
        source = batch.tokens_in[:, :4] if isinstance(batch, Segment) else batch.source
        found, hidden = [], []
        for least in (SIZE + 1, 1):
            monkeypatch.setattr(output_layer, "SCREENED_VOCABULARY", least)
            results = beam_search(model, source, source > 0, beam=2, max_length=5)
            drawn = ancestral_sampling(
                model, source, source > 0, np.random.default_rng(0), samples=2, max_length=5
            )
            greedy = greedy_search(model, source, source > 0, max_length=5)
            found.append((results, drawn, [x.tolist() for x in greedy]))
            state = model.encode(source, source > 0)
            hidden.append(np.isneginf(model.advance(state, np.ones(len(source), int))[0]).sum())
        assert hidden[0] == 0 < hidden[1]
        (results, drawn, greedy), (screened, drawn_again, greedy_again) = found
        assert greedy == greedy_again
        listed = [h for r in results for h in r.hypotheses] + [h for one in drawn for h in one]
        again = [h for r in screened for h in r.hypotheses]
        again += [h for one in drawn_again for h in one]
        for one, other in zip(listed, again, strict=True):
            assert one.tokens == other.tokens
            assert other.log_prob == pytest.approx(one.log_prob, rel=1e-9, abs=1e-12)
        for one, other in zip(results, screened, strict=True):
            assert (one.exact, one.proved) == (other.exact, other.proved)
            certificates.add(one.exact)
    assert False in certificates


@has_kernels
def test_certificates_of_screened_scores_are_those_of_all():
    rng = np.random.default_rng(1)
    for output in ("1.5", "2", "1.1"):
        mapping = choose_mapping(output)
        weight = rng.standard_normal((32, 5000)).astype(np.float32)
        params = {"output.weight": weight, "output.bias": np.zeros(5000, np.float32)}
        x = Tensor(rng.standard_normal((3, 32)).astype(np.float32))
        layer = partial(linear, params, "output")
        scores = NextScores(mapping, params, layer)
        calls = [scores(x) for _ in range(output_layer.PAID + 1)]
        np.testing.assert_array_equal(calls[-2], layer(x).data)  # until a screen has paid
        assert 0.5 < np.isneginf(calls[-1]).mean() < 1
        (log_p, support, most), (own, own_support, own_most) = map(
            mapping.certified, (calls[0], calls[-1])
        )
        np.testing.assert_array_equal(own_support, support)
        np.testing.assert_allclose(np.exp(own), np.exp(log_p), rtol=0, atol=1e-5)
        assert (most is None) == (own_most is None)
        many = Tensor(np.repeat(x.data, 3, axis=0))
        np.testing.assert_array_equal(scores(many), layer(many).data)
    for output in ("softmax", "3", "topk_sparsemax:2", "bisection:1.5"):
        scores = NextScores(choose_mapping(output), params, layer)
        calls = [scores(x) for _ in range(output_layer.PAID + 1)]
        np.testing.assert_array_equal(calls[-1], calls[0])
