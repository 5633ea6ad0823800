"""Does it work in the libraries that people use? One line for each: what was tried, what came out.

Each client runs with one thing replaced, its softmax or its loss, and is compared with dense
entmax, with what it had before, or with plain NumPy. Models are small and random; nothing is
downloaded. A client that is not installed is an error that names the versions to install.

What came out: all comparisons agree to rounding. A user writes one line for transformers, TabNet
and x-transformers, and nothing for most others; docs/results/clients.md has them. Five minutes on
a busy machine.

    python -m experiments.own.clients --client transformers xarray
"""

# mypy: disable-error-code="import-not-found, import-untyped, call-arg, arg-type"

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

import pyentmax as pe
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown

Row = tuple[str, str, bool]  # what was tried, what came out, whether it is right
ALPHA, WORDS = 1.5, 40
TORCH = {"torch": "2.14.1"}
VERSIONS: dict[str, dict[str, str]] = {  # of each client's distributions
    "transformers": {"transformers": "5.24.0", **TORCH},
    "pytorch-tabnet": {"pytorch-tabnet": "4.1.0", **TORCH},
    "x-transformers": {"x-transformers": "2.31.10", "entmax": "1.3", **TORCH},
    "OpenNMT-py": {"OpenNMT-py": "3.5.1", **TORCH},
    "lightning": {"lightning": "2.6.6", **TORCH},
    "DDP": TORCH,
    "FSDP": TORCH,
    "scikit-learn": {"scikit-learn": "1.9.1"},
    "MAPIE": {"mapie": "1.6.0", "scikit-learn": "1.9.1"},
    "flax": {"flax": "0.12.8", "jax": "0.10.2"},
    "equinox": {"equinox": "0.13.8", "jax": "0.10.2"},
    "dask": {"dask": "2026.8.0"},
    "xarray": {"xarray": "2026.9.0"},
    "joblib": {"joblib": "1.6.0"},
}


def near(what: str, found: Any, expected: Any, limit: float) -> Row:
    """The largest difference of arrays, tensors or lists of them."""
    if not isinstance(found, (list, tuple)):
        found, expected = [found], [expected]
    pairs = zip(map(_array, found), map(_array, expected), strict=True)
    error = max(float(np.abs(a - b).max()) for a, b in pairs)
    return what, f"{error:.0e}", error <= limit


def _array(x: Any) -> np.ndarray:
    return np.asarray(x.detach() if hasattr(x, "detach") else x, np.float64)


def works(what: str, right: bool, outcome: str = "") -> Row:
    return what, outcome or ("yes" if right else "no"), bool(right)


# --- transformers ---------------------------------------------------------------------------------

COMMON = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
COMMON |= {"num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CALM = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("ForCausalLM", {**COMMON, "num_key_value_heads": 2}),
    "GPT2": (
        "LMHeadModel",
        {**COMMON, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "n_positions": 64},
    ),
    "Bert": ("ForMaskedLM", {**COMMON, **CALM}),
    "Bart": (
        "ForConditionalGeneration",
        {**COMMON, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48}
        | {"decoder_ffn_dim": 48, "dropout": 0.0, "decoder_start_token_id": 2},
    ),
    "Qwen3": ("ForCausalLM", {**COMMON, "num_key_value_heads": 2, "head_dim": 8}),
    "ModernBert": (
        "ForMaskedLM",
        {**COMMON, "local_attention": 6, "global_attn_every_n_layers": 2}
        | {"cls_token_id": 1, "sep_token_id": 2},
    ),
    "ViT": ("ForImageClassification", {**COMMON, **CALM, "image_size": 16, "patch_size": 4}),
}
CACHES: dict[str, dict[str, Any]] = {
    "dynamic cache": {},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "beams": {"num_beams": 2},
}


def transformers() -> Iterator[Row]:
    import torch
    import transformers as hub

    import pyentmax.torch as pt

    pt.transformers.register("entmax", ALPHA)
    softmax = mock.patch.object(
        torch.nn.functional, "softmax", lambda z, dim=-1, dtype=None: pt.entmax15(z, dim)
    )
    words = torch.randint(3, WORDS, (3, 12), generator=torch.Generator().manual_seed(0))
    seen = (torch.arange(12) >= torch.tensor([0, 3, 7])[:, None]).long()  # padded on the left
    padded = {"input_ids": words * seen, "attention_mask": seen}
    for name, (ending, settings) in MODELS.items():
        config = getattr(hub, f"{name}Config")(**settings)
        model = getattr(hub, name + ending)._from_config(config, attn_implementation="eager")
        model = model.double().eval()
        for parameter in model.parameters():  # large enough for attention to be sparse
            parameter.data *= 6 if parameter.ndim > 1 else 1
        # The first word would be predicted from padding, which sees nothing.
        inputs = {**padded, "labels": torch.where(seen * seen.roll(1, -1) > 0, words, -100)}
        if name == "ViT":
            inputs = {"pixel_values": torch.randn(2, 3, 16, 16).double()}
            inputs["labels"] = torch.tensor([0, 1])

        def gradients(model: Any = model, inputs: Any = inputs) -> list[Any]:
            model.zero_grad()
            loss = model(**inputs).loss
            loss.backward()
            return [loss, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

        def decoded(model: Any = model, **options: Any) -> Any:
            options |= {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False}
            options |= {"return_dict_in_generate": True, "output_scores": True}
            return model.generate(**padded, **options).scores

        model.set_attn_implementation("entmax")
        found = gradients()
        scores = {k: decoded(**v) for k, v in CACHES.items()} if model.can_generate() else {}
        with TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            loaded = type(model).from_pretrained(folder, attn_implementation="entmax")
            saved = loaded(**inputs).loss
        model.set_attn_implementation("eager")
        with softmax:
            yield near(f"{name}: loss, gradients", found, gradients(), 1e-9)
            for how, options in CACHES.items():
                if scores:
                    finite = [torch.nan_to_num(x, neginf=-1e9) for x in decoded(**options)]
                    ours = [torch.nan_to_num(x, neginf=-1e9) for x in scores[how]]
                    yield near(f"{name}: generate, {how}", ours, finite, 1e-9)
        yield near(f"{name}: saved, loaded", saved, found[0], 1e-9)
        if name in ("Llama", "ModernBert"):
            model.set_attn_implementation("entmax")
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            yield near(f"{name}: compiled", gradients(compiled), found, 1e-9)


# --- other clients of PyTorch ---------------------------------------------------------------------


def tabnet() -> Iterator[Row]:
    import torch
    from pytorch_tabnet import tab_network

    import pyentmax.torch as pt

    x, own = torch.randn(64, 12), tab_network.sparsemax
    for kind in ("sparsemax", "entmax"):
        outputs = []
        for module in (own, pt):
            tab_network.sparsemax = module  # the line
            torch.manual_seed(0)
            group = torch.eye(12)
            network = tab_network.TabNet(12, 3, mask_type=kind, group_attention_matrix=group)
            outputs.append(network.eval()(x)[0])
        tab_network.sparsemax = own
        yield near(f"{kind}: as with its own", outputs[1], outputs[0], 1e-5)


def x_transformers() -> Iterator[Row]:
    import torch
    from entmax import entmax15
    from x_transformers import Decoder, TransformerWrapper

    import pyentmax.torch as pt

    words = torch.randint(0, WORDS, (2, 12))
    outputs = []
    for mapping in (entmax15, pt.entmax15):
        torch.manual_seed(0)
        layers = Decoder(dim=32, depth=2, heads=4, attn_custom_attn_fn=mapping)  # the argument
        model = TransformerWrapper(num_tokens=WORDS, max_seq_len=32, attn_layers=layers).eval()
        model(words).square().mean().backward()
        outputs.append([p.grad for p in model.parameters() if p.grad is not None])
        moved = model(torch.cat([words[:, :-1], words[:, -1:] * 0], 1)) - model(words)
    theirs, ours = outputs
    yield near("gradients: as with the entmax package", ours, theirs, 1e-5)
    yield works("causal", bool((moved[:, :-1] == 0).all()))


def opennmt() -> Iterator[Row]:
    import torch

    unused = ("ahocorasick", "fasttext", "spacy")  # of its text transforms
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in unused}):
        from onmt.modules import MultiHeadedAttention
        from onmt.modules.sparse_losses import SparsemaxLoss

    import pyentmax.torch as pt

    torch.manual_seed(0)
    z = torch.randn(20, 50, requires_grad=True)
    y = torch.randint(0, 50, (20,))
    theirs = SparsemaxLoss(reduction="sum")(z, y)
    ours = pt.SparsemaxLoss(reduction="sum")(z, y)
    yield near("SparsemaxLoss: as its own", ours, theirs, 1e-4)
    attention = MultiHeadedAttention(4, 32, dropout=0.0).eval()
    for parameter in attention.parameters():  # which it leaves as the memory was
        torch.nn.init.normal_(parameter, std=0.2)
    x = 3 * torch.randn(2, 6, 32)
    attention.softmax = pt.Entmax15(dim=-1)  # the line; without return_attn it is not called
    _, weights = attention(x, x, x, return_attn=True)
    zeros = float((weights == 0).float().mean())
    right = zeros > 0 and torch.allclose(weights.sum(-1), torch.ones(()))
    yield works("attention, with return_attn", right, f"{zeros:.0%} zeros")


def network() -> Any:
    """A network whose attention, with an α that is learned, and whose loss are ours."""
    import torch

    import pyentmax.torch as pt

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = torch.nn.Linear(8, 16), torch.nn.Linear(16, 5)
            self.heads = pt.AlphaEntmax(2)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.inner(x).unflatten(-1, (2, 8)).transpose(1, 2)
            h = pt.attention(h, h, h, self.heads.alpha, causal=True).transpose(1, 2).flatten(2)
            return pt.entmax15_loss(self.outer(h).float(), y)

    torch.manual_seed(0)
    return Network()


def batch() -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 4, 8, generator=generator)
    return x, torch.randint(0, 5, (6, 4), generator=generator)


def lightning() -> Iterator[Row]:
    import torch
    from lightning import LightningModule, Trainer

    class Task(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, given: Any, index: int) -> Any:
            return self.network(*given)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.5)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    for precision in ("32-true", "bf16-mixed", "64-true"):
        task = Task()
        before = float(task.network(*batch()))
        trainer = Trainer(
            max_epochs=30, accelerator="cpu", precision=precision,
            enable_model_summary=False, **quiet,
        )  # fmt: skip
        trainer.fit(task, torch.utils.data.DataLoader([batch()], batch_size=None))
        after = float(task.float().network(*batch()))
        yield works(f"fit, {precision}", after < before, f"loss {before:.2f} to {after:.2f}")


def distributed(kind: str) -> Iterator[Row]:
    """Gradients of two processes with half of the examples each: those of one with all."""
    import torch

    with TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_member, (folder, kind), nprocs=2)
        found = torch.load(f"{folder}/gradients.pt")
    alone = network()
    alone(*batch()).backward()
    expected = [p.grad for p in alone.parameters()]
    yield near("gradients of two processes, gloo", found, expected, 1e-6)


def _member(rank: int, folder: str, kind: str) -> None:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    shared: Any = network()
    if kind == "DDP":
        shared = torch.nn.parallel.DistributedDataParallel(shared)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(shared, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    shared(*(part[3 * rank : 3 * rank + 3] for part in batch())).backward()
    grads = (p.grad for p in shared.parameters())
    whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in grads]
    if rank == 0:
        torch.save(whole, f"{folder}/gradients.pt")
    torch.distributed.destroy_process_group()


# --- arrays and estimators ------------------------------------------------------------------------

Z = np.random.default_rng(0).normal(size=(6, 8))


def sklearn() -> Iterator[Row]:
    from sklearn import (
        calibration,
        datasets,
        ensemble,
        model_selection,
        pipeline,
        preprocessing,
    )

    from pyentmax.sklearn import FenchelYoungClassifier

    x, y = datasets.load_wine(return_X_y=True)
    made = pipeline.make_pipeline(
        preprocessing.StandardScaler(), FenchelYoungClassifier("entmax15")
    )
    score = model_selection.cross_val_score(made, x, y, cv=3).mean()
    yield works("Pipeline, cross_val_score", score > 0.95, f"{score:.1%} right")
    grid = {"fenchelyoungclassifier__loss": ["softmax", "sparsemax"]}
    search = model_selection.GridSearchCV(made, grid, cv=3).fit(x, y)
    yield works("GridSearchCV", search.best_score_ > 0.95, f"{search.best_score_:.1%} right")
    for wrapper in (calibration.CalibratedClassifierCV, ensemble.BaggingClassifier):
        score = model_selection.cross_val_score(wrapper(made), x, y, cv=3).mean()
        yield works(wrapper.__name__, score > 0.95, f"{score:.1%} right")


def mapie() -> Iterator[Row]:
    from mapie.classification import SplitConformalClassifier
    from sklearn import datasets, model_selection, preprocessing

    from pyentmax.sklearn import FenchelYoungClassifier

    x, y = datasets.load_digits(return_X_y=True)
    x = preprocessing.StandardScaler().fit_transform(x)
    x, rest, y, targets = model_selection.train_test_split(x, y, test_size=0.6, random_state=0)
    fitted = FenchelYoungClassifier("entmax15").fit(x, y)
    split = SplitConformalClassifier(fitted, confidence_level=0.95, prefit=True)
    _, sets = split.conformalize(rest[:500], targets[:500]).predict_set(rest[500:])
    covered = sets[np.arange(len(sets)), targets[500:], 0].mean()
    size = sets[..., 0].sum(-1).mean()
    yield works(
        "SplitConformalClassifier, 95%", covered > 0.93, f"{covered:.1%}, {size:.2f} labels"
    )


def flax() -> Iterator[Row]:
    import jax
    from flax import nnx

    import pyentmax.jax as pj

    x, y = jax.numpy.asarray(Z), jax.numpy.arange(6) % 3
    layer = nnx.Linear(8, 3, rngs=nnx.Rngs(0))
    gradient = nnx.grad(lambda layer: pj.entmax15.loss(layer(x), y))(layer)
    p = np.asarray(pj.entmax15(layer(x))) - np.eye(3)[np.asarray(y)]
    yield near("nnx.grad of a loss", gradient.kernel[...], Z.T @ p / 6, 1e-5)


def equinox() -> Iterator[Row]:
    import equinox as eqx
    import jax

    import pyentmax.jax as pj

    x, y = jax.numpy.asarray(Z), jax.numpy.arange(6) % 3
    layer = eqx.nn.Linear(8, 3, key=jax.random.key(0))

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(layer: Any) -> Any:
        return pj.sparsemax.loss(jax.vmap(layer)(x), y)

    p = np.asarray(pj.sparsemax(jax.vmap(layer)(x))) - np.eye(3)[np.asarray(y)]
    yield near("filter_jit, filter_grad of a loss", gradient(layer).weight, p.T @ Z / 6, 1e-5)


def dask() -> Iterator[Row]:
    import dask.array as da

    z: Any = da.from_array(Z, chunks=(2, -1))
    found: Any = pe.entmax15(z)
    yield near("entmax15 of chunks", found.compute(), pe.entmax15(Z), 0)
    yield near("sum of the rows", pe.entmax(z, 1.3).sum(-1).compute(), np.ones(6), 1e-12)


def xarray() -> Iterator[Row]:
    import xarray as xr

    z = xr.DataArray(Z, dims=("example", "label"))
    dims: dict[str, Any] = {"input_core_dims": [["label"]], "output_core_dims": [["label"]]}
    found = xr.apply_ufunc(pe.sparsemax, z, **dims)
    yield near("apply_ufunc", found.values, pe.sparsemax(Z), 0)
    yield works("dimensions kept", found.dims == z.dims)


def joblib() -> Iterator[Row]:
    from joblib import Parallel, delayed

    for backend in ("loky", "threading"):
        rows = Parallel(2, backend=backend)(delayed(pe.entmax15)(row) for row in Z)
        yield near(f"Parallel, {backend}", np.array(rows), pe.entmax15(Z), 0)


CLIENTS: dict[str, Callable[[], Iterator[Row]]] = {
    "transformers": transformers,
    "pytorch-tabnet": tabnet,
    "x-transformers": x_transformers,
    "OpenNMT-py": opennmt,
    "lightning": lightning,
    "DDP": partial(distributed, "DDP"),
    "FSDP": partial(distributed, "FSDP"),
    "scikit-learn": sklearn,
    "MAPIE": mapie,
    "flax": flax,
    "equinox": equinox,
    "dask": dask,
    "xarray": xarray,
    "joblib": joblib,
}


# --- the experiment -------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    parser.add_argument("--client", nargs="+", default=list(CLIENTS), choices=CLIENTS)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """A run for each client."""
    return [[{"row": name} for name in args.client]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Try a client; the versions are those that are installed."""
    name = settings["row"]
    try:
        found = {package: version(package) for package in VERSIONS[name]}
    except PackageNotFoundError as error:
        pinned = " ".join(f"{k}=={v}" for k, v in VERSIONS[name].items())
        raise ImportError(f"{name} needs {error.name}: pip install {pinned}") from error
    return {"versions": found, "tried": [list(row) for row in CLIENTS[name]()]}


def report(lines: list[Line]) -> str:
    """What was tried in each client, and whether it came out right."""
    rows = []
    for line in lines:
        result = line["result"]
        client = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
        if line["settings"]["row"] in ("DDP", "FSDP"):
            client = f"{line['settings']['row']}, {client}"
        for what, outcome, right in result["tried"]:
            rows.append([client, what, outcome if right else f"**{outcome}**"])
            client = ""
    return markdown(["client", "tried", "came out"], rows)


EXPERIMENT = Experiment("own/clients", __doc__, runs, work, report, None, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
