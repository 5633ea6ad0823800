"""What `own.what_it_saves` compares: calls of PyTorch, softmax first, and calls of this library."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import pyentmax as pe
import pyentmax.torch as pt
from experiments.own import two_ways
from experiments.own.constrained import Constrained
from experiments.runner import Options, Settings, Unready
from pyentmax.seq2seq.decoding import beam_search
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig

Run = Callable[[], object]
Sides = dict[str, Run]
OURS = "pyentmax"
WIDTH, HEADS, D = 512, 8, 64
sdpa = F.scaled_dot_product_attention


def normal(*shape: int, seed: int = 0, std: float = 1.0) -> Tensor:
    """Normal numbers in float32."""
    numbers = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return torch.from_numpy(np.float32(std) * numbers)


def labels(rows: int, classes: int) -> Tensor:
    """Random labels."""
    return torch.from_numpy(np.random.default_rng(1).integers(0, classes, rows))


def trained(function: Callable[..., Any], *inputs: Tensor, given: Any = None) -> Run:
    """Both passes of a function."""
    inputs = tuple(x.requires_grad_() for x in inputs)
    return lambda: torch.autograd.grad(function(*inputs), inputs, given)


def package(name: str) -> Any:
    """A package, if it is installed."""
    with suppress(ImportError):
        return importlib.import_module(name)
    return None


def mapping(row: Settings) -> Sides:
    """Rows of scores of deviation 1 to probabilities."""
    z = normal(*row["shape"])
    sides: Sides = {
        "torch.softmax": lambda: torch.softmax(z, -1),
        OURS: lambda: pt.entmax15(z),
        "pyentmax, sparsemax": lambda: pt.sparsemax(z),
        "pyentmax, arrays": lambda: pe.entmax15(z.numpy()),
    }
    if special := package("scipy.special"):
        sides["SciPy's softmax"] = lambda: special.softmax(z.numpy(), axis=-1)
    if entmax := package("entmax"):
        sides["entmax"] = lambda: entmax.entmax15(z)
    return sides


def loss(row: Settings) -> Sides:
    """A loss of scores of deviation 1, and their gradient."""
    z, y = normal(*row["shape"]), labels(*row["shape"])
    sides = {
        "cross_entropy": trained(lambda z: F.cross_entropy(z, y), z),
        OURS: trained(lambda z: pt.entmax15_loss(z, y), z),
    }
    if entmax := package("entmax"):
        sides["entmax"] = trained(lambda z: entmax.entmax15_loss(z, y).mean(), z)
    return sides


def output_layer(row: Settings, std: float) -> tuple[Tensor, Tensor]:
    """States whose scores have a deviation, and the rows of the layer."""
    both = normal(row["states"], WIDTH, std=std), normal(row["classes"], WIDTH, seed=1)
    dtype = getattr(torch, row["dtype"])
    return both[0].to(dtype), (both[1] / WIDTH**0.5).to(dtype)


def layer(row: Settings) -> Sides:
    """Loss of hidden states and an output layer, and the gradients of both."""
    both, y = output_layer(row, row["deviation"]), labels(row["states"], row["classes"])
    losses = {
        "cross_entropy": lambda x, rows: F.cross_entropy(x @ rows.T, y),
        OURS: lambda x, rows: pt.linear_loss(x, rows, y),
    }
    if fused := getattr(F, "linear_cross_entropy", None):  # newer than the oldest PyTorch served
        chunks = {"options": torch.nn.LinearCrossEntropyOptions()}
        losses["linear_cross_entropy"] = lambda x, rows: fused(x, rows, y)
        losses["linear_cross_entropy, chunks"] = lambda x, rows: fused(x, rows, y, **chunks)
    return {name: trained(function, *both) for name, function in losses.items()}


def step(row: Settings) -> Sides:
    """The probabilities of the next word: scores of deviation 3."""
    x, rows = output_layer(row, 3)
    screened = pt.ScreenedRows(rows)
    return {
        "torch.softmax": lambda: torch.softmax(x @ rows.T, -1),
        OURS: lambda: pt.entmax_linear(x, screened),
        "pyentmax, all scores": lambda: pt.entmax15(x @ rows.T),
    }


def attention(row: Settings) -> Sides:
    """Self-attention of 2 to 8 heads, and all gradients."""
    tokens = row["tokens"]
    heads = min(HEADS, max(2, 16384 // tokens))
    shape = (max(1, 8192 // (tokens * heads)), heads, tokens, D)
    inputs = [normal(*shape, seed=i, std=(row["deviation"], 1, 1)[i]) for i in range(3)]
    run = partial(trained, given=normal(*shape, seed=3))
    return {
        "scaled_dot_product_attention": run(sdpa, *inputs),
        OURS: run(pt.attention, *inputs),
        "pyentmax, sparsemax": run(partial(pt.attention, alpha=2.0), *inputs),
    }


def query(row: Settings) -> Sides:
    """One query for each of 8 heads, scores of deviation 2."""
    key, value = (normal(1, HEADS, row["keys"], D, seed=i) for i in (0, 1))
    one, rows = normal(1, HEADS, 1, D, seed=2, std=2), pt.ScreenedRows(key)
    return {
        "scaled_dot_product_attention": lambda: sdpa(one, key, value),
        OURS: lambda: pt.attention(one, rows, value),
        "pyentmax, keys in float": lambda: pt.attention(one, key, value),
    }


def beam(row: Settings) -> Sides:
    """Beams of this library's Transformer with sharp outputs: 4,000 words, 32 steps, no end."""
    source = np.random.default_rng(0).integers(4, 4000, (8, 24))
    mask = np.ones_like(source, bool)
    shape: Settings = {"width": 128, "layers": 3, "heads": 4, "inner": 512}

    def search(alpha: str) -> Run:
        config = TransformerConfig(4000, 4000, attention=alpha, output=alpha, **shape)
        model = Transformer.initialize(config, np.random.default_rng(0), bos=1, eos=2)
        model.params["output.weight"] *= 12  # scores of deviation 3
        # Without a least length softmax's search ends after two steps, and entmax's does not.
        limits = {"beam": row["hypotheses"], "max_length": 32}
        return lambda: beam_search(Constrained(model, min_length=32), source, mask, **limits)

    return {"softmax": search("1"), OURS: search("1.5")}


def models(folder: Path, done: float) -> dict[str, Any]:
    """The decoders of `own.two_ways`, seed 0, after a share of their training."""
    found = {}
    for name, row in (("softmax", "softmax"), (OURS, "1.5-entmax")):
        begun = next(folder.glob(f"{row}.seed-0-*/model-0.pt"), None)
        if begun is None:
            raise Unready(f"expected models in {folder}: run experiments.own.two_ways first")
        files = {int(path.stem[6:]): path for path in begun.parent.glob("model-*.pt")}
        update = min(files, key=lambda update: abs(update - done * max(files)))
        model = two_ways.decoder({"row": row, "seed": 0, "model": two_ways.SHAPE})
        model.load_state_dict(torch.load(files[update]))
        found[name] = model
    return found


def update(row: Settings, folder: Path) -> Sides:
    """Updates of a language model by the same text, at a rate of 0: it stays as it is."""
    both = {name: two_ways.Training(x) for name, x in models(folder, row["done"]).items()}
    batch = two_ways.batch_of(two_ways.corpus(Options(), folder)[0], 0)
    return {name: partial(one.update, *batch, share=1.0) for name, one in both.items()}


def token(row: Settings, folder: Path) -> Sides:
    """A language model's next token; the first, which warms up, takes the context's time."""
    prompt = torch.from_numpy(two_ways.corpus(Options(), folder)[1][None, : row["context"]])
    both = models(folder, 1)
    return {name: partial(next, model.generate(prompt, 64)) for name, model in both.items()}


SIDES: dict[str, Callable[..., Sides]] = {
    "mapping alone": mapping,
    "loss alone": loss,
    "output layer, training": layer,
    "output layer, a step of decoding": step,
    "attention, training": attention,
    "one query": query,
    "beam": beam,
    "language model, an update": update,
    "language model, a token": token,
}


def sides_of(row: Settings, folder: Path) -> Sides:
    """The sides of a row; a folder has the trained models."""
    torch.set_num_threads(1)
    make = SIDES[row["row"]]
    return make(row, folder) if "language model" in row["row"] else make(row)


def memory(row: Settings, folder: Path, name: str) -> float | None:
    """MB by which a process of its own grows as it runs one side; None where Linux is not."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown, (row, folder, name))


def _grown(row: Settings, folder: Path, name: str) -> float | None:
    with pe.set_workers(1), suppress(OSError):
        run = sides_of(row, folder)[name]
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _kb("VmRSS")
        run()
        return round((_kb("VmHWM") - before) / 1024, 1)
    return None


def _kb(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])
