"""The rooms of the library: a room imports only rooms before it in ROOMS, and no file a circle.

The order is the reading order. It keeps the mathematics free of the machinery built on top. Imports
inside functions count, and so does `importlib`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyentmax

PACKAGE = Path(str(pyentmax.__file__)).parent

ROOT = "pyentmax"  # __init__.py: the namespace of array functions
ROOMS = [
    "calls",
    "backends",
    "system",
    "entropies",
    "log_probabilities",
    "thresholds",
    "sparse_output",
    "losses",
    "mappings",
    "fenchel_young",
    "sparse_attention",
    "checking",
    ROOT,
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


def imports(source: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and target of each import from inside the package, the target being one of `modules`.

    `from package import name` leads to the module of that name if there is one, to the package
    itself otherwise. That importing a module runs its packages' ``__init__`` first is left aside.
    """
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
        for name in names:
            if name.startswith("."):
                yield node.lineno, name
            elif name == "pyentmax" or name.startswith("pyentmax."):
                while name not in modules and name != KERNELS:
                    name = name.rpartition(".")[0]
                yield node.lineno, name


def offences(source: str, path: Path, modules: set[str]) -> list[str]:
    """What the file at `path`, relative to the package, imports that it must not."""
    here = room_of(module_of(path))
    if here not in ROOMS:
        return [f"pyentmax/{path} belongs to no room: give it one, or a place in ROOMS above"]
    found = []
    for line, target in imports(source, modules):
        room = room_of(target)
        if target.startswith("."):
            why = "imports are absolute, and name what they import"
        elif target == KERNELS:
            why = "" if here == "backends" else "only backends/ knows the kernels"
        elif room == here or ROOMS.index(room) < ROOMS.index(here):
            why = ""
        else:
            why = f"{room} comes after {here}"
        if why:
            found.append(f"pyentmax/{path}:{line}: importing {target} is forbidden: {why}")
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A way through the graph that comes back to where it began; empty if there is none."""
    done: set[str] = set()

    def follow(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for target in sorted(graph.get(module, ())):
            found = follow(target, [*way, module])
            if found:
                return found
        done.add(module)
        return []

    for module in sorted(graph):
        found = follow(module, [])
        if found:
            return found
    return []


def read_package() -> dict[Path, str]:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100, f"hardly any Python files under {PACKAGE}"
    return {file.relative_to(PACKAGE): file.read_text(encoding="utf-8") for file in files}


def test_a_room_imports_only_rooms_before_it() -> None:
    package = read_package()
    modules = {module_of(path) for path in package}
    found = [
        offence for path, source in package.items() for offence in offences(source, path, modules)
    ]
    assert not found, "\n" + "\n".join(found)


def rooms_in(page: str) -> list[str]:
    """The rooms that a page lists, in its order."""
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    if page == "README.md":
        _, _, text = text.partition("\npyentmax/ ")
        text, _, _ = text.partition("\ncython_ext/")
        return [name.removesuffix(".py") for name in re.findall(r"^  (\w+(?:\.py)?)", text, re.M)]
    _, _, text = text.partition("| room |")
    table, _, _ = text.partition("\n\n")
    return re.findall(r"^\| `(\w+)` \|", table, re.M)


def test_the_pages_list_the_rooms() -> None:
    assert rooms_in("CONTRIBUTING.md") == ROOMS
    assert rooms_in("README.md") == [room for room in ROOMS if room not in (ROOT, "__main__")]


def test_no_file_imports_itself_by_way_of_others() -> None:
    package = read_package()
    modules = {module_of(path) for path in package}
    graph = {
        module_of(path): {target for _, target in imports(source, modules)}
        for path, source in package.items()
    }
    found = circle(graph)
    assert not found, " imports ".join(found)


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
def test_rightful_imports_are_left_alone(path: str, source: str) -> None:
    assert offences(source, Path(path), MODULES) == []


def test_circles_are_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"a"}}) == ["a", "a"]
    deferred = "def f():\n    from pyentmax.losses import definition"
    graph = {
        "pyentmax.mappings": {target for _, target in imports(deferred, MODULES)},
        "pyentmax.losses.definition": {"pyentmax.mappings"},
    }
    assert circle(graph) == ["pyentmax.losses.definition", "pyentmax.mappings"] + [
        "pyentmax.losses.definition"
    ]
