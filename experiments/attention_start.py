"""How the attention of a Transformer starts a training: what the tables of starts compare.

Sparse heads learn little while they see one or two positions only. So they may begin with another
mapping, with smaller queries and keys, or with queries and keys that learn more slowly. Validations
and use take the model's own attention from the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyentmax.engine.system.config import is_count, is_number, is_positive, require
from pyentmax.seq2seq.nn.attention import LEARNED
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.nn.optim import Adam
from pyentmax.seq2seq.training import TrainingConfig


@dataclass(frozen=True)
class StartConfig(TrainingConfig):
    """`TrainingConfig`, and how the attention starts.

    Parameters
    ----------
    rate_factors : dict, optional
        Part of the names of parameters → factor of their rate, such as ``{"query": 0.2}``. A
        parameter whose name contains several parts gets the product of their factors.
    first_attention : str, optional
        The mapping of every head in the first updates, such as "softmax".
    first_updates : int, optional
        How many updates ``first_attention`` has.
    anneal_updates : int, optional
        Over how many updates after those α moves on to that of the model, in equal steps. If not
        given, it jumps there.
    query_key_scale : float, optional
        What the initial projections of queries and keys are multiplied by; 1 if not given.
    """

    rate_factors: dict[str, float] | None = None
    first_attention: str | None = None
    first_updates: int | None = None
    anneal_updates: int | None = None
    query_key_scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "rate_factors", _are_factors, "names with a factor from 0 up each")
        if self.first_attention is not None:
            choose_mapping(self.first_attention)
        counts = "first_updates anneal_updates"
        require(self, counts, lambda x: x is None or is_count(x), "a whole number from 1 up")
        require(self, "query_key_scale", lambda x: x is None or is_positive(x), "a number above 0")
        if (self.first_attention is None) != (self.first_updates is None):
            raise ValueError(
                "first_attention, first_updates: expected both or neither, got "
                f"{self.first_attention!r} and {self.first_updates!r}"
            )

    def before_update(self, model: Any) -> Callable[[int, Adam], Any]:
        """What `train` is to call before each update of a model.

        Raises
        ------
        ValueError
            If a factor matches no parameter, or α cannot move to that of the model's attention.
        """
        for part in self.rate_factors or {}:
            if not any(part in name for name in model.params):  # it was misspelt
                names = ", ".join(sorted(model.params))
                raise ValueError(f"rate_factors: expected part of {names}; got {part!r}")
        attention = model.config.attention
        if self.anneal_updates is not None:
            if None in (_alpha(self.first_attention), _alpha(attention)):
                raise ValueError(
                    "anneal_updates: expected α-entmax as first_attention and as attention, got "
                    f"{self.first_attention!r} and {attention!r}"
                )
        factors = {
            name: math.prod(f for part, f in (self.rate_factors or {}).items() if part in name)
            for name in model.params
        }

        def hook(updates: int, optimizer: Adam) -> Any:
            optimizer.factors = factors
            if not updates and self.query_key_scale is not None:
                scale_queries_and_keys(model, self.query_key_scale)
            return with_attention(model, self.attention_after(updates, attention))

        return hook

    def attention_after(self, updates: int, attention: str) -> str:
        """The attention mapping of update number `updates`, from 0, in a model with `attention`.

        Examples
        --------
        >>> start = StartConfig(first_attention="1", first_updates=100, anneal_updates=50)
        >>> [start.attention_after(updates, "1.5") for updates in (0, 99, 100, 124, 149, 5000)]
        ['1', '1', '1.01', '1.25', '1.5', '1.5']
        """
        if self.first_attention is None or self.first_updates is None:
            return attention
        if updates < self.first_updates:
            return self.first_attention
        done = updates - self.first_updates + 1
        if self.anneal_updates is None or done >= self.anneal_updates:
            return attention
        first, last = _alpha(self.first_attention), _alpha(attention)
        assert first is not None
        assert last is not None
        return str(round(first + (last - first) * done / self.anneal_updates, 6))


def before_update(config: TrainingConfig, model: Any) -> Callable[[int, Adam], Any] | None:
    """What `train` is to call before each update, if the configuration has a start."""
    return config.before_update(model) if isinstance(config, StartConfig) else None


def with_attention(model: Any, attention: str) -> Any:
    """A model with another mapping in every head, and the same parameters."""
    if attention == model.config.attention:
        return model
    changes = {"inference_attention": None} if hasattr(model.config, "inference_attention") else {}
    config = replace(model.config, attention=attention, **changes)
    return type(model)(config, model.params, model.bos, model.eos)


def scale_queries_and_keys(model: Any, factor: float) -> None:
    """Multiply the projections of a Transformer's queries and keys."""
    for _, _, name in model.attentions(model.config):
        for part in ("query", "key"):
            model.params[f"{name}.{part}.weight"] *= factor


def _are_factors(x: Any) -> bool:
    if not isinstance(x, dict):
        return x is None
    return all(is_number(f) and 0 <= f < math.inf for f in x.values())


def _alpha(attention: str | None) -> float | None:
    """The fixed α of an attention, if it has one."""
    return None if attention in (None, LEARNED) else choose_mapping(attention).alpha
