"""Which mappings, losses and attentions of public packages are right? The judge over packages.

Each function is examined in the version that is installed, Keras in a process for each backend; a
package that is missing is named as missing. All of them come from PyPI. Some minutes on an idle
core; next year's versions are this command with another --out.

What came out: docs/results/implementations.md, and a row for each function in
`experiments/measurements/implementations.md`.

    python -m experiments.own.implementations
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import pyentmax
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown
from pyentmax import check_attention, check_loss, check_mapping
from pyentmax.seq2seq.plotting import save_figure
from pyentmax.seq2seq.plotting.palette import COLOURS

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
ROWS_OF_JAXOPT = (
    "import jax, jaxopt; fn = lambda z, y: jax.vmap(jaxopt.loss.multiclass_{}_loss)(y, z)"
)
MODES: list[tuple[str, float, str, dict[str, float]]] = [
    ("c0", 1.0, "sparsemax", {}),
    ("c1", 2.0, "entmax15", {}),
    ("c2", 3.0, "entmax", {"alpha": 4 / 3}),
]
CHECKS: dict[str, Callable[..., Any]] = {
    "mapping": check_mapping,
    "loss": check_loss,
    "attention": check_attention,
}
LABELS = {"mapping": "mappings", "loss": "losses", "attention": "attention"}
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


# Attention of PyTorch and of Keras' backends, with their keywords.
SDPA = """
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
def fn(query, key, value, attn_mask=None, is_causal=False, scale=None, dropout_p=0.0):
    return sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=True)
"""
FLEX = """
from torch.nn.attention.flex_attention import flex_attention
def fn(query, key, value, scale=None):
    return flex_attention(query, key, value, scale=scale, enable_gqa=True)
"""
JAX = """
import jax
def fn(query, key, value, mask=None, bias=None, scale=None, is_causal=False):
    swapped = (x.swapaxes(1, 2) for x in (query, key, value))  # (batch, length, head, d) there
    out = jax.nn.dot_product_attention(
        *swapped, bias=bias, mask=mask, scale=scale, is_causal=is_causal)
    return out.swapaxes(1, 2)
"""
KERAS = """
import keras
def fn(query, key, value, mask=None, bias=None, scale=None, is_causal=False):
    if mask is not None and "bool" not in str(mask.dtype):
        raise TypeError("its masks are boolean")
    swapped = (keras.ops.swapaxes(x, 1, 2) for x in (query, key, value))
    out = keras.ops.dot_product_attention(
        *swapped, bias=bias, mask=mask, scale=scale, is_causal=is_causal)
    return keras.ops.swapaxes(out, 1, 2)
"""
EAGER = """
import torch
from types import SimpleNamespace
from transformers.models.llama.modeling_llama import eager_attention_forward
def fn(query, key, value, attention_mask=None, scaling=None):
    module = SimpleNamespace(
        num_key_value_groups=query.shape[1] // key.shape[1], training=False)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        raise TypeError("additive masks only")
    out, _ = eager_attention_forward(module, query, key, value, attention_mask, scaling)
    return out.transpose(1, 2)
"""
ONNX = """
import numpy as np, onnx, onnxruntime
from onnx import TensorProto as T, helper as h
def session(causal):
    info = lambda name: h.make_tensor_value_info(name, T.FLOAT, [None] * 4)
    node = h.make_node("Attention", ["q", "k", "v"], ["o"], is_causal=causal)
    graph = h.make_graph([node], "g", [info("q"), info("k"), info("v")], [info("o")])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString())
sessions = [session(0), session(1)]
def fn(query, key, value, is_causal=False):
    return sessions[is_causal].run(None, {"q": query, "k": key, "v": value})[0]
"""


LLAMA_LIKE = """
import torch
from types import SimpleNamespace
from transformers.models.{0}.modeling_{0} import eager_attention_forward
def fn(query, key, value, attention_mask=None, scaling=None{1}):
    module = SimpleNamespace(
        num_key_value_groups=query.shape[1] // key.shape[1], training=False,
        head_dim=query.shape[-1], sinks={2})
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        raise TypeError("additive masks only")
    out, _ = eager_attention_forward(module, query, key, value, attention_mask, scaling{3})
    return out.transpose(1, 2)
"""
HF_SDPA = """
from types import SimpleNamespace
from transformers.integrations.sdpa_attention import sdpa_attention_forward
def fn(query, key, value, attention_mask=None, is_causal=False, scaling=None):
    module = SimpleNamespace(num_key_value_groups=query.shape[1] // key.shape[1], is_causal=False)
    out, _ = sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal)
    return out.transpose(1, 2)
"""
BACKEND = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa
def fn(query, key, value, attn_mask=None, is_causal=False, scale=None):
    with sdpa_kernel(SDPBackend.{}):
        return sdpa(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=True)
"""
FLEX_OPTIONS = """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
def fn(query, key, value, causal=False, scale=None, softcap=None, window=None, bias=None):
    def score(s, b, h, i, j):
        s = s if softcap is None else softcap * torch.tanh(s / softcap)
        return s if bias is None else s + bias[b, h, i, j]
    shift = key.shape[-2] - query.shape[-2]
    def see(b, h, i, j):
        seen = j <= i + shift if causal else j >= 0
        return seen if window is None else seen & (j > i + shift - window)
    block = None
    if causal or window is not None:
        block = create_block_mask(see, None, None, query.shape[-2], key.shape[-2], device="cpu")
    plain = softcap is None and bias is None
    return flex_attention(query, key, value, score_mod=None if plain else score, block_mask=block,
                          scale=scale, enable_gqa=True)
"""
ONNX_SOFTMAX = """
import onnx, onnxruntime
from onnx import TensorProto as T, helper as h
node = h.make_node("Softmax", ["z"], ["p"], axis=-1)
info = lambda name: h.make_tensor_value_info(name, T.FLOAT, ["rows", "d"])
graph = h.make_graph([node], "g", [info("z")], [info("p")])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
fn = lambda z: session.run(None, {"z": z})[0]
"""
SAMPLES = "from sklearn.utils.extmath import softmax; fn = lambda z: softmax(z, copy=True)"


def of_entmax(name: str, mapping: str, **parameters: float) -> Settings:
    """A function of the entmax package."""
    code = f"from entmax import {name} as fn"
    return case(f"entmax.{name}", "entmax", mapping, code, parameters=parameters)


ATTENTIONS: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("torch scaled_dot_product_attention", "torch", "softmax", SDPA, {}),
    ("torch flex_attention, not compiled", "torch", "softmax", FLEX, {}),
    ("transformers eager attention (Llama)", "transformers", "softmax", EAGER, {}),
    ("jax.nn.dot_product_attention", "jax", "softmax", JAX, {}),
    ("onnxruntime Attention-23", "onnxruntime", "softmax", ONNX, {"dtypes": ["float32"]}),
    *((f"keras dot_product_attention, on {backend}", "keras", "softmax", KERAS,
       {"environment": {"KERAS_BACKEND": backend}}) for backend in ("torch", "jax")),
    ("torch sdpa, the mathematical kernel", "torch", "softmax", BACKEND.format("MATH"), {}),
    ("torch sdpa, the flash kernel for CPUs", "torch", "softmax",
     BACKEND.format("FLASH_ATTENTION"), {}),
    ("torch flex_attention with masks, not compiled", "torch", "softmax", FLEX_OPTIONS, {}),
    ("transformers sdpa attention", "transformers", "softmax", HF_SDPA, {}),
    ("transformers eager attention (Gemma 2)", "transformers", "softmax",
     LLAMA_LIKE.format("gemma2", ", softcap=None", "None", ", softcap=softcap").replace(
         "attention_mask, scaling, ", "attention_mask, 0.0, scaling, "), {}),
    ("transformers eager attention (GPT-OSS)", "transformers", "softmax",
     LLAMA_LIKE.format("gpt_oss", ", sinks=None",
                       "sinks if sinks is not None else torch.full((query.shape[1],), "
                       "-torch.inf, dtype=query.dtype)", ""), {}),
    ("transformers eager attention (Mistral)", "transformers", "softmax",
     LLAMA_LIKE.format("mistral", "", "None", ""), {}),
    ("pyentmax.torch.attention", "pyentmax", "entmax",
     "from pyentmax.torch import attention as fn", {"parameters": {"alpha": 1.5}}),
    ("pyentmax.torch.attention", "pyentmax", "softmax",
     "from pyentmax.torch import attention; fn = lambda query, key, value, mask=None, causal=False,"
     " scale=None, bias=None, sink=None, softcap=None: attention(query, key, value, mapping="
     "'softmax', mask=mask, causal=causal, scale=scale, bias=bias, sink=sink, softcap=softcap)",
     {}),
    ("pyentmax.attention", "pyentmax", "entmax", "from pyentmax import attention as fn",
     {"parameters": {"alpha": 1.5}}),
]  # fmt: skip
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
    case("torch.nn.Softmax(dim=-1)", "torch", "softmax", "import torch; fn = torch.nn.Softmax(-1)"),
    case("torch.nn.functional.softmax", "torch", "softmax",
         "from torch.nn.functional import softmax as fn"),
    case("sklearn.utils.extmath.softmax", "scikit-learn", "softmax", SAMPLES),
    case("onnxruntime Softmax-13", "onnxruntime", "softmax", ONNX_SOFTMAX),
    *(case(f"keras.activations.{name}, on {backend}", "keras", name,
           f"from keras.activations import {name} as fn",
           environment={"KERAS_BACKEND": backend})
      for name in ("softmax", "sparsemax") for backend in ("torch", "jax")),
    *(case(f"pyentmax.{name}", "pyentmax", name, f"from pyentmax import {name} as fn",
           parameters=parameters)
      for name, parameters in (("softmax", {}), ("sparsemax", {}), ("entmax15", {}),
                               ("entmax", {"alpha": 1.25}), ("topk_softmax", {"k": 2}))),
    case("pytorch_tabular: sparsemax", "pytorch-tabular", "sparsemax",
         TABULAR + "fn = activations.sparsemax"),
    case("pytorch_tabular: entmax15", "pytorch-tabular", "entmax15",
         TABULAR + "fn = activations.entmax15"),
    *(case(f"pyentmax.{library}.{name}", "pyentmax", name,
           f"from pyentmax.{library} import {name} as fn")
      for library in ("torch", "jax") for name in ("softmax", "sparsemax", "entmax15")),
    *(case(f"{row}, loss", package, mapping, code, check="loss")
      for row, package, mapping, code in (
        ("torch cross_entropy", "torch", "softmax",
         "import torch; fn = torch.nn.functional.cross_entropy"),
        ("entmax.SparsemaxLoss", "entmax", "sparsemax",
         "import entmax; fn = entmax.SparsemaxLoss()"),
        ("entmax.Entmax15Loss", "entmax", "entmax15", "import entmax; fn = entmax.Entmax15Loss()"),
        ("optax softmax_cross_entropy_with_integer_labels", "optax", "softmax",
         "import jax; from optax.losses import softmax_cross_entropy_with_integer_labels as fn"),
        ("torch.nn.CrossEntropyLoss()", "torch", "softmax",
         "import torch; fn = torch.nn.CrossEntropyLoss()"),
        ("entmax.sparsemax_loss", "entmax", "sparsemax", "from entmax import sparsemax_loss as fn"),
        ("entmax.entmax15_loss", "entmax", "entmax15", "from entmax import entmax15_loss as fn"),
        ("entmax.SparsemaxBisectLoss", "entmax", "sparsemax",
         "import entmax; fn = entmax.SparsemaxBisectLoss()"),
        ("jaxopt multiclass_logistic_loss", "jaxopt", "softmax",
         ROWS_OF_JAXOPT.format("logistic")),
        ("jaxopt multiclass_sparsemax_loss", "jaxopt", "sparsemax",
         ROWS_OF_JAXOPT.format("sparsemax")),
        ("pyentmax.softmax.loss", "pyentmax", "softmax",
         "from pyentmax import softmax; fn = softmax.loss"),
        ("pyentmax.entmax15.loss", "pyentmax", "entmax15",
         "from pyentmax import entmax15; fn = entmax15.loss"),
        ("pyentmax.torch.softmax_loss", "pyentmax", "softmax",
         "from pyentmax.torch import softmax; fn = softmax.loss"),
        ("optax multiclass_sparsemax_loss", "optax", "sparsemax",
         "import jax, optax; fn = lambda z, y: optax.losses.multiclass_sparsemax_loss(z, y)"),
        ("pyentmax.torch.sparsemax_loss", "pyentmax", "sparsemax",
         "from pyentmax.torch import sparsemax_loss as fn"),
    )),
    *(case(f"keras sparse_categorical_crossentropy, on {backend}, loss", "keras", "softmax",
           "import keras; fn = lambda z, y: keras.losses.sparse_categorical_crossentropy("
           "y, z, from_logits=True)", check="loss", environment={"KERAS_BACKEND": backend})
      for backend in ("torch", "jax")),
    case("liger_kernel: liger_cross_entropy, interpreted, loss", "liger-kernel", "softmax",
         "from liger_kernel.transformers.functional import liger_cross_entropy; "
         "fn = lambda z, y: liger_cross_entropy(z.clone(), y)", check="loss",
         environment={"TRITON_INTERPRET": "1"}, dtypes=["float32"]),
    *(case(f"{row}, attention", package, mapping, code, check="attention", **more)
      for row, package, mapping, code, more in ATTENTIONS),
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
        own = settings["package"] == "pyentmax"
        installed = pyentmax.__version__ if own else version(settings["package"])
    except (ImportError, PackageNotFoundError) as error:
        return {"version": None, "missing": str(error)}
    started = time.perf_counter()
    try:
        report: Any = CHECKS[settings.get("check", "mapping")](
            namespace["fn"],
            settings["mapping"],
            dtypes=settings.get("dtypes"),
            **settings.get("parameters", {}),
        )
    except TypeError as error:  # no arrays that fn takes
        return {"version": installed, "verdict": f"not judged: {error}", "properties": {}}
    return {
        "version": installed,
        "verdict": report.verdict,
        "causes": report.causes,
        "notes": report.notes,
        "dtypes": report.dtypes,
        "seconds": round(time.perf_counter() - started, 1),
        "properties": {one.name: [one.verdict, str(one)] for one in report.results},
    }


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
            rows.append([name, claim, "–", "not installed", ""])
            continue
        failed = {k: text for k, (v, text) in result["properties"].items() if v == "failed"}
        verdict = result.get("verdict", "")
        rows.append([name, claim, result["version"], verdict, ", ".join(failed)])
        if failed:
            texts = [f"- {name}: {text}" for name, text in failed.items()]
            texts += [f"- likely cause: {cause}" for cause in result.get("causes", ())]
            parts.append("\n".join([f"### {settings['row']}, as {claim}: {verdict}\n", *texts]))
    columns = ["function", "as", "version", "verdict", "does not hold"]
    return "\n\n".join([markdown(columns, rows), *parts])


def kinds(lines: list[Line]) -> dict[str, dict[str, int]]:
    """Property → kind of function → how many of these it does not hold of; the most first."""
    counts: dict[str, dict[str, int]] = {}
    for line in lines:
        kind = line["settings"].get("check", "mapping")
        for name, (verdict, _) in line["result"].get("properties", {}).items():
            if verdict == "failed":
                of_kind = counts.setdefault(name, dict.fromkeys(CHECKS, 0))
                of_kind[kind] += 1
    return dict(sorted(counts.items(), key=lambda one: -sum(one[1].values())))


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw of how many functions each property does not hold."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    counts = kinds(lines)
    figure = Figure(figsize=(7.4, max(1.5, 0.6 + 0.23 * len(counts))), layout="constrained")
    ax, left = figure.subplots(), np.zeros(len(counts))
    for kind, colour, hatch in zip(CHECKS, COLOURS[:3], ("", "///", "..."), strict=True):
        sizes = np.array([of_kind[kind] for of_kind in counts.values()])
        label = LABELS[kind]
        ax.barh([*counts], sizes, left=left, color=colour, hatch=hatch, ec="w", label=label)
        left += sizes
    ax.invert_yaxis()
    ax.margins(y=0.01)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("functions of which it does not hold")
    ax.legend(frameon=False, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return [save_figure(ax, folder / "implementations.png")]


EXPERIMENT = Experiment("own/implementations", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
