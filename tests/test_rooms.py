"""The import graph: subpackages import only those before them in ROOMS, and there is no cycle.

The order is the reading order. It keeps the mathematics free of what is built on it. Imports inside
functions count, and so does `importlib`. `experiments` comes last: nothing imports it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pyentmax

PACKAGE = Path(str(pyentmax.__file__)).parent
REPOSITORY = Path(__file__).parents[1]

ROOT = "pyentmax"  # __init__.py: the namespace of array functions
ROOMS = [
    "calls",
    "backends",
    "system",
    "entropies",
    "log_probabilities",
    "thresholds",
    "losses",
    "keep",
    "mappings",
    "fenchel_young",
    "sparse_output",
    "sorting",
    "structured",
    "regularized",
    "sparse_attention",
    "checking",
    ROOT,
    "composed",
    "jax",
    "sklearn",
    "torch",
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
KERNELS = "pyentmax._cpu"  # compiled, and only backends/ knows it


def module_of(path: Path) -> str:
    """The dotted name of a file given by its path inside the package."""
    parts = path.with_suffix("").parts
    return ".".join(("pyentmax", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def room_of(module: str) -> str:
    """The room of a module."""
    return (*module.split(".")[1:], ROOT)[0]


@functools.cache
def import_statements(source: str) -> list[tuple[int, list[str]]]:
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            # A name that is put together, or comes from elsewhere, could be anything.
            names = [a.value if isinstance(a, ast.Constant) else ".?" for a in node.args[:1]]
        found += [(node.lineno, names)] if names else []
    return found


def imports(source: str, modules: set[str], package: str = "pyentmax") -> Iterator[tuple[int, str]]:
    """Line and target of each import from inside the package, the target being one of `modules`.

    `from package import name` leads to the module of that name if there is one, otherwise to the
    package. Importing a module also runs the ``__init__`` of its packages; that is ignored.
    """
    for line, names in import_statements(source):
        for name in names:
            if name.startswith("."):
                yield line, name
            elif name == package or name.startswith(f"{package}."):
                while name and name not in modules and name != KERNELS:
                    name = name.rpartition(".")[0]
                yield line, name


def offences(source: str, path: Path, modules: set[str]) -> list[str]:
    """What the file at `path`, relative to the package, imports that it must not."""
    here = room_of(module_of(path))
    if here not in ROOMS:
        return [f"pyentmax/{path} is not in a room: move it into one, or add its room to ROOMS"]
    found = []
    for line, target in imports(source, modules):
        room = room_of(target)
        if target.startswith("."):
            why = "imports must be absolute and name what they import"
        elif target == KERNELS:
            why = "" if here == "backends" else "only backends/ may import the kernels"
        elif room == here or ROOMS.index(room) < ROOMS.index(here):
            why = ""
        else:
            why = f"{room} comes after {here}"
        if why:
            found.append(f"pyentmax/{path}:{line}: importing {target} is forbidden: {why}")
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A cycle of the graph, as the modules along it; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@functools.cache
def read(folder: str) -> dict[Path, str]:
    files = sorted((PACKAGE if folder == "pyentmax" else REPOSITORY / folder).rglob("*.py"))
    assert len(files) > 20, f"hardly any Python files under {folder}"
    root = PACKAGE.parent if folder == "pyentmax" else REPOSITORY
    return {file.relative_to(root): file.read_text(encoding="utf-8") for file in files}


def test_rooms_import_only_rooms_before_them() -> None:
    package = {path.relative_to("pyentmax"): source for path, source in read("pyentmax").items()}
    modules = {module_of(path) for path in package}
    found = [
        offence for path, source in package.items() for offence in offences(source, path, modules)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("folder", ["pyentmax", "experiments"])
def test_there_is_no_import_cycle(folder: str) -> None:
    sources = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): source
        for path, source in read(folder).items()
    }
    graph = {
        module: {name for _, name in imports(source, {*sources}, folder)}
        for module, source in sources.items()
    }
    assert not circle(graph), " is imported by ".join(circle(graph))


def test_package_does_not_import_experiments() -> None:
    importing = re.compile(r"^\s*(from|import) experiments\b", re.MULTILINE)
    assert [
        str(path) for path, source in read("pyentmax").items() if importing.search(source)
    ] == []


def test_contributing_lists_rooms_in_order() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("in this order: ")
    listed, _, _ = rest.partition(".")
    assert re.findall(r"`(\w+)`", listed) == [room for room in ROOMS if room != ROOT]


MODULES = {
    "pyentmax",
    "pyentmax.entropies",
    "pyentmax.losses",
    "pyentmax.losses.definition",
    "pyentmax.mappings",
    "pyentmax.mappings.softmax",
    "pyentmax.autograd.tensor",
    "pyentmax.data",
    "pyentmax.decoding.beam",
    "pyentmax.backends.choice",
}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("entropies.py", "from pyentmax.losses import definition"),
        ("entropies.py", "import numpy, pyentmax.losses"),
        ("entropies.py", "from .losses import definition"),
        ("entropies.py", "from . import losses"),
        ("entropies.py", "from pyentmax import losses"),
        ("entropies.py", "from pyentmax import entmax"),
        ("entropies.py", "import importlib\nimportlib.import_module('pyentmax.losses')"),
        ("entropies.py", "from importlib import import_module\nimport_module('pyentmax.losses')"),
        ("entropies.py", "import importlib\nimportlib.import_module(name)"),
        ("losses/definition.py", "from pyentmax.mappings.softmax import softmax"),
        ("mappings/__init__.py", "from pyentmax.autograd import tensor"),
        ("mappings/softmax.py", "def f():\n    import pyentmax.autograd.tensor"),
        ("mappings/softmax.py", "import pyentmax._cpu as _cpu"),
        ("mappings/softmax.py", "from pyentmax import _cpu"),
        ("decoding/beam.py", "from pyentmax.data import Vocabulary"),
        ("__init__.py", "from pyentmax.autograd.tensor import Tensor"),
        ("cellar.py", "import numpy"),
    ],
)
def test_forbidden_imports_are_found(path: str, source: str) -> None:
    found = offences("import math\n" + source, Path(path), MODULES)
    assert len(found) == 1
    assert path in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("backends/choice.py", "import pyentmax._cpu as _cpu"),
        ("backends/choice.py", "from pyentmax import _cpu"),
        ("backends/choice.py", "import importlib\nimportlib.import_module('cupy')"),
        ("mappings/softmax.py", "from pyentmax.losses.definition import fenchel_young"),
        ("mappings/__init__.py", "from pyentmax.mappings.softmax import softmax"),
        ("__init__.py", "from pyentmax.mappings import MAPPINGS"),
        ("autograd/mappings.py", "from pyentmax import entmax\nimport pyentmax"),
        ("cli.py", "from pyentmax.data import Vocabulary\nimport pyentmaximal"),
    ],
)
def test_allowed_imports_pass(path: str, source: str) -> None:
    assert offences(source, Path(path), MODULES) == []


def test_import_cycles_are_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}
    assert circle({"a": {"a"}}) == ["a", "a"]
    deferred = "def f():\n    from pyentmax.losses import definition"
    assert [name for _, name in imports(deferred, MODULES)] == ["pyentmax.losses.definition"]
