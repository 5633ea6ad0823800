"""Hold the claims of the notebooks' prose to their code: ``python notebooks/claims.py [-v]``.

A sentence of a Markdown cell that claims something ends with ``<!--claim:name-->``, which no
reader sees. A comment ``# claim: name`` in a code cell of the same notebook stands on the statement
that asserts it, or before it. The script fails where a claim has no such statement, where the
statement asserts nothing, where a name is used twice, and where a section with code claims nothing.
With ``-v`` it lists the claims, each with the cell that asserts it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
CLAIM = re.compile(r"<!--claim:([\w-]+)-->")
ASSERTED = re.compile(r"# claim: ([\w-]+)")
HEADING = re.compile(r"^## (\d+\.\d+ .*)$", re.MULTILINE)


def asserts(statement: ast.stmt) -> bool:
    """Whether a statement holds an assertion: Python's, or a call of something named assert…"""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name.startswith("assert"):
                return True
    return False


def claims_of(code: str) -> dict[str, bool]:
    """The names that a cell's comments carry, and whether the statement of each asserts."""
    statements = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
    found = {}
    for number, line in enumerate(code.splitlines(), 1):
        for name in ASSERTED.findall(line):
            alone = line.strip().startswith("#")
            first = min((node.lineno for node in statements if node.lineno > number), default=0)
            chosen = [
                node
                for node in statements
                if (node.lineno == first if alone else node.lineno <= number <= node.end_lineno)
                and (alone or not hasattr(node, "body"))
            ]
            found[name] = any(map(asserts, chosen))
    return found


def faults(notebook: dict[str, Any]) -> list[str]:
    """What the notebook claims and does not assert."""
    found, claimed, asserted = [], {}, {}
    section, sections = None, {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            position = 0
            for heading in [*HEADING.finditer(source), None]:
                end = heading.start() if heading else len(source)
                names = CLAIM.findall(source[position:end])
                if section:
                    sections[section][0] += len(names)
                for name in names:
                    if name in claimed:
                        found.append(f"two claims are named {name}")
                    claimed[name] = cell["id"]
                if heading:
                    section, position = heading[1], end
                    sections[section] = [0, 0]
            if re.search("^## Exercises", source, re.MULTILINE):
                section = None
        else:
            if section:
                sections[section][1] += 1
            for name, holds in claims_of(source).items():
                if name in asserted:
                    found.append(f"two cells assert {name}")
                asserted[name] = cell["id"]
                if not holds:
                    found.append(f"{name}: its statement in cell {cell['id']} asserts nothing")
    found += [f"{name} ({claimed[name]}) is asserted nowhere" for name in claimed.keys() - asserted]
    found += [f"no sentence claims {name} ({asserted[name]})" for name in asserted.keys() - claimed]
    for heading, (number, code) in sections.items():
        if code and not number:
            found.append(f"section {heading} marks no claim")
    return sorted(found)


def main() -> int:
    """Print the faults, or with -v the claims; 1 if there are faults."""
    wrong = 0
    for path in sorted(FOLDER.glob("[0-9][0-9]*_*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for fault in faults(notebook):
            print(f"{path.name}: {fault}")
            wrong = 1
        if "-v" in sys.argv:
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    for name in claims_of("".join(cell["source"])):
                        print(f"{path.name}: {name} is asserted in {cell['id']}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
