"""The model that learns on a GPU is that of pyentmax, and its parameters come home."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

from experiments.peters2019 import gpu  # noqa: E402
from pyentmax.seq2seq.autograd import Tensor  # noqa: E402
from pyentmax.seq2seq.data import BOS, EOS, PAD, make_batch  # noqa: E402
from pyentmax.seq2seq.inflection import Inflector, english_verbs  # noqa: E402


@pytest.mark.parametrize("alpha", ["1", "1.5", "2"])
def test_loss_and_gradients_are_those_of_pyentmax(alpha: str) -> None:
    config = {"hidden": 8, "layers": 2, "attention": alpha, "output": alpha}
    inflector = Inflector.untrained(english_verbs()[:100], np.random.default_rng(0), **config)
    pairs = inflector.pairs(english_verbs()[:100])
    index = [i for i, (source, _) in enumerate(pairs) if len(source) == len(pairs[0][0])]
    rng = np.random.default_rng(1)
    params = {n: x + 0.1 * rng.normal(size=x.shape) for n, x in inflector.model.params.items()}
    there = {name: Tensor(x, requires_grad=True) for name, x in params.items()}
    loss = inflector.model.loss(there, make_batch(pairs, np.array(index)))
    loss.backward()
    width = max(len(target) for _, target in pairs) + 2  # more padding than the batch needs
    targets = [[BOS, *pairs[i][1], EOS] for i in index]
    target = torch.tensor([row + [PAD] * (width - len(row)) for row in targets])
    model = gpu.Model(params, float(alpha), float(alpha)).double().eval()
    model.load_state_dict(gpu.to_torch(params))
    found = model(torch.tensor(np.array([pairs[i][0] for i in index])).T, target.T)
    found.backward()
    # The scores are single precision in the loss.
    np.testing.assert_allclose(found.detach(), loss.data, rtol=1e-6)
    gradients = gpu.from_torch({n: x.grad for n, x in model.named_parameters()})
    for name, gradient in gradients.items():
        if name.endswith("bias") and name != "output.bias":
            gradient = gradient / 2  # an LSTM of PyTorch has two biases
        np.testing.assert_allclose(gradient, there[name].grad, rtol=1e-4, atol=1e-7)
    home = gpu.from_torch(model.state_dict())
    assert home.keys() == params.keys()
    for name, x in params.items():
        np.testing.assert_array_equal(home[name], x)


def test_mappings_and_losses_are_those_of_pyentmax() -> None:
    gpu.check_mappings("cpu")


@pytest.mark.slow
def test_training_reduces_the_loss_and_saves(tmp_path: Path) -> None:
    inflector = Inflector.untrained(english_verbs(), np.random.default_rng(0))
    pairs = inflector.pairs(english_verbs())
    np.savez(
        tmp_path / "verbs.npz",
        lengths=[[len(part) for part in pair] for pair in pairs],
        tokens=np.concatenate([part for pair in pairs for part in pair]),
        sizes=[len(inflector.source), len(inflector.target)],
    )
    setting = "train --device cpu --pairs 1,1.5 --hidden 16 --batch-size 32 --rate 0.02 --warmup 1"
    files = ["--file", str(tmp_path / "verbs.npz"), "--out", str(tmp_path / "out")]
    gpu.main([*setting.split(), "--updates", "24", "--note", "8", *files])
    losses = gpu.json.loads((tmp_path / "out" / "verbs-1-1.5.seed-0.json").read_text())["losses"]
    assert losses[-1] < 0.9 * losses[0]
    saved = np.load(tmp_path / "out" / "verbs-1-1.5.seed-0.npz")
    assert saved["output.weight"].shape == (16, len(inflector.target))
