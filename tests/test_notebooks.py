"""The notebooks: their committed outputs match their code, and their code runs."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyentmax

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))
LARGEST = 1_500_000  # bytes
NEEDS = "executing notebooks needs the extra: pip install pyentmax[notebooks]"

MAPPINGS = "\n".join(
    file.read_text(encoding="utf-8")
    for file in Path(str(pyentmax.__file__)).with_name("mappings").glob("*.py")
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name[:2])


def load_run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def described(data: Any) -> bool:
    """Every picture of an output has a text of some length beside it."""
    html = "".join(data.get("text/html", ""))
    alternatives = re.findall(r'<img alt="([^"]{40,})"', html)
    return "image/png" not in data and html.count("<img") == len(alternatives)


def as_in_the_library(data: Any) -> bool:
    """Every function of the library that an output shows stands there like that."""
    shown = "".join(data.get("text/markdown", ""))
    functions = shown.removeprefix("```python\n").removesuffix("```").split("\n\n\n")
    return all(function.strip() in MAPPINGS for function in functions)


def faults(notebook: Any) -> list[str]:
    """What is wrong with a notebook as committed."""
    found = []
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"not executed from top to bottom: {counts}")
    made_from = notebook["metadata"].get("pyentmax", {}).get("code_sha256")
    if made_from != load_run().code_hash(notebook):
        found.append("its code changed after its outputs were made")
    for cell in code:
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                found.append(f"cell {cell['id']} failed: {output['ename']}")
            if not described(output.get("data", {})):
                found.append(f"cell {cell['id']} has a picture that no text describes")
            if not as_in_the_library(output.get("data", {})):
                found.append(f"cell {cell['id']} shows code that the library no longer has")
            if output.get("name") == "stderr":
                found.append(f"cell {cell['id']} wrote to stderr: {output['text']}")
    text = "".join("".join(cell["source"]) for cell in notebook["cells"])
    for needed in ("you will be able to", "## Exercises", "<details>", "PYENTMAX_FAST"):
        if needed not in text:
            found.append(f"it lacks {needed!r}")
    solutions = [cell for cell in code if cell["metadata"].get("jupyter", {}).get("source_hidden")]
    if not any("assert" in "".join(cell["source"]) for cell in solutions):
        found.append("no folded cell checks the solutions")
    return found


def test_the_notebooks_are_numbered_from_one_without_gaps():
    numbers = [int(path.name[:2]) for path in NOTEBOOKS]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


@each_notebook
def test_committed_outputs_match_the_code(path):
    assert not faults(read(path)), "run: make notebooks"


@each_notebook
def test_a_notebook_is_small(path):
    assert path.stat().st_size < LARGEST


def test_every_fault_is_found():
    good = read(NOTEBOOKS[0])
    code = next(i for i, cell in enumerate(good["cells"]) if cell["cell_type"] == "code")
    picture = next(
        (i, j)
        for i, cell in enumerate(good["cells"])
        for j, output in enumerate(cell.get("outputs", []))
        if "<img" in "".join(output.get("data", {}).get("text/html", ""))
    )

    def broken(change: Any) -> list[str]:
        notebook = copy.deepcopy(good)
        change(notebook["cells"])
        return faults(notebook)

    error = {"output_type": "error", "ename": "AssertionError", "evalue": "", "traceback": []}
    shown = {"output_type": "display_data", "metadata": {}}
    stderr = {"output_type": "stream", "name": "stderr", "text": "careful"}
    assert "changed after" in broken(lambda c: c[code]["source"].append("\n# more"))[0]
    assert "top to bottom" in broken(lambda c: c[code].update(execution_count=None))[0]
    assert "AssertionError" in broken(lambda c: c[code]["outputs"].append(error))[0]
    assert "stderr" in broken(lambda c: c[code]["outputs"].append(stderr))[0]
    old = {"text/markdown": ["```python\n", "def textbook(z):\n", "    return z\n", "```"]}
    assert "no longer has" in broken(lambda c: c[code]["outputs"].append({**shown, "data": old}))[0]
    i, j = picture
    bare = {"text/html": ['<img alt="" src="">']}
    assert "no text describes" in broken(lambda c: c[i]["outputs"][j].update(data=bare))[0]
    bare = {"image/png": "iVBORw0KGgo="}
    assert "no text describes" in broken(lambda c: c[i]["outputs"][j].update(data=bare))[0]
    assert any("Exercises" in fault for fault in broken(lambda c: c.pop(-2)))


@pytest.mark.notebooks
@each_notebook
def test_a_notebook_runs_in_its_small_setting(path, monkeypatch):
    pytest.importorskip("nbclient", reason=NEEDS)
    monkeypatch.setenv("PYENTMAX_FAST", "1")
    before = path.read_bytes()
    command = [sys.executable, str(FOLDER / "run.py"), path.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_bytes() == before


@pytest.mark.notebooks
def test_a_failing_cell_fails_the_run_and_leaves_the_file(tmp_path, monkeypatch, capsys):
    pytest.importorskip("nbclient", reason=NEEDS)
    monkeypatch.delenv("PYENTMAX_FAST", raising=False)
    run = load_run()
    notebook = read(NOTEBOOKS[0])
    notebook["cells"] = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"][:1]
    notebook["cells"][0]["source"] = ["assert 1 + 1 == 3"]
    path = tmp_path / "01_wrong.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    before = path.read_bytes()
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    assert run.main([]) == 1
    assert "AssertionError" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert run.main(["02"]) == 1
    assert "01_wrong.ipynb" in capsys.readouterr().err
