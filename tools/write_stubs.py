"""Write the stub of the array functions: what type checkers and editors read of their signatures.

    python tools/write_stubs.py

``pyentmax/reference/mappings/functions.pyi`` declares them with the types that callers pass and
get; in the sources their bodies see rows of any array library. A test compares it with what this
would write.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import pyentmax
from pyentmax.reference.mappings import functions

STUB = Path(str(pyentmax.__file__)).parent / "mappings" / "functions.pyi"
WIDTH = 100
EMPTY = inspect.Parameter.empty

# What parameters are by their names; all others are arrays, or numbers in their place.
TYPES = {
    "axis": "Axis",
    "class_weight": "ArrayLike | None",
    "ignore_index": "int | None",
    "label_smoothing": "float",
    "mask": "ArrayLike | None",
    "offsets": "ArrayLike | None",
    "out": "Array | None",
    "reduction": "Reduction",
    "weight": "ArrayLike | None",
    "workers": "int | None",
}
# What array functions return, by the ends of their names; others return an array.
RESULTS = {
    "_loss": "Any",  # a number, or an array for the reduction "none"
    "_loss_and_grad": "tuple[Any, Array]",
    "_vjps": "tuple[Array, Array]",
}
HEADER = '''\
"""The array functions of all mappings, as callers see them.

Made by tools/write_stubs.py (`make stubs`): do not edit."""

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from pyentmax.engine.backends.declare import Declare

Array = NDArray[Any]
Axis = int | tuple[int, ...] | None
Reduction = Literal["mean", "sum", "none"]
_declared: Declare

'''


def stub() -> str:
    """The text of the stub."""
    names = "".join(f'    "{name}",\n' for name in functions.__all__)
    parts = [HEADER, f"__all__ = [\n{names}]\n\n"]
    for name in functions.__all__:
        function = getattr(functions, name)
        ends = [end for end in RESULTS if name.endswith(end)]
        result = RESULTS[ends[0]] if ends else "Array"
        decorator = "@_declared\n" if hasattr(function, "reference") else ""
        parts.append(decorator + definition(name, function, result))
    return "".join(parts)


def definition(name: str, function: Any, result: str) -> str:
    """A function's signature, with the types of its parameters by their names."""
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        annotation = TYPES.get(parameter.name, "ArrayLike")
        default = "" if parameter.default is EMPTY else f" = {parameter.default!r}"
        shown.append(f"{parameter.name}: {annotation}{default}".replace("'", '"'))
    end = f" -> {result}: ...\n"
    line = f"def {name}({', '.join(shown)}){end}"
    if len(line) <= WIDTH + 1:
        return line
    whole = [parameter.replace(" ", "\xa0") for parameter in shown]  # no line ends inside of one
    lines = textwrap.wrap(", ".join(whole) + ",", WIDTH - 4)
    text = "".join(f"    {line}\n" for line in lines).replace("\xa0", " ")
    return f"def {name}(\n{text}){end}"


if __name__ == "__main__":
    STUB.write_text(stub(), "utf-8")
    print(f"wrote {STUB}")
