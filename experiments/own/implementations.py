"""Which implementations of softmax, sparsemax and entmax are right? `check_mapping` over packages.

Each function is examined in the version that is installed, Keras in a process for each backend; a
package that is missing is named as missing. All of them come from PyPI. Some minutes on an idle
core; next year's versions are this command with another --out.

What came out: docs/results/implementations.md.

    python -m experiments.own.implementations
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown
from pyentmax import check_mapping

TABULAR = """
from importlib.util import find_spec, module_from_spec, spec_from_file_location
folder = find_spec("pytorch_tabular").submodule_search_locations[0]
path = f"{folder}/models/common/layers/activations.py"
spec = spec_from_file_location("activations", path)  # the package itself needs Lightning
activations = module_from_spec(spec)
spec.loader.exec_module(activations)
"""
VECTORS = "import jax; fn = jax.numpy.vectorize({}, signature='(n)->(n)')"
SOFT = {
    "softtorch": "import softtorch; fn = lambda z, dim=-1: softtorch.argmax(z.movedim(dim, -1), "
    "dim=-1, softness={}, mode='{}', standardize=False).movedim(-1, dim)",
    "softjax": "import softjax, jax.numpy as jnp; fn = lambda z, axis=-1: jnp.moveaxis("
    "softjax.argmax(jnp.moveaxis(z, axis, -1), axis=-1, softness={}, mode='{}', "
    "standardize=False), -1, axis)",
}
MODES: list[tuple[str, float, str, dict[str, float]]] = [
    ("c0", 1.0, "sparsemax", {}),
    ("c1", 2.0, "entmax15", {}),
    ("c2", 3.0, "entmax", {"alpha": 4 / 3}),
]
BACKENDS = ("numpy", "torch", "jax", "tensorflow")


def case(row: str, package: str, mapping: str, code: str, **more: Any) -> Settings:
    """A function, as ``fn`` of a piece of code, what it claims to be, and parameters or variables
    of the environment."""
    return {"row": row, "package": package, "mapping": mapping, "code": code, **more}


def keras(backend: str, name: str) -> Settings:
    """A function of Keras on a backend."""
    code = f"from keras.ops import {name} as fn"
    return case(f"keras.ops.{name}, on {backend}", "keras", name, code,
                environment={"KERAS_BACKEND": backend})  # fmt: skip


def of_entmax(name: str, mapping: str, **parameters: float) -> Settings:
    """A function of the entmax package."""
    code = f"from entmax import {name} as fn"
    return case(f"entmax.{name}", "entmax", mapping, code, parameters=parameters)


CASES = [
    case("torch.softmax", "torch", "softmax", "from torch import softmax as fn"),
    case("jax.nn.softmax", "jax", "softmax", "from jax.nn import softmax as fn"),
    case("scipy.special.softmax", "scipy", "softmax", "from scipy.special import softmax as fn"),
    *(keras(backend, name) for name in ("softmax", "sparsemax") for backend in BACKENDS),
    of_entmax("sparsemax", "sparsemax"),
    of_entmax("entmax15", "entmax15"),
    of_entmax("sparsemax_bisect", "sparsemax"),
    of_entmax("entmax_bisect", "entmax", alpha=1.5),
    of_entmax("entmax_bisect", "entmax", alpha=1.25),
    of_entmax("normmax_bisect", "normmax", alpha=2.0),
    of_entmax("budget_bisect", "budget_sparsemax", budget=2.0),
    case("jaxopt.projection.projection_simplex", "jaxopt", "sparsemax",
         "import jaxopt; " + VECTORS.format("jaxopt.projection.projection_simplex")),
    case("optax.projections.projection_simplex", "optax", "sparsemax",
         "import optax; " + VECTORS.format("optax.projections.projection_simplex")),
    *(case(f"{package}.argmax, mode {mode}, softness {softness}", package, mapping,
           SOFT[package].format(softness, mode), parameters=parameters)
      for package in SOFT for mode, softness, mapping, parameters in MODES),
    *(case(f"liger_kernel: liger_{name}, interpreted", "liger-kernel", name,
           f"from liger_kernel.transformers.functional import liger_{name} as fn",
           environment={"TRITON_INTERPRET": "1"}, dtypes=["float32", "float16", "bfloat16"])
      for name in ("sparsemax", "softmax")),
    case("pytorch_tabular: sparsemax", "pytorch-tabular", "sparsemax",
         TABULAR + "fn = activations.sparsemax"),
    case("pytorch_tabular: entmax15", "pytorch-tabular", "entmax15",
         TABULAR + "fn = activations.entmax15"),
    *(case(f"pyentmax.{library}.{name}", "pyentmax", name,
           f"from pyentmax.{library} import {name} as fn")
      for library in ("torch", "jax") for name in ("softmax", "sparsemax", "entmax15")),
]  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    packages = sorted({case["package"] for case in CASES})
    parser.add_argument("--package", nargs="+", choices=packages, default=packages)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """The functions of the packages that were asked for."""
    return [[case for case in CASES if case["package"] in args.package]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Examine one function in a process with its environment: Keras has one backend in each."""
    result: dict[str, Any] = process(*settings.get("environment", {}).items()).apply(
        examine, [settings]
    )
    return result


@cache
def process(*environment: Any) -> Any:
    """A process of its own for each environment."""
    return get_context("spawn").Pool(1)


def examine(settings: Settings) -> dict[str, Any]:
    """The version, and of each property the verdict, units of the contract and a text."""
    warnings.simplefilter("ignore")
    os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", **settings.get("environment", {})})
    namespace: dict[str, Any] = {}
    try:
        exec(settings["code"], namespace)
        installed = version(settings["package"])
    except (ImportError, PackageNotFoundError) as error:
        return {"version": None, "missing": str(error)}
    started = time.perf_counter()
    report = check_mapping(
        namespace["fn"],
        settings["mapping"],
        dtypes=settings.get("dtypes"),
        **settings.get("parameters", {}),
    )
    results = {one.name: [one.verdict, str(one)] for one in report.results}
    seconds = round(time.perf_counter() - started, 1)
    return {
        "version": installed, "dtypes": report.dtypes, "seconds": seconds, "properties": results,
    }  # fmt: skip


def report(lines: list[Line]) -> str:
    """A table of all functions, and what does not hold of each."""
    rows: list[list[Any]] = []
    parts = []
    for line in lines:
        settings, result = line["settings"], line["result"]
        parameters = ", ".join(f"{k} = {v:.4g}" for k, v in settings.get("parameters", {}).items())
        claim = " ".join(filter(None, [settings["mapping"], parameters]))
        name = f"`{settings['row']}`"
        if result["version"] is None:
            rows.append([name, claim, "–", "not installed", "", ""])
            continue
        verdicts = [verdict for verdict, _ in result["properties"].values()]
        failed = {k: text for k, (v, text) in result["properties"].items() if v == "failed"}
        counts = [verdicts.count(one) for one in ("passed", "failed", "not applicable")]
        rows.append([name, claim, result["version"], *counts])
        if failed:
            texts = [f"- {name}: {text}" for name, text in failed.items()]
            parts.append("\n".join([f"### {settings['row']}, as {claim}\n", *texts]))
    columns = ["function", "as", "version", "hold", "do not hold", "not applicable"]
    return "\n\n".join([markdown(columns, rows), *parts])


EXPERIMENT = Experiment("own/implementations", __doc__, runs, work, report, None, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
