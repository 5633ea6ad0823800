"""The model of ``pyentmax.models.rnn_seq2seq`` written in PyTorch, to be measured beside it.

Same architecture, sizes and dropout places; the encoder uses PyTorch's own fused LSTM. Mappings and
losses come from the ``entmax`` package (or from PyTorch itself for α = 1), as its users have them.
"""

from __future__ import annotations

import torch
from entmax import Entmax15Loss, SparsemaxLoss, entmax15, sparsemax
from torch import nn

MAPPINGS = {"1": torch.softmax, "1.5": entmax15, "2": sparsemax}
LOSSES = {
    "1": lambda: nn.CrossEntropyLoss(reduction="none"),
    "1.5": lambda: Entmax15Loss(reduction="none"),
    "2": lambda: SparsemaxLoss(reduction="none"),
}


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
        self.decoder = nn.ModuleList(
            nn.LSTMCell(2 * hidden if k == 0 else hidden, hidden) for k in range(layers)
        )
        self.keys = nn.Linear(hidden, hidden, bias=False)
        self.combine = nn.Linear(2 * hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, target_size)
        self.dropout = nn.Dropout(dropout)
        self.mapping = MAPPINGS[attention]
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
        batch = len(source)
        embedded = self.dropout(self.source_embedding(source.T))
        lengths = source_mask.sum(dim=1)
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, enforce_sorted=False)
        hidden, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(hidden, total_length=source.shape[1])
        values = self.dropout(memory).transpose(0, 1)
        keys = self.keys(values)
        # (layers · 2, B, H/2) → per layer (B, H), the two directions side by side.
        h, c = (x.view(self.layers, 2, batch, -1).transpose(1, 2).flatten(2) for x in (h, c))
        states = [(h[k], c[k]) for k in range(self.layers)]
        feed = values.new_zeros(batch, self.hidden)
        blocked = ~source_mask
        outputs = []
        for token in self.dropout(self.target_embedding(target_in.T)):
            x = torch.cat([token, feed], dim=1)
            for k, cell in enumerate(self.decoder):
                states[k] = cell(x if k == 0 else self.dropout(x), states[k])
                x = states[k][0]
            scores = (keys @ x[:, :, None])[:, :, 0].masked_fill(blocked, float("-inf"))
            weights = self.mapping(scores, dim=-1)
            context = (weights[:, None, :] @ values)[:, 0]
            feed = self.dropout(torch.tanh(self.combine(torch.cat([context, x], dim=1))))
            outputs.append(feed)
        scores = self.output(torch.stack(outputs)).flatten(0, 1)
        losses = self.loss_of(scores, target_out.T.reshape(-1))
        weight = target_mask.T.reshape(-1)
        return (losses * weight).sum() / weight.sum()
