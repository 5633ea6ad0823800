"""Language models: what they measure, and what they write."""

import numpy as np
import pytest

from experiments.tasks.writer import Text, Writer, read_text, train_writer
from pyentmax.seq2seq.data import SPECIALS, DataError
from pyentmax.seq2seq.training import RunOptions, TrainingConfig

LINES = "the cat sat on the mat\nthe dog sat on the log\n" * 40
SHAPE = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "dropout": 0.1}


def untrained(**config):
    return Writer.untrained(LINES, np.random.default_rng(0), 16, **SHAPE | config)


# --- measuring ------------------------------------------------------------------------------------
def test_contexts_predict_the_same_characters():
    writer = untrained()
    tokens = writer.encode(LINES[:300])
    labels = [
        np.concatenate([p.labels for p in writer.predictions(tokens, n, counted=8)])
        for n in (8, 16, 32)
    ]
    for longer in labels[1:]:
        np.testing.assert_array_equal(longer, labels[0][-len(longer) :])
    np.testing.assert_array_equal(labels[0], tokens[-len(labels[0]) :])


def test_text_shorter_than_a_piece_is_refused():
    writer = untrained()
    tokens = writer.encode("the c")
    for measure in (writer.validate, lambda text: next(writer.predictions(text))):
        with pytest.raises(DataError, match=r"tokens: expected at least 17 characters.* got 5"):
            measure(tokens)
    config = TrainingConfig(updates=1)
    for text, message in (
        (Text("ab" * 9, "ab"), "held-out text: expected at least 17 characters"),
        (Text("ab" * 60, "ab" * 8), "held-out text: expected at least 17 characters.*got 16"),
    ):
        with pytest.raises(DataError, match=message):
            train_writer(text, config, RunOptions(progress=False), context=16, **SHAPE)


def test_files_do_not_run_into_each_other(tmp_path):
    """The last word of a file without a final line feed was joined to the first of the next."""
    paths = [tmp_path / name for name in "abc"]
    for path, text in zip(paths, ["the first file ends", "the second\n", "the third"], strict=True):
        path.write_text(text)
    expected = "the first file ends\nthe second\nthe third"
    assert "".join(read_text(*paths)) == expected
    assert read_text(paths[0], held_out=paths).held_out == expected


# --- writing --------------------------------------------------------------------------------------
def test_written_text_is_in_the_support():
    """A sparse output of large scores rules most characters out: none of those is written."""
    writer = untrained(output="1.5")
    writer.model.params["output.weight"] *= 30
    writer.model.params["output.bias"][: len(SPECIALS)] = -1e3  # no characters
    text = writer.write("the", 13, np.random.default_rng(1))  # as long as the context
    tokens, possible = writer.encode(text), 0
    for end in range(3, len(text)):
        scores = writer.model.scores(writer.model.params, tokens[None, :end]).data[0, -1]
        p, _ = writer.model.output.probabilities(scores)
        assert p[tokens[end]] > 0
        possible += (p > 0).sum()
    assert possible / 13 < 0.5 * len(writer.vocabulary)


def test_texts_longer_than_the_context_are_written():
    writer = untrained(output="1")
    text = writer.write("the", 60, np.random.default_rng(1), temperature=3)
    assert len(text) == 63
    assert set(text) <= set(LINES)  # no special token, however probable


@pytest.mark.parametrize(("n", "read"), [(5, 5), (11, 11), (16, 16), (40, 16)])
def test_beginning_is_read_up_to_the_context(monkeypatch, n, read):
    """Of one longer than half of the context, the last half was read."""
    writer, lengths = untrained(), []
    encode = writer.model.encode
    monkeypatch.setattr(
        writer.model,
        "encode",
        lambda tokens, mask: lengths.append(tokens.shape[1]) or encode(tokens, mask),
    )
    writer.write(LINES[:n], 20, np.random.default_rng(0))
    assert lengths[0] == read
    assert set(lengths[1:]) == {8}  # half of the context, each time that it is full


def test_writing_keeps_to_a_set_by_its_name():
    greedy = [
        untrained(output="1").write("the", 20, np.random.default_rng(seed), keep="min_p=1")
        for seed in (0, 1)
    ]
    assert greedy[0] == greedy[1]
    with pytest.raises(ValueError, match="mass must be above 0"):
        untrained().write("the", 1, np.random.default_rng(0), keep="top_p=0")


@pytest.mark.parametrize(
    ("beginning", "length", "options", "message"),
    [
        ("", 3, {}, "at least one character"),
        ("the", -1, {}, "length: expected a number from 0 up"),
        ("€", 3, {}, "unknown character '€'"),
        ("the", 3, {"temperature": 0}, "temperature"),
    ],
)
def test_write_refuses(beginning, length, options, message):
    with pytest.raises(ValueError, match=message):
        untrained().write(beginning, length, np.random.default_rng(0), **options)


def test_output_of_special_tokens_only_is_named():
    writer = untrained(output="2")
    writer.model.params["output.bias"][:] = 0
    writer.model.params["output.bias"][0] = 100
    with pytest.raises(ValueError, match="finds no character possible after 3; a sparse output"):
        writer.write("the", 4, np.random.default_rng(0))


# --- texts ----------------------------------------------------------------------------------------
def test_short_or_damaged_text_is_named(tmp_path):
    path = tmp_path / "input.txt"
    path.write_bytes(b"one\ntwo\nthr\xe9e\n" * 4)
    with pytest.raises(DataError, match=r"input\.txt, line 3: expected UTF-8, got byte 0xe9"):
        read_text(path)
    path.write_text("short")
    with pytest.raises(DataError, match="got 5 characters"):
        read_text(path)
    path.write_text("\ufeff" + LINES, "utf-8")
    assert "".join(read_text(path)) == LINES
    assert read_text(path, path, held_out=[path]) == (2 * LINES, LINES)
