"""Write the stubs: what type checkers and editors read where names are made from `MAPPINGS`.

    python tools/write_stubs.py

``pyentmax/mappings/functions.pyi`` declares the array functions with the types that callers pass
and get; in the sources their bodies see rows of any array library. ``pyentmax/torch/__init__.pyi``
declares what `pyentmax.torch` makes from them, and is left alone where PyTorch is not installed.
A test compares both with what this would write.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyentmax

PACKAGE = Path(str(pyentmax.__file__)).parent
WIDTH = 100
EMPTY = inspect.Parameter.empty

# What parameters are by their names; all others are arrays, or numbers in their place.
COMMON = {
    "ignore_index": "int | None",
    "label_smoothing": "float",
    "reduction": "Reduction",
    "workers": "int | None",
}
ARRAYS = COMMON | {
    "axis": "Axis",
    "class_weight": "ArrayLike | None",
    "mask": "ArrayLike | None",
    "out": "Array | None",
    "weight": "ArrayLike | None",
}
TENSORS = COMMON | {
    "class_weight": "Tensor | None",
    "dim": "int",
    "dtype": "Dtype | None",
    "mask": "Tensor | None",
    "out": "Tensor | None",
    "weight": "Tensor | None",
    **dict.fromkeys("pvyz", "Tensor"),
}
# What array functions return, by the ends of their names; others return an array.
RESULTS = {
    "_loss": "Any",  # a number, or an array for the reduction "none"
    "_loss_and_grad": "tuple[Any, Array]",
    "_vjps": "tuple[Array, Array]",
}
HEADER = '"""{}\n\nMade by tools/write_stubs.py (`make stubs`): do not edit."""\n\n'

ARRAY_FUNCTIONS = """\
from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from pyentmax.backends.declare import Declare

Array = NDArray[Any]
Axis = int | tuple[int, ...] | None
Reduction = Literal["mean", "sum", "none"]
_declared: Declare
"""
IMPORTS = (
    "from pyentmax.torch import transformers as transformers",
    "from pyentmax.torch.modules import LossModule, MappingModule",
)
TORCH = """\
from typing import Literal

from torch import Tensor
from torch import dtype as Dtype

{imports}

Reduction = Literal["mean", "sum", "none"]
"""


def array_functions() -> str:
    """The stub of `pyentmax.mappings.functions`."""
    from pyentmax.mappings import functions

    parts = [
        HEADER.format("The array functions of all mappings, as callers see them."),
        ARRAY_FUNCTIONS,
        listed(functions.__all__),
    ]
    for name in functions.__all__:
        function = getattr(functions, name)
        ends = [end for end in RESULTS if name.endswith(end)]
        result = RESULTS[ends[0]] if ends else "Array"
        decorator = "@_declared\n" if hasattr(function, "reference") else ""
        parts.append(decorator + definition(name, function, ARRAYS, "ArrayLike", result))
    return "".join(parts)


def torch_functions() -> str:
    """The stub of `pyentmax.torch`."""
    from pyentmax import torch

    imported = {
        alias.name: f"from {node.module} import {alias.name} as {alias.name}"
        for node in ast.parse(inspect.getsource(torch)).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in torch.__all__ and alias.asname is None
    }
    parts = [
        HEADER.format((torch.__doc__ or "").partition("\n")[0]),
        TORCH.format(imports="\n".join(sorted([*IMPORTS, *imported.values()]))),
        listed(torch.__all__),
    ]
    for name in torch.__all__:
        if name in imported:
            continue
        value = getattr(torch, name)
        if isinstance(value, type):
            parts.append("".join(module_class(name, value)))
        else:
            text = textwrap.indent(f'"""{first_paragraph(value)}"""\n', "    ")
            parts.append(definition(name, value, TENSORS, "float | Tensor", "Tensor", text))
    return "".join(parts)


def module_class(name: str, value: Any) -> Iterator[str]:
    """The definition of a module: its attributes and its constructor."""
    settings = inspect.signature(value).parameters
    yield f'class {name}({value.__mro__[1].__name__}):\n    """{first_paragraph(value)}"""\n\n'
    for setting in settings:
        yield f"    {setting}: {TENSORS.get(setting, 'float | Tensor')}\n"
    constructor = definition("__init__", value, TENSORS, "float | Tensor", "None", first="self, ")
    yield textwrap.indent(constructor, "    ")


def definition(
    name: str,
    function: Any,
    types: dict[str, str],
    others: str,
    result: str,
    body: str = "",
    first: str = "",
) -> str:
    """A function's signature, with the types of its parameters by their names."""
    shown = []
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        annotation = types.get(parameter.name, others)
        default = "" if parameter.default is EMPTY else f" = {parameter.default!r}"
        shown.append(f"{parameter.name}: {annotation}{default}".replace("'", '"'))
    end = f" -> {result}:" + ("\n" + body if body else " ...\n")
    line = f"def {name}({first}{', '.join(shown)}){end}"
    if len(line.partition("\n")[0]) <= WIDTH:
        return line
    whole = [parameter.replace(" ", "\xa0") for parameter in shown]  # no line ends inside of one
    lines = textwrap.wrap(first + ", ".join(whole) + ",", WIDTH - 4)
    text = "".join(f"    {line}\n" for line in lines).replace("\xa0", " ")
    return f"def {name}(\n{text}){end}"


def first_paragraph(value: Any) -> str:
    """What a docstring says first."""
    return (inspect.getdoc(value) or "").partition("\n\n")[0]


def listed(names: list[str]) -> str:
    """The assignment of these names to ``__all__``."""
    return "\n__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n\n"


def stubs() -> dict[Path, str]:
    """The text of each stub that can be made here."""
    found = {PACKAGE / "mappings" / "functions.pyi": array_functions()}
    if find_spec("torch") is not None:
        found[PACKAGE / "torch" / "__init__.pyi"] = torch_functions()
    return found


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, "utf-8")
        print(f"wrote {path}")
