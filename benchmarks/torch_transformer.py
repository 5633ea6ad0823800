"""The Transformer of `pyentmax.models.transformer` in PyTorch, from the same parameters.

Written as one would for PyTorch: its fused layer norm, cross-entropy and Adam, its batched
products. With a mapping other than softmax the weights come from the `entmax` package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from pyentmax.nn.positions import sinusoidal_positions

Mapping = Callable[[torch.Tensor], torch.Tensor]


class TorchTransformer(nn.Module):
    """Encoder-decoder with the parameters of a `pyentmax` Transformer, post-norm with biases."""

    def __init__(self, model: Any, mapping: Mapping | None = None) -> None:
        super().__init__()
        config = model.config
        assert (config.norm, config.score) == ("post", "scaled")
        self.config, self.mapping = config, mapping
        self.names = {name: name.replace(".", "_") for name in model.params}
        for name, x in model.params.items():
            # A linear layer of PyTorch holds its weight transposed, which is the faster way there.
            two = name.endswith("weight") and "embedding" not in name
            value = torch.from_numpy(np.ascontiguousarray(x.T if two else x))
            self.register_parameter(self.names[name], nn.Parameter(value))
        self.positions = torch.from_numpy(sinusoidal_positions(np.arange(512), config.width))
        self.heads = config.heads

    def p(self, name: str) -> torch.Tensor:
        return getattr(self, self.names[name])

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.p(f"{name}.weight"), self.p(f"{name}.bias"))

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        width = (x.shape[-1],)
        return F.layer_norm(x, width, self.p(f"{name}.norm.gain"), self.p(f"{name}.norm.bias"))

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.config.dropout, self.training)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        b, t, n = x.shape
        return x.view(b, t, self.heads, n // self.heads).transpose(1, 2)

    def weights(self, scores: torch.Tensor, name: str) -> torch.Tensor:
        if self.mapping is None:
            return scores.softmax(dim=-1)
        return self.mapping(scores)

    def keys_values(self, name: str, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            self.split(self.linear(f"{name}.key", memory)),
            self.split(self.linear(f"{name}.value", memory)),
        )

    def attend(self, name: str, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.attend_to(name, x, *self.keys_values(name, memory), mask)

    def attend_to(
        self, name: str, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any
    ) -> torch.Tensor:
        q = self.split(self.linear(f"{name}.query", x))
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = self.weights(scores, name)
        y = (weights @ v).transpose(1, 2).flatten(2)
        return self.norm(name, x + self.drop(self.linear(f"{name}.output", y)))

    def network(self, name: str, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(f"{name}.output", self.linear(f"{name}.inner", x).relu())
        return self.norm(name, x + self.drop(y))

    def embed(self, side: str, tokens: torch.Tensor, start: int = 0) -> torch.Tensor:
        table = "target" if self.config.tied == "all" else side
        x = F.embedding(tokens, self.p(f"{table}_embedding.weight")) * self.config.width**0.5
        return self.drop(x + self.positions[start : start + tokens.shape[1]])

    def encode(self, source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed("source", source)
        for k in range(self.config.layers):
            x = self.attend(f"encoder.{k}.self", x, x, mask[:, None, None])
            x = self.network(f"encoder.{k}.network", x)
        return x

    def hidden(
        self, source: torch.Tensor, mask: torch.Tensor, target_in: torch.Tensor
    ) -> torch.Tensor:
        memory = self.encode(source, mask)
        x = self.embed("target", target_in)
        t = x.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        for k in range(self.config.layers):
            x = self.attend(f"decoder.{k}.self", x, x, causal)
            x = self.attend(f"decoder.{k}.context", x, memory, mask[:, None, None])
            x = self.network(f"decoder.{k}.network", x)
        return x

    def output(self, hidden: torch.Tensor) -> torch.Tensor:
        table = "output" if self.config.tied == "none" else "target_embedding"
        return F.linear(hidden, self.p(f"{table}.weight"), self.p("output.bias"))

    def loss(self, batch: Any) -> torch.Tensor:
        source, mask, target_in, target_out, real = (
            torch.from_numpy(x)
            for x in (
                batch.source,
                batch.source_mask,
                batch.target_in,
                batch.target_out,
                batch.target_mask,
            )
        )
        hidden = self.hidden(source, mask, target_in)[real]
        smoothing = self.config.label_smoothing
        return F.cross_entropy(self.output(hidden), target_out[real], label_smoothing=smoothing)

    @torch.inference_mode()
    def greedy(self, source: np.ndarray, bos: int, eos: int, steps: int) -> list[list[int]]:
        """Greedy search with a cache, for sources of one length; what ends leaves the batch."""
        tokens = torch.from_numpy(source)
        memory = self.encode(tokens, torch.ones_like(tokens, dtype=torch.bool))
        layers = range(self.config.layers)
        context = [self.keys_values(f"decoder.{k}.context", memory) for k in layers]
        past: list[Any] = [None] * len(layers)
        last = torch.full((len(source), 1), bos)
        owner = torch.arange(len(source))
        found: list[list[int]] = [[] for _ in source]
        for t in range(steps + 1):
            x = self.embed("target", last, t)
            for k in layers:
                new = self.keys_values(f"decoder.{k}.self", x)
                both = zip(past[k], new, strict=True) if past[k] else ()
                past[k] = tuple(torch.cat(pair, dim=2) for pair in both) or new
                x = self.attend_to(f"decoder.{k}.self", x, *past[k], None)
                x = self.attend_to(f"decoder.{k}.context", x, *context[k], None)
                x = self.network(f"decoder.{k}.network", x)
            best = self.output(x[:, 0]).log_softmax(dim=-1).argmax(dim=-1)
            going = best != eos if t < steps else torch.zeros_like(best, dtype=torch.bool)
            for i, token in zip(owner[going].tolist(), best[going].tolist(), strict=True):
                found[i].append(token)
            if not going.any():
                break
            if not going.all():
                owner = owner[going]
                past = [tuple(x[going] for x in pair) for pair in past]
                context = [tuple(x[going] for x in pair) for pair in context]
            last = best[going][:, None]
        return found
