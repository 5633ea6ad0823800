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
from pyentmax.seq2seq.data.text_files import decode, numbered_lines, read_text
from pyentmax.seq2seq.inflection import Example, Inflector
from pyentmax.seq2seq.training.interrupt import TERMINATING, handling

ROOT = Path(__file__).parents[3]
EXTRAS = ["scipy", "matplotlib", "tqdm", "pooch", "sentencepiece", "sacrebleu", "threadpoolctl"]


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "pyentmax", *map(str, words)]


def small_inflector() -> Inflector:
    examples = [Example("walk", "walked", ("V", "PST")), Example("play", "plays", ("V", "PRS"))]
    return Inflector.untrained(examples, np.random.default_rng(0), hidden=8)


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "argument COMMAND: invalid choice: 'nonsense'"),
        (["trian"], "(did you mean train?)"),
        (["train", "seqseq"], "(did you mean seq2seq?)"),
        (["train", "seq2seq", "--trian", "a"], "arguments: --trian (did you mean --train?)"),
        (["demo", "--see", "9"], "unrecognized arguments: --see"),  # no abbreviations
        (["inflect", "m", "draw", "V", "--beam", "x"], "argument --beam: invalid int value: 'x'"),
    ],
)
def test_wrong_arguments_are_one_line_and_code_2(words, message, capsys):
    assert run(*words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_no_arguments_print_help(capsys):
    for words in ([], ["train"]):
        assert run(*words) == 0
        assert "seq2seq" in capsys.readouterr().out or not words


def test_value_after_two_hyphens_is_not_an_option():
    words = ["inflect", "--language=--n", "m", "--", "--lsit"]
    assert build_parser().parse_args(words).words == ["m", "--lsit"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inflect", "nowhere", "draw", "V;PST"], "nowhere: No such file or directory"),
        (["inflect", "m", "draw", "V", "--budget", "9"], "--budget: expected --search exact"),
        (
            ["inflect", "m", "w", "V", "--search", "exact", "--beam", "7"],
            "--beam: expected without",
        ),
        (["inflect", "m", "draw", "V", "--blas-threads", "0"], "blas_threads: expected at least 1"),
        (["inflect", "m", "words"], "expected MODEL LEMMA TAGS, or MODEL FILE; got m words"),
        (["demo", "--seed", "-1"], "seed: expected a number from 0 up, got -1"),
    ],
)
def test_misuse_is_one_line_and_code_2(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert said[-1].startswith(f"pyentmax {words[0]}: ")
    assert all(line.startswith(("pyentmax runs", "BLAS")) for line in said[:-1])
    assert not list(tmp_path.iterdir())


def test_error_about_strange_file_name_is_one_line(tmp_path, capsys):
    assert main(["inflect", str(tmp_path / "a\nb\x1b[2J\u2028c"), "draw", "V;PST"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert "a\\nb\\x1b[2J\\u2028c: No such file" in said[-1]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="runs a shell")
def test_reader_that_stops_reading():
    shell = f"{sys.executable} -m pyentmax reproduce | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert "Error" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="runs a shell")
@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        ("reproduce >&- 2>&-", 0, ""),
        ("reproduce >/dev/full", 2, "No space left on device"),
        ("inflect MODEL - <&-", 2, "expected lines of lemma TAB tags, none can be used"),
    ],
)
def test_closed_or_full_stream_is_no_traceback(redirection, code, said, tmp_path):
    small_inflector().save(tmp_path / "best.npz")
    shell = f"{sys.executable} -m pyentmax {redirection.replace('MODEL', str(tmp_path))}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert said in done.stderr


@pytest.mark.slow
def test_redirected_results_are_utf8(tmp_path):
    small_inflector().save(tmp_path / "best.npz")
    (tmp_path / "words").write_text("wałk\tV;PST\nжpay\tV;PST\n", "utf-8")
    words = command("inflect", tmp_path, tmp_path / "words")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(words, capture_output=True, env=environment, check=True)
    lines = done.stdout.decode("utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["wałk", "жpay"]


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


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_ignored_hangup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with handling(print, TERMINATING) as handled:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert [*handled] == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before)


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


@pytest.mark.slow
def test_backend_of_a_notebook_does_not_stop_pictures(tmp_path):
    small_inflector().save(tmp_path / "best.npz")
    words = command("inflect", tmp_path, "walk", "V;PST", "--pictures", tmp_path / "out")
    environment = os.environ | {"MPLBACKEND": "module://missing.backend_inline"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "out").iterdir())


# --- text files -----------------------------------------------------------------------------------
def test_text_is_utf8_without_mark_and_carriage_returns(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffä\r\nb\u2028c\n".encode())
    assert read_text(path) == "ä\nb\u2028c\n"
    assert [line for _, line in numbered_lines(path)] == ["ä", "b\u2028c"]
    path.write_bytes("a\r\r\n\ufeffb\r".encode())
    assert read_text(path) == "a\nb"
    path.write_bytes(b"an old\rMac\r")
    assert [line for _, line in numbered_lines(path)] == ["an old", "Mac"]
    path.write_bytes(b"")
    assert list(numbered_lines(path)) == []


def test_bad_byte_is_named_with_its_line():
    with pytest.raises(ValueError, match="a.txt, line 2: expected UTF-8, got byte 0xff"):
        decode(b"one\n\xff", "a.txt")


@pytest.mark.parametrize("module", ["gzip", "bz2", "lzma"])
def test_compressed_file_is_named_as_such(module):
    packed = importlib.import_module(module).compress(b"walk\twalked\tV;PST\n" * 9)
    with pytest.raises(ValueError, match="words: expected text, got an? .* file; unpack it"):
        decode(packed, "words")
