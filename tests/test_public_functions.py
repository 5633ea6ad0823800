"""A public function is its text: source, signature and help are what was written."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyentmax
from pyentmax import checking, keep, regularized, sorting, sparse_attention, structured
from pyentmax.reference.mappings import functions

MODULES = (pyentmax, keep, sorting, structured, regularized, checking, sparse_attention)
FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if inspect.isroutine(getattr(module, name))
}
DECLARED = {name: f for name, f in FUNCTIONS.items() if hasattr(f, "reference")}


def definition(function: Any) -> ast.FunctionDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    return node


def test_all_public_functions_are_looked_at() -> None:
    assert len(FUNCTIONS) > 120
    assert len(DECLARED) > 95


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


@pytest.mark.parametrize("name", DECLARED)
def test_text_is_one_call_beside_its_mathematics(name: str) -> None:
    function = DECLARED[name]
    _, call = definition(function).body
    assert isinstance(call, ast.Return)
    assert isinstance(call.value, ast.Call)
    assert ast.unparse(call.value.func).endswith(".dispatch")
    assert inspect.getsource(function.body).startswith("def ")


@pytest.mark.parametrize("name", DECLARED)
def test_functions_and_references_can_be_pickled(name: str) -> None:
    function = DECLARED[name]
    for each in (function, function.reference):
        assert pickle.loads(pickle.dumps(each)) is each
    parameters = inspect.signature(function).parameters.keys()
    assert inspect.signature(function.reference).parameters.keys() == parameters - {"workers"}


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: pyentmax.entmax([1.0], -1), "alpha must be above 0"),
        (lambda: pyentmax.entmax.reference([1.0], -1), "alpha must be above 0"),
        (lambda: pyentmax.softmax_jvp(np.ones(2), np.ones(3)), "shape"),
        (lambda: pyentmax.softmax_loss([1.0, 2.0], 5), "label"),
        (lambda: keep.epsilon([1.0], 2), "epsilon must be"),
        (lambda: pyentmax.budget_sparsemax([1.0, 2.0], -1), "budget must be"),
    ],
)
def test_tracebacks_show_source_in_every_frame(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        call()
    assert all(frame.line for frame in traceback.extract_tb(caught.value.__traceback__))


def test_names_of_all_files_are_listed() -> None:
    text = Path(str(functions.__file__)).read_text("utf-8")
    files = re.findall(r"^from (\S+) import \*", text, re.M)
    listed = [name for file in files for name in sys.modules[file].__all__ if name[0].islower()]
    assert len(files) > 10
    assert sorted(functions.__all__) == sorted(listed)


@pytest.mark.parametrize("name", pyentmax._REMOVED)
def test_removed_names_name_their_replacement(name: str) -> None:
    instead = re.match(r"\w+", pyentmax._REMOVED[name])[0]
    assert hasattr(pyentmax, instead)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}', use {instead}"):
        getattr(pyentmax, name)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}x'$"):
        getattr(pyentmax, f"{name}x")
