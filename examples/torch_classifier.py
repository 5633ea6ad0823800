"""PyTorch: a classifier of handwritten digits trained with the 1.5-entmax loss.

    pip install 'pyentmax[torch]' scikit-learn matplotlib
    python examples/torch_classifier.py          # some ten seconds; saves torch_classifier.png

`pt.entmax15_loss` stands where `F.cross_entropy` did, and `pt.entmax15` where `torch.softmax` did.
The network is as often right, and says of most digits that nothing else is possible; of a few it
names several, which are in the picture.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
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

Loss = Callable[[Tensor, Tensor], Tensor]
WAYS: dict[str, tuple[Loss, Callable[[Tensor], Tensor]]] = {
    "softmax": (nn.functional.cross_entropy, lambda z: torch.softmax(z, -1)),
    "1.5-entmax": (pt.entmax15_loss, pt.entmax15),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=Path("torch_classifier.png"))
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args(arguments)
    digits, labels = load_digits(return_X_y=True)
    parts = train_test_split(digits / 16, labels, test_size=0.3, random_state=0, stratify=labels)
    x, new_x, y, new_y = (torch.from_numpy(part) for part in parts)
    x, new_x = x.float(), new_x.float()

    for name, (loss_of, mapping) in WAYS.items():
        print(name)
        model = train(x, y, loss_of, options.epochs)
        with torch.no_grad():
            p = mapping(model(new_x))
        right = (p.argmax(-1) == new_y).float().mean()
        possible = (p > 0).sum(-1)
        print(
            f"  {right:.1%} of new digits right; {possible.float().mean():.2f} of 10 possible, "
            f"a single one for {(possible == 1).float().mean():.0%}"
        )
    draw(new_x, new_y, p).savefig(options.picture, dpi=150)
    print(f"saved {options.picture}")


def train(x: Tensor, y: Tensor, loss_of: Loss, epochs: int) -> nn.Module:
    """A network of one hidden layer, after so many epochs of Adam."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(x)).split(64):
            loss = loss_of(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 0 or epoch == epochs:
            print(f"  epoch {epoch:3}: loss {total / len(x):.4f}", flush=True)
    return model.eval()


def draw(x: Tensor, y: Tensor, p: Tensor) -> plt.Figure:
    """The digits of which most is possible, and their probabilities."""
    doubted = (p > 0).sum(-1).argsort(descending=True, stable=True)[:6]
    figure, axes = plt.subplots(2, 6, figsize=(9, 3), layout="constrained")
    for (image, bars), i in zip(axes.T, doubted.tolist(), strict=True):
        image.imshow(x[i].reshape(8, 8), cmap="Greys")
        image.set(title=f"a {y[i]}", xticks=[], yticks=[])
        shown = (p[i] > 0).nonzero()[:, 0].tolist()
        heights = [p[i, digit].item() for digit in shown]
        colours = ["#0072B2" if digit == y[i] else "#E69F00" for digit in shown]
        drawn = bars.bar(range(len(shown)), heights, color=colours)
        texts = [f"{h:.0%}" if h > 0.005 else "< 1%" for h in heights]
        bars.bar_label(drawn, texts, fontsize=8, rotation=90)
        bars.set(xticks=range(len(shown)), xticklabels=shown, yticks=[], ylim=(0, 1.15))
        bars.spines[["top", "right", "left"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
