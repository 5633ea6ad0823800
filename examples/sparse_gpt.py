"""PyTorch: a GPT of characters that grows from softmax to sparse in five steps, in one file.

    pip install 'pyentmax[torch]' matplotlib
    python examples/sparse_gpt.py                 # two minutes on a core; saves sparse_gpt.png
    python examples/sparse_gpt.py --step 1        # the softmax GPT it grows from; likewise 2, 3, 4

Step 1 is a GPT: softmax in its attention, cross-entropy on its output. Step 2: 1.5-entmax in the
attention, where most keys get a weight of exactly 0. Step 3: an α for each head, learned. Step 4:
the 1.5-entmax loss, fused with the output layer. Step 5: sampling without top-k, top-p or min-p.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

try:
    import matplotlib.pyplot as plt
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise SystemExit(f"{error}: pip install 'pyentmax[torch]' matplotlib") from None

import pyentmax.torch as pt

WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 64, 8
GUIDE = Path(__file__).parents[1] / "docs" / "guide"


# --- the text -------------------------------------------------------------------------------------
def read_text(path: str | None) -> str:
    """A file, or the prose of this library's guide, in lower case."""
    files = [Path(path)] if path else sorted(GUIDE.glob("*.md"))
    text = "\n".join(file.read_text("utf-8") for file in files)
    return "".join(c for c in text.lower() if c in "abcdefghijklmnopqrstuvwxyz ,.:;'()-\n")


def draw_batch(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Pieces of the text from random places, and the same one character later."""
    starts = torch.randint(len(tokens) - CONTEXT - 1, (BATCH, 1))
    pieces = tokens[starts + torch.arange(CONTEXT + 1)]
    return pieces[:, :-1], pieces[:, 1:]


# --- the model ------------------------------------------------------------------------------------
class Attention(nn.Module):
    """Causal self-attention of several heads."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.to_all, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        # Step 3. α = 1 + σ(10 a): all heads begin near softmax, where every key gets a gradient.
        # By the 10, α moves as fast as its gradient asks for while weights move slowly.
        self.a = nn.Parameter(torch.full((HEADS,), -0.2))

    def alpha(self) -> Tensor:
        """The α of each head."""
        fixed = torch.full((HEADS,), 1.0 if self.step == 1 else 1.5)
        return fixed if self.step < 3 else 1 + (10 * self.a).sigmoid()

    def split(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values: batch, heads, positions, features."""
        heads = self.to_all(x).unflatten(-1, (3, HEADS, -1))
        return heads.movedim(-3, 0).transpose(-2, -3).unbind()

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.split(x)
        if self.step == 1:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:  # Step 2. The same arguments; its cost follows the number of weights that are not 0.
            mixed = pt.attention(query, key, value, self.alpha(), causal=True)
        return self.out(mixed.transpose(-2, -3).flatten(-2))

    def weights(self, x: Tensor) -> Tensor:
        """The weights of one text, as a dense matrix for each head, to be drawn."""
        query, key, _ = self.split(x)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return pt.entmax(scores, self.alpha()[:, None], mask=seen)


class Block(nn.Module):
    """Attention and a feed-forward network, each added to what came."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.attention = Attention(step)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.feed_forward = nn.Sequential(wide, nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.feed_forward(self.norms[1](x))


class GPT(nn.Module):
    """Characters in, states out; the output layer is ``rows``, one row for each character."""

    def __init__(self, size: int, step: int) -> None:
        super().__init__()
        self.step = step
        self.tokens, self.places = nn.Embedding(size, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        for table in self.tokens, self.places:
            nn.init.normal_(table.weight, std=0.02)  # small, so that blocks count from the start
        self.blocks = nn.Sequential(*(Block(step) for _ in range(LAYERS)))
        self.norm, self.rows = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[-1]))
        return self.norm(self.blocks(x))

    def loss(self, tokens: Tensor, after: Tensor) -> Tensor:
        """The mean loss of the next characters."""
        states = self(tokens)
        if self.step < 4:
            return functional.cross_entropy(self.rows(states).flatten(0, 1), after.flatten())
        # Step 4. No tensor of all scores is made; with 32,000 classes that is most of the memory.
        return pt.linear_loss(states, self.rows.weight, after, "entmax15")

    def probabilities(self, tokens: Tensor) -> Tensor:
        """Of the next character."""
        scores = self.rows(self(tokens[:, -CONTEXT:])[:, -1])
        return scores.softmax(-1) if self.step < 5 else pt.entmax15(scores)

    @torch.no_grad()
    def write(self, tokens: Tensor, length: int) -> tuple[Tensor, float]:
        """Continue a text; and how many characters were possible at a place, on average."""
        possible = 0
        for _ in range(length):
            p = self.probabilities(tokens)
            possible += (p > 0).sum().item()
            # Step 5. Nothing is cut off first: what is impossible has probability 0 already.
            tokens = torch.cat([tokens, torch.multinomial(p, 1)], dim=1)
        return tokens, possible / length


# --- the training ---------------------------------------------------------------------------------
def train(model: GPT, tokens: Tensor, held_out: Tensor, updates: int) -> None:
    """AdamW with a falling rate; prints the loss of the held-out text, and what share is right."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, updates)
    pieces = held_out[: 64 * CONTEXT].view(64, CONTEXT)
    known, after = pieces[:, :-1], pieces[:, 1:]
    for update in range(1, updates + 1):
        optimizer.zero_grad()
        model.loss(*draw_batch(tokens)).backward()
        optimizer.step()
        schedule.step()
        if update == updates or update % max(updates // 5, 1) == 0:
            with torch.no_grad():
                loss = model.loss(known, after)
                right = (model.rows(model(known)).argmax(-1) == after).float().mean()
            print(f"update {update:5}: held-out loss {loss:.3f}, {right:.1%} of characters right")


def draw(model: GPT, tokens: Tensor, text: str, path: str) -> None:
    """A map for each head: a row per query, blue where a key has some weight, white where none."""
    figure, axes = plt.subplots(LAYERS, HEADS, figsize=(9, 5), layout="constrained")
    with torch.no_grad():
        x = model.tokens(tokens) + model.places(torch.arange(len(tokens)))
        for row, block in zip(axes, model.blocks, strict=True):
            maps = block.attention.weights(block.norms[0](x))
            for ax, weights, alpha in zip(row, maps, block.attention.alpha(), strict=True):
                zeros = 1 - (weights > 0).sum().item() / (len(tokens) * (len(tokens) + 1) / 2)
                ax.imshow(weights**0.5, cmap="Blues")
                ax.set_title(f"α = {alpha:.2f}, {zeros:.0%} zeros", fontsize=9)
                ax.set_xticks([])
                ax.set_yticks(range(len(text)), text, fontsize=5)
            x = block(x)
    figure.savefig(path, dpi=100)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the model of a step, let it write, and draw what its heads look at."""
    parser = argparse.ArgumentParser(description="A GPT that grows from softmax to sparse.")
    parser.add_argument("--step", type=int, choices=range(1, 6), default=5)
    parser.add_argument("--text", help="a file to learn from; by default this library's guide")
    parser.add_argument("--updates", type=int, default=2000)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    letters = sorted(set(text := read_text(options.text)))
    tokens = torch.tensor([letters.index(c) for c in text])
    cut = len(tokens) * 9 // 10
    model = GPT(len(letters), options.step)
    print(f"step {options.step}: {len(text):,} characters, {len(letters)} different ones")
    train(model, tokens[:cut], tokens[cut:], options.updates)
    begin = torch.tensor([[letters.index(c) for c in "\n"]])
    written, possible = model.write(begin, 300)
    print(f"{possible:.1f} of {len(letters)} characters possible at a place, on average")
    print("".join(letters[i] for i in written[0, 1:].tolist()))
    draw(model, tokens[cut : cut + 32], text[cut : cut + 32].replace("\n", "⏎"), "sparse_gpt.png")
    print("saved sparse_gpt.png")


if __name__ == "__main__":
    main()
