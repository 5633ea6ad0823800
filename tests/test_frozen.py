"""A program frozen by PyInstaller has the bundled data and the kernels."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import pyentmax
from pyentmax.engine.backends import choice
from pyentmax.seq2seq.inflection import english_verbs
print(len(english_verbs()), bool(choice.kernels()), pyentmax.__version__)
"""


@pytest.mark.deep
def test_frozen_program_has_data_and_kernels(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    install = [python, "-m", "pip", "install", "--quiet", str(ROOT), "pyinstaller", "setuptools"]
    if subprocess.run(install, cwd=tmp_path).returncode:
        pytest.skip("PyInstaller cannot be installed")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    freeze = [python, "-m", "PyInstaller", "--log-level=WARN", "--onedir", str(program)]
    subprocess.run(freeze, cwd=tmp_path, check=True)
    run = [str(tmp_path / "dist" / "program" / "program")]
    frozen = subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    plain = subprocess.run(
        [python, str(program)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert frozen == plain.stdout
    assert " True " in frozen
