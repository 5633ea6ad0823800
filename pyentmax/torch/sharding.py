"""How the operations act on DTensors: replicated, or sharded along the batch.

Imported when the first DTensor comes, since PyTorch loads its own half of this slowly. The
functions refuse scores that are sharded along their rows, since gathering them in silence would
cost what sharding was to save. They pass parameters, masks and weights with the batch shape in
full, since PyTorch chooses by shapes alone, and take losses unreduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

Strategy = tuple[Sequence[Any], Sequence[Any]]


def _strategies(results: int, *arguments: Any) -> list[Strategy]:
    """Replicated, or sharded along each dimension of the batch, which all arguments share."""
    z = arguments[0]
    strategies: list[Strategy] = []
    for place in (Replicate(), *map(Shard, range(z.ndim - 1))):
        own = [
            (place if x.ndim else Replicate()) if hasattr(x, "placements") else None
            for x in arguments
        ]
        strategies.append(([place] * results, own))
    return strategies


def _on_rows(*arguments: Any) -> list[Strategy]:
    return _strategies(1, *arguments)


def _on_losses(*arguments: Any) -> list[Strategy]:
    return _strategies(2, *arguments)


for _name in ("mapping", "support", "product", "parameter_gradient"):
    register_sharding(getattr(torch.ops.pyentmax, _name).default)(_on_rows)
register_sharding(torch.ops.pyentmax.loss.default)(_on_losses)
