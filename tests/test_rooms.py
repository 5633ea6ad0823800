"""The rooms of the library: a room imports only rooms before it in ROOMS.

The order is the reading order. It keeps the mathematics free of the machinery built on top, and
makes import cycles impossible.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyentmax

PACKAGE = Path(str(pyentmax.__file__)).parent

ROOT = "pyentmax itself"  # __init__.py: the namespace of array functions
ROOMS = [
    "calls",
    "backends",
    "system",
    "entropies",
    "thresholds",
    "mappings",
    "sparse_output",
    "log_probabilities",
    "losses",
    "checking",
    ROOT,
    "autograd",
    "nn",
    "models",
    "decoding",
    "data",
    "training",
    "analysis",
    "plotting",
    "tasks",
    "cli",
    "__main__",
]
KERNELS = "_cpu"  # compiled, and only the dispatcher knows it


def room_of(module: tuple[str, ...]) -> str:
    """The room of a module given by its path inside the package, () being the package itself."""
    return module[0] if module else ROOT


def imports(source: str, module: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """Line, room and wording of each import from inside the package, deferred ones too.

    `module` is the package path that a relative import starts from: () in `pyentmax/cli.py`,
    ("mappings",) in `pyentmax/mappings/softmax.py`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                base = ("pyentmax", *module[: len(module) - node.level + 1], *base)
            # `from pyentmax import x` imports the room x if there is one, a function otherwise.
            targets = [(*base, alias.name) for alias in node.names]
        else:
            continue
        for name, *inner in targets:
            if name != "pyentmax":
                continue
            known = bool(inner) and inner[0] in (*ROOMS, KERNELS)
            yield node.lineno, room_of(tuple(inner[:1]) if known else ()), ast.unparse(node)


def offences(source: str, path: Path) -> list[str]:
    """What the file at `path`, relative to the package, imports that it must not."""
    module = path.with_suffix("").parts
    here = ROOT if path.name == "__init__.py" and len(module) == 1 else module[0]
    if here not in ROOMS:
        return [f"pyentmax/{path} belongs to no room: give it one, or a place in ROOMS above"]
    found = []
    for line, room, text in imports(source, module[:-1]):
        if room == here:
            continue
        if room == KERNELS:
            allowed, why = here == "backends", "only backends knows the kernels"
        else:
            allowed, why = ROOMS.index(room) < ROOMS.index(here), f"{room} comes after {here}"
        if not allowed:
            found.append(f"pyentmax/{path}:{line}: `{text}` is forbidden: {why}")
    return found


def test_a_room_imports_only_rooms_before_it():
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no Python files under {PACKAGE}"
    found = [
        offence
        for file in files
        for offence in offences(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("entropies.py", "from pyentmax.losses import sparsemax_loss"),
        ("entropies.py", "import numpy, pyentmax.losses"),
        ("entropies.py", "from .losses import sparsemax_loss"),
        ("entropies.py", "from . import losses"),
        ("entropies.py", "from pyentmax import losses"),
        ("entropies.py", "from pyentmax import entmax"),
        ("mappings/softmax.py", "from ..losses import sparsemax_loss"),
        ("mappings/__init__.py", "from ..losses import sparsemax_loss"),
        ("mappings/softmax.py", "def f():\n    import pyentmax.autograd.tensor"),
        ("mappings/softmax.py", "from pyentmax import _cpu"),
        ("decoding/beam.py", "from pyentmax.data import Vocabulary"),
        ("models/rnn_seq2seq.py", "from pyentmax.decoding.protocol import Step"),
        ("__init__.py", "from .autograd import Tensor"),
        ("cellar.py", "import numpy"),
    ],
)
def test_forbidden_imports_are_found(path, source):
    found = offences("import math\n" + source, Path(path))
    assert len(found) == 1
    assert path in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("backends/choice.py", "from pyentmax import _cpu"),
        ("losses.py", "from pyentmax.mappings import MAPPINGS"),
        ("mappings/softmax.py", "from ._simplex import jvp\nfrom .. import calls"),
        ("mappings/__init__.py", "from .softmax import softmax\nfrom . import sparsemax"),
        ("__init__.py", "from .losses import sparsemax_loss"),
        ("autograd/mappings.py", "from pyentmax import entmax\nimport pyentmax"),
        ("cli.py", "from .training import train\nimport pyentmaximal"),
    ],
)
def test_rightful_imports_are_left_alone(path, source):
    assert offences(source, Path(path)) == []
