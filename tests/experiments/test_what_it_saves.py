"""What sparsity saves: the pages repeat the lines that are kept, and the models are right."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from experiments import runner
from experiments.own import two_ways, what_it_saves
from experiments.runner import HOME, read_lines
from pyentmax.seq2seq.analysis import epsilon_perplexity, sparsemax_score


def line(ratio, processor="a", **settings):
    """A line of a comparison."""
    sides = {
        "softmax": {"ms": 2.0, "ratio": 1.0, "half": [1.0, 1.0]},
        "pyentmax": {"ms": 2 * ratio, "ratio": ratio, "half": [ratio, ratio]},
    }
    result = {"sides": sides, "others": 0, "waited": 0, "processor": processor, "torch": "2.14"}
    return {"settings": settings, "result": result, "made_from": [{"date": "2026-11-28"}]}


def test_pages_repeat_the_kept_lines():
    names = {path.relative_to(HOME.parent).as_posix() for path in what_it_saves.pages()}
    page, rows = "docs/results/what-it-saves.md", "experiments/measurements/what_it_saves.md"
    assert {page, rows, "README.md", "docs/guide/softmax-to-sparse.md"} <= names
    said = what_it_saves.kept()
    for path in what_it_saves.pages():
        text = path.read_text("utf-8")
        assert what_it_saves.filled(text, said) == text, path
        assert what_it_saves.filled(text, dict.fromkeys(said, "?")) != text


def test_lines_are_kept_in_a_file_for_each_processor(tmp_path, monkeypatch):
    """The file of the first stays the first column, whatever the others are called."""
    monkeypatch.setattr(runner, "HOME", tmp_path)
    first, second = (line(0.5, name, row="one query", keys=5) for name in ("an Intel (2)", "a"))
    runner.add_line(what_it_saves.EXPERIMENT.recorded, first)
    assert what_it_saves.keep([second]) == [first, second]
    assert what_it_saves.keep([first, second]) == what_it_saves.keep([]) == [first, second]
    folder = tmp_path / "own" / "results"
    names = sorted(path.name for path in folder.glob("*.jsonl"))
    assert names == ["what_it_saves-a.jsonl", "what_it_saves.jsonl"]
    assert read_lines(folder / "what_it_saves.jsonl") == [first]


def test_sides_take_turns_and_the_first_round_is_left_out():
    pytest.importorskip("tqdm")
    calls = []
    found = what_it_saves.compare({x: lambda x=x: calls.append(x) for x in "ab"}, budget=0)
    assert calls == ["a", "b"] * 4
    assert found["rounds"] == 3
    assert found["sides"]["a"]["ratio"] == 1


@pytest.mark.parametrize(("alpha", "output"), [(1.0, 1.0), (1.5, 1.5), (1.5, 1.0)])
def test_cached_states_are_those_of_the_whole_text(alpha, output):
    torch = pytest.importorskip("torch")
    from experiments.own.torch_decoder import Cache, Decoder

    torch.manual_seed(0)
    model, text = Decoder(50, alpha, output, 16, 2, 2), torch.randint(50, (1, 40))
    with torch.no_grad():
        caches = [Cache(5, screened=alpha > 1) for _ in model.blocks]
        parts = [model(text[:, i:j], caches) for i, j in pairwise([0, *range(35, 41)])]
        assert torch.allclose(torch.cat(parts, 1), model(text), rtol=0, atol=1e-5)
    assert len(list(model.generate(text, 3))) == 3


def test_measures_are_those_of_all_distributions(monkeypatch):
    torch = pytest.importorskip("torch")
    from experiments.own.torch_decoder import Decoder

    monkeypatch.setattr(two_ways, "CONTEXT", 8)
    torch.manual_seed(0)
    model, text = Decoder(12, 1.5, 1.5, 16, 2, 1), np.random.default_rng(0).integers(12, size=33)
    for x in model.parameters():
        torch.nn.init.normal_(x, std=0.5)
    found = two_ways.measured(model, text)
    with torch.no_grad():
        p = model.probabilities(model(torch.from_numpy(text[:-1].reshape(4, 8))))
    p, y = p.reshape(32, 12).numpy(), text[1:]
    assert found["ruled_out"] == pytest.approx(np.mean(p[np.arange(32), y] == 0), rel=0, abs=1e-4)
    assert found["ruled_out"] > 0
    assert "nats" not in found
    assert found["sparsemax_score"] == pytest.approx(sparsemax_score(p, y), rel=0, abs=1e-4)
    expected = np.log(epsilon_perplexity(p, y, 1e-4))
    assert found["nats_e4"] == pytest.approx(expected, rel=0, abs=1e-3)
