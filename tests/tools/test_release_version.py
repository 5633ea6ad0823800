"""A release is refused whose version is not the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_version import faults

URL = "https://example.org/pyentmax"
CODE = f"repository-code: {URL}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "conda").mkdir()
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nversion = 1.2.3\nurl = {URL}\n")
    (tmp_path / "CITATION.cff").write_text(f"cff-version: 1.2.0\nversion: 1.2.3\n{CODE}")
    (tmp_path / "conda/recipe.yaml").write_text(f"  version: 1.2.3\n  repository: {URL}\n")
    (tmp_path / "README.md").write_text("[one](docs/one.md), [two](https://a.org), [three](#here)")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-11-30\n")
    return tmp_path


def test_matching_tag_has_no_fault(root: Path):
    assert not list(faults("v1.2.3", root))


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        (
            "setup.cfg",
            f"[metadata]\nversion = 1.2.2\nurl = {URL}\n",
            "setup.cfg says 1.2.2, not 1.2.3",
        ),
        ("CITATION.cff", f"version: 1.2.2\n{CODE}", "CITATION.cff says 1.2.2, not 1.2.3"),
        ("CITATION.cff", f"title: none\n{CODE}", "CITATION.cff says nothing, not 1.2.3"),
        ("CHANGELOG.md", "\n## [Unreleased]\n", "CHANGELOG.md has no heading ## [1.2.3]"),
    ],
)
def test_file_with_other_version_is_named(root: Path, file: str, text: str, fault: str):
    (root / file).write_text(text)
    assert list(faults("v1.2.3", root)) == [fault]
