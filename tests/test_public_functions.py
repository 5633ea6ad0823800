"""A public function is its text: source, signature and help are what was written."""

from __future__ import annotations

import ast
import copy
import inspect
import operator
import pickle
import pydoc
import re
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax import checking, keep, regularized, sorting, sparse_attention, structured
from pyentmax.engine.backends.function import Function
from pyentmax.reference import mappings
from pyentmax.reference.mapping import Mapping

MODULES = (pyentmax, keep, sorting, structured, regularized, checking, sparse_attention)
FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if inspect.isroutine(getattr(module, name))
}
OBJECTS = {name: f for name, f in vars(pyentmax).items() if isinstance(f, Mapping)}
ATTRIBUTES = {
    f"{name}.{key}": f
    for name, mapping in OBJECTS.items()
    for key, f in vars(mapping).items()
    if isinstance(f, Function) and f.is_defined and key[0] != "_"
}


def definition(function: Any) -> ast.FunctionDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    return node


def test_all_public_functions_are_looked_at() -> None:
    assert len(FUNCTIONS) > 40
    assert len(OBJECTS) == 12
    assert len(ATTRIBUTES) > 80


@pytest.mark.parametrize("name", OBJECTS)
def test_text_of_a_mapping_is_its_source_signature_and_help(name: str) -> None:
    mapping = OBJECTS[name]
    node = definition(mapping)
    assert node.name == name
    assert ast.get_docstring(node) == inspect.getdoc(mapping)
    arguments = [x.arg for x in [*node.args.args, *node.args.kwonlyargs]]
    assert arguments == list(inspect.signature(mapping).parameters)
    assert isinstance(node.body[-1], ast.Return)
    assert name in pydoc.plain(pydoc.render_doc(mapping)).splitlines()[0]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_source_of_an_attribute_is_its_mathematics(name: str) -> None:
    function = ATTRIBUTES[name]
    source = inspect.getsource(function)
    if ".loss" in name:
        assert source.startswith("def fenchel_young")
    else:
        assert source.startswith(f"@{function.__qualname__}.rule")
    shared = [x for x in inspect.signature(OBJECTS[name.partition(".")[0]]).parameters if x != "z"]
    names = [x for x in inspect.signature(function).parameters if x not in function.arrays]
    assert [x for x in names if x in shared] == [x for x in shared if x in names]


@pytest.mark.parametrize("name", [*OBJECTS, *ATTRIBUTES])
def test_objects_are_themselves_when_pickled_and_copied(name: str) -> None:
    function = (OBJECTS | ATTRIBUTES)[name]
    for one in (function, function.reference):
        assert pickle.loads(pickle.dumps(one)) is one
        assert copy.deepcopy(one) is one
        assert {one: 1}[one]


def test_an_attribute_without_a_rule_says_so() -> None:
    assert "loss" not in dir(pyentmax.topk_softmax)
    assert "loss" in dir(pyentmax.sparsemax)
    with pytest.raises(ValueError, match="topk_softmax.loss is not defined"):
        pyentmax.topk_softmax.loss([1.0, 2.0], 0, 1)
    with pytest.raises(ValueError, match="csoftmax.log is not defined"):
        pyentmax.csoftmax.log([1.0, 2.0], [1.0, 1.0])
    with pytest.raises(TypeError, match=r"csparsemax.parameter_vjp.at_scores\(z, p, g, …\)"):
        pyentmax.csparsemax.parameter_vjp([1.0, 0.0], [1.0, 2.0], [1.0, 1.0])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_source_shows_every_argument_and_the_docstring(name: str) -> None:
    function = FUNCTIONS[name]
    node = definition(function)
    assert node.name == function.__name__
    arguments = node.args
    written = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    written += [x for x in (arguments.vararg, arguments.kwarg) if x is not None]
    assert [x.arg for x in written] == list(inspect.signature(function).parameters)
    assert ast.get_docstring(node) == inspect.getdoc(function)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: pyentmax.entmax([1.0], -1), "alpha must be above 0"),
        (lambda: pyentmax.entmax.reference([1.0], -1), "alpha must be above 0"),
        (lambda: pyentmax.softmax.jvp(np.ones(2), np.ones(3)), "shape"),
        (lambda: pyentmax.softmax.loss([1.0, 2.0], 5), "label"),
        (lambda: keep.epsilon([1.0], 2), "epsilon must be"),
        (lambda: pyentmax.budget_sparsemax([1.0, 2.0], -1), "budget must be"),
    ],
)
def test_tracebacks_show_source_in_every_frame(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        call()
    assert all(frame.line for frame in traceback.extract_tb(caught.value.__traceback__))


def test_every_file_of_a_mapping_is_listed() -> None:
    files = Path(str(mappings.__file__)).parent.glob("[a-z]*.py")
    assert sorted(path.stem for path in files) == sorted(pyentmax.MAPPINGS) == sorted(OBJECTS)


ADAPTERS = {"jax", "sklearn", "torch"}
ROOMS = {"regularized", "seq2seq", "sorting", "structured"} | ADAPTERS
"""Modules that are imported when `pyentmax` is asked for them."""


def test_dir_shows_public_names_alone() -> None:
    shown = {name for name in dir(pyentmax) if not name.startswith("__")}
    written = ast.parse(Path(str(pyentmax.__file__)).read_text("utf-8"))
    (listed,) = (
        ast.literal_eval(node.value)
        for node in written.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    rooms = ROOMS | {"checking", "keep", "reference", "sparse_attention"}
    assert shown == {*listed, *OBJECTS, *rooms}
    assert {"__version__", "__doc__"} <= set(dir(pyentmax))


def test_rooms_are_imported_on_first_use() -> None:
    code = f"""
import sys
import pyentmax
for name in {sorted(ADAPTERS)}:
    sys.modules[name] = None  # as if the library were not installed
for name in {sorted(ROOMS)}:
    assert f"pyentmax.{{name}}" not in sys.modules, name
    try:
        assert getattr(pyentmax, name) is sys.modules[f"pyentmax.{{name}}"]
    except AttributeError as error:
        assert name in {sorted(ADAPTERS)} and f"pip install 'pyentmax[{{name}}]'" in str(error)
    else:
        assert name not in {sorted(ADAPTERS)}
print(pyentmax.sorting.soft_rank([1.0, 3.0, 2.0], 0.1))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1. 3. 2.]\n"


@pytest.mark.parametrize("name", pyentmax._REMOVED)
def test_removed_names_name_their_replacement(name: str) -> None:
    instead = re.match(r"[\w.]*\w", pyentmax._REMOVED[name])[0]
    assert operator.attrgetter(instead)(pyentmax)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}', use {instead}"):
        getattr(pyentmax, name)


@pytest.mark.parametrize("name", ["entmax15_vjp", "log_entmax15", "entmax15_loss_and_grad"])
def test_flat_names_name_the_object(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}': .* are attributes, as entmax15.vjp$"):
        getattr(pyentmax, name)


def test_every_public_function_has_an_example() -> None:
    for name in pyentmax.__all__:
        value = getattr(pyentmax, name)
        if callable(value) and "." not in getattr(value, "__qualname__", ""):
            assert ">>>" in value.__doc__ or isinstance(value, type), f"{name} has no example"
