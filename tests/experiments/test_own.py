"""What experiments measure of language models, captions and words."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.own.captioning import Captioner, draw_data
from experiments.own.captioning.scenes import GRID
from experiments.own.captions import measured
from experiments.own.language_model import STRETCH, bits_of, memory_rows, read_with
from experiments.peters2019.inflection import levenshtein
from experiments.tasks.writer import Writer

SHAPE = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "dropout": 0.0}
LINES = "the cat sat on the mat\nthe dog sat on the log\n" * 40


def test_k_of_all_keys_is_softmax():
    rng = np.random.default_rng(0)
    writer = Writer.untrained(LINES, rng, 16, attention="1", **SHAPE)
    for name, x in writer.model.params.items():
        if "query" in name or "key" in name:
            x *= 9
    held_out = writer.encode(LINES[:400])
    softmax, every, one = (
        bits_of(read_with(writer, choice), held_out)
        for choice in ("1", "topk_softmax:16", "topk_softmax:1")
    )
    assert every == pytest.approx(softmax, abs=1e-6, rel=0)
    assert abs(one - softmax) > 1e-6


def test_memories_are_compared_piece_by_piece():
    pieces = np.random.default_rng(0).normal(2, 0.5, (2, 40))

    def line(row, seed, bits):
        settings = {"row": row, "seed": seed, "updates": 4}
        return {"settings": settings, "result": {"pieces": list(bits)}}

    lines = [line("memory", seed, pieces[seed]) for seed in (0, 1)]
    lines += [line("memory-top8", seed, pieces[seed] + 0.1) for seed in (1, 0)]
    softmax, top8 = memory_rows(lines)
    assert softmax[-1] == "–"
    assert top8[-1] == "+0.100 (+0.100 to +0.100); +0.100, +0.100"
    assert memory_rows(lines[2:])[0][-1] == "–", "nothing to compare with"


def test_neighbouring_pieces_are_resampled_together():
    draw = np.random.default_rng(0).normal(0, 0.1, 31)

    def width(differences):
        lines = [
            {"settings": {"row": row, "seed": 0, "updates": 4}, "result": {"pieces": list(bits)}}
            for row, bits in (("memory", 0 * differences), ("memory-top8", differences))
        ]
        low, high = re.findall(r"[+-][\d.]+", memory_rows(lines)[1][-1])[1:3]
        return float(high) - float(low)

    topics = np.repeat(draw, STRETCH)  # all pieces of a topic alike: 31 draws, not 434
    assert width(topics) == pytest.approx(4 * 0.1 / np.sqrt(31), rel=0.4, abs=0)
    shuffled = np.random.default_rng(1).permutation(topics)
    assert width(shuffled) < width(topics) / 2


def test_bits_are_the_loss_of_softmax():
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, output="1", **SHAPE)
    tokens = writer.encode(LINES[: 16 * 5 + 1])
    loss = writer.validate(tokens).loss
    assert bits_of(writer, tokens) == pytest.approx(loss / np.log(2), rel=1e-5, abs=0)
    p = [
        np.take_along_axis(part.probabilities, part.labels[:, None], axis=1)
        for part in writer.predictions(tokens, 16, counted=8)
    ]
    expected = -np.log2(np.concatenate(p).astype(float))[-24:].mean()
    found = bits_of(writer, tokens, 16, counted=8, limit=24)
    assert found == pytest.approx(expected, rel=1e-6, abs=0)


def test_captioner_attends_to_as_many_cells_as_its_mapping_keeps():
    data = draw_data(40)
    rng = np.random.default_rng(0)
    captioner = Captioner.untrained(rng, attention="topk_softmax:3", **SHAPE)
    found = measured(captioner, data.test)
    assert found["cells"] == 3
    assert found["exact"] == found["weight"] == 0
    captioner.model.config = replace(captioner.model.config, inference_attention="softmax")
    assert measured(captioner, data.test)["cells"] == GRID * GRID


def recursive_distance(a, b):
    """The definition, without a table."""
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return recursive_distance(a[1:], b[1:])
    return 1 + min(
        recursive_distance(a[1:], b),
        recursive_distance(a, b[1:]),
        recursive_distance(a[1:], b[1:]),
    )


@given(st.text("ab", max_size=5), st.text("abc", max_size=5))
def test_levenshtein_is_its_definition(a, b):
    assert levenshtein(a, b) == recursive_distance(a, b)
