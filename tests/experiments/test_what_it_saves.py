"""What sparsity saves: the pages repeat the lines that are kept, and the models are right."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from experiments import runner
from experiments.own import two_ways, what_it_saves
from experiments.runner import HOME, read_lines
from pyentmax.seq2seq.analysis import epsilon_perplexity, sparsemax_score

MODELS = read_lines(two_ways.EXPERIMENT.recorded)


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


def test_losses_come_first_and_bfloat16_is_no_gain():
    lines = [
        line(0.5, row="loss alone", shape=[2, 3]),
        line(0.1, row="output layer, training", classes=9, dtype="bfloat16", states=1),
        line(0.7, row="one query", keys=5),
        line(2.0, row="mapping alone", shape=[2, 3]),
    ]
    said = what_it_saves.blocks(lines, MODELS)
    ratios = [float(row.split(" | ")[2].split()[0]) for row in said["situations"].splitlines()[2:]]
    assert ratios == [2.0, 0.7, 0.5, 0.1]
    assert "slower* than softmax in 1 of 4" in said["answer"]
    assert "up to 2.00 times" in said["answer"]
    assert "in 3, down to 0.50 of" in said["answer"]


def test_parts_have_their_slowest_and_fastest_situation():
    lines = [
        line(0.1, row="output layer, training", classes=9, dtype="bfloat16", states=1),
        line(0.6, row="output layer, training", classes=9, dtype="float32", states=1),
        line(0.8, row="output layer, training", classes=2, dtype="float32", states=1),
        line(1.5, row="one query", keys=5),
    ]
    said = what_it_saves.blocks(lines, MODELS)["parts"].splitlines()[2:]
    assert said == [
        "| one query | 1.50 (5 keys) | 1.50 (5 keys) |",
        "| output layer, training | 0.80 (2 classes, float32, 1 state) | "
        "0.60 (9 classes, float32, 1 state) |",
    ]


def test_second_processor_gets_a_column():
    lines = [line(0.5, name, row="one query", keys=5) for name in ("a", "b")]
    lines[1]["result"]["sides"]["pyentmax"] |= {"ratio": 0.9, "half": [0.8, 1.0]}
    said = what_it_saves.blocks(lines, MODELS)
    assert "| 0.50 (0.50 to 0.50) | 0.90 (0.80 to 1.00) |" in said["situations"]
    assert said["machines"].endswith("2 processors.")
    assert "down to 0.50 to 0.90" in said["extremes"]
    assert said["extremes"].endswith("on a, b")
    assert what_it_saves.blocks(lines[:1], MODELS)["machines"].endswith("One processor so far.")


def test_row_of_one_processor_alone_has_a_dash():
    lines = [line(0.5, "a", row="one query", keys=5), line(1.5, "b", row="one query", keys=6)]
    said = what_it_saves.blocks(lines, MODELS)
    assert "| one query: 6 keys | – / 2 | – | 1.50 (1.50 to 1.50) |" in said["situations"]
    assert "| one query: 5 keys | 2 / – | 0.50 (0.50 to 0.50) | – |" in said["situations"]
    assert "slower* than softmax in 1 of 2 situations on one of the processors" in said["answer"]


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


def test_titles_are_those_of_one_row_each():
    titles = [what_it_saves.title({"settings": row}) for row in what_it_saves.ROWS]
    assert len(set(titles)) == len(titles)


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
