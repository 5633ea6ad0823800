"""The notebooks: their committed outputs match their code, and their code runs."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special

import pyentmax

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9][0-9]*_*.ipynb"))
LARGEST = 1_500_000  # bytes
NEEDS = "executing notebooks needs the extra: pip install 'pyentmax[notebooks]'"

MAPPINGS = "\n".join(
    file.read_text(encoding="utf-8")
    for file in Path(str(pyentmax.__file__)).parent.joinpath("reference", "mappings").glob("*.py")
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name.split("_")[0])


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"notebooks_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def lacks(data: Any) -> list[str]:
    """What a picture of an output lacks: an alternative text, or a caption, of some length."""
    html = "".join(data.get("text/html", ""))
    alternatives = re.findall(r'<img alt="([^"]{40,})"', html)
    captions = re.findall("<p [^>]*>[^<]{40,}</p>", html)
    described = "image/png" not in data and html.count("<img") == len(alternatives)
    return ["a picture that no text describes"] * (not described) + [
        "a picture without a caption"
    ] * (html.count("<img") != len(captions))


def exercises(notebook: Any) -> list[str]:
    """What is wrong with the exercises in code: two stubs at least, each with a check behind it."""
    found = []
    tags = [cell["metadata"].get("tags", []) for cell in notebook["cells"]]
    if any("puzzle" in tag for tag in tags):
        return []
    stubs = [i for i, tag in enumerate(tags) if "exercise" in tag]
    for i in stubs:
        if "raise NotImplementedError" not in "".join(notebook["cells"][i]["source"]):
            found.append(f"cell {notebook['cells'][i]['id']} is no stub")
        check = notebook["cells"][i + 1] if i + 1 < len(tags) and "check" in tags[i + 1] else None
        if check is None or "with exercise(" not in "".join(check["source"]):
            found.append(f"no check follows the stub of cell {notebook['cells'][i]['id']}")
        elif not any("to do" in "".join(o.get("text", "")) for o in check["outputs"]):
            found.append(f"the check of cell {check['id']} did not see a stub")
    if len(stubs) < 2:
        found.append(f"{len(stubs)} exercises in code, expected 2")
    return found


def texts_of_figures() -> dict[str, tuple[str, str]]:
    """The alternative texts and captions, read without Matplotlib."""
    tree = ast.parse((FOLDER / "figures.py").read_text(encoding="utf-8"))
    [texts] = [n for n in tree.body if isinstance(n, ast.AnnAssign) and n.target.id == "TEXTS"]
    return ast.literal_eval(texts.value)


def shown(notebook: Any) -> list[str]:
    """The names of texts that a notebook's calls of ``show`` take."""
    calls = [n for code in code_of(notebook) for n in ast.walk(ast.parse(code))]
    calls = [n for n in calls if isinstance(n, ast.Call) and len(n.args) == 2]
    names = [getattr(n.func, "attr", getattr(n.func, "id", "")) for n in calls]
    return [n.args[1].value for n, name in zip(calls, names, strict=True) if name == "show"]


def code_of(notebook: Any) -> list[str]:
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


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
    if made_from != load("run").code_hash(notebook):
        found.append("its code changed after its outputs were made")
    for cell in code:
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                found.append(f"cell {cell['id']} failed: {output['ename']}")
            found += [f"cell {cell['id']} has {what}" for what in lacks(output.get("data", {}))]
            if not as_in_the_library(output.get("data", {})):
                found.append(f"cell {cell['id']} shows code that the library no longer has")
            if output.get("name") == "stderr":
                found.append(f"cell {cell['id']} wrote to stderr: {output['text']}")
    return found + exercises(notebook) + load("claims").faults(notebook)


def test_notebooks_are_numbered_without_gaps():
    numbers = [path.name.split("_")[0] for path in NOTEBOOKS]  # 07a, 07b and 07c are parts of one
    found = sorted({int(number[:2]) for number in numbers})
    assert found == list(range(1, max(found) + 1))
    assert len(set(numbers)) == len(numbers)


@each_notebook
def test_committed_outputs_match_the_code(path):
    assert not faults(read(path)), "run: make notebooks"
    assert path.stat().st_size < LARGEST


def test_every_figure_has_its_texts():
    named = [name for path in NOTEBOOKS for name in shown(read(path))]
    assert sorted(named) == sorted(texts_of_figures())


def project(z: Any) -> Any:
    """Sparsemax, as a reader may write it."""
    falling = np.sort(z)[::-1]
    tau = (np.cumsum(falling) - 1) / np.arange(1, len(z) + 1)
    return np.maximum(z - tau[np.sum(falling > tau) - 1], 0)


def cheat(z: Any) -> Any:
    return pyentmax.sparsemax(z)


@pytest.mark.parametrize(
    ("own", "without"),
    [
        (pyentmax.sparsemax, ()),
        (pyentmax.reference.mappings.sparsemax.textbook, ()),
        (lambda z: pyentmax.sparsemax(z), ()),
        (partial(pyentmax.entmax, alpha=2), ()),
        (np.vectorize(pyentmax.sparsemax, signature="(n)->(n)"), ()),
        (scipy.special.softmax, ()),
        (lambda z: z / scipy.optimize.brentq(lambda x: x - 1, 0, 3), ()),
        (project, ("sort",)),
        (lambda z: project(z + 0 * sorted(z)[0]), ("sorted",)),
    ],
)
def test_exercise_refuses_library_functions(own, without, capsys):
    z = np.array([1.0, 0.5, -1.0])
    with (
        pytest.raises(AssertionError, match="write it yourself: exercise 4 is done without"),
        load("exercises").exercise(4, own=own, without=without) as own,
    ):
        np.testing.assert_allclose(own(z), pyentmax.sparsemax(z), rtol=0, atol=1e-12)
    assert not capsys.readouterr().out


def test_exercise_refuses_functions_of_a_module():
    exercise, z = load("exercises").exercise, np.array([1.0, 0.5, -1.0])
    options = {"without": ("pyentmax.reference.losses",), "library": True}
    with exercise(4, own=cheat, **options) as own:
        np.testing.assert_array_equal(own(z), pyentmax.sparsemax(z))
    with (
        pytest.raises(AssertionError, match="is done without pyentmax.reference.losses"),
        exercise(4, own=lambda z: pyentmax.sparsemax.loss(z, 0), **options) as own,
    ):
        own(z)


def sorted_in_place(z: Any) -> Any:
    """Sparsemax of rows, in rising order: the wrong order, in z as well."""
    z.sort(axis=-1)
    sums = z[..., ::-1].cumsum(-1)[..., ::-1]
    tau = ((sums - 1) / np.arange(z.shape[-1], 0, -1)).max(-1, keepdims=True)
    return np.maximum(z - tau, 0)


def halved_in_place(z: Any) -> Any:
    """1.5-entmax of a vector: right, though z is overwritten."""
    z -= z.max()
    z /= 2
    return pyentmax.reference.mappings.entmax15.textbook(2 * z)


def test_exercise_judges_what_functions_in_place_return(capsys):
    checks, z = load("exercises"), np.array([0.9, 0.1, 0.5])
    with (
        pytest.raises(AssertionError, match="for three scores: entry 0 is 0, should be 0.7"),
        checks.exercise(4, own=sorted_in_place) as own,
    ):
        checks.agree(own(z), pyentmax.sparsemax(z), "three scores", probabilities=True)
    with checks.exercise(5, own=halved_in_place, library=True) as own:
        checks.agree(own(z), pyentmax.entmax15(z), "three scores", probabilities=True)
    assert "Exercise 5: right. It changes its input" in capsys.readouterr().out
    np.testing.assert_array_equal(z, [0.9, 0.1, 0.5])


def test_exercise_accepts_own_functions(capsys):
    exercise, z = load("exercises").exercise, np.array([1.0, 0.5, -1.0])
    before = sys.getprofile()
    with exercise(4, own=project) as mine:
        np.testing.assert_allclose(mine(z), pyentmax.sparsemax(z), rtol=0, atol=1e-12)
    with exercise(5, own=(mine, lambda f, z: f(z))) as (again, apply):  # the cell run once more
        np.testing.assert_array_equal(apply(pyentmax.sparsemax, z), again(z))
    assert "".join(capsys.readouterr().out) == "Exercise 4: right.\nExercise 5: right.\n"
    assert sys.getprofile() is before

    def stub(z: Any) -> Any:
        raise NotImplementedError

    with exercise(6, own=stub) as mine:
        mine(z)
    assert "Exercise 6: to do" in capsys.readouterr().out


@pytest.fixture
def puzzle_checks(monkeypatch):
    """The puzzles without Matplotlib, whose pictures the notebook's own run draws."""
    figures = ModuleType("figures")
    # The picture is the attempt's result.
    vars(figures).update(puzzle_panels=lambda *args: args[3], show_described=None)
    monkeypatch.setitem(sys.modules, "figures", figures)
    monkeypatch.syspath_prepend(str(FOLDER))
    checks = load("puzzles")
    checks.__name__ = "puzzles"  # as the notebook imports it
    return checks


def test_puzzle_solutions_are_right(puzzle_checks):
    blocks = load("run").solution_blocks(FOLDER / "15_puzzles.ipynb")
    said: dict[int, str] = {}

    def keep(number: int) -> Any:
        def check(function: Any) -> Any:
            said[number] = puzzle_checks.verdict(number, function)
            return function

        return check

    namespace = {"np": np, "puzzle": keep}
    for block in blocks:
        exec(block, namespace)
    assert said == dict.fromkeys(puzzle_checks.PUZZLES, "right")
    assert len(said) == 20


def one_row(z: Any) -> Any:
    tau = (np.sort(z)[..., ::-1].cumsum(-1) - 1) / np.arange(1, z.shape[-1] + 1)
    return np.maximum(z - tau.max(), 0)


def unfilled(z: Any) -> Any:
    raise NotImplementedError


def cut(z: Any) -> Any:
    p = np.maximum(z, 0)
    return p / p.sum(-1, keepdims=True)


def overwriting(z: Any) -> Any:
    p = project(z)
    z[...] = 0
    return p


@pytest.mark.parametrize(
    ("number", "attempt", "said"),
    [
        (10, unfilled, "to do"),
        (10, lambda z: None, "it returns nothing"),
        (10, lambda z: "p", "it returns str, not numbers"),
        (10, lambda z: z[:2], "the shape is (2,), should be (4,)"),
        (10, lambda z: z / 0, "entry 0 is inf, should be 0.65"),
        (10, lambda z: project(z) * 0.83, "it sums to 0.83, should be 1"),
        (10, lambda z: project(z) + [0, 0, 1e-9, 0], "entry 2 should be exactly 0, is 1e-09"),
        (10, lambda z: project(z)[[1, 0, 2, 3]], "entry 0 is 0.35, should be 0.65"),
        (10, lambda z: z.missing, "AttributeError: 'numpy.ndarray' object has no"),
        (10, one_row, "right for one row, not for a batch: row 0 sums to "),
        (10, overwriting, "it changes its input"),
        (10, lambda z: pyentmax.sparsemax(z), "write it yourself: puzzle 10 is done without"),
        (1, lambda z: np.eye(z.shape[-1])[z.argmax(-1)], "right for three axes, not for ties: "),
        (2, cut, "right for one row, not for a row without a positive score: Floating"),
        (2, lambda z: np.nan_to_num(cut(z)), "right for one row, not for a row without a pos"),
        (9, lambda z: np.int64(2), "right for one row, not for a batch: the shape is ()"),
        (18, lambda z: np.ptp(z) * 0 + 4.2 + 1e-7, "it is 4.2000001, should be 4.2\n"),
        (
            11,
            lambda z, s: cheat(z),
            "write it yourself: puzzle 11 is done without pyentmax, but cheat",
        ),
        (
            7,
            lambda z, k: scipy.special.softmax(z),
            "write it yourself: puzzle 7 is done without Sci",
        ),
        (14, lambda z, alpha, low, high: low, "it should return 2 results"),
        (14, lambda z, alpha, low, high: (low, high), "result 1: it is 0.6, should be 0.1"),
        (17, lambda p, alpha: p, "entry 0 is "),
    ],
)
def test_puzzle_says_what_is_wrong(puzzle_checks, number, attempt, said):
    assert puzzle_checks.verdict(number, attempt).startswith(said)


def at_least(z: Any) -> Any:
    falling, k = np.sort(z)[..., ::-1], np.arange(1, z.shape[-1] + 1)
    return (1 + k * falling >= falling.cumsum(-1)).sum(-1)


def loose_share(p: Any, share: float) -> Any:
    q = p * (p >= (share - 1e-9) * p.max(-1, keepdims=True))
    return q / q.sum(-1, keepdims=True)


def more_than_one(z: Any, alpha: float, low: Any, high: Any) -> Any:
    middle = (low + high) / 2
    x = np.maximum((alpha - 1) * z - middle[..., None], 0)
    total = (x ** (1 / (alpha - 1))).sum(-1)
    return np.where(total > 1, middle, low), np.where(total > 1, high, middle)


def without_tiny(p: Any, v: Any, alpha: float) -> Any:
    s = np.where(p > 1e-9, np.where(p > 1e-9, p, 1) ** (2 - alpha), 0)
    return s * (v - (s * v).sum(-1, keepdims=True) / s.sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("number", "attempt", "border"),
    [
        (4, loose_share, "an entry 1e-12 below the limit"),
        (9, at_least, "scores exactly at the threshold"),
        (14, more_than_one, "a sum of 1 at the middle"),
        (15, without_tiny, "a probability of 1e-12"),
    ],
)
def test_puzzle_tries_the_border(puzzle_checks, number, attempt, border):
    assert f", not for {border}: " in puzzle_checks.verdict(number, attempt)


@pytest.mark.notebooks
@each_notebook
def test_notebook_runs_in_small_setting(path, monkeypatch):
    pytest.importorskip("nbclient", reason=NEEDS)
    monkeypatch.setenv("PYENTMAX_FAST", "1")
    before = path.read_bytes()
    command = [sys.executable, str(FOLDER / "run.py"), path.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_bytes() == before


def test_every_exercise_has_wrong_solutions():
    run = load("run")
    mistakes = json.loads((FOLDER / "solutions" / "wrong.json").read_text("utf-8"))
    checked = {}
    for path in run.notebooks():
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources = ["".join(c["source"]) for c in cells if "check" in c["metadata"].get("tags", [])]
        numbers = [re.findall(r"exercise\(\s*(\d+)", source)[0] for source in sources]
        if numbers:
            checked[path.name.partition("_")[0]] = set(numbers)
        for number in numbers:
            pairs = mistakes[path.name.partition("_")[0]][number]
            assert len({wrong for _, wrong in pairs}) == len(pairs) >= 3
            for right, wrong in pairs:
                assert right != wrong
                assert "".join(run.solution_blocks(path)).count(right) == 1, right
    assert checked == {name: set(numbers) for name, numbers in mistakes.items()}


@pytest.mark.notebooks
@pytest.mark.skipif(os.name != "posix", reason="Windows has no sockets that are files")
def test_notebook_kernel_opens_no_port(tmp_path, monkeypatch):
    pytest.importorskip("nbclient", reason=NEEDS)
    nbformat = pytest.importorskip("nbformat")
    deep = tmp_path / "temporary" / ("folder" * 20)  # longer than the name of a socket may be
    deep.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    code = """import json, os
from ipykernel.connect import get_connection_info
print(json.loads(get_connection_info())["transport"], os.getpid())"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbformat.write(notebook, tmp_path / "01_toy.ipynb")
    [cell] = load("run").execute(tmp_path / "01_toy.ipynb").cells
    transport, process = cell.outputs[0].text.split()
    assert transport == "ipc"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


@pytest.mark.notebooks
def test_failing_cell_leaves_the_file(tmp_path, monkeypatch, capsys):
    pytest.importorskip("nbclient", reason=NEEDS)
    monkeypatch.delenv("PYENTMAX_FAST", raising=False)
    run = load("run")
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
