"""The tape, the models, training and decoding on device arrays: the host's results, and few copies.

The stand-in for CuPy computes as NumPy does, so that whatever differs from a run on the host was
computed otherwise, and it counts what crosses between host and device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import fake_cupy
import numpy as np
import pytest

import pyentmax
from pyentmax.cli import main
from pyentmax.seq2seq import autograd
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.autograd.counter_rng import random_bits
from pyentmax.seq2seq.data import Batch, BucketedPairs, TokenBatches, make_batch
from pyentmax.seq2seq.decoding import beam_search, exact_search, greedy_search
from pyentmax.seq2seq.inflection import Example, Inflector, train_inflector
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.training import (
    RunOptions,
    TrainingConfig,
    Validation,
    load_checkpoint,
    train,
)

pytestmark = pytest.mark.slow

COPIES_OF_A_BATCH = 5  # two arrays of tokens in, one out, two masks
RNG = np.random.default_rng(0)
PAIRS = [(s, s[::-1].copy()) for s in (RNG.integers(4, 9, size=n) for n in (1, 2, 3, 4, 5) * 8)]
BATCHES = BucketedPairs(PAIRS, 8)
QUIET = RunOptions(progress=False)
VERBS = [Example(w, f"{w}ed", ("V", "PST")) for w in ("play", "walk", "call", "mail", "ask")]
VERBS += [Example(w, f"{w}s", ("V", "PRS")) for w in ("play", "walk", "call", "mail", "ask")]


@pytest.fixture(autouse=True)
def bodies_on_the_host_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled kernels agree with the bodies, but not to the last bit."""
    monkeypatch.setattr(pyentmax.engine.backends.choice, "kernels", dict)


def new_model(device: bool, dropout: float = 0.0, **changes: Any) -> RNNSeq2Seq:
    config = RNNSeq2SeqConfig(
        **{"source_size": 9, "target_size": 9, "hidden": 8, "layers": 2, "dropout": dropout}
        | changes
    )
    model = RNNSeq2Seq.initialize(config, np.random.default_rng(3), bos=1, eos=2)
    if device:
        model.move_to(fake_cupy)
    return model


def on_host(params: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: x.get() if hasattr(x, "get") else x for name, x in params.items()}


def trained(
    device: bool, dropout: float = 0.0, attention: str = "1.5", **options: Any
) -> tuple[RNNSeq2Seq, Any]:
    model = new_model(device, dropout, attention=attention)
    config = TrainingConfig(updates=20, rate=0.01, clip=0.5, validate_every=10)
    validations = []

    def validate(model: RNNSeq2Seq) -> Validation:
        validations.append(1)
        return Validation(1 / len(validations), float(len(validations)))

    history = train(model, BATCHES, config, validate, RunOptions(progress=False, **options))
    return model, history


def assert_same_parameters(model: RNNSeq2Seq, other: RNNSeq2Seq) -> None:
    mine, theirs = on_host(model.params), on_host(other.params)
    for name, x in mine.items():
        # The device masks steps that the host knows to need none: x + 0 there, x here.
        np.testing.assert_allclose(theirs[name], x, rtol=0, atol=1e-6, err_msg=name)


# --- the Transformer ------------------------------------------------------------------------------
def new_transformer(device: bool, **changes: Any) -> Transformer:
    options: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "inner": 12, "dropout": 0.0}
    config = TransformerConfig(9, 9, **options | {"attention": "learned"} | changes)
    model = Transformer.initialize(config, np.random.default_rng(3), bos=1, eos=2)
    if device:
        model.move_to(fake_cupy)
    return model


@pytest.mark.parametrize(
    "changes",
    # A bias of the keys changes nothing but the scores' offset: Adam blows up the rounding of 0.
    [
        {"attention_bias": False},
        {"norm": "pre", "tied": "all", "score": "additive", "label_smoothing": 0.1},
    ],
)
def test_transformer_trains_and_decodes_as_on_host(changes: dict[str, Any]):
    models, losses = [], []
    for device in (False, True):
        model = new_transformer(device, **changes)
        config = TrainingConfig(updates=4, rate=0.01, accumulate=2, average=2, average_every=2)
        scores = iter(range(9))

        def validate(model: Transformer, scores: Iterator[int] = scores) -> Validation:
            return Validation(1.0, float(next(scores)))

        history = train(model, TokenBatches(PAIRS, 30), config, validate, QUIET)
        models.append(model)
        losses.append(history.loss)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    ours, theirs = (on_host(model.params) for model in models)
    for name, x in ours.items():
        np.testing.assert_allclose(theirs[name], x, rtol=0, atol=1e-5, err_msg=name)
    models[1].params = {name: fake_cupy.asarray(x) for name, x in ours.items()}
    batch = make_batch(PAIRS, (0, 2, 4))
    arrays = (batch.source, batch.source_mask)
    for search in (
        lambda m: exact_search(m, *arrays, n_best=2, budget=8, max_length=4),
        lambda m: beam_search(m, *arrays, beam=2, max_length=4),
    ):
        for one, other in zip(search(models[0]), search(models[1]), strict=True):
            assert [h.tokens for h in one.hypotheses] == [h.tokens for h in other.hypotheses]
            for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
                np.testing.assert_allclose(a.attention, b.attention, rtol=1e-5, atol=1e-6)


def test_transformer_update_waits_for_nothing():
    model = new_transformer(True, dropout=0.2, attention_dropout=0.1, inner_dropout=0.1)
    batch = make_batch(PAIRS, range(0, 10, 3))
    params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
    fake_cupy.copies.reset()
    model.loss(params, batch, np.random.default_rng(0)).backward()
    assert fake_cupy.copies.to_host == 0


# --- training -------------------------------------------------------------------------------------
@pytest.mark.parametrize("attention", ["1.5", "learned"])
def test_training_equals_that_on_the_host(attention: str):
    host, history = trained(False, attention=attention)
    device, on_device = trained(True, attention=attention)
    assert all(isinstance(x, fake_cupy.ndarray) for x in device.params.values())
    assert_same_parameters(host, device)
    np.testing.assert_allclose(on_device.loss, history.loss, rtol=1e-6)
    assert history.loss[1] < history.loss[0]


@pytest.mark.parametrize(("dropout", "attention"), [(0.0, "1.5"), (0.3, "learned")])
def test_update_copies_its_batch_and_nothing_back(dropout: float, attention: str):
    counts = []

    class Counting(BucketedPairs):
        """Counts copies whenever a batch is taken."""

        def epoch(self, rng: np.random.Generator) -> Iterator[Batch]:
            for batch in super().epoch(rng):
                counts.append((fake_cupy.copies.to_device, fake_cupy.copies.to_host))
                yield batch

    model = new_model(True, dropout, attention=attention)
    config = TrainingConfig(updates=5, validate_every=5)
    batches = Counting(PAIRS, 8)
    options = RunOptions(progress=False, keep="last")
    train(model, batches, config, lambda _: Validation(1.0, 1.0), options)
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(counts, counts[1:], strict=False)]
    # The first of each 20 updates reads the diagnostics: the learned α, if there is one.
    diagnostics = 1 if attention == "learned" else 0
    assert steps == [(COPIES_OF_A_BATCH, diagnostics), *[(COPIES_OF_A_BATCH, 0)] * 3]


def test_resumed_run_equals_the_uninterrupted_one(tmp_path):
    straight, expected = trained(True, 0.3, keep="last")
    config = TrainingConfig(updates=20, rate=0.01, clip=0.5, validate_every=10)
    results = iter([Validation(1.0, 1.0)])

    def validate_once(model: RNNSeq2Seq) -> Validation:
        for result in results:
            return result
        raise KeyboardInterrupt

    where = RunOptions(tmp_path, progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(new_model(True, 0.3), BATCHES, config, validate_once, where)
    assert load_checkpoint(tmp_path / "last.npz", "training state")[1]["updates"] == 10
    resumed, history = trained(True, 0.3, directory=tmp_path, resume=True, keep="last")
    assert history.loss == expected.loss
    for name, x in on_host(straight.params).items():
        np.testing.assert_array_equal(on_host(resumed.params)[name], x, err_msg=name)


# --- decoding -------------------------------------------------------------------------------------
@pytest.mark.parametrize("mapping", ["1.5", "learned"])
def test_decoding_equals_that_on_the_host(mapping: str):
    output = "1.5" if mapping == "learned" else mapping
    host, device = (new_model(d, attention=mapping, output=output) for d in (False, True))
    batch = make_batch(PAIRS, range(7))
    for search in (beam_search, greedy_search):
        mine = search(host, batch.source, batch.source_mask, max_length=6)
        theirs = search(device, batch.source, batch.source_mask, max_length=6)
        for a, b in zip(mine, theirs, strict=True):
            if search is greedy_search:
                assert a.tolist() == b.tolist()
                continue
            assert (a.exact, a.reason) == (b.exact, b.reason)
            # The host computes once what rows share, by smaller products.
            assert b.mass == pytest.approx(a.mass, rel=1e-5, abs=0)
            for one, other in zip(a.hypotheses, b.hypotheses, strict=True):
                assert one.tokens == other.tokens
                np.testing.assert_allclose(one.log_prob, other.log_prob, rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(one.attention, other.attention, rtol=1e-5, atol=1e-6)


def test_decoding_copies_indices_in_and_results_out():
    model = new_model(True)
    batch = make_batch(PAIRS, [4])
    fake_cupy.copies.reset()
    state = model.encode(batch.source, batch.source_mask)
    assert (fake_cupy.copies.to_device, fake_cupy.copies.to_host) == (2, 0)
    assert isinstance(state.hidden[0], fake_cupy.ndarray)
    step, state = model.step(state, np.array([1]))
    assert (fake_cupy.copies.to_device, fake_cupy.copies.to_host) == (4, 3)
    assert all(type(x) is np.ndarray for x in step if x is not None)
    model.select(state, np.array([0, 0]))
    assert (fake_cupy.copies.to_device, fake_cupy.copies.to_host) == (5, 3)


def test_empty_source_is_refused_before_it_moves():
    source = np.array([[4, 5], [0, 0]])
    with pytest.raises(ValueError, match="row 1 has no token"):
        new_model(True).encode(source, source > 0)


# --- the tape -------------------------------------------------------------------------------------
def test_every_operation_on_the_tape():
    def loss(xp: Any) -> tuple[Any, Any]:
        x = Tensor(xp.asarray(np.linspace(0.5, 2, 12).reshape(3, 4)), requires_grad=True)
        w = Tensor(xp.asarray(np.linspace(-1, 1, 8).reshape(4, 2)), requires_grad=True)
        number = xp.asarray(np.array(3.0))  # an array on the left leaves the operation to the tape
        fake_cupy.copies.reset()
        y = (
            autograd.exp(number * x / (number**2))
            + autograd.log(x) * autograd.sigmoid(-x)
            - 2 * autograd.relu(x - 1)
        )
        y = (1 - y**2).transpose() @ autograd.linear(x, w)
        y = autograd.concatenate([y[1:], autograd.tanh(y)[:1]], axis=0).reshape(2, 4)
        y = autograd.stack([y, y]).sum(axis=(0, 1)).mean() + (x[0, 1:3] * 0.5).sum()
        y.backward()
        assert (fake_cupy.copies.to_device, fake_cupy.copies.to_host) == (0, 0)
        return x.grad, w.grad

    for mine, theirs in zip(loss(np), loss(fake_cupy), strict=True):
        np.testing.assert_array_equal(theirs.get(), mine)


@pytest.mark.parametrize("name", sorted(autograd.MAPPING_OPS))
def test_mappings_on_the_tape(name: str):
    z = np.random.default_rng(0).normal(size=(2, 5))
    parameters = {"alpha": 1.4, "k": 2, "strength": 0.1, "upper": 0.4, "budget": 2.0}
    params = [parameters[p] for p in pyentmax.MAPPINGS[name].parameters]
    gradients = []
    for xp in (np, fake_cupy):
        x = Tensor(xp.asarray(z), requires_grad=True)
        p = autograd.MAPPING_OPS[name](x, *params)
        (p * xp.asarray(z[::-1].copy())).sum().backward()
        gradients.append(x.grad)
    np.testing.assert_array_equal(gradients[1].get(), gradients[0])


# --- dropout --------------------------------------------------------------------------------------
def test_random_bits_depend_on_seed_and_place():
    bits = random_bits(7, (6, 5))
    np.testing.assert_array_equal(random_bits(7, (6, 5), fake_cupy).get(), bits)
    np.testing.assert_array_equal(random_bits(7, (30,))[:11], random_bits(7, (11,)))
    assert bits.dtype == np.uint64
    assert not (bits == random_bits(8, (6, 5))).any()


def test_random_bits_are_even():
    bits = random_bits(2**64 - 1, (100_000,))
    ones = np.unpackbits(bits.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    np.testing.assert_allclose(ones, 0.5, rtol=0, atol=0.01)  # six standard deviations
    uniform = bits / 2.0**64
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < 0.02


def test_dropout_on_the_device():
    rate = 0.25
    x = Tensor(fake_cupy.asarray(np.ones((200, 100), np.float32)), requires_grad=True)
    fake_cupy.copies.reset()
    y = autograd.dropout(x, rate, np.random.default_rng(0))
    y.sum().backward()
    assert (fake_cupy.copies.to_device, fake_cupy.copies.to_host) == (0, 0)
    assert y.dtype == np.float32
    kept = y.data.get()
    assert set(np.unique(kept)) == {0, np.float32(1 / (1 - rate))}
    deviation = (rate * (1 - rate) / kept.size) ** 0.5
    np.testing.assert_allclose((kept == 0).mean(), rate, rtol=0, atol=5 * deviation)
    np.testing.assert_array_equal(x.grad.get(), kept)
    other = autograd.dropout(x, rate, np.random.default_rng(1))
    assert (other.data.get() != kept).any()


# --- the command ----------------------------------------------------------------------------------
@pytest.fixture
def words(tmp_path):
    path = tmp_path / "english"
    lines = (f"{v.lemma}\t{v.form}\t{';'.join(v.tags)}" for v in VERBS)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def arguments(words, out, device: str) -> list[str]:
    small = ["--hidden", "8", "--updates", "4", "--batch-size", "4", "--quiet", "--device", device]
    files = ["--train", str(words), "--dev", str(words), "--out", str(out)]
    return ["train", "seq2seq", *files, *small]


def test_training_by_command_on_the_device(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    assert main(arguments(words, tmp_path / "run", "cuda")) == 0
    assert "4 updates" in capsys.readouterr().out
    inflector = Inflector.load(tmp_path / "run")  # the host reads it
    assert type(inflector.model.params["output.weight"]) is np.ndarray
    assert main(["inflect", str(tmp_path / "run"), "walk", "V;PST"]) == 0


def test_command_without_cupy_says_what_to_install(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)  # an ImportError, installed or not
    assert main(arguments(words, tmp_path / "run", "cuda")) == 2
    message = capsys.readouterr().err
    assert "device 'cuda' needs CuPy" in message
    assert "pip install 'pyentmax[cuda12]'" in message
    assert not (tmp_path / "run").exists()


def test_command_without_gpu_says_so(words, tmp_path, monkeypatch, capsys):
    class NoDevice:
        __version__ = "14.0"

        @staticmethod
        def arange(n: int) -> Any:
            raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    monkeypatch.setitem(sys.modules, "cupy", NoDevice)
    assert main(arguments(words, tmp_path / "run", "cuda")) == 2
    message = capsys.readouterr().err
    assert "CuPy 14.0 is installed, but a first kernel failed (cudaErrorNoDevice" in message


def test_gpu_that_computes_wrongly_is_refused(monkeypatch):
    monkeypatch.setattr(fake_cupy.ndarray, "__pow__", lambda self, exponent: self)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    with pytest.raises(ValueError, match=r"computes \[0, 1, 2, 3, 4\] as squares"):
        train_inflector(VERBS, VERBS, TrainingConfig(updates=1), device="cuda")


def test_other_devices_are_unknown():
    with pytest.raises(ValueError, match="device: expected one of cpu, cuda, got 'tpu'"):
        train_inflector(VERBS, VERBS, TrainingConfig(updates=1), device="tpu")
