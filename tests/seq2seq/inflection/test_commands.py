"""The commands of inflection: what they print and write."""

import re

import pytest

from pyentmax.cli import main
from pyentmax.seq2seq.inflection import Inflector

WORDS = ["play", "walk", "call", "snow", "glow", "ask", "mail", "sail", "draw", "redraw"]
FORMS = [f"{w}\t{w}ed\tV;PST" for w in WORDS] + [f"{w}\t{w}s\tV;3;SG;PRS" for w in WORDS]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "english-train-low"
    path.write_text("\n".join(FORMS) + "\n", encoding="utf-8")
    return path


def train_arguments(files, out, *more):
    small = ["--hidden", "16", "--updates", "60", "--batch-size", "8", "--rate", "0.01", "--quiet"]
    return ["train", "seq2seq", "--train", str(files), "--dev", str(files), "--out", str(out)] + [
        *small,
        *more,
    ]


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "r"
    assert main(train_arguments(files, out)) == 0
    return out


def test_train_reports_and_refuses_another_run(files, run, tmp_path, capsys):
    out = tmp_path / "r"
    assert main(train_arguments(files, out, "--updates", "4")) == 0
    printed = capsys.readouterr()
    assert re.search(r"4 updates in \d+ s; best dev accuracy .*% \(greedy\)", printed.out)
    assert "note: few of the development forms are right, after 20 examples" in printed.err
    before = (out / "best.npz").read_bytes()
    assert main(train_arguments(files, out, "--updates", "4", "--seed", "5")) == 2
    assert str(out) in capsys.readouterr().err
    assert (out / "best.npz").read_bytes() == before
    assert main(train_arguments(files, out, "--updates", "4", "--resume")) == 0
    assert main(train_arguments(files, out, "--updates", "4", "--resume", "--hidden", "8")) == 2


def test_incomplete_lists_name_the_next_step(run, capsys):
    assert main(["inflect", str(run), "walk", "V;PST", "--beam", "1"]) == 0
    printed = capsys.readouterr().out
    assert "were pruned (beam 1)." in printed
    advice = printed.splitlines()[-1]
    assert advice.startswith("--search exact (--budget N) proves the best one; a larger --beam")
    assert main(["inflect", str(run), "walk", "V;PST", "--search", "exact", "--budget", "99"]) == 0
    assert "--search" not in capsys.readouterr().out


def test_inflect_prints_and_draws(run, capsys, monkeypatch, tmp_path):
    kept, inflect = [], Inflector.inflect

    def noted(*args, **options):
        kept.append(options["keep_attention"])  # of a lemma of 500 letters it takes 5.5 GB
        return inflect(*args, **options)

    monkeypatch.setattr("pyentmax.seq2seq.inflection.commands.Inflector.inflect", noted)
    assert main(["inflect", str(run), "walk", "V;PST"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("walk  V;PST\n")
    assert "total probability" in printed
    assert main(["inflect", str(run), "walk", "V;PST", "--pictures", str(tmp_path)]) == 0
    assert kept == [False, True]
    names = ("walk-V.PST-tree.png", "walk-V.PST-attention.png")
    assert {p.name for p in tmp_path.iterdir()} == set(names)
    pictures = "".join(f"picture: {tmp_path / name}\n" for name in names)
    assert capsys.readouterr().out == printed + pictures


def test_inflect_searches_as_asked(run, capsys):
    def printed(*options):
        assert main(["inflect", str(run), "walk", "V;PST", *options]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert re.search("best string is proved|best strings are|Exact", printed("--search", "exact"))
    used_up = printed("--search", "exact", "--budget", "1")
    assert "The budget of 1 prefixes is used up." in used_up
    best = printed("--best", "1")
    assert "No other has a probability above" in best or "Exact and complete" in best
    assert main(["inflect", str(run), str(run / "best.npz"), "walk", "V;PST"]) == 0  # an ensemble
    assert main(["inflect", str(run), "walk", "V;FUT"]) == 2
    assert "unknown tag 'FUT'" in capsys.readouterr().err


@pytest.mark.slow
def test_force_prints_and_draws(run, capsys, tmp_path):
    assert main(["force", str(run), "walk", "V;PST", "sss", "--pictures", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("walk  V;PST: sss\n")
    assert len(re.findall(r"^ +[1-3]  s ", text, re.MULTILINE)) == 3
    names = {"walk-V.PST-sss-forced.png", "walk-V.PST-sss-forced-attention.png"}
    assert {p.name for p in tmp_path.iterdir()} == names
    assert main(["force", str(run), "walk", "V;PST", "walqed"]) == 2
    assert "unknown character 'q' in form 'walqed'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attention", "0"], "mapping: expected α > 0"),
        (["--hold-out", "xyzzy"], "no training lemma is or ends in 'xyzzy'"),
        (["--train", "empty"], "empty: no examples"),
        (["--train", "bad"], "bad, line 2: expected lemma TAB form TAB tags"),
    ],
)
def test_train_refuses_before_it_writes(files, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "bad").write_text("walk\twalked\tV;PST\nwalk walked\n")
    assert main(train_arguments(files, "run", *options)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 3
    assert not (tmp_path / "run").exists()


def test_learned_alpha_is_printed(files, tmp_path, capsys):
    options = ["--attention", "learned", "--score", "additive", "--updates", "5"]
    assert main(train_arguments(files, tmp_path / "r", *options)) == 0
    alpha = re.search(r"attention α (1\.\d\d);", capsys.readouterr().out)[1]
    model = Inflector.load(tmp_path / "r").model
    assert f"{model.attention_alpha:.2f}" == alpha
    assert model.attention_alpha != 1.5, "no gradient reached α"
    assert model.config.score == "additive"


def test_held_out_words_are_named(files, tmp_path, capsys):
    arguments = train_arguments(files, tmp_path / "r", "--updates", "2", "--hold-out", "draw")
    assert main(arguments) == 0
    assert "held out of training: 4 forms of draw, redraw" in capsys.readouterr().out


def test_unknown_characters_in_examples_are_noted(files, tmp_path, capsys):
    strange = tmp_path / "dev"
    strange.write_text("идти\tшёл\tV;PST\nwalk\twalked\tV;PST\n", encoding="utf-8")
    arguments = train_arguments(files, tmp_path / "r", "--updates", "2", "--dev", str(strange))
    assert main(arguments) == 0
    assert "note: 1 of 2 development examples (50%)" in capsys.readouterr().out
