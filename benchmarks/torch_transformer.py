"""The Transformer of `pyentmax.seq2seq.models.transformer` in PyTorch, from the same parameters.

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

from pyentmax.seq2seq.nn.positions import sinusoidal_positions

Mapping = Callable[[torch.Tensor], torch.Tensor]


class TorchTransformer(nn.Module):
    """Encoder-decoder with the parameters of a `pyentmax` Transformer, with biases."""

    def __init__(self, model: Any, mapping: Mapping | None = None) -> None:
        super().__init__()
        config = model.config
        assert config.score == "scaled"
        self.pre = config.norm == "pre"
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
        if self.config.attention == "learned":
            return self.learned(scores, name)
        if self.mapping is None:
            return scores.softmax(dim=-1)
        return self.mapping(scores)

    def learned(self, scores: torch.Tensor, name: str) -> torch.Tensor:
        """α-entmax with the α of each head, by bisection."""
        from entmax import entmax_bisect

        side, layer, part = name.split(".")
        kind = "context" if part == "context" else side
        logit = self.p(f"attention.{kind}.{layer}.alpha_logit")  # (heads, 1)
        return entmax_bisect(scores, 1 + logit.sigmoid()[..., None])

    def keys_values(self, name: str, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            self.split(self.linear(f"{name}.key", memory)),
            self.split(self.linear(f"{name}.value", memory)),
        )

    def attend(
        self, name: str, x: torch.Tensor, memory: torch.Tensor | None, mask: torch.Tensor
    ) -> Any:
        """Of x to the memory, or to itself."""
        of = self.before(name, x) if memory is None else memory
        return self.attend_to(name, x, *self.keys_values(name, of), mask)

    def before(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self.norm(name, x) if self.pre else x

    def after(self, name: str, total: torch.Tensor) -> torch.Tensor:
        return total if self.pre else self.norm(name, total)

    def last(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self.norm(name, x) if self.pre else x

    def attend_to(
        self, name: str, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any
    ) -> torch.Tensor:
        q = self.split(self.linear(f"{name}.query", self.before(name, x)))
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = self.weights(scores, name)
        y = (weights @ v).transpose(1, 2).flatten(2)
        return self.after(name, x + self.drop(self.linear(f"{name}.output", y)))

    def network(self, name: str, x: torch.Tensor) -> torch.Tensor:
        inner = self.linear(f"{name}.inner", self.before(name, x)).relu()
        return self.after(name, x + self.drop(self.linear(f"{name}.output", inner)))

    def embed(self, side: str, tokens: torch.Tensor, start: int = 0) -> torch.Tensor:
        table = "target" if self.config.tied == "all" else side
        x = F.embedding(tokens, self.p(f"{table}_embedding.weight")) * self.config.width**0.5
        return self.drop(x + self.positions[start : start + tokens.shape[1]])

    def encode(self, source: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed("source", source)
        for k in range(self.config.layers):
            x = self.attend(f"encoder.{k}.self", x, None, mask[:, None, None])
            x = self.network(f"encoder.{k}.network", x)
        return self.last("encoder", x)

    def hidden(
        self, source: torch.Tensor, mask: torch.Tensor, target_in: torch.Tensor
    ) -> torch.Tensor:
        memory = self.encode(source, mask)
        x = self.embed("target", target_in)
        t = x.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        for k in range(self.config.layers):
            x = self.attend(f"decoder.{k}.self", x, None, causal)
            x = self.attend(f"decoder.{k}.context", x, memory, mask[:, None, None])
            x = self.network(f"decoder.{k}.network", x)
        return self.last("decoder", x)

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
    def greedy(
        self, source: np.ndarray, source_mask: np.ndarray, bos: int, eos: int, steps: np.ndarray
    ) -> list[list[int]]:
        """Greedy search with a cache, up to so many steps each; what ends leaves the batch."""
        tokens, mask = torch.from_numpy(source), torch.from_numpy(source_mask)
        memory = self.encode(tokens, mask)
        limit, allowed = torch.from_numpy(steps), mask[:, None, None]
        layers = range(self.config.layers)
        context = [self.keys_values(f"decoder.{k}.context", memory) for k in layers]
        past: list[Any] = [None] * len(layers)
        last = torch.full((len(source), 1), bos)
        owner = torch.arange(len(source))
        found: list[list[int]] = [[] for _ in source]
        for t in range(int(limit.max()) + 1):
            x = self.embed("target", last, t)
            for k in layers:
                name = f"decoder.{k}.self"
                new = self.keys_values(name, self.before(name, x))
                both = zip(past[k], new, strict=True) if past[k] else ()
                past[k] = tuple(torch.cat(pair, dim=2) for pair in both) or new
                x = self.attend_to(f"decoder.{k}.self", x, *past[k], None)
                x = self.attend_to(f"decoder.{k}.context", x, *context[k], allowed)
                x = self.network(f"decoder.{k}.network", x)
            hidden = self.last("decoder", x[:, 0])
            best = self.output(hidden).log_softmax(dim=-1).argmax(dim=-1)
            going = (best != eos) & (t < limit[owner])
            for i, token in zip(owner[going].tolist(), best[going].tolist(), strict=True):
                found[i].append(token)
            if not going.any():
                break
            if not going.all():
                owner = owner[going]
                past = [tuple(x[going] for x in pair) for pair in past]
                context = [tuple(x[going] for x in pair) for pair in context]
                allowed = allowed[going]
            last = best[going][:, None]
        return found

    @torch.inference_mode()
    def beam(
        self, source: np.ndarray, source_mask: np.ndarray, bos: int, eos: int, beam: int = 5
    ) -> list[list[int]]:
        """The string with the best mean log-probability that a beam finds for each source.

        The rule is that of `pyentmax.seq2seq.decoding.beam_search` for a dense output: a source is
        done when ``beam`` finished strings are at least as probable as its best open prefix, or at
        its length limit. Those that are done leave the batch.
        """
        tokens, mask = torch.from_numpy(source), torch.from_numpy(source_mask)
        memory = self.encode(tokens, mask)
        layers = range(self.config.layers)
        # A source's prefixes stand side by side as queries: its keys and values are never copied.
        context = [self.keys_values(f"decoder.{k}.context", memory) for k in layers]
        limit = 2 * mask.sum(dim=1) + 10
        owner, allowed = torch.arange(len(source)), mask[:, None, None]
        past: list[Any] = [None] * len(layers)
        total = torch.full((len(source), beam), -torch.inf)
        total[:, 0] = 0
        ended = torch.full((len(source), beam), -torch.inf)
        last = torch.full((len(source), beam), bos)
        prefixes = torch.zeros((len(source), beam, 0), dtype=torch.long)
        best: list[tuple[float, list[int]]] = [(-np.inf, [])] * len(source)
        length = 0
        while len(owner):
            x = self.embed("target", last.reshape(-1, 1), length)
            rows = len(owner)
            for k in layers:
                name = f"decoder.{k}.self"
                new = self.keys_values(name, self.before(name, x))
                both = zip(past[k], new, strict=True) if past[k] else ()
                past[k] = tuple(torch.cat(pair, dim=2) for pair in both) or new
                x = self.attend_to(name, x, *past[k], None)
                beside = x.view(rows, beam, -1)
                name = f"decoder.{k}.context"
                x = self.attend_to(name, beside, *context[k], allowed).view(rows * beam, 1, -1)
                x = self.network(f"decoder.{k}.network", x)
            log_p = self.output(self.last("decoder", x[:, 0])).log_softmax(dim=-1)
            candidates = total[:, :, None] + log_p.view(rows, beam, -1)
            ends = candidates[:, :, eos].clone()
            means = ends / (length + 1)
            top, place = means.max(dim=1)
            for i, (value, j) in enumerate(zip(top.tolist(), place.tolist(), strict=True)):
                if value > best[int(owner[i])][0]:
                    best[int(owner[i])] = (value, prefixes[i, j].tolist())
            ended = torch.cat([ended, ends], dim=1).topk(beam, dim=1).values
            candidates[:, :, eos] = -torch.inf
            candidates[limit[owner] == length] = -torch.inf
            total, chosen = candidates.flatten(1).topk(beam, dim=1)
            parents, last = chosen // candidates.shape[2], chosen % candidates.shape[2]
            going = (total[:, 0] > -torch.inf) & (ended[:, -1] < total[:, 0])
            kept = parents[:, :, None].expand(-1, -1, length)
            prefixes = torch.cat([prefixes.gather(1, kept), last[:, :, None]], dim=2)[going]
            places = (torch.arange(rows)[:, None] * beam + parents)[going].flatten()
            past = [tuple(x[places] for x in pair) for pair in past]
            if not going.all():
                context = [tuple(x[going] for x in pair) for pair in context]
                allowed = allowed[going]
            owner, total, ended, last = owner[going], total[going], ended[going], last[going]
            length += 1
        return [tokens for _, tokens in best]
