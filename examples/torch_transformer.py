"""PyTorch: a Transformer encoder whose heads learn how sparse they are.

    pip install 'pyentmax[torch]' scikit-learn matplotlib
    python examples/torch_transformer.py          # half a minute; saves torch_transformer.png

The digits of scikit-learn, cut into 16 patches of 2 × 2 pixels, are sequences. In each layer
`pt.AlphaEntmax(heads)` stands where softmax stood: an α per head, 1 + σ(a), from softmax (1) to
sparsemax (2), which is trained with everything else (Correia, Niculae and Martins 2019).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from torch import Tensor, nn
except ImportError as error:
    raise SystemExit(f"{error}: pip install 'pyentmax[torch]' scikit-learn matplotlib") from None

import pyentmax.torch as pt

WIDTH, HEADS, LAYERS, PATCHES = 32, 4, 2, 16


class SelfAttention(nn.Module):
    """Multi-head attention with an α for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.to_all = nn.Linear(WIDTH, 3 * WIDTH)
        self.weights_of = pt.AlphaEntmax(HEADS, a=torch.zeros(HEADS))  # all begin at α = 1.5
        self.out = nn.Linear(WIDTH, WIDTH)
        self.weights = torch.empty(0)  # of the last call, for inspection

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.to_all(x).unflatten(-1, (3, HEADS, -1)).movedim(-3, 0)
        query, key, value = (part.transpose(-2, -3) for part in (query, key, value))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights = self.weights_of(scores)  # was: scores.softmax(-1)
        self.weights = weights.detach()
        return self.out((weights @ value).transpose(-2, -3).flatten(-2))


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to what came."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention()
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.feed_forward(self.norms[1](x))


class Encoder(nn.Module):
    """Patches to the scores of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(4, WIDTH)
        self.positions = nn.Parameter(0.3 * torch.randn(PATCHES, WIDTH))
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.scores = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.layers(self.embedding(x) + self.positions).mean(-2))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=Path("torch_transformer.png"))
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args(arguments)
    digits, labels = load_digits(return_X_y=True)
    parts = train_test_split(digits / 16, labels, test_size=0.3, random_state=0, stratify=labels)
    x, new_x, y, new_y = (torch.from_numpy(part) for part in parts)
    x, new_x = patches(x.float()), patches(new_x.float())

    torch.manual_seed(0)
    model, loss_of = Encoder(), pt.Entmax15Loss()
    # The α are few and their gradients small: a rate of their own.
    own = [layer.attention.weights_of.a for layer in model.layers]
    others = [p for name, p in model.named_parameters() if not name.endswith("weights_of.a")]
    optimizer = torch.optim.Adam([{"params": others}, {"params": own, "lr": 0.03}], lr=3e-3)
    for epoch in range(1, options.epochs + 1):
        for batch in torch.randperm(len(x)).split(64):
            loss = loss_of(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 5 == 0 or epoch == options.epochs:
            with torch.no_grad():
                right = (model(new_x).argmax(-1) == new_y).float().mean()
            print(f"epoch {epoch:3}: {right:.1%} right; α {alphas(model)}", flush=True)
    draw(model, new_x[:1]).savefig(options.picture, dpi=150)
    print(f"saved {options.picture}")


def patches(x: Tensor) -> Tensor:
    """(n, 64) pixels as (n, 16, 4)."""
    return x.reshape(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, PATCHES, 4)


def alphas(model: Encoder) -> str:
    """The α of every head, layer by layer."""
    layers = [layer.attention.weights_of.alpha.tolist() for layer in model.layers]
    return " | ".join(" ".join(f"{alpha:.2f}" for alpha in layer) for layer in layers)


def draw(model: Encoder, x: Tensor) -> plt.Figure:
    """What each head attends to for one digit; zeros are white."""
    with torch.no_grad():
        model(x)
    figure, axes = plt.subplots(
        LAYERS, HEADS, figsize=(8, 4.8), layout="constrained", squeeze=False
    )
    figure.supxlabel("patch attended to", fontsize=9)
    figure.supylabel("patch that attends", fontsize=9)
    for row, (layer, drawn) in enumerate(zip(model.layers, axes, strict=True), 1):
        weights, alpha = layer.attention.weights[0], layer.attention.weights_of.alpha.tolist()
        for head, axis in enumerate(drawn):
            zeros = (weights[head] == 0).float().mean()
            shown = weights[head].where(weights[head] > 0, torch.nan)
            axis.imshow(shown, cmap="Blues", vmin=-0.15, vmax=shown.nan_to_num(0).max())
            axis.set(xticks=[], yticks=[], xlabel=f"{zeros:.0%} zeros")
            axis.set_title(f"layer {row}, α = {alpha[head]:.2f}", fontsize=9)
    return figure


if __name__ == "__main__":
    main()
