"""The model of `pyentmax.seq2seq.models.language_model` in PyTorch, from the same parameters.

Written as one would for PyTorch: its fused layer norm, cross-entropy and Adam, and for softmax its
scaled dot-product attention. With another mapping, a function of PyTorch tensors, the weights are
computed as written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from pyentmax.seq2seq.nn.positions import sinusoidal_positions

Mapping = Callable[[torch.Tensor], torch.Tensor]


class TorchLanguageModel(nn.Module):
    """A decoder-only Transformer with the parameters of a `LanguageModel`: pre-norm, sinusoidal."""

    def __init__(self, model: Any, mapping: Mapping | None = None, fused: bool = True) -> None:
        super().__init__()
        config = model.config
        assert (config.norm, config.positions, config.score) == ("pre", "sinusoidal", "scaled")
        assert not config.tied
        self.config, self.mapping, self.fused = config, mapping, fused
        for name, x in model.params.items():
            # A linear layer of PyTorch holds its weight transposed, which is the faster way there.
            two = name.endswith("weight") and "embedding" not in name
            value = torch.from_numpy(np.array(x.T if two else x, order="C"))
            self.register_parameter(name.replace(".", "_"), nn.Parameter(value))
        positions = torch.from_numpy(sinusoidal_positions(np.arange(1024), config.width))
        self.register_buffer("positions", positions)

    def p(self, name: str) -> torch.Tensor:
        return getattr(self, name.replace(".", "_"))

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.p(f"{name}.weight"), self.p(f"{name}.bias"))

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        width = (x.shape[-1],)
        return F.layer_norm(x, width, self.p(f"{name}.norm.gain"), self.p(f"{name}.norm.bias"))

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.config.dropout, self.training)

    def attention(self, name: str, x: torch.Tensor) -> torch.Tensor:
        b, t, n = x.shape
        h = self.config.heads
        inside = self.norm(name, x)
        q, k, v = (
            self.linear(f"{name}.{part}", inside).view(b, t, h, n // h).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        if self.mapping is None and self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (n // h) ** -0.5
            later = torch.ones(t, t, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
            y = (self.mapping(scores) if self.mapping else scores.softmax(dim=-1)) @ v
        return x + self.drop(self.linear(f"{name}.output", y.transpose(1, 2).flatten(2)))

    def network(self, name: str, x: torch.Tensor) -> torch.Tensor:
        inner = self.linear(f"{name}.inner", self.norm(name, x)).relu()
        return x + self.drop(self.linear(f"{name}.output", inner))

    def scores(self, tokens: torch.Tensor) -> torch.Tensor:
        x = F.embedding(tokens, self.p("embedding.weight")) * self.config.width**0.5
        x = self.drop(x + self.positions[: tokens.shape[1]])
        for k in range(self.config.layers):
            x = self.attention(f"layer.{k}.self", x)
            x = self.network(f"layer.{k}.network", x)
        return self.linear("output", self.norm("last", x))

    def loss(self, batch: Any) -> torch.Tensor:
        scores = self.scores(torch.from_numpy(batch.tokens_in))
        return F.cross_entropy(scores.flatten(0, 1), torch.from_numpy(batch.tokens_out).flatten())
