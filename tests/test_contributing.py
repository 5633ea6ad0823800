"""CONTRIBUTING.md: the files it names exist, and its example leaves none of the library out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyentmax

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "CONTRIBUTING.md"
# An installed package may lie elsewhere than the tests.
PACKAGE = Path(str(pyentmax.__file__)).parent
EXAMPLE = "topk_sparsemax"
CODE = {".py", ".h", ".pyx", ".c", ".cu", ".cuh", ".md"}
# In backticks, or where a link leads.
LIKE_A_PATH = re.compile(r"[`(]((?:[\w.-]+/)*[\w-]+\.(?:py|h|cu|cuh|md|rst))[`)]")


def place(path: str) -> Path:
    """Where a file of the repository lies."""
    return PACKAGE / path.removeprefix("pyentmax/") if path.startswith("pyentmax/") else ROOT / path


def named(text: str) -> list[str]:
    """The files that a text names; one without a folder lies beside the one before."""
    found: list[str] = []
    for path in LIKE_A_PATH.findall(text):
        if "/" not in path and found and not place(path).exists():
            path = f"{found[-1].rpartition('/')[0]}/{path}"
        found.append(path)
    return found


def mentioning(name: str) -> Iterator[str]:
    """The files of the library and its kernels that say the name."""
    for folder in ("cython_ext", "pyentmax"):
        top = place(f"{folder}/")
        for path in sorted(top.rglob("*")):
            if path.suffix in CODE and name in path.read_text(encoding="utf-8"):
                yield f"{folder}/{path.relative_to(top).as_posix()}"


def test_the_files_that_it_names_exist() -> None:
    files = named(GUIDE.read_text(encoding="utf-8"))
    assert len(files) > 30
    assert [path for path in files if not place(path).exists()] == []


@pytest.mark.parametrize("path", sorted(mentioning(EXAMPLE)))
def test_a_mapping_touches_no_other_file_of_the_library(path: str) -> None:
    _, _, rest = GUIDE.read_text(encoding="utf-8").partition("## Add a mapping")
    section, _, _ = rest.partition("\n## ")
    assert path in named(section), f"{path} names {EXAMPLE}: a mapping should not need that"
