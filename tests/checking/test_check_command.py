"""``pyentmax check``: exit codes, and what a wrong argument is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import run

Capture, Patch = pytest.CaptureFixture[str], pytest.MonkeyPatch


def test_right_implementation_has_code_0(capsys: Capture) -> None:
    words = ["check", "pyentmax:topk_softmax", "--as", "topk_softmax", "--k", 2]
    assert run(*words, "--dtypes", "float32") == 0
    assert capsys.readouterr().out.startswith("topk_softmax (k = 2): right, float32\n")


def test_wrong_implementation_in_this_folder_has_code_1(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    (tmp_path / "half_a_mapping.py").write_text("class A:\n    def f(z):\n        return z / 2\n")
    monkeypatch.chdir(tmp_path)
    assert run("check", "half_a_mapping:A.f", "--as", "sparsemax", "--dtypes", "float64") == 1
    assert "✗ exact values" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "code"), [([], 0), (["--strict"], 3)])
def test_edges_have_code_3_under_strict(
    words: list[str], code: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    text = (
        "import numpy as np\ndef f(z):\n    return np.exp(z) / np.exp(z).sum(-1, keepdims=True)\n"
    )
    (tmp_path / "no_shift.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run("check", "no_shift:f", "--as", "softmax", "--dtypes", "float64", *words) == code


ATTENTION = """
import numpy as np
def attend(query, key, value):
    scores = query @ np.swapaxes(key, -1, -2)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ value
def loss(z, y):
    return np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1)) + z.max(-1) - z[y]
"""


def test_attention_of_a_file_is_reported_as_json(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "kern.py"
    path.write_text(ATTENTION)
    sizes = ["--shapes", "3x70x4", "--seed", 1, "--dtypes", "float32"]
    assert run("check", f"{path}:attend", "--attention", "--json", *sizes) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "wrong"
    assert report["causes"][0].startswith("scores not scaled: ")
    assert {one["name"] for one in report["results"]} >= {"output", "blocks", "gradients"}


def test_loss_of_a_file_is_right(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "kern.py").write_text(ATTENTION)
    words = ["--loss", "--as", "softmax", "--dtypes", "float64"]
    assert run("check", f"{tmp_path}/kern.py:loss", *words) == 0
    assert capsys.readouterr().out.startswith("loss of softmax: right, float64\n")


def test_missing_backend_is_named(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    (tmp_path / "keras_like.py").write_text("import no_such_backend.ops\n")
    monkeypatch.chdir(tmp_path)
    assert run("check", "keras_like:f", "--as", "sparsemax") == 2
    message = (
        "keras_like needs no_such_backend, which is not installed: python -m pip install "
        "no_such_backend; or set KERAS_BACKEND to torch, jax or numpy"
    )
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("raise RuntimeError('no GPU')", "RuntimeError: no GPU"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import numpy; numpy.no", "AttributeError: module 'numpy' has no attribute 'no'"),
        ("def f(:", "SyntaxError: "),
    ],
)
@pytest.mark.parametrize("words", ["kern_a.py:f", "kern_a:f"])
def test_file_that_cannot_be_loaded_has_code_2(
    words: str, line: str, message: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    (tmp_path / "kern_a.py").write_text(f"def f(z): return z\n{line}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "kern_a", raising=False)
    assert run("check", words, "--as", "softmax") == 2
    error = capsys.readouterr().err
    assert f"{words[:-2]} cannot be loaded: {message}" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["numpy:exp"], "--as is needed: the mapping that the function claims to be"),
        (["no.py:f", "--attention"], "there is no file no.py"),
        (
            ["numpy:exp", "--as", "softmax", "--shapes", "3x4x5"],
            "--shapes must be ROWSxSCORES, got 3x4x5",
        ),
        (["numpy", "--as", "softmax"], "expected MODULE:FUNCTION, got numpy"),
        (["numpy:no", "--as", "softmax"], "numpy:no: module 'numpy' has no attribute 'no'"),
        (["no_such:f", "--as", "softmax"], "No module named 'no_such'"),
        (["math:pi", "--as", "softmax"], "math:pi: fn must be a function, got 3.14"),
        (["numpy:exp", "--as", "entmax"], "numpy:exp: entmax takes the parameters (alpha), got ()"),
    ],
)
def test_wrong_argument_is_one_line_and_code_2(
    words: list[str], message: str, capsys: Capture
) -> None:
    assert run("check", *words) == 2
    assert f"pyentmax check: {message}" in capsys.readouterr().err
