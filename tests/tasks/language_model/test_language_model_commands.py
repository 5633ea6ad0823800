"""Language models from a text to the table: training, resuming, writing, measuring."""

import sys

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.data import SPECIALS, DataError
from pyentmax.tasks.language_model import Text, Writer, read_shakespeare, read_text, train_writer
from pyentmax.training import CheckpointError, TrainingConfig

LINES = "the cat sat on the mat\nthe dog sat on the log\n" * 40
SHAPE = {"width": 8, "layers": 1, "heads": 2, "inner": 8, "dropout": 0.1}
SIZES = ["--width", 8, "--layers", 1, "--heads", 2, "--inner", 8, "--context", 16]
QUICK = TrainingConfig(updates=3, rate=1e-2, validate_every=2)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "input.txt").write_text(LINES, "utf-8")
    return tmp_path


def run(*words):
    return main([str(word) for word in words])


def test_train_resume_and_sample(folder, capsys):
    out = folder / "run"
    command = ("train", "language-model", folder / "input.txt", "--out", out, "--quiet", *SIZES)
    assert run(*command, "--updates", 4, "--warmup", 2, "--slow", 0.1) == 0
    assert "4 updates in" in capsys.readouterr().out
    assert run(*command) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert run("sample", out, "--beginning", "Who") == 1
    assert "--beginning: the model's text has no 'W'; expected" in capsys.readouterr().err
    assert run("sample", out, "--beginning", "the ", "--length", 30, "--samples", 2) == 0
    first, second = capsys.readouterr().out.split("-" * 20)
    assert first.startswith("the ")
    assert first.strip() != second.strip()


@pytest.mark.parametrize("command", ["train captions"])
def test_a_device_that_is_not_there_leaves_nothing_behind(tmp_path, command, monkeypatch, capsys):
    """Settings and the file of a lock were there."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    out = tmp_path / "new"
    assert main([*command.split(), "--out", str(out), "--quiet", "--device", "cuda"]) == 1
    assert "device 'cuda' needs CuPy" in capsys.readouterr().err
    assert not out.exists()


def test_an_error_is_one_line_whatever_a_file_is_called(tmp_path, capsys):
    """Its name was printed as it is, with line ends and what a terminal obeys."""
    assert run("sample", tmp_path / "a\nb\x1b[2J\u2028c") == 1
    assert capsys.readouterr().err.splitlines()[2].endswith("a\\nb\\x1b[2J\\u2028c")


def test_bits_count_the_same_characters_whatever_is_read_before_them():
    rng = np.random.default_rng(0)
    writer = Writer.untrained(LINES, rng, 16, **SHAPE)
    tokens = writer.encode(LINES[:300])
    labels = [
        np.concatenate([p.labels for p in writer.predictions(tokens, n, counted=8)])
        for n in (8, 16, 32)
    ]
    for longer in labels[1:]:
        np.testing.assert_array_equal(longer, labels[0][-len(longer) :])
    np.testing.assert_array_equal(labels[0], tokens[-len(labels[0]) :])
    # The last 24 characters alone give the same as the end of the whole.
    p = [
        np.take_along_axis(part.probabilities, part.labels[:, None], axis=1)
        for part in writer.predictions(tokens, 16, counted=8)
    ]
    expected = -np.log2(np.concatenate(p).astype(float))[-24:].mean()
    assert writer.bits(tokens, 16, counted=8, limit=24) == pytest.approx(expected, rel=1e-6, abs=0)


def test_bits_are_the_loss_of_softmax():
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, output="1", **SHAPE)
    tokens = writer.encode(LINES[: 16 * 5 + 1])
    loss = writer.validate(tokens).loss
    assert writer.bits(tokens) == pytest.approx(loss / np.log(2), rel=1e-5, abs=0)


def test_a_sparse_output_that_leaves_special_tokens_only_is_not_said_to_overflow():
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    writer = Writer.untrained("to be", np.random.default_rng(0), 8, output="2", **shape)
    writer.model.params["output.bias"][:] = 0
    writer.model.params["output.bias"][0] = 100
    with pytest.raises(ValueError, match="its sparse output leaves special tokens only"):
        writer.write("to", 4, np.random.default_rng(0))


@pytest.mark.filterwarnings("ignore:overflow|invalid:RuntimeWarning")
def test_nothing_is_written_by_a_model_whose_numbers_overflow(tmp_path, capsys):
    """It wrote one <pad> after another, and returned 0."""
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    writer = Writer.untrained("to be or not to be", np.random.default_rng(0), 8, **shape)
    for param in writer.model.params.values():
        param[...] = 3e38
    writer.save(tmp_path / "best.npz")
    assert main(["sample", str(tmp_path / "best.npz"), "--beginning", "to ", "--length", "4"]) == 1
    captured = capsys.readouterr()
    assert "gives no next character after 3" in captured.err
    assert "<pad>" not in captured.out


def test_what_is_written_is_in_the_support():
    """A sparse output of large scores rules most characters out: none of those is written."""
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, output="1.5", **SHAPE)
    writer.model.params["output.weight"] *= 30
    writer.model.params["output.bias"][: len(SPECIALS)] = -1e3  # no characters
    text = writer.write("the", 60, np.random.default_rng(1))
    assert len(text) == 63
    # As `write` reads again what it keeps, each character is checked after the same text.
    tokens, possible = writer.encode(text), 0
    for end in range(3, len(text)):
        start = _first_read(end, 3, writer.context)
        read = tokens[None, start:end]
        p, _ = writer.model.output.probabilities(
            writer.model.scores(writer.model.params, read).data[0, -1]
        )
        assert p[tokens[end]] > 0
        possible += (p > 0).sum()
    assert possible / 60 < 0.5 * len(writer.vocabulary)  # most draws had something ruled out


def _first_read(end, beginning, context):
    """From where on `Writer.write` has read when it draws the character at ``end``."""
    start, read = max(0, beginning - context // 2), 0
    for place in range(beginning, end + 1):
        if read >= context or place == beginning:
            start = max(0, place - context // 2)
        read = place - start
    return start


def test_only_characters_are_written_however_little_is_learned():
    """A dense output finds <pad> and the like possible, the more so at high temperatures."""
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, **SHAPE, output="1")
    text = writer.write("the", 60, np.random.default_rng(1), temperature=3)
    assert len(text) == 63
    assert set(text) <= set(LINES)


def test_temperature_top_k_and_nucleus():
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, **SHAPE)
    greedy = writer.write("the", 20, np.random.default_rng(1), top_k=1)
    for options in ({"temperature": 1e-3}, {"nucleus": 1e-6}):
        assert writer.write("the", 20, np.random.default_rng(2), **options) == greedy
    assert writer.write("the", 20, np.random.default_rng(2)) != greedy


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda w: w.write("", 3, None), DataError, "at least one character"),
        (lambda w: w.write("the", -1, None), ValueError, "length: expected a number from 0 to"),
        (lambda w: w.write("the", 10**30, None), ValueError, "from 0 to 1,000,000, got 1,000,000,"),
        (lambda w: w.write("€", 3, None), DataError, "€"),
        (lambda w: w.write("the", 3, None, temperature=0), ValueError, "temperature must be"),
        (lambda w: w.write("the", 3, None, temperature=-1), ValueError, "temperature must be"),
        (lambda w: w.write("the", 3, None, temperature=np.nan), ValueError, "temperature must be"),
        (lambda w: w.write("the", 3, None, top_k=0), ValueError, "top_k must be at least 1"),
        (lambda w: w.write("the", 3, None, top_k=-1), ValueError, "top_k must be at least 1"),
        (lambda w: w.write("the", 3, None, nucleus=0), ValueError, "nucleus must be a mass"),
        (lambda w: w.write("the", 3, None, nucleus=2), ValueError, "nucleus must be a mass"),
        (lambda w: w.write("the", 3, None, nucleus=np.nan), ValueError, "nucleus must be a mass"),
    ],
)
def test_nothing_is_written_with_what_is_out_of_range(call, error, words):
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, **SHAPE)
    with pytest.raises(error, match=words):
        call(writer)


def test_a_model_comes_back_from_its_file(tmp_path):
    writer = Writer.untrained(LINES, np.random.default_rng(0), 16, attention="learned", **SHAPE)
    writer.save(tmp_path / "model.npz")
    again = Writer.load(tmp_path / "model.npz")
    assert again.description() == writer.description()
    assert again.write("the", 9, np.random.default_rng(1)) == writer.write(
        "the", 9, np.random.default_rng(1)
    )
    writer.context = 0
    writer.save(tmp_path / "damaged.npz")
    with pytest.raises(CheckpointError, match="context: expected a number from 1 up"):
        Writer.load(tmp_path / "damaged.npz")


def test_texts_that_are_none(tmp_path, monkeypatch):
    monkeypatch.delenv("PYENTMAX_DATA", raising=False)
    with pytest.raises(DataError, match="PYENTMAX_DATA"):
        read_shakespeare()
    monkeypatch.setenv("PYENTMAX_DATA", "")  # is not the working directory
    with pytest.raises(DataError, match="PYENTMAX_DATA set"):
        read_shakespeare()
    with pytest.raises(DataError, match=r"expected input\.txt"):
        read_shakespeare(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"input\.txt, line 1: expected UTF-8, got byte 0xff"):
        read_shakespeare(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"one\ntwo\nthr\xe9e\n" * 4)
    with pytest.raises(DataError, match=r"input\.txt, line 3: expected UTF-8, got byte 0xe9"):
        read_shakespeare(tmp_path)
    (tmp_path / "input.txt").write_text("short")
    with pytest.raises(DataError, match="got 5 characters"):
        read_shakespeare(tmp_path)
    with pytest.raises(DataError, match="tokens: expected at least"):
        train_writer(Text("ab" * 9, "ab"), QUICK, context=16, progress=False, **SHAPE)
    with pytest.raises(DataError, match="held-out text: expected at least 17 characters.*got 16"):
        train_writer(Text("ab" * 60, "ab" * 8), QUICK, context=16, progress=False, **SHAPE)


def test_samples_that_are_none_are_refused(capsys):
    for option, value in (("--samples", 0), ("--samples", -1), ("--length", 0), ("--seed", -1)):
        assert run("sample", "nowhere", option, value) == 1
        assert f"{option}: expected" in capsys.readouterr().err


def test_a_text_of_less_than_one_piece_cannot_be_measured_on():
    writer = Writer.untrained("abc", np.random.default_rng(0), 16, layers=1, width=8, heads=2)
    tokens = writer.encode("abcab")
    for measure in (writer.validate, writer.bits, lambda text: next(writer.predictions(text))):
        with pytest.raises(DataError, match="tokens: expected at least 17 characters.* got 5"):
            measure(tokens)


def test_a_mark_at_the_beginning_of_a_file_is_no_character(folder):
    plain = read_text(folder / "input.txt")
    (folder / "marked.txt").write_text("\ufeff" + LINES, "utf-8")
    assert read_text(folder / "marked.txt") == plain
