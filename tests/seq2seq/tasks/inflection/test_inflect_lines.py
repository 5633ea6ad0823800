"""`inflect` on files and pipes: a prediction for each line, whatever the other lines hold."""

import io
import json
import sys
import unicodedata

import pytest
from commands import run

from pyentmax.seq2seq.decoding import Constrained
from pyentmax.seq2seq.tasks.inflection import Example, train_inflector
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


def test_every_string_in_three_formats(inflect):
    text = "walk\tPST;V\n\nplay\tV;PST\n"
    _, rows, _ = inflect(text, "--format", "tsv")
    _, one_list, _ = inflect(text, "--format", "json")
    _, objects, _ = inflect(text, "--format", "jsonl")
    records = [json.loads(line) for line in objects.splitlines()]
    assert json.loads(one_list) == records
    assert records[1] == {}
    assert records[0]["tags"] == "PST;V"
    assert isinstance(records[0]["complete"], bool)
    found = [[r["lemma"], s["text"]] for r in records if r for s in r["results"]]
    assert [line.split("\t")[0:3:2] for line in rows.splitlines() if line] == found
    for record in (records[0], records[2]):
        mass = sum(s["probability"] for s in record["results"])
        assert (mass > 1 - 1e-5) == record["complete"]
    _, best, _ = inflect(text, "--n-best", "2", "--format", "jsonl")
    two = [json.loads(line) for line in best.splitlines()]
    assert two[0]["results"] == records[0]["results"][:2]
    _, plain, _ = inflect(text, "--n-best", "2")
    assert [line.split("\t")[2:] for line in plain.splitlines()[:2]] == [
        [s["text"]] for s in records[0]["results"][:2]
    ]


def test_constraints_of_a_search_are_passed_on(inflect, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "pyentmax.seq2seq.tasks.sequences.Constrained",
        lambda model, *numbers: asked.update(numbers=numbers) or Constrained(model, *numbers),
    )
    assert inflect("walk\tV;PST\n", "--min-length", "3", "--no-repeat-ngram", "2")[0] == 0
    assert asked == {"numbers": (3, 2)}
    assert inflect("walk\tV;PST\n", "--min-length", "-1")[0] == 2


BAD = "walk\nwalk\tV;FUT\n\xe9\tV;PST\nwalk\tV;PST\n".encode("latin-1")


def test_bad_lines_are_named_and_good_ones_kept(inflect):
    code, out, notes = inflect(BAD)
    assert code == 0
    assert out.splitlines()[:3] == ["", "", ""]
    assert out.splitlines()[3].startswith("walk\tV;PST\t")
    for number, said in enumerate(
        ("expected lemma TAB tags", "unknown tag 'FUT'", "expected UTF-8")
    ):
        assert f"standard input, line {number + 1}: {said}" in notes[number]
    assert notes[3] == "note: 3 of 4 lines were left out"
    assert inflect(BAD, "--strict")[0] == 1
    assert inflect(BAD, "--strict")[1] == out
    assert inflect("walk\n")[0] == 1
    code, out, notes = inflect("")
    assert (code, out, notes) == (1, "", ["note: expected at least one line, got none"])


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
