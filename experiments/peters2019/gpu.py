"""Table 1 trained in PyTorch on a GPU, decoded and measured in NumPy (Peters et al. 2019, §4.1).

The model of `pyentmax.seq2seq.models.rnn_seq2seq`, from the same first parameters. All models of a
call learn side by side from the same batches, each on a CUDA stream of its own. A batch has sources
of one length, and an update of each frequent shape is recorded once as a CUDA graph, which turns 25
ms of launches into 2 ms of arithmetic. The mappings are PyTorch operations (a graph must own its
memory), held to `pyentmax.torch` by ``--check``.

    python -m experiments.peters2019.gpu prepare --data FOLDER --size high --file high.npz
    python gpu.py train --file high.npz --pairs 1,1 1.5,1.5 2,1 --epochs 10 --out DIR   # on the GPU
    python -m experiments.peters2019.gpu measure --data FOLDER --size high --out DIR
    python -m experiments.peters2019.table1 --report --out DIR

Words of rare shapes, with less than ``--least`` batches, are left out of training.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

PAD, BOS, EOS = 0, 1, 2
LAYERS, DROPOUT = 2, 0.3
LONG, STEPS = 64, 12
Arrays = dict[str, np.ndarray]
Shape = tuple[torch.Tensor, ...]
"""Sources (N, S) and targets (N, T + 1) of all words with these lengths, on the device."""


# --- mappings and losses --------------------------------------------------------------------------
class Sparse(torch.autograd.Function):
    """1.5-entmax or sparsemax of the last axis, by sorting (Algorithm 2), and its Jacobian."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, alpha: float) -> torch.Tensor:
        x = (alpha - 1) * (z - z.amax(-1, keepdim=True))
        p = F.relu(x - threshold(x, alpha)) ** (1 / (alpha - 1))
        ctx.save_for_backward(p)
        ctx.alpha = alpha
        return p

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (p,) = ctx.saved_tensors
        s = p.sqrt() if ctx.alpha == 1.5 else (p > 0).to(p.dtype)  # p^(2 − α) on the support
        product = s * g
        return product - s * (product.sum(-1, keepdim=True) / s.sum(-1, keepdim=True)), None


def threshold(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """τ of each row of (α − 1) z whose largest entry is 0: Newton's for long rows, else sorted.

    On the norm √Σ [x − τ]₊², or for sparsemax the sum, Newton's steps rise to the root; twelve
    leave nothing (a graph has no loop that ends early).
    """
    if x.shape[-1] > LONG:
        tau = torch.full_like(x[..., :1], -1.0)
        for _ in range(STEPS):
            u = F.relu(x - tau)
            total = u.sum(-1, keepdim=True)
            if alpha == 2:
                tau = tau + (total - 1) / (u > 0).sum(-1, keepdim=True)
            else:
                norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
                tau = tau + (norm - 1) * norm / total
        return tau
    top = x.sort(dim=-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    mean = top.cumsum(-1) / k
    if alpha == 2:
        tau = mean - 1 / k
    else:
        spread = (top * top).cumsum(-1) / k - mean * mean
        tau = mean - F.relu(1 / k - spread).sqrt()
    size = (tau <= top).sum(-1, keepdim=True)
    return tau.gather(-1, size - 1)


class SparseLoss(torch.autograd.Function):
    """The Fenchel-Young loss of 1.5-entmax or sparsemax for labels; its gradient is p − e_y."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
        p = Sparse.apply(z, alpha)
        entropy = (1 - (p**alpha).sum(-1)) / (alpha * (alpha - 1))
        gradient = p.scatter_add(-1, y[:, None], -torch.ones_like(p[:, :1]))
        ctx.save_for_backward(gradient)
        return (gradient * z).sum(-1) + entropy

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return ctx.saved_tensors[0] * g[:, None], None, None


def mapping(z: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.softmax(z, -1) if alpha == 1 else Sparse.apply(z, alpha)


def losses(z: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return F.cross_entropy(z, y, reduction="none") if alpha == 1 else SparseLoss.apply(z, y, alpha)


# --- the model ------------------------------------------------------------------------------------
class Model(nn.Module):
    """Bidirectional LSTM encoder, input-feeding LSTM decoder, bilinear attention; time first."""

    def __init__(self, params: Arrays, loss: float, attention: float) -> None:
        super().__init__()
        n = params["combine.weight"].shape[1]
        self.alphas = loss, attention
        self.source = nn.Embedding(len(params["source_embedding.weight"]), n)
        self.target = nn.Embedding(len(params["target_embedding.weight"]), n)
        self.encoder = nn.ModuleList(nn.LSTM(n, n // 2, bidirectional=True) for _ in range(LAYERS))
        self.decoder = nn.ModuleList(nn.LSTMCell(n if k else 2 * n, n) for k in range(LAYERS))
        self.keys, self.combine = nn.Linear(n, n, bias=False), nn.Linear(2 * n, n, bias=False)
        self.output = nn.Linear(n, len(params["target_embedding.weight"]))
        self.load_state_dict(to_torch(params))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Mean loss a token; targets (T + 1, B) begin with BOS and end with EOS and padding."""
        x = self.source(source)
        states = []
        for layer in self.encoder:
            x, (h, c) = layer(self.drop(x))
            states.append((torch.cat([h[0], h[1]], -1), torch.cat([c[0], c[1]], -1)))
        values = self.drop(x).transpose(0, 1)
        keys = self.keys(values).transpose(1, 2).contiguous()
        feed, outputs = torch.zeros_like(states[0][0]), []
        for token in self.drop(self.target(target[:-1])):
            x = torch.cat([token, feed], -1)
            for k, cell in enumerate(self.decoder):
                states[k] = cell(self.drop(x) if k else x, states[k])
                x = states[k][0]
            weights = mapping(x[:, None] @ keys, self.alphas[1])
            context = (weights @ values)[:, 0]
            feed = self.drop(torch.tanh(self.combine(torch.cat([context, x], -1))))
            outputs.append(feed)
        z = self.output(torch.stack(outputs)).flatten(0, 1).float()
        y = target[1:].flatten()
        weight = (y != PAD).to(z.dtype)
        return (losses(z, y, self.alphas[0]) * weight).sum() / weight.sum()

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, DROPOUT, self.training)


PLAIN = {
    "source.weight": "source_embedding.weight",
    "target.weight": "target_embedding.weight",
    "keys.weight": "attention.weight",
    "combine.weight": "combine.weight",
    "output.weight": "output.weight",
    "output.bias": "output.bias",
}
TRANSPOSED = ("keys.weight", "combine.weight", "output.weight")
# An LSTM of this module, with what ends its parameters' names; it there; its inputs there.
LSTMS = [
    (f"encoder.{k}", end, f"encoder.{k}.{direction}", [f"encoder.{k}.{direction}"])
    for k in range(LAYERS)
    for end, direction in (("_l0", "forward"), ("_l0_reverse", "backward"))
] + [
    (f"decoder.{k}", "", f"decoder.{k}", [f"decoder.{k}"] if k else ["decoder.0", "decoder.feed"])
    for k in range(LAYERS)
]


def to_torch(params: Arrays) -> dict[str, torch.Tensor]:
    """The parameters of a model of pyentmax, as this module holds them."""
    state = {n: params[there].T if n in TRANSPOSED else params[there] for n, there in PLAIN.items()}
    for name, end, there, inputs in LSTMS:
        weight = np.concatenate([params[f"{one}.weight"] for one in inputs])
        bias = reordered(params[f"{there}.bias"])
        state[f"{name}.weight_ih{end}"] = reordered(weight).T
        state[f"{name}.weight_hh{end}"] = reordered(params[f"{there}.recurrent"]).T
        state[f"{name}.bias_ih{end}"], state[f"{name}.bias_hh{end}"] = bias, np.zeros_like(bias)
    return {name: torch.from_numpy(np.array(x)) for name, x in state.items()}


def from_torch(state: dict[str, torch.Tensor]) -> Arrays:
    """The inverse of `to_torch`; the two biases of an LSTM are added."""
    x = {name: value.detach().cpu().numpy() for name, value in state.items()}
    params = {there: x[n].T if n in TRANSPOSED else x[n] for n, there in PLAIN.items()}
    for name, end, there, inputs in LSTMS:
        weights = np.split(reordered(x[f"{name}.weight_ih{end}"].T), len(inputs))
        params |= {f"{one}.weight": weight for one, weight in zip(inputs, weights, strict=True)}
        params[f"{there}.recurrent"] = reordered(x[f"{name}.weight_hh{end}"].T)
        params[f"{there}.bias"] = reordered(x[f"{name}.bias_ih{end}"] + x[f"{name}.bias_hh{end}"])
    return {name: np.ascontiguousarray(value) for name, value in params.items()}


def reordered(x: np.ndarray) -> np.ndarray:
    """Gates i, f, o, g as i, f, g, o, which is PyTorch's order, or the other way round."""
    i, f, a, b = np.split(x, 4, axis=-1)
    return np.concatenate([i, f, b, a], axis=-1)


# --- words ----------------------------------------------------------------------------------------
def prepare(args: argparse.Namespace) -> None:
    """Write the training words as token ids."""
    inflector, train, _ = inflector_of(args)
    pairs = inflector.pairs(train)
    lengths = np.array([[len(part) for part in pair] for pair in pairs], dtype=np.int16)
    tokens = np.concatenate([token for pair in pairs for token in pair]).astype(np.int16)
    sizes = np.array([len(inflector.source), len(inflector.target)])
    np.savez_compressed(args.file, lengths=lengths, tokens=tokens, sizes=sizes)
    print(f"{len(pairs):,} words, {args.file.stat().st_size / 2**20:.1f} MiB")


def inflector_of(args: argparse.Namespace) -> Any:
    """A model with first parameters, the words to learn from and those to measure on."""
    from experiments.peters2019.inflection import read_words
    from experiments.runner import Options
    from pyentmax.seq2seq.inflection import Inflector

    train, dev = read_words({"languages": "all", "size": args.size}, Options(args.data))
    shape = {"hidden": args.hidden, "layers": LAYERS, "dropout": DROPOUT, "score": "bilinear"}
    return Inflector.untrained(train, np.random.default_rng(args.seed), **shape), train, dev


def first_parameters(source: int, target: int, args: argparse.Namespace) -> Arrays:
    """The parameters of an untrained model of pyentmax, the same for all mappings."""
    from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig

    shape = RNNSeq2SeqConfig(source, target, hidden=args.hidden, layers=LAYERS)
    rng = np.random.default_rng(args.seed)
    params: Arrays = RNNSeq2Seq.initialize(shape, rng, bos=BOS, eos=EOS).params
    return params


def by_shape(file: Any, batch: int, least: int, device: str) -> list[Shape]:
    """The words by shape; T is the next multiple of 4 of the targets' length with EOS."""
    lengths, tokens = file["lengths"].astype(np.int64), file["tokens"].astype(np.int64)
    ends = np.cumsum(lengths.sum(1))
    s, t = lengths.T
    steps = -(-(t + 1) // 4) * 4
    shapes = []
    for key in np.unique(s * 1000 + steps):
        rows = np.flatnonzero(s * 1000 + steps == key)
        if len(rows) < least * batch:
            continue
        length, width = divmod(int(key), 1000)
        starts = ends[rows] - s[rows] - t[rows]
        source = tokens[starts[:, None] + np.arange(length)]
        place = np.arange(width)
        inside = place < t[rows, None]
        target = tokens[np.where(inside, (starts + length)[:, None] + place, 0)]
        target = np.where(inside, target, np.where(place == t[rows, None], EOS, PAD))
        target = np.concatenate([np.full((len(rows), 1), BOS), target], axis=1)
        shapes.append((torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)))
    kept = sum(len(source) for source, _ in shapes)
    print(f"{kept:,} of {len(s):,} words in {len(shapes)} shapes", flush=True)
    return shapes


# --- training -------------------------------------------------------------------------------------
class Trainer:
    """A model, its optimizer, and an update of each shape, recorded as a CUDA graph."""

    def __init__(self, model: Model, args: argparse.Namespace) -> None:
        self.cuda = args.device == "cuda"
        self.model = model.to(args.device).train()
        self.rate = torch.tensor(args.rate, device=args.device)
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=self.rate, capturable=self.cuda, fused=self.cuda
        )
        self.index = torch.zeros(args.batch_size, dtype=torch.long, device=args.device)
        self.total = torch.zeros((), device=args.device)
        self.graphs: dict[int, Any] = {}
        if self.cuda:
            self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def step(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """An update on the rows ``index`` of a shape."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(source[self.index].T.contiguous(), target[self.index].T.contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.total += loss.detach()

    def taken_total(self) -> float:
        """The sum of the losses since it was taken last."""
        if self.cuda:
            self.stream.synchronize()
        total = float(self.total)
        self.total.zero_()
        if self.cuda:
            torch.cuda.synchronize()
        return total

    def record(self, number: int, shape: Shape, warm: bool) -> None:
        """Record the update of a shape; the first one is tried before, as it sets things up."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3 if warm else 0):
                self.step(*shape)
        torch.cuda.synchronize()
        self.graphs[number] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graphs[number], pool=self.pool, stream=self.stream):
            self.step(*shape)

    def update(self, number: int, shape: Shape, rows: torch.Tensor, rate: float) -> None:
        """One update; on a GPU it is only enqueued."""
        with torch.cuda.stream(self.stream) if self.cuda else nullcontext():
            self.rate.fill_(rate)
            self.index.copy_(rows, non_blocking=True)
            if self.cuda:
                self.graphs[number].replay()
            else:
                self.step(*shape)


def train(args: argparse.Namespace) -> None:
    """Train a model for each pair on the same batches, and save the parameters of each.

    Ctrl-C saves what was learned so far.
    """
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    file = np.load(args.file)
    source, target = map(int, file["sizes"])
    params = first_parameters(source, target, args)
    pairs = [tuple(pair.split(",")) for pair in args.pairs]
    shapes = by_shape(file, args.batch_size, args.least, args.device)
    if args.check:
        check_mappings(args.device)
    trainers = [Trainer(Model(params, *map(float, pair)), args) for pair in pairs]
    if args.device == "cuda":
        for trainer in trainers:
            for number, shape in enumerate(shapes):
                trainer.record(number, shape, warm=not number)
            restart(trainer, params)  # the recording's updates count for nothing
    updates = args.epochs * sum(len(source) // args.batch_size for source, _ in shapes)
    updates = min(updates, args.updates or updates)
    notes: list[tuple[int, float, list[float]]] = []
    began = time.perf_counter()
    rng = torch.Generator().manual_seed(args.seed)
    order = islice(batches(shapes, args.batch_size, rng, args.device), updates)
    with suppress(KeyboardInterrupt):
        for done, (number, rows) in enumerate(order, start=1):
            rate = args.rate * min(1, done / args.warmup) * (1 - (done - 1) / updates)
            for trainer in trainers:
                trainer.update(number, shapes[number], rows, rate)
            if done % args.note == 0 or done == updates:
                count = done - notes[-1][0] if notes else done
                means = [trainer.taken_total() / count for trainer in trainers]
                notes.append((done, round(time.perf_counter() - began, 1), means))
                text = "  ".join(f"{x:.4f}" for x in means)
                print(f"{done:6} of {updates}  {notes[-1][1]:6.1f} s  {text}", flush=True)
    if args.device == "cuda":
        torch.cuda.synchronize()
    save(args, pairs, trainers, notes, sum(len(source) for source, _ in shapes))


def save(
    args: argparse.Namespace,
    pairs: list[tuple[str, ...]],
    trainers: list[Trainer],
    notes: list[tuple[int, float, list[float]]],
    words: int,
) -> None:
    """Write the parameters of each model, and next to them how it was trained."""
    from experiments.runner import session

    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    for place, (pair, trainer) in enumerate(zip(pairs, trainers, strict=True)):
        path = args.out / f"{args.file.stem}-{'-'.join(pair)}.seed-{args.seed}"
        about = {
            "settings": {name: getattr(args, name) for name in ("batch_size", "epochs", "rate")},
            "loss": pair[0],
            "attention": pair[1],
            "update": [done for done, _, _ in notes],
            "seconds": [seconds for _, seconds, _ in notes],
            "losses": [round(means[place], 4) for _, _, means in notes],
            "device": device,
            "torch": torch.__version__,
            "models": len(pairs),
            "words": words,
            "session": session() | {"device": device, "torch": torch.__version__},
        }
        trained: dict[str, Any] = {
            # Half precision, to be carried home: it moves a weight by one part in 2,048 at most.
            name: x.astype(np.float16)
            for name, x in from_torch(trainer.model.state_dict()).items()
        }
        np.savez(f"{path}.npz", **trained)
        Path(f"{path}.json").write_text(json.dumps(about))


def restart(trainer: Trainer, params: Arrays) -> None:
    """First parameters and an empty optimizer, in the memory that the graphs know."""
    trainer.model.load_state_dict(to_torch(params))  # copies in place
    for state in trainer.optimizer.state.values():
        for x in state.values():
            x.zero_()
    trainer.total.zero_()


def batches(
    shapes: list[Shape], size: int, rng: torch.Generator, device: str
) -> Iterator[tuple[int, torch.Tensor]]:
    """Numbers of shapes, each with the rows of a batch, in random order, epoch after epoch."""
    places = [
        (number, first)
        for number, (source, _) in enumerate(shapes)
        for first in range(0, len(source) - size + 1, size)
    ]
    while True:
        orders = [torch.randperm(len(source), generator=rng).to(device) for source, _ in shapes]
        for place in torch.randperm(len(places), generator=rng).tolist():
            number, first = places[place]
            yield number, orders[number][first : first + size]


def check_mappings(device: str) -> None:
    """Mappings, products with their Jacobians and losses next to those of `pyentmax.torch`."""
    import pyentmax.torch as pt

    z = 3 * torch.randn(512, 800, device=device)
    y = torch.randint(800, (512,), device=device)
    g = torch.randn_like(z)
    for alpha, ours, loss in (
        (1.5, pt.entmax15, pt.Entmax15Loss(reduction="none")),
        (2.0, pt.sparsemax, pt.SparsemaxLoss(reduction="none")),
    ):
        for f, reference in (
            (lambda x, a=alpha: mapping(x, a), lambda x, m=ours: m(x, dim=-1)),
            (lambda x, a=alpha: losses(x, y, a), lambda x, m=loss: m(x, y)),
        ):
            results = []
            for function in (f, reference):
                x = z.clone().requires_grad_()
                out = function(x)
                out.backward(g if out.shape == g.shape else g[:, 0])
                results.append((out.detach(), x.grad))
            errors = [(a - b).abs().max().item() for a, b in zip(*results, strict=True)]
            print(f"α = {alpha}: largest differences {errors[0]:.1e}, gradient {errors[1]:.1e}")
            assert max(errors) < 1e-4


# --- measuring ------------------------------------------------------------------------------------
def measure(args: argparse.Namespace) -> None:
    """Decode the dev words with NumPy, and add a line for each trained model."""
    from experiments.peters2019.inflection import fingerprints, measured
    from experiments.runner import RESULTS, add_line, session
    from pyentmax.engine.system.blas import limit_blas
    from pyentmax.seq2seq.inflection import Inflector

    inflector, train, dev = inflector_of(args)
    for path in sorted(args.out.glob(f"{args.size}-*.json")):
        about = json.loads(path.read_text())
        arrays = {n: x.astype(np.float32) for n, x in np.load(path.with_suffix(".npz")).items()}
        config = {"loss": about["loss"], "attention": about["attention"]}
        model = with_params(Inflector, inflector, arrays, config)
        seed = int(path.stem.rpartition("-")[2])
        settings = config | {"seed": seed, "size": args.size, "hidden": args.hidden}
        settings |= {"layers": LAYERS, "dropout": DROPOUT, "score": "bilinear", "languages": "all"}
        settings |= about["settings"] | {"schedule": "linear", "beam": args.beam}
        settings |= {"trained_in": f"PyTorch {about['torch']} on {about['device']}"}
        with limit_blas(1):
            result = measured(model, dev, args.beam) | fingerprints(train, dev)
        names = ("update", "seconds", "losses", "models", "words")
        training = {name: about[name] for name in names}
        line = {"settings": settings, "result": result | {"training": training}}
        add_line(args.out / RESULTS, line | {"made_from": [about["session"], session()]})
        print(path.stem, {k: v for k, v in result.items() if k != "languages"}, flush=True)


def with_params(kind: Any, inflector: Any, arrays: Arrays, config: dict[str, str]) -> Any:
    """An inflector with these parameters, loss and attention."""
    from dataclasses import replace

    from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq

    shape = replace(inflector.model.config, output=config["loss"], attention=config["attention"])
    model = RNNSeq2Seq(shape, arrays, inflector.model.bos, inflector.model.eos)
    return kind(model, inflector.source, inflector.target)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("prepare", "train", "measure"))
    add = parser.add_argument
    add("--data", type=Path, help="folder of data")
    add("--size", default="high", choices=("high", "medium", "low"))
    add("--file", type=Path, help="the prepared words")
    add("--out", type=Path, help="folder of the trained models")
    add("--pairs", nargs="+", default=["1,1", "1.5,1.5", "2,1"], metavar="LOSS,ATTENTION")
    add("--hidden", type=int, default=300)
    add("--seed", type=int, default=0)
    add("--batch-size", type=int, default=128)
    add("--epochs", type=int, default=8)
    add("--updates", type=int, help="at most")
    add("--rate", type=float, default=2e-3)
    add("--warmup", type=int, default=200)
    add("--least", type=int, default=8, help="batches of a shape")
    add("--note", type=int, default=500, help="updates between two losses")
    add("--beam", type=int, default=5)
    add("--device", default="cuda")
    add("--check", action="store_true", help="mappings compared with pyentmax.torch, first")
    args = parser.parse_args(arguments)
    {"prepare": prepare, "train": train, "measure": measure}[args.what](args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
