"""A decoder with NAPE: ALiBi on the first half of the heads, no positions on the others.

The scores of the heads without positions are scaled by what `SCALES` names, of the n keys that a
query sees; those with ALiBi are not, as in the paper. ALiBi needs no bias: with m·j as one more
feature of key j, and 1 of each query, the scores are those with −m (t − j) up to a constant of the
row, which no mapping sees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import pyentmax.torch as pt

SCALES = {
    "softmax": ("softmax", "one"),
    "softmax · s log n": ("softmax", "log"),
    "softmax · (δ + β (log n)^γ)": ("softmax", "power"),
    "1.5-entmax": ("entmax15", "one"),
    "1.5-entmax · s log n": ("entmax15", "log"),
    "ASEntmax": ("entmax15", "power"),
}
"""Row → its mapping and its scale: 1, SSMax's s log n, or δ + β (log n)^γ with δ = 1."""


class Cache:
    """Keys and values of the positions so far, for up to ``length`` of them."""

    def __init__(self, length: int) -> None:
        self.length, self.filled = length, 0
        self.key = self.value = torch.empty(0)

    def add(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values, with these behind those of before."""
        if not self.filled:
            self.key = key.new_empty(*key.shape[:2], self.length, key.shape[-1])
            self.value = value.new_empty(*value.shape[:2], self.length, value.shape[-1])
        start, self.filled = self.filled, self.filled + key.shape[2]
        self.key[:, :, start : self.filled], self.value[:, :, start : self.filled] = key, value
        return self.key[:, :, : self.filled], self.value[:, :, : self.filled]


class Attention(nn.Module):
    """Causal self-attention whose scores are scaled by head and query."""

    def __init__(self, width: int, heads: int, row: str) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.mapping, self.scaled = SCALES[row]
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        alibi = heads // 2
        self.register_buffer("slopes", torch.zeros(heads, 1))
        self.slopes[:alibi, 0] = 1 / torch.arange(1, alibi + 1)
        self.register_buffer("free", (self.slopes == 0).float())
        if self.scaled == "log":
            self.s = nn.Parameter(torch.ones(heads, 1))
        elif self.scaled == "power":  # of each head and query
            self.beta_gamma = nn.Linear(width, 2 * heads)

    def scale(self, x: torch.Tensor, start: int) -> torch.Tensor:
        """Of queries from position ``start`` on: of shape (heads, T), or (B, heads, T)."""
        log_n = torch.log(torch.arange(start, start + x.shape[1]) + 2.0)  # log(n + 1): not 0 at 1
        if self.scaled == "one":
            return torch.ones(self.heads, 1)
        if self.scaled == "log":
            return 1 + self.free * (self.s * log_n - 1)
        beta, gamma = self.beta_gamma(x).mT.chunk(2, dim=1)
        return 1 + self.free * F.softplus(beta) * log_n ** (2 * torch.tanh(gamma))

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        start = cache.filled if cache else 0
        q = q * (self.scale(x, start) * self.size**-0.5)[..., None]
        j = torch.arange(start, start + t, dtype=x.dtype)
        q = torch.cat([q, q.new_ones(b, self.heads, t, 1)], -1)
        k = torch.cat([k, (self.slopes * j).expand(b, -1, -1)[..., None]], -1)
        if cache:
            k, v = cache.add(k, v)
        if t == 1 or self.training:  # few scores: an array of them all is the faster way
            scores = q @ k.mT
            if t > 1:
                scores = scores + torch.full((t, t), -torch.inf).triu(1)
            y = getattr(pt, self.mapping)(scores) @ v
        else:
            y = pt.attention(q, k, v, causal=True, mapping=self.mapping, scale=1.0)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    """Attention, then a network, each behind a norm."""

    def __init__(self, width: int, heads: int, row: str) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.attention = Attention(width, heads, row)
        self.network = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), cache)
        return x + self.network(self.norms[1](x))


class Decoder(nn.Module):
    """Scores of the next symbol after each position."""

    def __init__(self, symbols: int, row: str, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.blocks = nn.ModuleList(Block(width, heads, row) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, symbols, bias=False)

    def forward(
        self, tokens: torch.Tensor, last: int, caches: list[Any] | None = None
    ) -> torch.Tensor:
        """Scores after the last positions, of shape (B, last, symbols)."""
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
        return self.output(self.norm(x[:, -last:]))

    @torch.inference_mode()
    def generate(self, prompt: torch.Tensor, count: int) -> torch.Tensor:
        """The symbols that follow, each the most probable one after those chosen before it."""
        caches = [Cache(prompt.shape[1] + count) for _ in self.blocks]
        chosen = [self(prompt, 1, caches).argmax(-1)]
        for _ in range(count - 1):
            chosen.append(self(chosen[-1], 1, caches).argmax(-1))
        return torch.cat(chosen, 1)
