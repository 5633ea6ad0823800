"""The commands of translation, from configurations and files to what is printed."""

import io
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from commands import run

from pyentmax.seq2seq.data import EOS
from pyentmax.seq2seq.tasks.translation import Translator, demo, read_experiment, toy_german
from pyentmax.seq2seq.tasks.translation.segmentation import Words

MODELS = {
    "transformer": "width = 8\nlayers = 1\nheads = 2\ninner = 8",
    "rnn": "hidden = 8\nlabel_smoothing = 0.1",
}
SMALL = """
[data]
train = ["train.de", "train.en"]
dev = "dev.tsv"
tokens = 300

[model]
MODEL

[training]
updates = 4
rate = 1e-2
schedule = "inverse_sqrt"
warmup = 2
accumulate = 2
average = 2
average_every = 2
"""


@pytest.fixture
def folder(corpus):
    for name, model in MODELS.items():
        (corpus / f"{name}.toml").write_text(SMALL.replace("MODEL", model), "utf-8")
    return corpus


@pytest.fixture
def model(tmp_path):
    """The file of a small model that has learned nothing."""
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    rng = np.random.default_rng(0)
    made = Translator.untrained("transformer", toy_german()[:100], Words(), rng, **shape)
    made.model.params["output.bias"][EOS] = 1.5  # some strings end within the limit
    made.save(tmp_path / "best.npz")
    return tmp_path / "best.npz"


def feed(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("architecture", MODELS)
def test_train_resume_and_translate(folder, capsys, architecture):
    out = folder / "run"
    config = folder / f"{architecture}.toml"
    command = ("train", architecture, "--config", config, "--out", out, "--quiet")
    assert run(*command) == 0
    assert "4 updates in" in capsys.readouterr().out
    assert Translator.load(out).architecture == architecture
    assert run(*command) == 2
    assert run(*command, "--resume") == 0
    assert run(*command, "--resume", "--seed", 1) == 2
    capsys.readouterr()
    assert run("translate", out, "--ensemble", out, "der hund", "das ei") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("warmup = 2", "", "[training] or an option: warmup: expected a number with the schedule"),
        ("heads = 2", "heads = 3", "heads: expected a divisor"),
        ("layers = 1", "attention = -0.5", "mapping: expected"),
        ("tokens = 300", "tokens = 3", "the length of the longest pair"),
        ("train.en", "missing.en", "missing.en: No such file"),
        ("train.en", "dev.tsv", "100 in"),
    ],
)
def test_train_refuses_before_it_writes(folder, capsys, old, new, message):
    path = folder / "transformer.toml"
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    assert run("train", "transformer", "--config", path, "--out", folder / "run", "--quiet") == 2
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert len(said) == 3
    assert not (folder / "run").exists()


def test_data_replace_those_of_the_printed_settings(folder, capsys, monkeypatch):
    assert run("train", "rnn", "--print-config") == 0
    printed = capsys.readouterr().out
    assert printed.count('"toy-german"') == 2
    (folder / "mine.toml").write_text(printed.replace("toy-german", "nowhere"), "utf-8")
    command = ("train", "rnn", "--config", folder / "mine.toml", "--updates", 1, "--quiet")
    monkeypatch.chdir(folder.parent)  # options name files from here, the configuration its own
    files = [f"{folder.name}/train.de", f"{folder.name}/train.en"]
    assert run(*command, "--train", *files) == 2
    assert "--train: expected --dev with it" in capsys.readouterr().err
    assert run(*command, "--train", *files, "--dev", f"{folder.name}/dev.tsv", "--out", "run") == 0
    words = {word for pair in toy_german()[:100] for word in pair.source.split()}
    assert set(Translator.load("run").source.tokens[4:]) == words


def test_subwords_from_a_number_or_a_file(folder, capsys):
    path, text = folder / "transformer.toml", SMALL.replace("MODEL", MODELS["transformer"])
    command = ("train", "transformer", "--config", path, "--updates", 1, "--quiet", "--out")
    path.write_text(text.replace("[data]", "[data]\nsubwords = 110"), "utf-8")
    assert run(*command, folder / "run") == 0
    translator = Translator.load(folder / "run")
    assert len(translator.source) == len(translator.target) == 110
    (folder / "joint.model").write_bytes(translator.segmenter.state())
    path.write_text(text.replace("[data]", '[data]\nsubwords = "joint.model"'), "utf-8")
    assert run(*command, folder / "other") == 0
    assert Translator.load(folder / "other").source == translator.source
    (folder / "joint.model").write_bytes(b"broken")
    assert run(*command, folder / "third") == 2
    assert "joint.model: expected a sentencepiece model" in capsys.readouterr().err
    options = 'subwords = 90\nalgorithm = "bpe"\nseparate = true'
    path.write_text(text.replace("[data]", f"[data]\n{options}"), "utf-8")
    assert run(*command, folder / "separate") == 0
    translator = Translator.load(folder / "separate")
    assert len(translator.source) == len(translator.target) == 90
    assert translator.source != translator.target


def test_translations_stand_alone_on_standard_output(model, capsys, monkeypatch):
    assert run("translate", model, "der hund", "das ei") == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert said.err.startswith("pyentmax runs ")
    feed(monkeypatch, "\ufeffder hund\r\ndas ei\n".encode())
    assert run("translate", model, "-") == 0
    assert capsys.readouterr().out == said.out
    (model.parent / "sentences").write_text("der hund\ndas ei\n", "utf-8")
    assert run("translate", model, model.parent / "sentences") == 0
    assert capsys.readouterr().out == said.out


def test_lines_stay_in_their_place(model, capsys, monkeypatch):
    assert run("translate", model, "der hund", "das ei") == 0
    one, two = capsys.readouterr().out.splitlines()
    feed(monkeypatch, b"der hund\n\n \nein \xff hund\ndas ei")
    assert run("translate", model, "-") == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [one, "", "", "", two]
    assert "note: standard input, line 4: expected UTF-8, got byte 0xff" in said.err
    assert "note: 1 of 5 lines were left out" in said.err
    feed(monkeypatch, b"der hund\nein \xff hund\n")
    assert run("translate", model, "-", "--strict") == 1
    assert capsys.readouterr().out.splitlines() == [one, ""]
    feed(monkeypatch, b"")
    assert run("translate", model, "-") == 1
    assert "expected at least one line" in capsys.readouterr().err


def test_unknown_words_and_long_lines_are_counted(model, capsys, monkeypatch):
    endless = Translator.load(model)
    endless.model.params["output.bias"][EOS] = -100
    endless.save(model)
    feed(monkeypatch, ("der uhu\nder hund\n" + "der hund " * 60 + "\nuhu und otter\n").encode())
    assert run("translate", model, "-") == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    notes = said.err.splitlines()[2:]
    assert notes == [
        "note: words that the model does not know: uhu und otter",
        "note: 2 of 4 sentences have words that the model does not know",
        "note: 4 of 4 translations end at the limit of their length",
    ]


def test_n_best_in_three_formats(model, capsys, monkeypatch):
    def printed(*options):
        feed(monkeypatch, b"der hund\n\ndas ei\n")
        assert run("translate", model, "-", *options) == 0
        return capsys.readouterr().out

    records = [
        json.loads(line) for line in printed("--format", "jsonl", "--n-best", 3).splitlines()
    ]
    assert json.loads(printed("--format", "json", "--n-best", 3)) == records
    assert [r.get("source") for r in records] == ["der hund", None, "das ei"]
    for record in (records[0], records[2]):
        scores = [r["score"] for r in record["results"]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert record["complete"] is False
    rows = printed("--format", "tsv", "--n-best", 3, "--whole").splitlines()
    assert len(rows) == 7
    assert rows[0].split("\t")[3] == rows[0].split("\t")[4]  # the score is of the whole
    assert printed("--n-best", 3).splitlines() == [
        r["text"] for record in records for r in record.get("results", [{"text": ""}])
    ]
    assert run("translate", model, "der hund", "--format", "tsv", "--search", "exact") == 0
    capsys.readouterr()
    assert len(printed("--min-length", 4).split("\n")[0].split()) >= 4
    assert printed("--keep", "top_k=1").count("\n") == 3


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="waits for a pipe")
def test_process_that_waits_gets_each_answer(model):
    command = [sys.executable, "-m", "pyentmax", "translate", str(model), "-"]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipe) as process:
        watch = threading.Timer(60, process.kill)
        watch.start()
        for line in ("der hund\n", "\n", "das ei\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")
        process.stdin.close()
        assert process.wait() == 0
        watch.cancel()


@pytest.mark.slow
def test_list_numbers_its_pictures(model, tmp_path, capsys):
    listing = ("--list", "--best", 1, "--beam", 1, "--pictures", tmp_path / "all")
    assert run("translate", model, *listing, "hund", "der alte hund") == 0
    printed = capsys.readouterr().out
    assert printed.count("total probability") == 2
    names = {path.name for path in (tmp_path / "all").iterdir()}
    assert names == {f"{n}-{kind}.png" for n in (1, 2) for kind in ("tree", "attention")}
    assert all(f"picture: {tmp_path / 'all' / name}" in printed for name in names)


def test_list_searches_as_asked(model, capsys):
    assert run("translate", model, "--list", "ein hund", "--search", "exact", "--budget", 5) == 0
    assert "The budget of 5 prefixes is used up" in " ".join(capsys.readouterr().out.split())


def test_force_prints_and_draws(model, tmp_path, capsys):
    pictures = tmp_path / "pictures"
    assert run("translate", model, "der hund", "--force", "the dog", "--pictures", pictures) == 0
    printed = capsys.readouterr().out
    for line in ("  1  the ", "  2  dog ", "  3  </s> "):
        assert line in printed
    names = {path.name for path in pictures.iterdir()}
    assert names == {"1-forced.png", "1-forced-attention.png"}
    assert run("translate", model, "der hund", "--force", "the xylophone") == 0
    assert "<unk>" in capsys.readouterr().out
    assert run("translate", model, "der hund", "das ei", "--force", "the dog") == 2
    assert "--force: expected one sentence, got 2" in capsys.readouterr().err


# --- the demonstration ----------------------------------------------------------------------------
@pytest.mark.slow
def test_short_demonstration(tmp_path, capsys, monkeypatch):
    experiment = read_experiment(demo.CONFIG, "transformer")
    short = replace(experiment, training=experiment.training | {"updates": 40})
    train, dev = demo.demo_pairs(experiment)
    monkeypatch.setattr(demo, "read_experiment", lambda *_: short)
    monkeypatch.setattr(demo, "demo_pairs", lambda _: (train, dev[:20]))
    demo.run_demo(tmp_path / "demo", seed=0)
    text = capsys.readouterr().out
    for expected in (demo.AMBIGUOUS, "total probability", "of 20 translated as in the corpus"):
        assert expected in text
    pictures = {p.name for p in (tmp_path / "demo").glob("*.png")}
    assert len(pictures) == 5
    assert all(str(tmp_path / "demo" / name) in text for name in pictures)


def test_demonstration_shows_sentences_it_has_not_seen():
    train, dev = demo.demo_pairs(read_experiment(demo.CONFIG, "transformer"))
    assert not {demo.AMBIGUOUS, demo.CLEAR} & {pair.source for pair in train}
    words = {word for pair in train for word in pair.source.split()}
    assert set(demo.AMBIGUOUS.split()) | set(demo.CLEAR.split()) <= words


@pytest.mark.deep
def test_demonstration_lists_both_translations_and_no_other(tmp_path, capsys):
    demo.run_demo(tmp_path / "demo", seed=0)
    translator = Translator.load(tmp_path / "demo")
    found = translator.translate(demo.AMBIGUOUS)
    assert found.exact
    sentences = {"the woman has painted the old bank", "the woman has painted the old bench"}
    assert {translator.sentence(h.tokens) for h in found.hypotheses} == sentences
    assert "Exact and complete" in capsys.readouterr().out
