"""The API reference: a directive for its pages, and a build that fails where a name is missing.

``.. reference:: MODULE`` documents the names in its body, or all public names of the module where
it has no body: first a table of them, then each from its docstring. ``.. mapping:: NAME`` does so
for a mapping and its attributes. ``.. textbooks::`` shows the textbook version of every mapping,
and ``.. commands::`` the help texts. Elsewhere, code such as ``entmax15`` or
``pyentmax.seq2seq.data.Vocabulary`` in a text becomes a link to its place there.
"""

from __future__ import annotations

import argparse
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import GenericAlias, ModuleType
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import pyentmax
from pyentmax import cli
from pyentmax.engine.backends.function import Function

COMMANDS = "pyentmax.cli"  # has a page of its own, with its help texts
ADAPTERS = ("jax", "sklearn", "torch")  # rooms named after the library that they need
NO_SOURCE = ("pyentmax.__main__", "pyentmax._cpu")  # runs when imported; is compiled

logger = logging.getLogger(__name__)


# --- what is public -------------------------------------------------------------------------------


def inner_modules(package: ModuleType) -> Iterator[ModuleType]:
    """The modules directly inside a package; none inside a module."""
    path = getattr(package, "__path__", ())
    for _, name, _ in pkgutil.iter_modules(path, f"{package.__name__}."):
        if name not in NO_SOURCE and not missing_library(name):
            yield import_module(name)


def missing_library(full_name: str) -> str | None:
    """The library that an adapter, or a module in one, needs and that is not installed here."""
    room = full_name.partition(".")[2].partition(".")[0]
    return room if room in ADAPTERS and find_spec(room) is None else None


def public_modules(package: ModuleType) -> Iterator[ModuleType]:
    """The rooms of the package; of one that exports nothing itself, its modules too."""
    for module in inner_modules(package):
        if module.__name__ == COMMANDS or module.__name__.rpartition(".")[2].startswith("_"):
            continue
        yield module
        if not hasattr(module, "__all__"):
            yield from public_modules(module)


def public_names(module: ModuleType) -> list[str]:
    """A module's ``__all__``, or the functions, classes and explained constants defined in it."""
    members = vars(module)
    if "__all__" in members:
        return [name for name in module.__all__ if not inspect.ismodule(members[name])]
    comments = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
    explained = {name for scope, name in comments if not scope}
    return [
        name
        for name, value in members.items()
        if not name.startswith("_")
        and (
            name in explained
            or (callable(value) and getattr(value, "__module__", None) == module.__name__)
        )
    ]


def own_names(module: ModuleType) -> list[str]:
    """Its public names, less the classes of another room, which have their entry there."""
    homes = {name: getattr(vars(module)[name], "__module__", "") for name in public_names(module)}
    return [
        name
        for name, home in homes.items()
        if not is_class(vars(module)[name]) or f"{home}.".startswith(f"{module.__name__}.")
    ]


def missing_names(documented: set[str]) -> list[str]:
    """The public names that none of the documented ones, given in full, stands for.

    A name counts where another module's of the same name is the same object: entropies belong to
    `pyentmax` and to `pyentmax.reference.entropies`, and are documented once.
    """
    objects: dict[str, list[Any]] = {}
    for full_name in documented:
        if exists(full_name):  # else a page is outdated, and Sphinx says so
            name = full_name.rpartition(".")[2]
            objects.setdefault(name, []).append(named(full_name))
    return [
        f"{module.__name__}.{name}"
        for module in (pyentmax, *public_modules(pyentmax))
        for name in public_names(module)
        if not any(getattr(module, name) is known for known in objects.get(name, ()))
    ]


def check_completeness(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn, which `make docs` takes for an error, of every public name without an entry."""
    for name in missing_names(set(env.domains["py"].objects)):
        logger.warning("%s is public and on no page of docs/api", name)


# --- the pages ------------------------------------------------------------------------------------


def entry(module: ModuleType, name: str) -> list[str]:
    """The reStructuredText that documents one name."""
    full_name, value = f"{module.__name__}.{name}", getattr(module, name)
    if is_class(value):
        return [f".. autoclass:: {full_name}", "   :members:"]
    if not is_function(value):
        shown = [f"   :value: {value!r}"] if isinstance(value, (str, int, float, tuple)) else []
        explained = [f"   {line}" for line in explanation(module, name)]
        return [f".. py:data:: {name}", *shown, "", *explained]
    if inspect.unwrap(value).__name__ != name:
        return [f".. py:function:: {name}{signature(value)}", "", f"   {summary(module, name)}"]
    return [f".. autofunction:: {full_name}"]


def signature(function: Any) -> inspect.Signature:
    """What a function takes, without types."""
    whole = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in whole.parameters.values()]
    return whole.replace(parameters=bare, return_annotation=whole.empty)


def is_class(value: Any) -> bool:
    """Whether it is a class; before Python 3.11, dict[str, int] passed for one."""
    return inspect.isclass(value) and not isinstance(value, GenericAlias)


def is_function(value: Any) -> bool:
    """Whether it is a function, or a mapping or an attribute of one."""
    return inspect.isroutine(value) or isinstance(value, Function)


def summary(module: ModuleType, name: str) -> str:
    """What a name is, in a line."""
    value = getattr(module, name)
    if inspect.isroutine(value) and (original := inspect.unwrap(value).__name__) != name:
        return f"The same function as `{module.__name__}.{original}`."
    if is_class(value) or is_function(value):
        return first_paragraph(value)
    first, *_ = explanation(module, name) or [""]
    return escaped(first)


def first_paragraph(value: Any) -> str:
    """The beginning of a docstring, in a line."""
    first, *_ = (inspect.getdoc(value) or "").split("\n\n")
    return escaped(first.replace("\n", " "))


def explanation(module: ModuleType, name: str) -> list[str]:
    """The string below a constant's assignment, in the module or one inside of it."""
    for place in (module, *inner_modules(module)):
        comments = ModuleAnalyzer.for_module(place.__name__).find_attr_docs()
        if ("", name) in comments:
            return comments["", name]
    return []


class Reference(SphinxDirective):
    """``.. reference:: MODULE`` with names, one a line, or with nothing for all of the module's.

    Of a package that exports nothing itself, all modules follow, each under a heading.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The nodes of table and entries."""
        if room := missing_library(self.arguments[0]):
            missing = (
                f"This site was built without {room}, and shows nothing of ``pyentmax.{room}``."
            )
            return self.parse_text_to_nodes(missing)
        module = import_module(self.arguments[0])
        chosen = [line.strip() for line in self.content if line.strip()]
        lines = [] if chosen else self.introduced(module)
        lines += self.entries(module, chosen or own_names(module))
        if not chosen and not hasattr(module, "__all__"):
            for inner in public_modules(module):
                lines += [inner.__name__, "~" * len(inner.__name__), "", *self.introduced(inner)]
                lines += self.entries(inner, public_names(inner))
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)

    def introduced(self, module: ModuleType) -> list[str]:
        """The module's own docstring."""
        lines = [f".. automodule:: {module.__name__}", "   :no-members:"]
        room, _, name = module.__name__.rpartition(".")
        if getattr(import_module(room), name, module) is not module:
            lines.append("   :no-index:")  # the entry of that name is the function's
        return [*lines, ""]

    def entries(self, module: ModuleType, names: list[str]) -> list[str]:
        """A table of the names and an entry for each."""
        lines = [f".. py:currentmodule:: {module.__name__}", ""]
        lines += [".. list-table::", "   :class: names", ""] if names else []
        for name in names:
            lines += [f"   * - :py:obj:`{name}`", f"     - {summary(module, name)}"]
        for name in names:
            lines += ["", *entry(module, name)]
        return [*lines, ""]


class MappingPage(SphinxDirective):
    """``.. mapping:: NAME``: a mapping of `pyentmax`, and the attributes that it has."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The nodes of table and entries."""
        (name,) = self.arguments
        mapping = getattr(pyentmax, name)
        attributes = {
            f"{name}.{key}": value
            for key, value in vars(mapping).items()
            if isinstance(value, Function) and value.is_defined and key[0] != "_"
        }
        lines = [".. py:currentmodule:: pyentmax", "", ".. list-table::", "   :class: names", ""]
        for full_name, value in {name: mapping, **attributes}.items():
            lines += [f"   * - :py:obj:`{full_name}`", f"     - {self.summary(full_name, value)}"]
        lines += ["", f".. autofunction:: pyentmax.{name}"]
        for full_name, value in attributes.items():
            lines += ["", f".. autofunction:: pyentmax::{full_name}"]
            if value.__qualname__ != full_name:
                lines[-1] = f".. py:function:: {full_name}{signature(value)}"
                lines += ["", f"   {self.summary(full_name, value)}"]
            if getattr(value, "with_scores", False):
                at_scores = signature(value.at_scores)
                lines += ["", f".. py:function:: {full_name}.at_scores{at_scores}", ""]
                lines += [f"   {first_paragraph(value.at_scores)}"]
        return self.parse_text_to_nodes("\n".join([*lines, ""]))

    def summary(self, full_name: str, value: Any) -> str:
        """An attribute in a line, or what it is another name of."""
        if value.__qualname__ != full_name:
            return f"The same function as `pyentmax.{value.__qualname__}`: J is symmetric."
        return first_paragraph(value)


class Textbooks(SphinxDirective):
    """``.. textbooks::``: each mapping's problem, and its textbook functions as they are written.

    A new mapping appears by itself. ``.. textbooks:: MODULE`` shows the functions of that one.
    """

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The nodes of headings, problems and sources."""
        lines = []
        if self.arguments:
            lines = self.functions(import_module(self.arguments[0]))
        for record in () if self.arguments else pyentmax.MAPPINGS.values():
            module = import_module(record.textbook.__module__)
            lines += [record.name, "-" * len(record.name), ""]
            lines += [f".. automodule:: {module.__name__}", "   :no-members:", ""]
            lines += self.functions(module)
            lines += [f"The rest of it: ``{module.__name__.replace('.', '/')}.py``.", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)

    def functions(self, module: ModuleType) -> list[str]:
        """The module's textbook functions by their source, whose docstrings explain them."""
        lines = [f".. py:currentmodule:: {module.__name__}", ""]
        for name, function in vars(module).items():
            if name.startswith("textbook"):
                source = inspect.getsource(function).splitlines()
                lines += [f".. py:function:: {name}{signature(function)}", ""]
                lines += ["   .. code-block:: python", ""]
                lines += [*(f"      {line}" for line in source), ""]
        return lines


class Commands(SphinxDirective):
    """``.. commands::``: the help text of every command, each under a heading."""

    def run(self) -> list[nodes.Node]:
        """The nodes of headings and texts."""
        os.environ.update(COLUMNS="80", NO_COLOR="1")
        lines = []
        for parser in leaves(cli.build_parser()):
            lines += [f"``{parser.prog}``", "-" * 80, "", ".. code-block:: text", ""]
            lines += [f"   {line}" for line in parser.format_help().splitlines()] + [""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the commands that have no commands of their own."""
    inner = [a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for choices in inner:
        for command in choices.values():
            yield from leaves(command)
    if not inner:
        yield parser


BACKTICKED = re.compile(r"(`+.*?`+)")


def escaped(text: str) -> str:
    """The text with its bars protected: |x| is mathematics here, not markup."""
    pieces = BACKTICKED.split(text)
    return "".join(p if p.startswith("`") else p.replace("|", r"\|") for p in pieces)


def keep_mathematics(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep a docstring's formulas as they stand in the source.

    Before the first section, indented formulas become blocks that keep their lines and columns;
    reStructuredText would fill them like a quotation.
    """
    kept: list[str] = []
    section = ""
    in_block = False
    for line, below in zip(lines, [*lines, ""][1:], strict=True):
        if line and set(below) == {"-"}:
            section = line
        indented = line.startswith("    ") and not section
        if indented and not in_block and kept and not kept[-1]:
            before = next((k for k in reversed(kept) if k), "")
            if not before.startswith("..") and not before.endswith("::"):
                kept += [".. code-block:: text", ""]
        in_block = indented or (in_block and not line)
        verbatim = in_block or section == "Examples" or line.startswith(">>>")
        kept.append(line if verbatim else escaped(line))
    lines[:] = kept


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool:
    """Whether to leave a member out: fields of named tuples only say their number.

    scikit-learn gives its estimators methods ``set_fit_request`` and the like, which it documents.
    """
    made = re.fullmatch(r"(set_\w+_request|get_metadata_routing)", name)
    return bool(
        skip or made or inspect.ismemberdescriptor(obj) or type(obj).__name__ == "_tuplegetter"
    )


def use_dashes(app: Sphinx, doctree: nodes.document) -> None:
    """Sphinx joins a parameter and its description by two hyphens."""
    for text in list(doctree.findall(nodes.Text)):
        if text.startswith(" -- ") and any(isinstance(a, nodes.field) for a in ancestors(text)):
            text.parent.replace(text, nodes.Text(text.replace(" -- ", " – ", 1)))


def leave_formulas_whole(app: Sphinx, doctree: nodes.document) -> None:
    """Give MathJax a displayed formula as it is written, as Jupyter does.

    Sphinx would put one of several lines into a ``split``, in which no ``\\tag`` may stand.
    """
    for formula in doctree.findall(nodes.math_block):
        formula["classes"].append("amsmath")


# --- links ----------------------------------------------------------------------------------------

FULL_NAME = re.compile(r"pyentmax(\.\w+)+")


class StateLinks(SphinxPostTransform):
    """Links to a state of a page, as in ``play.md#view=four``, which is not a heading of it."""

    default_priority = 8  # before MyST, which looks for a heading

    def run(self, **_: Any) -> None:
        """Resolve those of the document."""
        for node in list(self.document.findall(addnodes.pending_xref)):
            fragment = node.get("reftargetid") or ""
            if node["refdomain"] == "doc" and "=" in fragment:
                pages = (self.env.docname, node["reftarget"])
                node.replace_self(make_refnode(self.app.builder, *pages, fragment, node[0]))


def name_role(
    role: str, raw: str, text: str, line: int, inliner: Any, *_: Any
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """`x` in a docstring: code that `link_code` may link, from within the docstring's module."""
    context = inliner.document.settings.env.ref_context
    return [nodes.literal(raw, text, module=context.get("py:module", ""))], []


def link_code(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make a link of each piece of code that names something documented."""
    objects = app.env.domains["py"].objects
    by_last_part: dict[str, list[str]] = {}
    for full_name in objects:
        by_last_part.setdefault(full_name.rpartition(".")[2], []).append(full_name)
    for node in list(doctree.findall(nodes.literal)):
        name = re.sub(r"^pe\.", "pyentmax.", node.astext().removesuffix("()"))
        meant = meanings(name, node.get("module"), by_last_part.get(name, []))
        target = next((objects[full_name] for full_name in meant if full_name in objects), None)
        inside = (nodes.reference, nodes.title, addnodes.desc_signature)
        if any(isinstance(ancestor, inside) for ancestor in ancestors(node)):
            continue
        if target is not None:
            link = make_refnode(app.builder, docname, target.docname, target.node_id, [])
            node.replace_self(link)
            link += node
        elif FULL_NAME.fullmatch(name) and not exists(name):
            logger.warning("there is no %s", name, location=node)


def break_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Let long names in tables break between their parts, without adding a character to them."""
    for entry in doctree.findall(nodes.entry):
        for name in entry.findall(nodes.literal):
            first, *others = re.split(r"(?<=[/_.:])(?=\w)", name.astext())
            name.children = [nodes.Text(first)]
            for part in others:
                name += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]


def meanings(name: str, module: str | None, alike: list[str]) -> list[str]:
    """The full names that a piece of code may stand for, the likeliest first.

    In a docstring, a name of its module, or one that only one module has; elsewhere a name of
    `pyentmax` itself, but for "entmax", which may be the package of that name. `torch.softmax` is
    PyTorch's.
    """
    if name.partition(".")[0] in ADAPTERS:
        return []
    if module:
        return [f"{module}.{name}", name, f"pyentmax.{name}", *(alike if len(alike) == 1 else [])]
    return [name] if name == "entmax" else [name, f"pyentmax.{name}"]


def exists(full_name: str) -> bool:
    """Whether a dotted name is that of a module or of something in one."""
    try:
        named(full_name)
    except ImportError:
        return missing_library(full_name) is not None
    return True


def named(full_name: str) -> Any:
    """What a dotted name stands for.

    A function goes before the module of its name: `pyentmax.reference.thresholds.bisection` is
    both.
    """
    first, *others = full_name.split(".")
    found: Any = import_module(first)
    for name in others:
        inner = getattr(found, name, None)
        found = import_module(f"{found.__name__}.{name}") if inner is None else inner
    return found


def ancestors(node: nodes.Node) -> Iterator[nodes.Node]:
    """The node's parent, that one's parent, and so on."""
    while node.parent is not None:
        node = node.parent
        yield node


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all of it."""
    app.add_directive("reference", Reference)
    app.add_directive("mapping", MappingPage)
    app.add_directive("textbooks", Textbooks)
    app.add_directive("commands", Commands)
    app.add_role("name", name_role)
    app.add_post_transform(StateLinks)
    app.connect("autodoc-process-docstring", keep_mathematics, priority=400)  # before napoleon's
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("doctree-read", leave_formulas_whole)
    app.connect("doctree-read", use_dashes)
    app.connect("env-check-consistency", check_completeness)
    app.connect("doctree-resolved", link_code)
    app.connect("doctree-resolved", break_names, priority=600)  # after the links
    return {"parallel_read_safe": True, "parallel_write_safe": True}
