"""A model's last layer: losses are the same with and without all scores."""

import numpy as np
import pytest

from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.data import make_batch
from pyentmax.seq2seq.data.segments import Segment
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.nn import output_layer

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
