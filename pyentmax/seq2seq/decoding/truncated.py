"""A model whose next token comes from a keep-set only, for every decoder."""

from __future__ import annotations

from typing import Any

from pyentmax import softmax
from pyentmax.seq2seq.models.outputs import choose_keep_sets
from pyentmax.seq2seq.models.protocol import BoolArray, Decodable, IntArray, Step


class Truncated:
    """A model with the next token's probabilities truncated to a keep-set, and normalised again.

    All decoders take it, and speak of its probabilities: searches list and certify what it finds
    possible. A token whose probability rounds to zero is not kept.

    Parameters
    ----------
    model : Decodable
    keep_set : str
        A set of `pyentmax.keep` by its name, and its parameter: ``"min_p=0.05"``; or several,
        one after the other: ``"top_k=50,min_p=0.05"``.

    Raises
    ------
    ValueError
        If there is no such set, or the parameter is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> class Coin:  # writes token 2 or 3, and ends
    ...     bos, eos, output_is_sparse = 0, 1, False
    ...     table = np.array([[0, 0, 0.75, 0.25], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return source
    ...     def step(self, state, tokens, prove=True):
    ...         p = self.table[tokens]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones(state.shape)), state
    >>> from pyentmax.seq2seq.decoding import beam_search
    >>> source = np.array([[4]])
    >>> [result] = beam_search(Truncated(Coin(), "min_p=0.5"), source, source > 0)
    >>> {h.tokens: h.probability for h in result.hypotheses}, result.exact
    ({(2,): 1.0}, True)
    """

    output_is_sparse = True

    def __init__(self, model: Decodable, keep_set: str) -> None:
        self.model = model
        self.bos, self.eos = model.bos, model.eos
        self._sets = choose_keep_sets(keep_set)

    def encode(self, source: IntArray, source_mask: BoolArray) -> Any:
        """The model's own state."""
        return self.model.encode(source, source_mask)

    def step(self, state: Any, tokens: IntArray, prove: bool = True) -> tuple[Step, Any]:
        """The model's step, truncated."""
        step, state = self.model.step(state, tokens)
        support = step.support
        for function, value in self._sets:
            support = function(step.log_prob, value, mask=support)
        log_prob = softmax.log(step.log_prob, mask=support)
        return step._replace(log_prob=log_prob, support=support, unseen=None), state
