"""`inflect` on files and pipes: a prediction for each line, whatever the other lines hold."""

import io
import os
import sys
import threading
import unicodedata

import pytest
from commands import run

from pyentmax.seq2seq.inflection import Example, train_inflector
from pyentmax.seq2seq.training import TrainingConfig

WORDS = ["play", "walk", "call", "ask", "mail", "café"]
EXAMPLES = [Example(w, f"{w}ed", ("V", "PST")) for w in WORDS]
EXAMPLES += [Example(w, f"{w}s", ("V", "3", "SG", "PRS")) for w in WORDS]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "best.npz"
    config = TrainingConfig(updates=60, rate=0.01, validate_every=60)
    inflector, _ = train_inflector(EXAMPLES, EXAMPLES, config, batch_size=12, hidden=16)
    inflector.save(path)
    return str(path)


@pytest.fixture
def inflect(model, monkeypatch, capsys):
    def said_of(text, *options):
        data = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = run("inflect", model, "-", *options)
        said = capsys.readouterr()
        return (
            code,
            said.out,
            [x for x in said.err.splitlines() if x.startswith(("note", "pyentmax inf"))],
        )

    return said_of


def lines(*order):
    rows = [(e.lemma, e.form, ";".join(e.tags)) for e in EXAMPLES]
    return "".join("\t".join(row[i] for i in order) + "\n" for row in rows)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_predictions_have_the_layout_of_the_file(inflect, order, model, tmp_path, capsys):
    code, out, notes = inflect(lines(*order))
    rows = [line.split("\t") for line in out.splitlines()]
    right = sum(row[order.index(1)] == e.form for row, e in zip(rows, EXAMPLES, strict=True))
    assert code == 0
    assert right > 6
    assert [(row[0], row[order.index(2)]) for row in rows] == [
        (e.lemma, ";".join(e.tags)) for e in EXAMPLES
    ]
    assert notes == [f"note: {right} of 12 forms are right, {right / 12:.1%}"]
    (tmp_path / "words").write_text(lines(*order), "utf-8")
    assert run("inflect", model, model, tmp_path / "words") == 0  # an ensemble
    assert capsys.readouterr().out == out
    code, without, notes = inflect(lines(0, 2))
    assert [line.split("\t")[2] for line in without.splitlines()] == [
        row[order.index(1)] for row in rows
    ]
    assert notes == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_pipe_is_read_as_a_file(model, tmp_path, capsys):
    """`<(command)` of a shell was a word to be inflected, and /dev/stdin."""
    (tmp_path / "words").write_text("walk\tV;PST\n")
    assert run("inflect", model, tmp_path / "words") == 0
    expected = capsys.readouterr().out
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["walk\tV;PST\n"])
    writer.daemon = True  # nobody may read
    writer.start()
    assert run("inflect", model, tmp_path / "pipe") == 0
    assert capsys.readouterr().out == expected


def test_several_best_forms_of_each_line(inflect):
    text = "walk\tPST;V\n\nplay\tV;PST\n"
    best = inflect(text)[1].splitlines()
    rows = inflect(text, "--n-best", "2")[1].splitlines()
    assert best[1] == ""
    assert [best[0], best[2]] == [rows[0], rows[rows.index("") + 1]]
    assert len(set(rows)) == len(rows) > 3
    assert all(row.startswith(("walk\tPST;V\t", "play\tV;PST\t")) for row in rows if row)


BAD = "walk\nwalk\tV;FUT\nwalk\tV;PST\n"


def test_bad_lines_are_named_and_good_ones_kept(inflect):
    code, out, notes = inflect(BAD)
    assert code == 0
    assert out.splitlines()[:2] == ["", ""]
    assert out.splitlines()[2].startswith("walk\tV;PST\t")
    assert "standard input, line 1: expected lemma TAB tags, or three columns" in notes[0]
    assert "standard input, line 2: unknown tag 'FUT'" in notes[1]
    assert len(notes) == 2
    for text in ("walk\n", ""):
        code, out, notes = inflect(text)
        assert (code, out) == (2, "")
        assert notes[-1] == (
            "pyentmax inflect: -: expected lines of lemma TAB tags, none can be used"
        )


def test_text_that_is_not_utf8_is_refused_with_its_line(inflect):
    code, out, notes = inflect("walk\tV;PST\n\xe9\tV;PST\n".encode("latin-1"))
    assert (code, out) == (2, "")
    assert "standard input, line 2: expected UTF-8, got byte 0xe9" in notes[0]


def test_what_the_model_never_saw_is_noted_once(inflect):
    decomposed = unicodedata.normalize("NFD", "café")
    code, out, notes = inflect(f"walk\tV;3\nplay\t3;V\n{decomposed}\tV;PST\n")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert notes[0] == "note: standard input, line 1: no training example has the tags V;3"
    assert "line 3: the model does not know" in notes[1]
    assert "in Unicode's form NFC it would" in notes[1]
    assert len(notes) == 2


def test_compressed_input_is_refused_at_once(inflect):
    code, out, notes = inflect(b"\x1f\x8b\x08\n\xff\n")
    assert (code, out) == (2, "")
    assert notes == ["pyentmax inflect: standard input: expected text, got a gzip file; unpack it"]
