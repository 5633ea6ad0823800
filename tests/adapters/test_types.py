"""What editors and type checkers know: docstrings are whole, users' scripts checked."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import pyentmax

SCRIPTS = Path(__file__).parents[1] / "typing"
CHECKERS = {
    "mypy": ["--config-file", str(SCRIPTS / "mypy.ini")],
    "pyright": ["--pythonpath", sys.executable, "--project", str(SCRIPTS)],
}
REPORTED = re.compile(r"^\s*\S*?(user|mistakes)\.py:(\d+)(?::\d+)?[ :-]+error: ", re.MULTILINE)


@pytest.mark.parametrize("module", ["pyentmax", "pyentmax.torch"])
def test_docstrings_explain_every_argument(module: str) -> None:
    if module == "pyentmax.torch" and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed: pip install 'pyentmax[torch]'")
    public = importlib.import_module(module)
    for name in public.__all__:
        function = getattr(public, name)
        if not callable(function) or isinstance(function, type) and module == "pyentmax":
            continue  # of the records, attributes are explained
        if "." in getattr(function, "__qualname__", ""):
            continue  # an attribute takes what its mapping takes
        _, _, text = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
        entries = re.findall(r"^(\S+(?:, \S+)*)(?: : .*)?$", text.split("\n\n")[0], re.MULTILINE)
        explained = {word.strip("*") for entry in entries for word in entry.split(", ")}
        assert explained >= inspect.signature(function).parameters.keys(), name


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_users_script_is_clean_and_mistakes_are_reported(checker: str, tmp_path: Path) -> None:
    if find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed: pip install --group lint")
    scripts = [str(SCRIPTS / "user.py"), str(SCRIPTS / "mistakes.py")]
    command = [sys.executable, "-m", checker, *CHECKERS[checker], *scripts]
    # Checkers do not see an editable installation.
    environment = {**os.environ, "PYTHONPATH": str(Path(pyentmax.__file__).parents[1])}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    lines = (SCRIPTS / "mistakes.py").read_text("utf-8").splitlines()
    planted = {("mistakes", str(i)) for i, line in enumerate(lines, 1) if "# mistake: " in line}
    assert len(planted) == 10
    assert set(REPORTED.findall(run.stdout)) == planted, run.stdout + run.stderr
