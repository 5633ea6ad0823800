"""How the attention of a model starts a training: fields of `TrainingConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from pyentmax.engine.system.config import is_count, is_positive, require
from pyentmax.seq2seq.nn.attention import LEARNED
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping


@dataclass(frozen=True, kw_only=True)
class AttentionStart:
    """Another attention in the first updates, and initial weights of another size.

    Sparse heads learn little while they see one or two positions only. Validations and use take the
    model's own attention from the start.

    Parameters
    ----------
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

    first_attention: str | None = None
    first_updates: int | None = None
    anneal_updates: int | None = None
    query_key_scale: float | None = None

    def check_start(self) -> None:
        """Raise a ValueError unless the fields are right, whatever the model."""
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

    def check_annealing(self, attention: str | None) -> None:
        """Raise a ValueError unless α can move to that of a model's attention, if it is to."""
        if self.anneal_updates is not None:
            if None in (_alpha(self.first_attention), _alpha(attention)):
                raise ValueError(
                    "anneal_updates: expected α-entmax as first_attention and as attention, got "
                    f"{self.first_attention!r} and {attention!r}"
                )

    def attention_after(self, updates: int, attention: str) -> str:
        """The attention mapping of update number `updates`, from 0, in a model with `attention`.

        Examples
        --------
        >>> start = AttentionStart(first_attention="1", first_updates=100, anneal_updates=50)
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


def _alpha(attention: str | None) -> float | None:
    """The fixed α of an attention, if it has one."""
    return None if attention in (None, LEARNED) else choose_mapping(attention).alpha
