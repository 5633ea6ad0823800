"""The commands as a user runs them: exit codes, messages, files."""

import errno
import io
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.system.files import locked
from pyentmax.tasks.inflection import Example, Inflector
from pyentmax.tasks.inflection.commands import train

WORDS = ["play", "walk", "call", "snow", "glow", "ask", "mail", "sail", "draw", "redraw"]
FORMS = [f"{w}\t{w}ed\tV;PST" for w in WORDS] + [f"{w}\t{w}s\tV;3;SG;PRS" for w in WORDS]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    path = folder / "english-train-low"
    path.write_text("\n".join(FORMS) + "\n", encoding="utf-8")
    return path


def train_arguments(files, out, *more):
    small = ["--hidden", "16", "--updates", "60", "--batch-size", "8", "--rate", "0.01"]
    return ["train", "seq2seq", "--train", str(files), "--dev", str(files), "--out", str(out)] + [
        *small,
        *more,
    ]


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "r"
    assert main(train_arguments(files, out, "--quiet")) == 0
    return out


def test_every_command_says_first_what_runs(run, capsys):
    main(["inflect", str(run), "walk", "V;PST"])
    assert re.match("pyentmax runs (compiled CPU kernels|no kernels)", capsys.readouterr().out)


def test_inflect(run, capsys, tmp_path):
    assert main(["inflect", str(run), "walk", "V;PST", "--pictures", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "walk  V;PST" in text
    assert "total probability" in text
    assert {p.name for p in tmp_path.iterdir()} == {
        "walk-V.PST-tree.png",
        "walk-V.PST-attention.png",
    }


def test_no_attention_is_kept_where_none_is_drawn(run, monkeypatch, tmp_path):
    """A lemma of 500 letters took 5.5 GB, of which nothing was shown."""
    kept = []
    inflect = Inflector.inflect

    def noted(*args, **options):
        kept.append(inflect(*args, **options))
        return kept[-1]

    monkeypatch.setattr(Inflector, "inflect", noted)
    main(["inflect", str(run), "walk", "V;PST"])
    main(["inflect", str(run), "walk", "V;PST", "--pictures", str(tmp_path)])
    assert [result.best.attention is None for result in kept] == [True, False]


def test_exact_search(run, capsys):
    assert main(["inflect", str(run), "walk", "V;PST", "--search", "exact", "--best", "1"]) == 0
    assert re.search("The best string is proved|best strings are", capsys.readouterr().out)
    assert main(["inflect", str(run), "walk", "V;PST", "--search", "exact", "--budget", "1"]) == 0
    assert "The budget of 1 prefixes is used up." in " ".join(capsys.readouterr().out.split())


def test_a_beam_stops_at_the_n_best_and_says_what_is_proved_of_them(run, capsys):
    assert main(["inflect", str(run), "walk", "V;PST", "--best", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No other has a probability above" in said or "Exact and complete" in said
    assert main(["inflect", str(run), "walk", "V;PST", "--best", "0"]) != 0
    assert "n_best must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "9"], "--budget: expected --search exact with it"),
        (["--search", "exact", "--beam", "7"], "--beam: expected without --search exact, it would"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(capsys, options, message):
    assert main(["inflect", "nowhere", "walk", "V;PST", *options]) == 1
    assert message in capsys.readouterr().err


def test_analyse_refuses_options_for_models_of_another_kind(run, files, capsys):
    assert main(["analyse", str(run), str(files), "--k", "4"]) == 1
    said = capsys.readouterr().err
    assert "--k: has no effect on 'inflection model', only on 'translation model'" in said


def test_an_output_without_a_loss_is_refused_before_anything_is_written(files, tmp_path, capsys):
    """It failed at the first update, and left a folder that no other command could use."""
    out = tmp_path / "out"
    command = train_arguments(files, out, "--quiet")
    assert main([*command, "--loss", "topk_softmax:2"]) == 1
    said = capsys.readouterr().err
    assert "output: expected a mapping with a Fenchel-Young loss to train the model with" in said
    assert "topk_softmax has none" in said
    assert not (out / "last.npz").exists()
    assert main(command) == 0


def test_forced_decoding(run, capsys, tmp_path):
    assert main(["force", str(run), "walk", "V;PST", "sss", "--pictures", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "walk  V;PST: sss" in text
    assert len(re.findall(r"^ +[1-3]  s ", text, re.MULTILINE)) == 3
    assert re.search("the probability 0\\.|no probability: it is impossible at step", text)
    assert {p.name for p in tmp_path.iterdir()} == {
        "walk-V.PST-sss-forced.png",
        "walk-V.PST-sss-forced-attention.png",
    }
    assert main(["force", str(run), "walk", "V;PST", "walqed"]) == 1
    assert "unknown character 'q' in form 'walqed'" in capsys.readouterr().err


@pytest.mark.slow
def test_analyse(run, files, capsys, tmp_path):
    out = tmp_path / "a"
    arguments = ["analyse", str(run), str(run), "--examples", str(files), "--beam", "3"]
    assert main([*arguments, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"examples +20\n", text)
    assert len(re.findall("beam . is exact", text)) == 3
    assert {p.suffix for p in out.iterdir()} == {".json", ".csv", ".png"}
    assert len(list(out.iterdir())) == 7
    capsys.readouterr()
    assert main([*arguments, "--first", "4", "--quiet"]) == 0
    assert re.search(r"examples +4\n", capsys.readouterr().out)
    assert main(["analyse", str(run), "--examples", str(files), "--beam", "0"]) == 1
    assert "beam must be at least 1" in capsys.readouterr().err


def test_scores_and_fertility(files, tmp_path, capsys):
    options = ["--score", "additive", "--attention", "2", "--fertility", "1.5", "--updates", "5"]
    assert main(train_arguments(files, tmp_path, "--quiet", *options)) == 0
    assert main(["inflect", str(tmp_path), "walk", "V;PST"]) == 0
    assert main(train_arguments(files, tmp_path / "r", "--fertility", "1.5")) == 1
    assert "fertility: expected the attention softmax or sparsemax" in capsys.readouterr().err


@pytest.mark.slow
def test_a_learned_alpha(files, tmp_path, capsys):
    learned = train_arguments(files, tmp_path, "--quiet", "--attention", "learned")
    assert main(learned) == 0
    alpha = re.search(r"attention α (1\.\d\d),", capsys.readouterr().out)[1]
    model = Inflector.load(tmp_path).model
    assert f"{model.attention_alpha:.2f}" == alpha
    assert model.attention_alpha != 1.5, "no gradient reached α"
    assert main(["inflect", str(tmp_path), "walk", "V;PST"]) == 0
    assert main([*learned, "--resume", "--attention", "1.5"]) == 1
    assert "attention was learned, is 1.5" in capsys.readouterr().err
    assert main(train_arguments(files, tmp_path / "r", "--loss", "learned")) == 1
    assert "only the attention's α can be 'learned'" in capsys.readouterr().err


def test_an_ensemble(run, capsys):
    for search in ("beam", "exact"):
        arguments = [str(run), str(run / "best.npz"), "walk", "V;PST", "--search", search]
        assert main(["inflect", *arguments]) == 0
        assert "walk  V;PST" in capsys.readouterr().out


def test_held_out_words_are_named(files, tmp_path, capsys):
    arguments = train_arguments(files, tmp_path / "r", "--quiet", "--hold-out", "draw")
    assert main(arguments) == 0
    assert "held out of training: 4 forms of draw, redraw" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["walkß", "V;PST"], "unknown character 'ß'"),
        (["walk", "V;FUT"], "unknown tag 'FUT'"),
        (["walk", "V;PST", "--beam", "0"], "beam"),
        (["walk", "V;PST", "--search", "exact", "--budget", "0"], "budget must be at least 1"),
        (["walk", "V;PST", "--language", "german"], "unknown language 'german'"),
    ],
)
def test_inflect_refuses(run, capsys, arguments, message):
    assert main(["inflect", str(run), *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("pyentmax inflect: ")
    assert captured.err.count("\n") == 1


def test_no_model(tmp_path, capsys):
    assert main(["inflect", str(tmp_path), "walk", "V;PST"]) == 1
    assert "No such file" in capsys.readouterr().err


def test_truncated_model(run, tmp_path, capsys):
    broken = tmp_path / "best.npz"
    broken.write_bytes((run / "best.npz").read_bytes()[:1000])
    assert main(["inflect", str(broken), "walk", "V;PST"]) == 1
    assert "not a complete checkpoint" in capsys.readouterr().err


def test_bad_training_files(files, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.write_text("")
    assert main(train_arguments(empty, tmp_path / "r")) == 1
    assert "empty: no examples" in capsys.readouterr().err
    bad = tmp_path / "bad"
    bad.write_text("walk\twalked\tV;PST\nwalk walked\n")
    assert main(train_arguments(bad, tmp_path / "r")) == 1
    assert "bad, line 2: expected lemma TAB form TAB tags" in capsys.readouterr().err
    assert main(train_arguments(tmp_path / "missing", tmp_path / "r")) == 1
    assert "missing: No such file or directory" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_bad_settings(files, tmp_path, capsys):
    assert main(train_arguments(files, tmp_path / "r", "--attention", "0.5")) == 1
    assert "mapping: expected α ≥ 1" in capsys.readouterr().err
    assert main(train_arguments(files, tmp_path / "r", "--dropout", "2")) == 1
    assert "dropout: expected a rate in [0, 1)" in capsys.readouterr().err


def test_what_is_held_out_must_be_there(files, tmp_path, capsys):
    for word in ("xyzzy", ""):
        assert main(train_arguments(files, tmp_path / "r", "--hold-out", word)) == 1
        assert f"no training lemma is or ends in {word!r}" in capsys.readouterr().err


def test_strange_development_data_is_noted(files, tmp_path, capsys):
    strange = tmp_path / "dev"
    strange.write_text("идти\tшёл\tV;PST\nwalk\twalked\tV;PST\n", encoding="utf-8")
    arguments = train_arguments(files, tmp_path / "r", "--quiet", "--dev", str(strange))
    assert main(arguments) == 0
    assert "note: 1 of 2 development examples (50%)" in capsys.readouterr().out
    assert main(["analyse", str(tmp_path / "r"), str(strange), "--quiet"]) == 0
    assert "note: 1 of 2 examples (50%) have characters or tags" in capsys.readouterr().out


def test_a_reader_that_stops_reading(run):
    command = f"{sys.executable} -m pyentmax inflect {run} walk 'V;PST' | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Error" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="limits the size of files")
def test_the_last_of_the_output_may_find_no_room(run, tmp_path):
    """It was written when Python ends, which told an exception that it ignored."""
    import resource

    def written(most):
        with (tmp_path / "out").open("wb") as out:
            return subprocess.run(
                [sys.executable, "-m", "pyentmax", "inflect", str(run), "walk", "V;PST"],
                env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )

    assert written(1 << 20).returncode == 0
    done = written((tmp_path / "out").stat().st_size - 1)
    assert done.stderr == f"pyentmax inflect: {os.strerror(errno.EFBIG)}\n"
    assert done.returncode == 1


def test_an_output_that_cannot_show_greek():
    done = subprocess.run(
        [sys.executable, "-m", "pyentmax", "train", "seq2seq", "--help"],
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_older_run_is_not_overwritten(files, run, capsys):
    before = (run / "best.npz").read_bytes()
    assert main(train_arguments(files, run, "--seed", "5")) == 1
    assert "already holds a run: give --resume" in capsys.readouterr().err
    assert (run / "best.npz").read_bytes() == before


def test_a_model_without_its_run_is_not_overwritten(files, run, tmp_path, capsys):
    (tmp_path / "best.npz").write_bytes((run / "best.npz").read_bytes())
    assert main(train_arguments(files, tmp_path)) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert (tmp_path / "best.npz").read_bytes() == (run / "best.npz").read_bytes()


@pytest.mark.parametrize("beam", ["1000000000000", str(10**30)])
def test_a_beam_beyond_all_memory_is_one_line(run, capsys, beam):
    assert main(["inflect", str(run), "walk", "V;PST", "--beam", beam]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "beam must be at most 1,000,000" in captured.err


def test_a_line_of_megabytes_is_not_repeated_in_its_error(files, tmp_path, capsys):
    long = tmp_path / "long"
    long.write_text("walk" * 500_000 + "\n")
    assert main(train_arguments(long, tmp_path / "r")) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert len(captured.err) < 3000


def test_resuming_a_damaged_run(files, run, tmp_path, capsys):
    (tmp_path / "last.npz").write_bytes((run / "last.npz").read_bytes()[:500])
    assert main(train_arguments(files, tmp_path, "--resume")) == 1
    assert "not a complete checkpoint" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process")
def test_interrupt_and_resume(files, tmp_path, capsys):
    out = tmp_path / "r"
    arguments = train_arguments(files, out, "--validate-every", "50", "--updates", "4000")
    process = subprocess.Popen(
        [sys.executable, "-m", "pyentmax", *arguments], stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not (out / "best.npz").exists():
        time.sleep(0.05)  # however long a busy machine takes to begin
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "finishing the current update" in errors
    assert main(["inflect", str(out), "walk", "V;PST"]) == 0
    assert not [p for p in out.iterdir() if p.suffix == ".tmp"]


@pytest.mark.parametrize("form", [(), ("wa\udcff",)])
def test_half_a_surrogate_pair_is_drawn_as_a_replacement_character(tmp_path, monkeypatch, form):
    """A vocabulary may have one: Matplotlib ended in a traceback, and so did the file's name."""
    words = [Example("w\udcff", "wa\udcff", ("V", "PST")), Example("play", "plays", ("V", "PST"))]
    Inflector.untrained(words, np.random.default_rng(0), hidden=8).save(tmp_path / "best.npz")
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # which takes it, as __main__ makes any do
    command = ("force" if form else "inflect", str(tmp_path), "w\udcff", "V;PST", *form)
    assert main([*command, "--pictures", str(tmp_path / "pictures")]) == 0
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    ending = ("-wa.-forced-attention", "-wa.-forced") if form else ("-attention", "-tree")
    assert names == [f"w.-V.PST{end}.png" for end in ending]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_training_goes_on_where_standard_error_is_full(files, tmp_path):
    """It ended at the first line of progress, with exit code 1."""

    def code(full, *words):
        command = [sys.executable, "-m", "pyentmax", *words]
        shell = ["sh", "-c", f'exec "$@" {full}', "sh", *command]
        return subprocess.run(shell, stderr=subprocess.DEVNULL, check=False).returncode

    short = ("--updates", "4")
    assert code("2>/dev/full", *train_arguments(files, tmp_path / "r", *short)) == 0
    assert Inflector.load(tmp_path / "r")
    assert code(">/dev/full", *train_arguments(files, tmp_path / "other", *short)) == 1
    assert code("2>/dev/full", "inflect", str(tmp_path / "nowhere"), "draw", "V") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="closes descriptors with a shell")
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_training_with_closed_streams(files, tmp_path, closed):
    out = tmp_path / "r"
    arguments = train_arguments(files, out, "--updates", "4")
    command = [sys.executable, "-m", "pyentmax", *arguments]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], check=False)
    assert done.returncode == 0
    assert Inflector.load(out).inflect("walk", "V;PST").hypotheses


def test_a_second_training_in_a_folder_changes_nothing(files, tmp_path, capsys):
    pytest.importorskip("fcntl", reason="this system has no locks that end with a process")
    with locked(tmp_path / ".lock", "training"):
        assert main(train_arguments(files, tmp_path)) == 1
    assert "train: another process trains in" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_a_run_that_came_since_the_first_look_is_kept(files, tmp_path, capsys, monkeypatch):
    # Another command looked, trained and ended while this one was reading its files.
    train_inflector = train.train_inflector

    def late(*args, **options):
        (tmp_path / "best.npz").write_bytes(b"another's")
        return train_inflector(*args, **options)

    monkeypatch.setattr(train, "train_inflector", late)
    assert main(train_arguments(files, tmp_path)) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert (tmp_path / "best.npz").read_bytes() == b"another's"


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process")
@pytest.mark.parametrize("module", ["pyentmax.mappings", "pyentmax.cli"])
def test_an_interrupt_while_the_library_is_imported_leaves_no_traceback(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(f"""if True:
        import os, signal, sys
        class Interrupt:
            def find_spec(name, *_):
                if name == {module!r}:
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Interrupt)
    """)
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "pyentmax", "--version"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        check=False,
    )
    assert done.returncode in (130, -signal.SIGINT)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize("option", ["--beam=--", "--blas-threads=--"])
def test_two_dashes_are_a_value_like_others(option, capsys):
    with pytest.raises(SystemExit):
        main(["inflect", "model", "draw", "V;PST", option])
    assert f"{option[:-3]}: invalid int value: '--'" in capsys.readouterr().err
