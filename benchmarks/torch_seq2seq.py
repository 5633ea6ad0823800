"""The model of ``pyentmax.seq2seq.models.rnn_seq2seq`` written in PyTorch, for comparison.

Same architecture, sizes and dropout places; the encoder uses PyTorch's own fused LSTM, and the part
of the decoder's gates that comes from the embeddings is one product for all steps, as in pyentmax.
Mappings and losses come from the ``entmax`` package (or from PyTorch itself for α = 1), as its
users have them. The weights of a pyentmax model can be loaded, so that the two compute the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from entmax import Entmax15Loss, SparsemaxLoss, entmax15, sparsemax
from torch import nn

MAPPINGS = {"1": torch.softmax, "1.5": entmax15, "2": sparsemax}
LOSSES = {
    "1": lambda: nn.CrossEntropyLoss(reduction="none"),
    "1.5": lambda: Entmax15Loss(reduction="none"),
    "2": lambda: SparsemaxLoss(reduction="none"),
}


class State(NamedTuple):
    """What the decoder carries from step to step, a row a prefix."""

    hidden: list[torch.Tensor]  # a layer: (rows, H)
    cells: list[torch.Tensor]
    feed: torch.Tensor  # (rows, H)


class Memory(NamedTuple):
    """What the decoder attends to, a row a source."""

    keys: torch.Tensor  # (B, S, H)
    values: torch.Tensor
    blocked: torch.Tensor  # (B, 1, S): True at padding


class TorchSeq2Seq(nn.Module):
    """Bidirectional LSTM encoder, input-feeding LSTM decoder, bilinear attention."""

    def __init__(
        self,
        source_size: int,
        target_size: int,
        hidden: int,
        layers: int,
        dropout: float,
        attention: str = "1.5",
        output: str = "1.5",
    ) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(source_size, hidden)
        self.target_embedding = nn.Embedding(target_size, hidden)
        self.encoder = nn.LSTM(
            hidden,
            hidden // 2,
            layers,
            bidirectional=True,
            dropout=dropout if layers > 1 else 0.0,
        )
        self.from_token = nn.Linear(hidden, 4 * hidden)
        # Input and hidden state side by side, to the gates i, f, o, g.
        self.decoder = nn.ModuleList(
            nn.Linear(2 * hidden, 4 * hidden, bias=k > 0) for k in range(layers)
        )
        self.keys = nn.Linear(hidden, hidden, bias=False)
        self.combine = nn.Linear(2 * hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, target_size)
        self.dropout = nn.Dropout(dropout)
        self.attention, self.mapping = MAPPINGS[attention], MAPPINGS[output]
        self.loss_of = LOSSES[output]()
        self.hidden = hidden
        self.layers = layers

    def forward(
        self,
        source: torch.Tensor,
        source_mask: torch.Tensor,
        target_in: torch.Tensor,
        target_out: torch.Tensor,
        target_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Mean loss a target token."""
        state, memory = self.encode(source, source_mask)
        outputs = []
        for gates in self.from_token(self.dropout(self.target_embedding(target_in.T))):
            state = self.step(gates, state, memory)
            outputs.append(state.feed)
        scores = self.output(torch.stack(outputs)).flatten(0, 1)
        losses = self.loss_of(scores, target_out.T.reshape(-1))
        weight = target_mask.T.reshape(-1)
        return (losses * weight).sum() / weight.sum()

    def encode(self, source: torch.Tensor, source_mask: torch.Tensor) -> tuple[State, Memory]:
        """The state before the first token, and the memory."""
        batch = len(source)
        embedded = self.dropout(self.source_embedding(source.T))
        lengths = source_mask.sum(dim=1)
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, enforce_sorted=False)
        hidden, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(hidden, total_length=source.shape[1])
        values = self.dropout(memory).transpose(0, 1)
        # (layers · 2, B, H/2) → per layer (B, H), the two directions side by side.
        h, c = (x.view(self.layers, 2, batch, -1).transpose(1, 2).flatten(2) for x in (h, c))
        state = State(list(h), list(c), values.new_zeros(batch, self.hidden))
        return state, Memory(self.keys(values), values, ~source_mask[:, None])

    def step(self, gates: torch.Tensor, state: State, memory: Memory) -> State:
        """One step from the embeddings' part of the first layer's gates.

        Rows are as many to each source of the memory, source by source.
        """
        x, hidden, cells = state.feed, [], []
        for k, linear in enumerate(self.decoder):
            part = linear(torch.cat([self.dropout(x) if k else x, state.hidden[k]], dim=1))
            part = part if k else part + gates
            i, f, o = part[:, : 3 * self.hidden].sigmoid().chunk(3, dim=1)
            cells.append(f * state.cells[k] + i * part[:, 3 * self.hidden :].tanh())
            x = o * cells[k].tanh()
            hidden.append(x)
        by_source = x.view(len(memory.keys), -1, self.hidden)
        scores = (by_source @ memory.keys.transpose(1, 2)).masked_fill(memory.blocked, -torch.inf)
        context = (self.attention(scores, dim=-1) @ memory.values).view(x.shape)
        feed = self.dropout(torch.tanh(self.combine(torch.cat([context, x], dim=1))))
        return State(hidden, cells, feed)

    def load(self, params: dict[str, np.ndarray]) -> None:
        """Take the weights of a pyentmax model of the same sizes."""
        tensors = {name: torch.from_numpy(x) for name, x in params.items()}

        def transposed(name: str) -> torch.Tensor:
            return tensors[name].T

        def reordered(x: torch.Tensor) -> torch.Tensor:
            i, f, o, g = x.chunk(4)  # nn.LSTM has the gates in the order i, f, g, o
            return torch.cat([i, f, g, o])

        new = {
            "source_embedding.weight": tensors["source_embedding.weight"],
            "target_embedding.weight": tensors["target_embedding.weight"],
            "keys.weight": transposed("attention.weight"),
            "combine.weight": transposed("combine.weight"),
            "output.weight": transposed("output.weight"),
            "output.bias": tensors["output.bias"],
            "from_token.weight": transposed("decoder.0.weight"),
            "from_token.bias": tensors["decoder.0.bias"],
        }
        for k in range(self.layers):
            inputs = transposed(f"decoder.{k}.weight" if k else "decoder.feed.weight")
            both = torch.cat([inputs, transposed(f"decoder.{k}.recurrent")], dim=1)
            new[f"decoder.{k}.weight"] = both
            if k:
                new[f"decoder.{k}.bias"] = tensors[f"decoder.{k}.bias"]
            for direction, suffix in (("forward", f"l{k}"), ("backward", f"l{k}_reverse")):
                name = f"encoder.{k}.{direction}"
                new[f"encoder.weight_ih_{suffix}"] = reordered(transposed(f"{name}.weight"))
                new[f"encoder.weight_hh_{suffix}"] = reordered(transposed(f"{name}.recurrent"))
                new[f"encoder.bias_ih_{suffix}"] = reordered(tensors[f"{name}.bias"])
                new[f"encoder.bias_hh_{suffix}"] = torch.zeros(2 * self.hidden)
        self.load_state_dict(new)


@torch.inference_mode()
def greedy_search(
    model: TorchSeq2Seq, source: torch.Tensor, source_mask: torch.Tensor, bos: int, eos: int
) -> list[list[int]]:
    """The most probable token at every step; sources that are done leave the batch."""
    state, memory = model.encode(source, source_mask)
    limit = 2 * source_mask.sum(dim=1) + 10
    owner, tokens = torch.arange(len(source)), torch.full((len(source),), bos)
    found: list[list[int]] = [[] for _ in source]
    length = 0
    while len(owner):
        state = model.step(model.from_token(model.target_embedding(tokens)), state, memory)
        tokens = model.output(state.feed).argmax(dim=1)
        going = (tokens != eos) & (length < limit[owner])
        if not going.all():
            owner, tokens = owner[going], tokens[going]
            memory = Memory(*(x[going] for x in memory))
            state = _map(state, lambda x, going=going: x[going])
        for i, token in zip(owner.tolist(), tokens.tolist(), strict=True):
            found[i].append(token)
        length += 1
    return found


@torch.inference_mode()
def beam_search(
    model: TorchSeq2Seq,
    source: torch.Tensor,
    source_mask: torch.Tensor,
    bos: int,
    eos: int,
    beam: int = 5,
    n_best: int | None = None,
) -> list[tuple[tuple[int, ...], float]]:
    """The best string of each source and its log-probability, all sources in one batch.

    The rule is that of ``pyentmax.seq2seq.decoding.beam_search`` for a dense output mapping: a
    prefix that can end gives a finished hypothesis, the ``beam`` best other continuations stay
    open, and a source is done when nothing is open, at its length limit, or when ``n_best`` (by
    default ``beam``) finished hypotheses are at least as probable as its best open prefix. Sources
    that are done leave the batch. A source's prefixes stand side by side, so that its keys and
    values are never copied; places without a prefix have score −∞.
    """
    state, memory = model.encode(source, source_mask)
    sources = len(source)
    limit = 2 * source_mask.sum(dim=1) + 10
    best: list[tuple[tuple[int, ...], float]] = [((), -np.inf)] * sources
    owner = torch.arange(sources)
    state = _map(state, lambda x: x.repeat_interleave(beam, dim=0))
    total = torch.full((sources, beam), -torch.inf)
    total[:, 0] = 0
    enough = n_best or beam
    ended = torch.full((sources, enough), -torch.inf)  # scores of the best finished hypotheses
    ended_at = torch.zeros(sources, dtype=torch.long)  # which step and place the best ended in
    tokens = torch.full((sources, beam), bos)
    trail: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    length = 0
    while len(owner):
        state = model.step(
            model.from_token(model.target_embedding(tokens.flatten())), state, memory
        )
        scores = model.output(state.feed)
        log_p = (
            scores.log_softmax(dim=-1)
            if model.mapping is torch.softmax
            else model.mapping(scores, dim=-1).log()
        )
        candidates = total[:, :, None] + log_p.view(len(owner), beam, -1)
        ends = candidates[:, :, eos].clone()
        top_end, place = ends.max(dim=1)
        improves = top_end > ended[:, 0]
        ended_at = torch.where(improves, length * beam + place, ended_at)
        ended = torch.cat([ended, ends], dim=1).topk(enough, dim=1).values
        candidates[:, :, eos] = -torch.inf
        candidates[limit[owner] == length] = -torch.inf
        total, chosen = candidates.flatten(1).topk(beam, dim=1)
        vocabulary = candidates.shape[2]
        parents, tokens = chosen // vocabulary, chosen % vocabulary
        trail.append((owner, parents, tokens))
        length += 1
        # One in the last of these places that reaches the best open prefix settles the source.
        done = (total[:, 0] == -torch.inf) | (ended[:, -1] >= total[:, 0])
        if done.any():
            for row in done.nonzero()[:, 0].tolist():
                at = int(ended_at[row])
                best[int(owner[row])] = (
                    _walk_back(trail, int(owner[row]), at // beam, at % beam),
                    float(ended[row, 0]),
                )
            going = (~done).nonzero()[:, 0]
            owner, total, tokens = owner[going], total[going], tokens[going]
            ended, ended_at = ended[going], ended_at[going]
            parents = parents[going]
            memory = Memory(*(x[going] for x in memory))
            rows = (going[:, None] * beam + parents).flatten()
        else:
            rows = (torch.arange(len(owner))[:, None] * beam + parents).flatten()
        state = _map(state, lambda x, rows=rows: x[rows])
    return best


def _map(state: State, function: Any) -> State:
    hidden, cells = ([function(x) for x in part] for part in (state.hidden, state.cells))
    return State(hidden, cells, function(state.feed))


def _walk_back(trail: list[Any], owner: int, length: int, place: int) -> tuple[int, ...]:
    tokens = []
    for owners, parents, chosen in reversed(trail[:length]):
        row = int(torch.searchsorted(owners, owner))
        tokens.append(int(chosen[row, place]))
        place = int(parents[row, place])
    return tuple(reversed(tokens))
