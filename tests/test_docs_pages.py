"""Every block of code in the documentation's pages runs, and prints what stands under it.

Markdown first; the reference's pages hold examples with prompts only.

The blocks of a page run in order, in one namespace and one empty folder. Python with prompts is run
as a doctest, Python without them as a script, ``sh`` by a shell; a ``text`` block right after an
``sh`` block is what it prints. A comment in front says what a block needs, or why it is not run:

    <!-- needs: torch, entmax -->
    <!-- not run: downloads packages -->
"""

from __future__ import annotations

import configparser
import doctest
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pyentmax
from pyentmax import cli
from pyentmax.engine.backends import choice

ROOT = Path(__file__).parents[1]
TRAINING = ["morphology.md", "translation.md", "language-model.md"]
JUDGING = ["check-implementation.md"]  # ten seconds
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")])
PAGES += sorted((ROOT / "pyentmax").rglob("README.md"))
REFERENCE = [
    page
    for page in sorted((ROOT / "docs" / "api").glob("*.rst"))
    if ">>>" in page.read_text("utf-8")
]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>.*?) -->\n)?```(?P<language>.*)\n(?P<code>(?s:.*?))^```$", re.MULTILINE
)
DOCTEST_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int  # of its first line of code
    language: str
    code: str
    needs: frozenset[str]
    not_run: str  # why, or empty


def blocks(text: str) -> list[Block]:
    """The blocks of code of a page; directives, which are fenced too, are none."""
    found = []
    for match in FENCE.finditer(text):
        if match["language"].startswith("{"):
            continue
        kind, _, rest = (match["mark"] or "").partition(":")
        assert kind in ("", "needs", "not run"), f"unknown mark {match['mark']!r}"
        needs = frozenset(re.findall(r"\w+", rest)) if kind == "needs" else frozenset()
        line = text.count("\n", 0, match.start("code")) + 1
        reason = rest.strip() if kind == "not run" else ""
        assert kind != "not run" or reason, f"line {line}: why is it not run?"
        found.append(Block(line, match["language"], match["code"], needs, reason))
    return found


def present(name: str) -> bool:
    if name == "kernels":
        return bool(choice.kernels())
    if name == "compiler":
        return shutil.which("cc") is not None
    return importlib.util.find_spec(name) is not None


def run_python(block: Block, page: str, namespace: dict[str, Any]) -> None:
    if ">>>" not in block.code:
        # The blank lines in front make tracebacks name the page's own line numbers.
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
        return
    examples = doctest.DocTestParser().get_examples(block.code, page)
    # A name of its own: by it doctest looks up the lines of functions that earlier blocks defined.
    name = f"{page}, line {block.line}"
    test = doctest.DocTest(examples, namespace, name, page, block.line - 1, block.code)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=DOCTEST_FLAGS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    assert not runner.failures, "".join(report)


def run_shell(block: Block, expected: str | None) -> None:
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": str(Path(str(pyentmax.__file__)).parents[1]),
        "PYTHONUTF8": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    where = f"line {block.line}: {block.code}"
    assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
    if expected is not None:
        right = doctest.OutputChecker().check_output(expected, done.stdout, DOCTEST_FLAGS)
        assert right, f"{where}\nprinted\n{done.stdout}\nand not\n{expected}"


def run_page(page: str, text: str, wanted: frozenset[str]) -> int:
    """Run what needs nothing, or nothing but what is wanted; returns how many blocks ran."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(text)
    count = 0
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.not_run or not block.needs <= wanted or block.language == "text":
            continue
        if block.language == "python":
            run_python(block, page, namespace)
        else:
            assert block.language == "sh", f"line {block.line}: what is {block.language!r}?"
            is_output = after is not None and after.language == "text"
            run_shell(block, after.code if after is not None and is_output else None)
        count += 1
    return count


def cases() -> list[Any]:
    found = []
    for page in PAGES:
        if page.name in TRAINING:
            continue
        run = [block for block in blocks(page.read_text("utf-8")) if not block.not_run]
        for needs in sorted({block.needs for block in run}, key=sorted):
            name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
            late = page.name in JUDGING or "dask" in needs  # which takes seconds to start
            marks = [pytest.mark.slow] if late else []
            identity = "-".join([name, *sorted(needs)])
            found.append(pytest.param(page, needs, id=identity, marks=marks))
    return found


@pytest.mark.parametrize(("page", "needs"), cases())
def test_page_does_what_it_says(page, needs, tmp_path, monkeypatch):
    missing = sorted(name for name in needs if not present(name))
    if missing:
        pytest.skip(f"{page.name} needs {', '.join(missing)} for some of its blocks")
    monkeypatch.chdir(tmp_path)
    assert run_page(page.name, page.read_text("utf-8"), needs)


@pytest.mark.slow
def test_training_pages_run_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in TRAINING:
        text = (ROOT / "docs" / "guide" / name).read_text("utf-8")
        assert run_page(name, text, frozenset())


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_reference_page_does_what_it_says(page):
    done = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert done.attempted
    assert not done.failed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_escapes(page):
    """Each fence that opens is one that `blocks` knows, and no block stands indented."""
    text = page.read_text("utf-8")
    assert len(re.findall("^[ \t]*```", text, re.MULTILINE)) == 2 * len(FENCE.findall(text))
    for block in blocks(text):
        lines = block.code.replace("\\\n", " ").splitlines() if block.language == "sh" else []
        for line in lines:
            command, *words = shlex.split(line, comments=True) or [""]
            if command == "python" and words[:2] == ["-m", "pyentmax"]:
                cli.build_parser().parse_args(words[2:])
            elif command == "make":
                assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text("utf-8"), line


def test_extras_that_pages_name_exist():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    for page in PAGES:
        for names in re.findall(r"(?:pyentmax|\.)\[([\w,]+)\]", page.read_text("utf-8")):
            for name in names.split(","):
                assert name in setup["options.extras_require"], f"{page.name}: [{name}]"
