"""A working day with the commands: train, predict, go on, be stopped, resume, translate."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from pyentmax.seq2seq.tasks.inflection import english_verbs
from pyentmax.seq2seq.tasks.translation import Translator, Words, toy_german


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends a signal to a process")
def test_session_of_a_working_day(tmp_path):
    def start(*words, **streams):
        command = [sys.executable, "-m", "pyentmax", *map(str, words)]
        return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, **streams)

    def done(*words, code=0, given=None):
        process = start(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        out, errors = process.communicate(given, timeout=300)
        assert process.returncode == code, errors
        assert "Traceback" not in errors
        return out

    rows = [f"{e.lemma}\t{e.form}\t{';'.join(e.tags)}\n" for e in english_verbs()[:1500]]
    (tmp_path / "train").write_text("".join(rows[:1400]), "utf-8")
    (tmp_path / "dev").write_text("".join(rows[1400:]), "utf-8")
    train = [
        "train",
        "seq2seq",
        "--train",
        "train",
        "--dev",
        "dev",
        "--hidden",
        "24",
        "--out",
        "run",
    ]
    train += ["--schedule", "halve", "--quiet", "--updates"]
    assert "200 updates in" in done(*train, 200)
    predicted = done("inflect", "run", "dev").splitlines()
    assert [line.split("\t")[::2] for line in predicted] == [
        row.rstrip("\n").split("\t")[::2] for row in rows[1400:]
    ]
    questions = "".join("\t".join(row.rstrip("\n").split("\t")[::2]) + "\n" for row in rows[1400:])
    answers = done("inflect", "run", "-", "--n-best", 3, "--format", "jsonl", given=questions)
    best = [json.loads(line)["results"] for line in answers.splitlines()]
    assert [results[0]["text"] for results in best] == [line.split("\t")[1] for line in predicted]
    assert all(1 <= len(results) <= 3 for results in best)
    assert "300 updates in" in done(*train, 300, "--resume")
    process, before = start(*train, 100_000, "--resume"), (tmp_path / "run/last.npz").read_bytes()
    while process.poll() is None and (tmp_path / "run/last.npz").read_bytes() == before:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert errors.endswith("stopped; continue with the same command and --resume\n")
    process = start(*train, 100_000, "--resume")
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    rng = np.random.default_rng(0)
    Translator.untrained("transformer", toy_german()[:99], Words(), rng, **shape).save(
        tmp_path / "translator"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start("translate", "translator", "-", **pipes) as process:
        for sentence in ("der hund", "", "das ei"):
            process.stdin.write(sentence + "\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")
        process.communicate(timeout=60)
    assert process.returncode == 0
