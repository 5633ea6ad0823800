"""The commands of inflection: what they print and write, word by word and on files and pipes."""

import io
import os
import re
import sys
import threading
import unicodedata

import pytest
from commands import run

from pyentmax.seq2seq.inflection import Example, Inflector, train_inflector
from pyentmax.seq2seq.training import TrainingConfig

WORDS = ["play", "walk", "call", "ask", "mail", "café"]
EXAMPLES = [Example(w, f"{w}ed", ("V", "PST")) for w in WORDS]
EXAMPLES += [Example(w, f"{w}s", ("V", "3", "SG", "PRS")) for w in WORDS]


def lines(*order):
    rows = [(e.lemma, e.form, ";".join(e.tags)) for e in EXAMPLES]
    return "".join("\t".join(row[i] for i in order) + "\n" for row in rows)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a small model that has learned most of the examples."""
    path = tmp_path_factory.mktemp("model")
    config = TrainingConfig(updates=60, rate=0.01, validate_every=60)
    inflector, _ = train_inflector(EXAMPLES, EXAMPLES, config, batch_size=12, hidden=16)
    inflector.save(path / "best.npz")
    return path


# --- train ----------------------------------------------------------------------------------------
@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """`pyentmax train` of a few updates in an empty folder; exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").write_text(lines(0, 1, 2), "utf-8")
    sizes = ["--hidden", "16", "--updates", "4", "--batch-size", "8", "--quiet", "--out", "run"]

    def command(*options):
        files = ["--train", "words", "--dev", "words"]
        code = run("train", "seq2seq", *files, *sizes, *options)
        return code, capsys.readouterr()

    return command


def test_train_reports_and_refuses_another_run(train, tmp_path):
    code, said = train()
    assert code == 0
    assert re.search(r"4 updates in \d+ s; best dev accuracy .*% \(greedy\)", said.out)
    assert "note: few of the development forms are right, after 12 examples" in said.err
    before = (tmp_path / "run" / "best.npz").read_bytes()
    code, said = train("--seed", "5")
    assert code == 2
    assert "run" in said.err.splitlines()[-1]
    assert (tmp_path / "run" / "best.npz").read_bytes() == before
    assert train("--resume")[0] == 0
    assert train("--resume", "--hidden", "8")[0] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attention", "0"], "mapping: expected α > 0"),
        (["--train", "empty"], "empty: no examples"),
        (["--train", "bad"], "bad, line 2: expected lemma TAB form TAB tags"),
    ],
)
def test_train_refuses_before_it_writes(train, tmp_path, options, message):
    (tmp_path / "empty").touch()
    (tmp_path / "bad").write_text("walk\twalked\tV;PST\nwalk walked\n")
    code, said = train(*options)
    assert code == 2
    assert message in said.err
    assert len(said.err.splitlines()) == 3
    assert not (tmp_path / "run").exists()


def test_learned_alpha_is_printed(train, tmp_path):
    code, said = train("--attention", "learned", "--score", "additive", "--rate", "0.01")
    assert code == 0
    alpha = re.search(r"attention α (1\.\d\d);", said.out)[1]
    model = Inflector.load(tmp_path / "run").model
    assert f"{model.attention_alpha:.2f}" == alpha
    assert model.attention_alpha != 1.5, "no gradient reached α"
    assert model.config.score == "additive"


def test_notes_on_examples(train, tmp_path):
    dev = tmp_path / "dev"
    dev.write_text("идти\tшёл\tV;PST\nwalk\twalked\tV;PST\n", "utf-8")
    code, said = train("--dev", str(dev))
    assert code == 0
    assert "note: 1 of 2 development examples (50%)" in said.out


# --- one word -------------------------------------------------------------------------------------
def test_inflect_prints_and_draws(model, capsys, monkeypatch, tmp_path):
    kept, inflect = [], Inflector.inflect

    def noted(*args, **options):
        kept.append(options["keep_attention"])  # of a lemma of 500 letters it takes 5.5 GB
        return inflect(*args, **options)

    monkeypatch.setattr("pyentmax.seq2seq.inflection.commands.Inflector.inflect", noted)
    assert run("inflect", model, "walk", "V;PST") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("walk  V;PST\n")
    assert "total probability" in printed
    assert run("inflect", model, "walk", "V;PST", "--pictures", tmp_path) == 0
    assert kept == [False, True]
    names = ("walk-V.PST-tree.png", "walk-V.PST-attention.png")
    assert {p.name for p in tmp_path.iterdir()} == set(names)
    pictures = "".join(f"picture: {tmp_path / name}\n" for name in names)
    assert capsys.readouterr().out == printed + pictures


def test_inflect_searches_as_asked(model, capsys):
    def printed(*options):
        assert run("inflect", model, "walk", "V;PST", *options) == 0
        return " ".join(capsys.readouterr().out.split())

    incomplete = printed("--beam", "1")
    assert "were pruned (beam 1)." in incomplete
    assert "--search exact (--budget N) proves the best one; a larger --beam" in incomplete
    exact = printed("--search", "exact", "--budget", "99")
    assert re.search("best string is proved|best strings are|Exact", exact)
    assert "--search" not in exact
    used_up = printed("--search", "exact", "--budget", "1")
    assert "The budget of 1 prefixes is used up." in used_up
    best = printed("--best", "1")
    assert "No other has a probability above" in best or "Exact and complete" in best
    assert run("inflect", model, model / "best.npz", "walk", "V;PST") == 0  # an ensemble
    assert run("inflect", model, "walk", "V;FUT") == 2
    assert "unknown tag 'FUT'" in capsys.readouterr().err


@pytest.mark.slow
def test_force_prints_and_draws(model, capsys, tmp_path):
    assert run("force", model, "walk", "V;PST", "sss", "--pictures", tmp_path) == 0
    text = capsys.readouterr().out
    assert text.startswith("walk  V;PST: sss\n")
    assert len(re.findall(r"^ +[1-3]  s ", text, re.MULTILINE)) == 3
    names = {"walk-V.PST-sss-forced.png", "walk-V.PST-sss-forced-attention.png"}
    assert {p.name for p in tmp_path.iterdir()} == names
    assert run("force", model, "walk", "V;PST", "walqed") == 2
    assert "unknown character 'q' in form 'walqed'" in capsys.readouterr().err


# --- files and pipes ------------------------------------------------------------------------------
@pytest.fixture
def inflect(model, monkeypatch, capsys):
    """`pyentmax inflect MODEL -` of a text: exit code, results, and notes and errors."""

    def said_of(text, *options):
        data = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code, said = run("inflect", model, "-", *options), capsys.readouterr()
        notes = [x for x in said.err.splitlines() if x.startswith(("note", "pyentmax inf"))]
        return code, said.out, notes

    return said_of


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_predictions_have_the_layout_of_the_file(inflect, order, model, tmp_path, capsys):
    code, out, notes = inflect(lines(*order))
    rows = [line.split("\t") for line in out.splitlines()]
    forms = [row[order.index(1)] for row in rows]
    right = sum(form == e.form for form, e in zip(forms, EXAMPLES, strict=True))
    assert code == 0
    assert right > 6
    given = [(e.lemma, ";".join(e.tags)) for e in EXAMPLES]
    assert [(row[0], row[order.index(2)]) for row in rows] == given
    assert notes == [f"note: {right} of 12 forms are right, {right / 12:.1%}"]
    (tmp_path / "words").write_text(lines(*order), "utf-8")
    assert run("inflect", model, model, tmp_path / "words") == 0  # an ensemble
    assert capsys.readouterr().out == out
    code, without, notes = inflect(lines(0, 2))
    assert [line.split("\t")[2] for line in without.splitlines()] == forms
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


def test_bad_lines_are_named_and_good_ones_kept(inflect):
    code, out, notes = inflect("walk\nwalk\tV;FUT\nwalk\tV;PST\n")
    assert code == 0
    assert out.splitlines()[:2] == ["", ""]
    assert out.splitlines()[2].startswith("walk\tV;PST\t")
    assert "standard input, line 1: expected lemma TAB tags, or three columns" in notes[0]
    assert "standard input, line 2: unknown tag 'FUT'" in notes[1]
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"walk\n", "inflect: -: expected lines of lemma TAB tags, none can be used"),
        (b"", "inflect: -: expected lines of lemma TAB tags, none can be used"),
        (b"walk\tV;PST\n\xe9\tV;PST\n", "input, line 2: expected UTF-8, got byte 0xe9"),
        (b"\x1f\x8b\x08\n\xff\n", "standard input: expected text, got a gzip file; unpack it"),
    ],
)
def test_unusable_input_is_one_line_and_code_2(inflect, data, message):
    code, out, notes = inflect(data)
    assert (code, out) == (2, "")
    assert message in notes[-1]


def test_what_the_model_never_saw_is_noted_once(inflect):
    decomposed = unicodedata.normalize("NFD", "café")
    code, out, notes = inflect(f"walk\tV;3\nplay\t3;V\n{decomposed}\tV;PST\n")
    assert code == 0
    assert len(out.splitlines()) == 3
    assert notes[0] == "note: standard input, line 1: no training example has the tags V;3"
    assert "line 3: the model does not know" in notes[1]
    assert "in Unicode's form NFC it would" in notes[1]
    assert len(notes) == 2
