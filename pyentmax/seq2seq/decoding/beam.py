"""Beam search with a certificate: whether its list of hypotheses is exact and complete.

A sparse output mapping gives most continuations a probability of exactly zero, so a model may find
only a few strings possible. If beam search never had to prune one of them, it has enumerated them
all, and its result is not an approximation (Peters et al. 2019, §4.1).
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from pyentmax.seq2seq.decoding._shared import as_source, positive
from pyentmax.seq2seq.decoding.hypotheses import SearchResult
from pyentmax.seq2seq.decoding.search import Plan, search
from pyentmax.seq2seq.models.protocol import Decodable


def beam_search(
    model: Decodable, source: ArrayLike, source_mask: ArrayLike, *, beam: int = 5,
    n_best: int | None = None, max_length: int | None = None, normalize: bool = False,
    keep_attention: bool = True, prove: bool = True,
) -> list[SearchResult]:  # fmt: skip
    r"""Decode each source with a beam, and prove the result complete where that is possible.

    Every step advances the open prefixes of all sources in one call of ``model.step``. If a prefix
    can end, the finished hypothesis leaves the beam and is kept. Of all other continuations with a
    probability above zero, each source keeps the ``beam`` most probable ones. Ties go to the better
    prefix, then to the lower token id.

    The result is **exact**, which includes complete, if and only if no continuation in the support
    of the output mapping was pruned and none was left open at the length limit. Then the listed
    probabilities sum to 1. The support is that of the mapping (``Step.support``). A continuation
    whose probability rounds to zero within the support is not impossible, only too improbable for
    its float type, and then the list is not proved complete.

    With a sparse output mapping the search continues until nothing is open. With a dense one, or
    one whose zeros are not proved (``model.output_is_sparse`` is False), it stops once ``beam``
    finished hypotheses are at least as probable as the best open prefix, and it is never exact.
    With ``n_best``, a source is done as soon as that many are: no open prefix can change the
    ``n_best`` best of the list. The open prefixes are still possible, so the list is not complete.

    Of any list, the first ``proved`` hypotheses are at least as probable as all prefixes that were
    pruned or left open, hence the best of all strings; the others are only the best that this beam
    finds. ``bound`` and ``mass_bound`` limit all strings that are not listed.

    Parameters
    ----------
    model : Decodable
        The model to decode.
    source, source_mask : (B, S) int array, (B, S) bool array
        Token ids and True where they are real.
    beam : int
        The largest number of open prefixes per source and step.
    n_best : int, optional
        Stop once this many best hypotheses are settled. By default the search continues, to prove
        the list complete, unless the output mapping is dense.
    max_length : int, optional
        The most tokens of a hypothesis, end symbol not counted; by default 2 × source length + 10.
    normalize : bool
        Whether strings are compared by their mean log-probability per token, end symbol included:
        in the order of the list, in its proofs, and where the search stops early. An open prefix x
        of log-probability s(x) can reach a mean of s(x) / (L + 1) at most, where L is the length
        limit: the search takes more steps, since this is far above the mean so far.
    keep_attention : bool
        Whether hypotheses carry their attention weights.
    prove : bool
        False leaves the proofs out, and treats every output mapping as a dense one: faster, if only
        the strings are needed.

    Returns
    -------
    list of B SearchResult
        In the order of the sources.

    Raises
    ------
    ValueError
        If the arrays do not fit together, if ``beam``, ``n_best`` or ``max_length`` is below 1, or
        if the model gives a row no possible token (as NaN scores do).

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1 and Figure 1.

    Examples
    --------
    A model that writes token 2 or 3 and then ends:

    >>> import numpy as np
    >>> from pyentmax.seq2seq.decoding import Step, beam_search
    >>> class Coin:
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     table = np.array([[0, 0, 0.75, 0.25], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return source
    ...     def step(self, state, tokens, prove=True):
    ...         p = self.table[tokens]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones(state.shape)), state
    >>> source = np.array([[4]])
    >>> [result] = beam_search(Coin(), source, source > 0)
    >>> [(h.tokens, round(h.probability, 2)) for h in result.hypotheses]
    [((2,), 0.75), ((3,), 0.25)]
    >>> result.exact
    True
    >>> [result] = beam_search(Coin(), source, source > 0, beam=1)
    >>> result.exact
    False
    >>> result.best.tokens, result.proved, round(result.bound, 2)
    ((2,), 1, 0.25)
    >>> print(result.reason[-44:])
    Possible continuations were pruned (beam 1).
    """
    source, source_mask = as_source(source, source_mask)
    beam = positive("beam", beam)
    enough = math.inf if prove and model.output_is_sparse else beam
    if n_best is not None:
        enough = positive("n_best", n_best)
    plan = Plan(False, beam, enough, math.inf, normalize, max_length, keep_attention, prove)
    return search(model, source, source_mask, plan)
