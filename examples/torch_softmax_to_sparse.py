"""PyTorch: a Transformer goes from softmax to sparse attention, in four ways.

    pip install 'pyentmax[torch]' matplotlib
    python examples/torch_softmax_to_sparse.py    # a minute; saves torch_softmax_to_sparse.png

A decoder of two layers translates toy German: it reads a sentence, a mark, and the English sentence
as far as it has come. It is trained with softmax; with 1.5-entmax from the start; with softmax for
the first half and an α that then rises to 1.5; and with 1.5-entmax while queries and keys learn at
a tenth of the rate. At a rate of 0.03 sparse heads saturate and fall behind; at 0.005 none does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise SystemExit(f"{error}: pip install 'pyentmax[torch]' matplotlib") from None

import pyentmax.torch as pt

WIDTH, HEADS, LAYERS = 64, 4, 2
PADDING, MARK, END = 0, 1, 2
HELD_OUT = 400
WAYS = ("softmax", "sparse from the start", "switched late", "slow queries and keys")


class Attention(nn.Module):
    """Causal multi-head attention; `alpha` may be set between two updates."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.alpha = 1.5

    def forward(self, x: Tensor, weights: list[Tensor] | None) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        # was: F.scaled_dot_product_attention(query, key, value, is_causal=True)
        if weights is None:
            heads = pt.attention(query, key, value, self.alpha, causal=True)
        else:
            heads, seen = pt.attention(
                query, key, value, self.alpha, causal=True, return_weights=True
            )
            weights.append(seen.to_dense())
        return self.out(heads.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to what came, norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, x: Tensor, weights: list[Tensor] | None) -> Tensor:
        x = x + self.attention(self.norms[0](x), weights)
        return x + self.feed_forward(self.norms[1](x))


class Translator(nn.Module):
    """Words so far to scores of the next."""

    def __init__(self, words: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.positions = nn.Parameter(0.1 * torch.randn(length, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.scores = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, words))

    def forward(self, words: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        x = self.embedding(words) + self.positions[: words.shape[1]]
        for layer in self.layers:
            x = layer(x, weights)
        return self.scores(x)

    def set_alpha(self, alpha: float) -> None:
        for layer in self.layers:
            layer.attention.alpha = alpha


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=Path("torch_softmax_to_sparse.png"))
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.03, help="the peak, after 50 updates")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the matrices are small
    words, targets = sentences()
    histories = {}
    for way in WAYS:
        history = train(way, words, targets, options.updates, options.rate, options.seed)
        histories[way] = history
        _, accuracy, first, last, single = history[-1]
        print(
            f"{way:22} {accuracy:.1%} right, attends to {first:4.1f} and {last:4.1f} words, "
            f"{single:.0%} of the queries to a single one",
            flush=True,
        )
    draw(histories).savefig(options.picture, dpi=150)
    print(f"saved {options.picture}")


def sentences() -> tuple[Tensor, Tensor]:
    """German, a mark and English as one row of words; the targets are the English words."""
    lines = Path(__file__).with_name("toy_german.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [tuple(side.split() for side in line.split("\t")) for line in lines]
    vocabulary = sorted({word for pair in pairs for side in pair for word in side})
    index = {word: n for n, word in enumerate(vocabulary, END + 1)}
    length = max(len(german) + len(english) for german, english in pairs) + 1
    words = torch.full((len(pairs), length), PADDING)
    targets = torch.full((len(pairs), length), -100)
    for row, (german, english) in enumerate(pairs):
        numbers = [index[w] for w in german] + [MARK] + [index[w] for w in english]
        words[row, : len(numbers)] = torch.tensor(numbers)
        expected = [*numbers[len(german) + 1 :], END]
        targets[row, len(german) : len(numbers)] = torch.tensor(expected)
    return words, targets


def train(
    way: str, words: Tensor, targets: Tensor, updates: int, rate: float, seed: int
) -> list[tuple[float, ...]]:
    """A row of measurements for every tenth of the updates."""
    torch.manual_seed(seed)
    model = Translator(int(words.max()) + 1, words.shape[1])
    slow, others = [], []
    for name, parameter in model.named_parameters():
        (slow if ".query." in name or ".key." in name else others).append(parameter)
    factor = 0.1 if way == "slow queries and keys" else 1.0
    optimizer = torch.optim.Adam([{"params": others}, {"params": slow}], betas=(0.9, 0.98))
    loss_of = nn.CrossEntropyLoss()
    history = []
    for update in range(1, updates + 1):
        model.set_alpha(alpha_at(way, update / updates))
        now = rate * min(update / 50, (50 / update) ** 0.5)  # warm-up, then 1/√updates
        for group, share in zip(optimizer.param_groups, (1.0, factor), strict=True):
            group["lr"] = now * share
        batch = torch.randint(len(words) - HELD_OUT, (32,))
        loss = loss_of(model(words[batch]).flatten(0, 1), targets[batch].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % max(1, updates // 10) == 0:
            # Read as it will be used: sparsely, but for the model that stays dense.
            model.set_alpha(1.0 if way == "softmax" else 1.5)
            history.append((update, *measure(model, words[-HELD_OUT:], targets[-HELD_OUT:])))
    return history


def alpha_at(way: str, done: float) -> float:
    """α when a share of the updates is done."""
    if way == "softmax":
        return 1.0
    if way == "switched late":
        return 1 + 0.5 * min(max((done - 0.5) / 0.2, 0.0), 1.0)
    return 1.5


@torch.no_grad()
def measure(model: Translator, words: Tensor, targets: Tensor) -> tuple[float, ...]:
    """Share of right words, mean supports of both layers, queries with a single key in theirs."""
    weights: list[Tensor] = []
    scores = model(words, weights)
    counts = targets >= 0
    right = (scores.argmax(-1) == targets)[counts].float().mean().item()
    supports = [(w > 0).sum(-1).transpose(1, 2)[counts].float() for w in weights]
    first, last = (support.mean().item() for support in supports)
    single = torch.cat([support == 1 for support in supports]).float().mean().item()
    return right, first, last, single


def draw(histories: dict[str, list[tuple[float, ...]]]) -> plt.Figure:
    """Accuracy and supports against updates."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    for (way, history), style in zip(histories.items(), ("-", "--", "-.", ":"), strict=True):
        updates, accuracy, first, last, _ = zip(*history, strict=True)
        left.plot(updates, accuracy, style, label=way)
        mean = [(a + b) / 2 for a, b in zip(first, last, strict=True)]
        right.plot(updates, mean, style)
    left.set(xlabel="updates", ylabel="held-out words that are right", ylim=(0.45, 1.005))
    left.legend(frameon=False, fontsize=9, loc="lower right")
    right.set(xlabel="updates", ylabel="words a query attends to", yscale="log")
    right.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    right.minorticks_off()
    return figure


if __name__ == "__main__":
    main()
