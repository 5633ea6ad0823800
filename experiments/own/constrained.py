"""A model that may not end early or repeat itself, for every decoder, and what that proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pyentmax.seq2seq.decoding._shared import positive
from pyentmax.seq2seq.decoding.hypotheses import SearchResult
from pyentmax.seq2seq.models.protocol import BoolArray, Decodable, IntArray, Step, append


class _State(NamedTuple):
    """A model's state, and for each row its source and the tokens so far, from bos on."""

    inner: Any
    source: IntArray
    prefixes: IntArray
    lengths: IntArray


class Constrained:
    """A model without the continuations that break a constraint; the others keep their probability.

    Where nothing else is possible, a continuation is allowed although it breaks one: a string that
    the model has to end ends.

    Parameters
    ----------
    model : Decodable
    min_length : int, default 0
        The fewest tokens of a string, end symbol not counted.
    no_repeat_ngram : int, optional
        No sequence of so many tokens occurs twice in a string.

    Attributes
    ----------
    excluded : set of int
        The sources of the last batch of which a constraint excluded something possible.

    Raises
    ------
    ValueError
        If a number is below 1 (`min_length`: 0).

    Examples
    --------
    >>> import numpy as np
    >>> class Coin:  # ends, or writes token 2
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     def encode(self, source, source_mask):
    ...         return source
    ...     def step(self, state, tokens, prove=True):
    ...         p = np.tile([0, 0.5, 0.5], (len(tokens), 1))
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones(state.shape)), state
    >>> from pyentmax.seq2seq.decoding import beam_search
    >>> source, model = np.array([[4]]), Constrained(Coin(), min_length=2)
    >>> [result] = beam_search(model, source, source > 0, max_length=3)
    >>> [(h.tokens, round(h.probability, 4)) for h in result.hypotheses]
    [((2, 2), 0.125), ((2, 2, 2), 0.0625)]
    >>> model.excluded
    {0}
    """

    def __init__(
        self,
        model: Decodable,
        min_length: int = 0,
        no_repeat_ngram: int | None = None,
    ) -> None:
        self.model, self.min_length, self.ngram = model, min_length, no_repeat_ngram
        if min_length:
            positive("min_length", min_length)
        if no_repeat_ngram is not None:
            positive("no_repeat_ngram", no_repeat_ngram)
        self.bos, self.eos = model.bos, model.eos
        self.output_is_sparse = model.output_is_sparse
        self.excluded: set[int] = set()

    def encode(self, source: IntArray, source_mask: BoolArray) -> _State:
        """The model's own state, and the empty prefix of each row."""
        self.excluded = set()
        rows = np.arange(len(source))
        prefixes, lengths = np.zeros((len(rows), 1), np.int64), np.zeros_like(rows)
        return _State(self.model.encode(source, source_mask), rows, prefixes, lengths)

    def step(self, state: _State, tokens: IntArray, prove: bool = True) -> tuple[Step, _State]:
        """The model's step, constrained."""
        inner, sources, prefixes, lengths = state
        step, inner = self.model.step(inner, tokens, prove)
        prefixes, lengths = append(prefixes, lengths, tokens), lengths + 1
        support, log_prob = step.support.copy(), step.log_prob.copy()
        for row, prefix in enumerate(prefixes.tolist()):
            written = tuple(prefix[1 : lengths[row]])
            forbidden = [token for token in self._forbidden(written) if support[row, token]]
            if not forbidden:
                continue
            allowed = support[row].copy()
            allowed[forbidden] = False
            if np.isfinite(log_prob[row, allowed]).any():
                support[row], log_prob[row, forbidden] = allowed, -np.inf
                self.excluded.add(int(sources[row]))
        after = _State(inner, sources, prefixes, lengths)
        return step._replace(support=support, log_prob=log_prob), after

    def certified(self, results: Sequence[SearchResult]) -> list[SearchResult]:
        """The results of a search of this model, with what they prove about all strings.

        What a constraint excluded is possible, so that a list is complete among the strings that
        are allowed only, and no string is proved the best of all.
        """
        return [
            self._certified(result) if i in self.excluded else result
            for i, result in enumerate(results)
        ]

    @staticmethod
    def _certified(result: SearchResult) -> SearchResult:
        rest = max(1 - result.mass, result.mass_bound if not result.exact else 0.0)
        reason = (
            f"Among the strings that the constraints allow: {result.reason} "
            f"All others together have a probability of at most {rest:.3g}."
        )
        return replace(result, exact=False, reason=reason, proved=0, bound=rest, mass_bound=rest)

    def _forbidden(self, prefix: tuple[int, ...]) -> set[int]:
        """The tokens that may not follow."""
        forbidden = {self.eos} if len(prefix) < self.min_length else set()
        if (n := self.ngram) is not None and len(prefix) >= n:
            last = prefix[len(prefix) - n + 1 :]
            starts = range(len(prefix) - n + 1)
            forbidden |= {prefix[i + n - 1] for i in starts if prefix[i : i + n - 1] == last}
        return forbidden
