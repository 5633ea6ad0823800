"""The import graph: a wing imports only wings before it in WINGS, and there is no cycle.

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
WINGS = [
    "engine",
    "keep",
    "reference",
    "sorting",
    "structured",
    "regularized",
    "sparse_attention",
    "checking",
    ROOT,
    "jax",
    "sklearn",
    "torch",
    "seq2seq",
    "cli",
    "__main__",
]
ADAPTERS = ("jax", "sklearn", "torch")
# What adapters import below the public modules, of the wings whose insides are private.
OPEN_TO_ADAPTERS = (
    "pyentmax.reference.composed",
    "pyentmax.reference.linear_loss",
    "pyentmax.engine.backends.choice",
    "pyentmax.engine.calls.by_rows",
    "pyentmax.engine.system.config",
)
KERNELS = "pyentmax._cpu"  # compiled, and only backends/ knows it


def module_of(path: Path) -> str:
    """The dotted name of a file given by its path inside the package."""
    parts = path.with_suffix("").parts
    return ".".join(("pyentmax", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def wing_of(module: str) -> str:
    """The wing of a module."""
    return (*module.split(".")[1:], ROOT)[0]


def forbidden(here: str, target: str) -> str:
    """Why the wing `here` must not import the module `target`; empty if it may."""
    wing = wing_of(target)
    if wing == here:
        return ""
    if WINGS.index(wing) > WINGS.index(here):
        return f"{wing} comes after {here}"
    inside = target.count(".") > 1
    if here in ADAPTERS and wing in ("engine", "reference"):
        if not target.startswith(OPEN_TO_ADAPTERS):
            return f"adapters import public functions and {', '.join(OPEN_TO_ADAPTERS)}"
    if wing in ADAPTERS and inside:
        return f"only public functions of {wing} may be imported"
    return ""


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
    module = module_of(path)
    here = wing_of(module)
    if here not in WINGS:
        return [f"pyentmax/{path} is not in a wing: move it into one, or add its wing to WINGS"]
    found = []
    for line, target in imports(source, modules):
        if target == ".?" and module == ROOT:
            why = ""  # `pe.torch` imports the wing; `pyentmax` itself does not
        elif target.startswith("."):
            why = "imports must be absolute and name what they import"
        elif target == KERNELS:
            in_backends = module.startswith("pyentmax.engine.backends")
            why = "" if in_backends else "only engine/backends/ may import the kernels"
        else:
            why = forbidden(here, target)
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


def test_wings_import_only_wings_before_them() -> None:
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


def test_contributing_lists_wings_in_order() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("in this order: ")
    listed, _, _ = rest.partition(".")
    assert re.findall(r"`(\w+)`", listed) == [wing for wing in WINGS if wing != ROOT]


MODULES = {
    "pyentmax",
    "pyentmax.engine.backends.choice",
    "pyentmax.engine.calls.by_rows",
    "pyentmax.engine.calls.rows",
    "pyentmax.keep",
    "pyentmax.reference.composed.mappings",
    "pyentmax.reference.entropies",
    "pyentmax.reference.mappings",
    "pyentmax.reference.mappings.softmax",
    "pyentmax.sorting",
    "pyentmax.torch",
    "pyentmax.torch.operations",
    "pyentmax.seq2seq.autograd.tensor",
    "pyentmax.seq2seq.data",
    "pyentmax.seq2seq.decoding.beam",
}
ENTROPIES, RULES = "reference/entropies.py", "engine/calls/rows.py"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (RULES, "from pyentmax.reference import entropies"),
        (RULES, "import pyentmax.keep"),
        (ENTROPIES, "from .mappings import softmax"),
        (ENTROPIES, "from pyentmax import sorting"),
        (ENTROPIES, "from importlib import import_module\nimport_module('pyentmax.sorting')"),
        (ENTROPIES, "import importlib\nimportlib.import_module(name)"),
        (ENTROPIES, "from pyentmax import _cpu"),
        ("torch/mappings.py", "from pyentmax.reference.mappings.softmax import softmax"),
        ("torch/mappings.py", "from pyentmax.engine.calls.rows import Rows"),
        ("seq2seq/decoding/beam.py", "from pyentmax.torch.operations import run"),
        ("__init__.py", "from pyentmax.seq2seq.autograd.tensor import Tensor"),
    ],
)
def test_forbidden_imports_are_found(path: str, source: str) -> None:
    found = offences("import math\n" + source, Path(path), MODULES)
    assert len(found) == 1
    assert path in found[0]


def test_import_cycles_are_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}
    assert circle({"a": {"a"}}) == ["a", "a"]
    deferred = "def f():\n    from pyentmax.reference import entropies"
    assert [name for _, name in imports(deferred, MODULES)] == ["pyentmax.reference.entropies"]
