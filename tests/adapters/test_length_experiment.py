"""The decoder of `experiments/vasylenko2025`: positions, scales, and what it writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.vasylenko2025 import length  # noqa: E402
from experiments.vasylenko2025.decoder import SCALES, Decoder  # noqa: E402
from pyentmax import entmax15  # noqa: E402

SIZE = {"width": 8, "heads": 2, "layers": 2}


def decoder(row: str) -> Any:
    torch.manual_seed(0)
    model = Decoder(9, row, **SIZE).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


def test_rows_have_the_names_of_the_script():
    assert tuple(SCALES) == length.ROWS


@pytest.mark.parametrize("row", SCALES)
def test_generates_as_without_a_cache(row):
    model, prompt = decoder(row), torch.arange(12).reshape(2, 6) % 9
    written = model.generate(prompt, 5)
    tokens = prompt
    for _ in range(5):
        tokens = torch.cat([tokens, model(tokens, 1).argmax(-1)], 1)
    assert torch.equal(written, tokens[:, 6:])


@pytest.mark.parametrize("row", SCALES)
def test_training_and_evaluation_agree(row):
    model, tokens = decoder(row), torch.arange(14).reshape(2, 7) % 9
    evaluated = model(tokens, 7)
    torch.testing.assert_close(model.train()(tokens, 7), evaluated, rtol=0, atol=1e-10)


@pytest.mark.parametrize("row", SCALES)
def test_only_heads_without_positions_are_scaled(row):
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    scale = decoder(row).blocks[0].attention.scale(x, 0).expand(2, 2, -1)
    torch.testing.assert_close(scale[:, 0], torch.ones_like(scale[:, 0]))
    assert (scale[:, 1] == 1).all() == (SCALES[row][1] == "one")


def test_attention_is_that_of_a_bias_by_distance():
    attention = decoder("1.5-entmax").blocks[0].attention
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    q, k, v = attention.qkv(x).view(1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    t = torch.arange(5.0)
    distance = t[:, None] - t
    bias = -torch.tensor([1.0, 0.0])[:, None, None] * distance  # slope 1, then none
    scores = (q @ k.mT / 2 + bias).masked_fill(distance < 0, -torch.inf)
    p = torch.from_numpy(entmax15.reference(scores.detach().numpy()))
    expected = attention.out((p @ v).transpose(1, 2).reshape(1, 5, 8))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-10)


def test_cut_run_goes_on_to_the_same_model(tmp_path, monkeypatch):
    monkeypatch.setattr(length, "CHECKPOINT", 2)
    settings = {
        "task": "copy",
        "mapping": "ASEntmax",
        "model": SIZE,
        "training": {"batch": 2, "lengths": [5, 9], "updates": 4},
        "tests": {"12": 2},
        "seed": 0,
        "rate": 1e-2,
    }
    options, calls, loss = length.Options(quiet=True), [], length.forced_loss
    whole = length.work(settings, tmp_path / "whole", options)

    def cut(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return loss(*arguments)

    monkeypatch.setattr(length, "forced_loss", cut)
    with pytest.raises(KeyboardInterrupt):
        length.work(settings, tmp_path / "cut", options)
    resumed = length.work(settings, tmp_path / "cut", options)
    assert len(calls) == 3 + 2 + 9, "two updates before the cut, two after it, nine validations"
    assert (resumed["loss"], resumed["tests"]) == (whole["loss"], whole["tests"])


def test_target_is_what_was_read_in_its_order():
    rng = np.random.default_rng(0)
    for task in length.TASKS:
        read, target = length.sequences(task, rng, 3, 20)
        assert (read[:, -1] == length.SYMBOLS).all()
        expected = read[:, :-1] if task == "copy" else np.sort(read[:, :-1], axis=1)
        np.testing.assert_array_equal(target, expected)
