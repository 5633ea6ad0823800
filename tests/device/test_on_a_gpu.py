"""What the stand-in for CuPy shows, on CuPy: where a GPU computes; elsewhere skipped, saying why.

Sums are taken in another order there, so that results agree to rounding and no further.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax.engine.calls.devices import device_module
from pyentmax.reference.mappings import MAPPINGS
from pyentmax.seq2seq import autograd
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.autograd.counter_rng import random_bits
from pyentmax.seq2seq.data import BucketedPairs, make_batch
from pyentmax.seq2seq.decoding import beam_search
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.training import RunOptions, TrainingConfig, Validation, train

try:
    cupy = device_module("cuda")
except (ImportError, ValueError) as error:
    pytest.skip(str(error), allow_module_level=True)

RNG = np.random.default_rng(0)
Z, V = RNG.normal(size=(2, 64, 33))
MASK = RNG.random(Z.shape) < 0.8
PARAMETERS: dict[str, Any] = {"alpha": 1.3, "k": 4, "strength": 0.05, "upper": 0.2, "budget": 3.5}
PAIRS = [(s, s[::-1].copy()) for s in (RNG.integers(4, 9, size=n) for n in (1, 2, 3, 4, 5) * 8)]


def on_gpu(x: Any) -> Any:
    return cupy.asarray(x) if isinstance(x, np.ndarray) else x


def assert_close(function: Any, *args: Any, **kwargs: Any) -> None:
    """The body gives the same on the host and on the GPU, and the kernel, if any, too."""
    expected = function(*args, **kwargs)
    moved, options = map(on_gpu, args), {key: on_gpu(x) for key, x in kwargs.items()}
    moved = tuple(moved)
    for run in {function, getattr(function, "reference", function)}:
        found = run(*moved, **options)
        pairs = (x if isinstance(x, tuple) else (x,) for x in (expected, found))
        for mine, theirs in zip(*pairs, strict=True):
            assert isinstance(theirs, cupy.ndarray)
            assert theirs.dtype == mine.dtype
            np.testing.assert_allclose(theirs.get(), mine, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("name", MAPPINGS)
def test_mappings(name: str, mask: Any) -> None:
    record = MAPPINGS[name]
    params = [PARAMETERS[parameter] for parameter in record.parameters]
    assert_close(record.forward, Z, *params, mask=mask)
    p = record.forward(Z, *params, mask=mask)
    assert_close(record.jvp, p, V, *params, mask=mask)
    assert_close(record.jacobian, p, *params)
    if record.omega is not None:
        named = dict(zip(record.parameters, params, strict=True))
        labels = np.arange(64) % 33 if mask is None else MASK.argmax(axis=-1)
        loss = pyentmax.fenchel_young_loss_and_grad
        assert_close(loss, Z, labels, name, mask=mask, reduction="none", **named)


def test_random_bits_are_the_hosts() -> None:
    np.testing.assert_array_equal(
        random_bits(2**64 - 5, (999,), cupy).get(), random_bits(2**64 - 5, (999,))
    )


def trained(device: bool, dropout: float = 0.0) -> tuple[RNNSeq2Seq, Any]:
    config = RNNSeq2SeqConfig(9, 9, hidden=16, layers=2, dropout=dropout)
    # In double: Adam makes steps of full size even of gradients that are nothing but rounding.
    model = RNNSeq2Seq.initialize(config, np.random.default_rng(3), bos=1, eos=2, dtype=np.float64)
    if device:
        model.move_to(cupy)
    settings = TrainingConfig(updates=40, rate=0.01, validate_every=20)
    history = train(
        model,
        BucketedPairs(PAIRS, 8),
        settings,
        lambda _: Validation(1.0, 1.0),
        RunOptions(progress=False),
    )
    return model, history


def test_training_and_decoding() -> None:
    (host, mine), (device, theirs) = trained(False), trained(True)
    np.testing.assert_allclose(theirs.loss, mine.loss, rtol=1e-6)
    assert theirs.loss[1] < theirs.loss[0]
    for name, x in host.params.items():
        np.testing.assert_allclose(device.params[name].get(), x, rtol=0, atol=1e-5, err_msg=name)
    host.params = {name: x.get() for name, x in device.params.items()}
    batch = make_batch(PAIRS, range(7))
    results = (
        beam_search(m, batch.source, batch.source_mask, max_length=6) for m in (host, device)
    )
    for one, other in zip(*results, strict=True):
        assert one.best.tokens == other.best.tokens
        np.testing.assert_allclose(one.mass, other.mass, rtol=1e-4)


def test_training_with_dropout_learns() -> None:
    _, history = trained(True, 0.2)
    assert history.loss[1] < history.loss[0]


@pytest.mark.filterwarnings("ignore:cupyx.allow_synchronize:UserWarning")  # may go one day
def test_no_update_waits_for_the_gpu() -> None:
    cupyx = pytest.importorskip("cupyx")
    config = RNNSeq2SeqConfig(9, 9, hidden=16, dropout=0.3)
    model = RNNSeq2Seq.initialize(config, np.random.default_rng(3), bos=1, eos=2)
    model.move_to(cupy)
    batch = make_batch(PAIRS, range(8)).on(cupy)
    params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
    rng = np.random.default_rng(0)
    with cupyx.allow_synchronize(False):  # raises where the host waits
        loss = model.loss(params, batch, rng)
        loss.backward()
    assert np.isfinite(loss.item())
    assert all(isinstance(p.grad, cupy.ndarray) for p in params.values())


def test_embeddings_on_the_tape() -> None:
    index = RNG.integers(0, 7, size=(50, 3))
    gradient = RNG.normal(size=(50, 3, 5))
    grads = []
    for xp in (np, cupy):
        table = Tensor(xp.asarray(np.ones((7, 5))), requires_grad=True)
        autograd.take_rows(table, xp.asarray(index)).backward(xp.asarray(gradient))
        grads.append(table.grad)
    np.testing.assert_allclose(grads[1].get(), grads[0], rtol=1e-12, atol=1e-12)


def test_tensors_of_pytorch_share_their_memory() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU here")
    scores = torch.randn(8, 100, device="cuda")
    z = cupy.from_dlpack(scores)
    assert z.data.ptr == scores.data_ptr()
    p = torch.from_dlpack(pyentmax.sparsemax(z))
    assert p.device.type == "cuda"
    np.testing.assert_allclose(
        p.cpu().numpy(), pyentmax.sparsemax(scores.cpu().numpy()), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_attention_and_its_gradients(alpha: float) -> None:
    query, key, value, g = RNG.normal(size=(4, 2, 4, 70, 16))
    key, value = key[:, :2], value[:, :2]  # grouped heads
    there = [cupy.asarray(x) for x in (query, key, value)]
    named = {"causal": True, "return_weights": True}
    output, kept = pyentmax.attention(*there, alpha, **named)
    expected, weights = pyentmax.attention(query, key, value, alpha, **named)
    found = pyentmax.attention_vjp(kept, *there, cupy.asarray(g), alpha, causal=True)
    wanted = pyentmax.attention_vjp(weights, query, key, value, g, alpha, causal=True)
    pairs = [(output, expected), (kept.to_dense(), weights.to_dense())]
    for theirs, mine in [*pairs, *zip(found, wanted, strict=True)]:
        assert isinstance(theirs, cupy.ndarray)
        np.testing.assert_allclose(theirs.get(), mine, rtol=0, atol=1e-10)
    slope = pyentmax.attention_vjp_alpha(kept, there[2], cupy.asarray(g), alpha)
    wanted_slope = pyentmax.attention_vjp_alpha(weights, value, g, alpha)
    np.testing.assert_allclose(slope.get(), wanted_slope, rtol=1e-9)


def test_attention_makes_no_array_of_scores() -> None:
    x = cupy.asarray(RNG.normal(size=(3, 1, 16384, 16)).astype(np.float32) * 3)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    with pool_limit(pool, 900 << 20):  # all scores are 1 GiB
        output, weights = pyentmax.attention(*x, 2.0, return_weights=True)
        gradients = pyentmax.attention_vjp(weights, *x, output, 2.0)
    assert all(bool(cupy.isfinite(y).all()) for y in gradients)


@contextmanager
def pool_limit(pool: Any, size: int) -> Iterator[None]:
    """Let CuPy have so many bytes at most."""
    before = pool.get_limit()
    pool.set_limit(size=size)
    try:
        yield
    finally:
        pool.set_limit(size=before)
