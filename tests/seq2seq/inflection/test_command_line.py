"""What all commands share: their first line, errors, exit codes and what they import."""

from __future__ import annotations

import configparser
import importlib
import io
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from commands import run
from stages import slow

from pyentmax import cli
from pyentmax.cli import build_parser, main
from pyentmax.seq2seq.inflection import Example, Inflector

ROOT = Path(__file__).parents[3]
EXTRAS = ["scipy", "matplotlib", "tqdm", "pooch", "sentencepiece", "sacrebleu", "threadpoolctl"]


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "pyentmax", *map(str, words)]


@pytest.fixture
def saved(tmp_path):
    """A folder with a small model."""
    examples = [Example("walk", "walked", ("V", "PST")), Example("play", "plays", ("V", "PRS"))]
    model = Inflector.untrained(examples, np.random.default_rng(0), hidden=8)
    model.save(tmp_path / "best.npz")
    return tmp_path


def test_warning_is_one_line(capsys, monkeypatch):
    """Without the line of our source that raised it."""
    shown = warnings.showwarning
    monkeypatch.setattr(
        cli, "describe_backend", lambda: warnings.warn("no glyphs for 食", stacklevel=1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main(["reproduce"])
    assert "note: no glyphs for 食" in capsys.readouterr().err.splitlines()
    assert warnings.showwarning is shown


def test_first_line_names_backend(capsys):
    assert main(["reproduce"]) == 0
    said = capsys.readouterr()
    assert re.match("pyentmax runs (compiled CPU kernels|no kernels)", said.err)
    assert "experiments/README.md" in said.out


@pytest.mark.slow
def test_help_needs_numpy_alone():
    program = f"""
import sys
for name in {EXTRAS}:
    sys.modules[name] = None
from pyentmax.cli import main
for words in ([], ["train", "seq2seq"], ["inflect"]):
    try:
        main([*words, "--help"])
    except SystemExit as stop:
        assert stop.code == 0
main(["reproduce"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: pyentmax train seq2seq" in done.stdout


def test_console_script_names_main():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    name, _, target = config["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = target.partition(":")
    assert name == build_parser().prog
    assert getattr(importlib.import_module(module), function) is main


def test_no_arguments_print_help(capsys):
    for words in ([], ["train"]):
        assert run(*words) == 0
        assert "seq2seq" in capsys.readouterr().out or not words


def test_value_after_two_hyphens_is_not_an_option():
    words = ["inflect", "--language=--n", "m", "--", "--lsit"]
    assert build_parser().parse_args(words).words == ["m", "--lsit"]


MISUSE = {
    "nonsense": "argument COMMAND: invalid choice: 'nonsense'",
    "trian": "(did you mean train?)",
    "train seqseq": "(did you mean seq2seq?)",
    "train seq2seq --trian a": "arguments: --trian (did you mean --train?)",
    "demo --see 9": "unrecognized arguments: --see",  # no abbreviations
    "inflect m draw V --beam x": "argument --beam: invalid int value: 'x'",
    "inflect nowhere draw V;PST": "nowhere: No such file or directory",
    "inflect m draw V --budget 9": "--budget: expected --search exact",
    "inflect m w V --search exact --beam 7": "--beam: expected without",
    "inflect m draw V --blas-threads 0": "blas_threads: expected at least 1",
    "inflect m words": "expected MODEL LEMMA TAGS, or MODEL FILE; got m words",
    "demo --seed -1": "seed: expected a number from 0 up, got -1",
    "inflect a\nb\x1b[2J\u2028c draw V": "a\\nb\\x1b[2J\\u2028c: No such file",
}


@pytest.mark.parametrize("words", MISUSE)
def test_misuse_is_one_line_and_code_2(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*words.split(" ")) == 2
    *others, said = capsys.readouterr().err.splitlines()
    assert MISUSE[words] in said
    assert said.startswith("pyentmax")
    assert all(line.startswith(("pyentmax runs", "BLAS")) for line in others)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="runs a shell")
@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        ("reproduce | true", 0, ""),
        ("reproduce >&- 2>&-", 0, ""),
        ("reproduce >/dev/full", 2, "No space left on device"),
        ("inflect . - <&-", 2, "expected lines of lemma TAB tags, none can be used"),
    ],
)
def test_closed_or_full_stream_is_no_traceback(shell, code, said, saved):
    words = ["bash", "-c", f"{sys.executable} -m pyentmax {shell}"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=saved)
    assert done.returncode == code
    assert not re.search("Traceback|BrokenPipe", done.stderr)
    assert said in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        {"MPLBACKEND": "module://missing.backend_inline"},  # as a notebook sets it
    ],
)
def test_results_whatever_the_environment(environment, saved):
    (saved / "words").write_text("wałk\tV;PST\nжpay\tV;PST\n", "utf-8")
    for words in (["words"], ["walk", "V;PST", "--pictures", "out"]):
        full = command("inflect", ".", *words)
        done = subprocess.run(full, capture_output=True, cwd=saved, env=os.environ | environment)
        assert done.returncode == 0, done.stderr
        if words == ["words"]:
            lines = done.stdout.decode("utf-8").splitlines()
            assert [line.split("\t")[0] for line in lines] == ["wałk", "жpay"]
    assert any((saved / "out").iterdir())


@pytest.mark.parametrize("option", ["--out", "--train"])
def test_tilde_in_an_option_is_the_home_folder(option):
    words = ["train", "seq2seq", f"{option}=~/x", *(["--train=a"] if option == "--out" else [])]
    chosen = getattr(build_parser().parse_args([*words, "--dev=b"]), option[2:])
    assert chosen in (Path.home() / "x", [Path.home() / "x"])


@pytest.mark.skipif(os.name != "posix", reason="sends a signal to a process")
@pytest.mark.parametrize("name", slow("SIGINT", "SIGTERM", "SIGHUP"))
def test_interrupt_finishes_update_and_can_be_resumed(tmp_path, name):
    signum = getattr(signal, name)
    (tmp_path / "words").write_text("walk\twalked\tV;PST\nplay\tplayed\tV;PST\n", "utf-8")
    options = ["--train", "words", "--dev", "words", "--hidden", "8", "--updates", "100000"]
    words = command("train", "seq2seq", *options, "--validate-every", "50")
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    out = tmp_path / "runs" / "inflection"
    while process.poll() is None and not (out / "best.npz").exists():
        time.sleep(0.05)
    process.send_signal(signum)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signum, errors
    assert "Traceback" not in errors
    if name != "SIGINT":  # of which the run itself has told
        assert errors.endswith("stopped; continue with the same command and --resume\n")
    assert {"last.npz", "best.npz"} <= {path.name for path in out.iterdir()}


def test_interrupt_of_other_work_is_one_line(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pyentmax.seq2seq.inflection.commands.run_demo", interrupted)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "pyentmax demo: stopped"


def test_output_without_greek_letters(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", stream)
    assert run("train", "seq2seq", "--help") == 0  # mentions α


def test_control_characters_of_models_are_escaped(tmp_path, capsys):
    rng, word = np.random.default_rng(0), Example("a\x1bb", "c\x1b[2Jd", ("V", "PST"))
    Inflector.untrained([word], rng, hidden=8).save(tmp_path / "best.npz")
    (tmp_path / "words").write_text("a\x1bb\tV;PST\n", "utf-8")
    assert main(["inflect", str(tmp_path), "a\x1bb", "V;PST"]) == 0
    assert main(["inflect", str(tmp_path), str(tmp_path / "words")]) == 0
    assert main(["force", str(tmp_path), "a\x1bb", "V;PST", "c\x1b[2Jd"]) == 0
    said = capsys.readouterr().out
    assert said.count("\\x1b") > 3
    assert "\x1b" not in said
