"""A decoder-only Transformer in PyTorch, with softmax or α-entmax in its heads and its output.

Norms come first, positions are rotated into queries and keys, so that texts may be longer than in
training, and the output layer shares the embeddings. With softmax it calls what PyTorch has for it:
`scaled_dot_product_attention` and `cross_entropy`; with α-entmax `pt.attention`, `pt.linear_loss`,
and in generation `pt.ScreenedRows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pyentmax.torch as pt

POSITIONS = 8192
linear = partial(nn.Linear, bias=False)


class Cache:
    """Keys and values of the positions so far, in memory that holds ``more`` of them."""

    def __init__(self, more: int, screened: bool) -> None:
        self.more, self.screened, self.filled = more, screened, 0
        self.key: Any = None
        self.value = torch.empty(0)

    def add(self, key: Tensor, value: Tensor) -> tuple[Any, Tensor]:
        """All keys and values, with these behind those of before."""
        start, self.filled = self.filled, self.filled + key.shape[2]
        if not start:
            longer = (*key.shape[:2], self.filled + self.more, key.shape[3])
            self.value = value.new_empty(longer)
            self.key = pt.ScreenedRows(key) if self.screened else key.new_empty(longer)
        elif self.screened:
            self.key.append(key)
        self.value[:, :, start : self.filled] = value
        if self.screened:
            return self.key, self.value[:, :, : self.filled]
        self.key[:, :, start : self.filled] = key
        return self.key[:, :, : self.filled], self.value[:, :, : self.filled]


class Block(nn.Module):
    """Causal self-attention, then a network; ``alpha`` may be changed in a trained model."""

    def __init__(self, width: int, heads: int, alpha: float) -> None:
        super().__init__()
        self.heads, self.alpha = heads, alpha
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.network = nn.Sequential(linear(width, 4 * width), nn.GELU(), linear(4 * width, width))
        half = width // heads // 2
        angles = torch.outer(torch.arange(POSITIONS), 10_000.0 ** (-torch.arange(half) / half))
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()]), persistent=False)

    def rotated(self, x: Tensor, start: int) -> Tensor:
        """Queries or keys, turned by their positions (Su et al. 2021)."""
        (a, b), (cos, sin) = x.chunk(2, -1), self.turns[:, start : start + x.shape[2]]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def attend(self, x: Tensor, cache: Cache | None, supports: Any) -> Tensor:
        """Attention of all heads; appends the mean number of keys with weight to ``supports``."""
        b, t, width = x.shape
        query, key, value = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        start = cache.filled if cache else 0
        query, key = self.rotated(query, start), self.rotated(key, start)
        keys, values = cache.add(key, value) if cache else (key, value)
        if start:  # one query, which sees all keys
            attention: Any = partial(pt.attention, alpha=self.alpha)
            attention = F.scaled_dot_product_attention if self.alpha == 1 else attention
            y = attention(query, keys, values)
        elif supports is not None:
            options: dict[str, Any] = {"causal": True, "return_weights": True}
            y, weights = pt.attention(query, key, value, self.alpha, **options)
            supports.append(float(weights.support_sizes.float().mean()))
        elif self.alpha == 1:
            y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            y = pt.attention(query, key, value, self.alpha, causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, width))

    def forward(self, x: Tensor, cache: Cache | None, supports: Any) -> Tensor:
        x = x + self.attend(self.norms[0](x), cache, supports)
        return x + self.network(self.norms[1](x))


class Decoder(nn.Module):
    """Tokens to a distribution of the next: α of the heads, and of the output 1 or 1.5."""

    def __init__(
        self, words: int, alpha: float, output: float, width: int, heads: int, layers: int
    ) -> None:
        super().__init__()
        self.output = output
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, alpha) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        for name, x in self.named_parameters():
            if x.dim() == 2:
                last = name.endswith(("out.weight", "network.2.weight"))
                nn.init.normal_(x, std=0.02 / (2 * layers) ** 0.5 if last else 0.02)

    def forward(self, tokens: Tensor, caches: Any = None, supports: Any = None) -> Tensor:
        """States of shape (B, T, width)."""
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache, supports)
        return self.norm(x)

    def loss(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The loss that belongs to the output: cross-entropy, or that of 1.5-entmax."""
        x, rows = self(tokens).flatten(0, 1), self.embedding.weight
        if self.output == 1:
            return F.cross_entropy(x @ rows.T, labels.flatten())
        return pt.linear_loss(x, rows, labels.flatten())

    def probabilities(self, x: Tensor) -> Tensor:
        """The distribution after each state."""
        return pt.entmax(x @ self.embedding.weight.T, self.output)

    @torch.no_grad()
    def generate(self, prompt: Tensor, more: int) -> Iterator[int]:
        """Tokens drawn one after another behind a prompt of shape (1, T), whose time the first
        takes, too."""
        caches = [Cache(more, screened=1 < block.alpha <= 2) for block in self.blocks]
        weight = self.embedding.weight.detach()
        rows = pt.ScreenedRows(weight) if self.output > 1 else None
        for _ in range(more):
            x = self(prompt, caches)[:, -1]
            if rows is None:
                token = torch.multinomial(torch.softmax(x @ weight.T, -1)[0], 1)
            else:
                p = pt.entmax_linear(x, rows, self.output)
                token = p.col_indices()[torch.multinomial(p.values(), 1)]
            prompt = token[None]
            yield int(token)
