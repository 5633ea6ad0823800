"""Check that a tag names the version of the sources, and that all is there for its release.

python tools/release_version.py v1.2.3
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def faults(tag: str, root: Path) -> Iterator[str]:
    """Why `tag` cannot be released from the sources below `root`."""
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        yield f"a tag is v and a version, such as v1.2.3 or v1.2.3rc1, got {tag!r}"
        return
    version = tag[1:]
    metadata = configparser.ConfigParser()
    metadata.read(root / "setup.cfg")
    if (said := metadata["metadata"]["version"]) != version:
        yield f"setup.cfg says {said}, not {version}"
    for name in ("CITATION.cff", "conda/recipe.yaml"):
        cited = re.search(r"^ *version: (.+)$", (root / name).read_text(), re.MULTILINE)
        if cited is None or cited[1].strip('"') != version:
            yield f"{name} says {cited[1] if cited else 'nothing'}, not {version}"
    if f"\n## [{version}]" not in (root / "CHANGELOG.md").read_text():
        yield f"CHANGELOG.md has no heading ## [{version}]"
    url = metadata["metadata"].get("url")
    if url is None:
        links = re.findall(r"\]\((?!https?:|#)([^)]+)\)", (root / "README.md").read_text())
        named = ", ".join(links)
        yield f"setup.cfg has no url, and on PyPI README.md's links lead nowhere: {named}"
    for name, entry in (("CITATION.cff", "repository-code"), ("conda/recipe.yaml", "repository")):
        if f"{entry}: {url}\n" not in (root / name).read_text():
            yield f"{name} has no {entry} with the url of setup.cfg"


def main(arguments: list[str] | None = None) -> int:
    """Check the tag on the command line; returns how many faults it has."""
    (tag,) = sys.argv[1:] if arguments is None else arguments
    found = list(faults(tag, ROOT))
    for fault in found:
        print(fault, file=sys.stderr)
    return len(found)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
