"""Best-first search that proves its result, or bounds the probability that it did not explore.

A prefix is at least as probable as every string that begins with it. So the most probable open
prefix bounds all strings that were not found yet, and the sum over the open prefixes bounds their
total.
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from pyentmax.seq2seq.decoding._shared import as_source, positive
from pyentmax.seq2seq.decoding.hypotheses import SearchResult
from pyentmax.seq2seq.decoding.search import Plan, search
from pyentmax.seq2seq.models.protocol import Decodable


def exact_search(
    model: Decodable, source: ArrayLike, source_mask: ArrayLike, *, n_best: int | None = 1,
    budget: int = 1000, normalize: bool = False, max_length: int | None = None, width: int = 5,
    keep_attention: bool = True,
) -> list[SearchResult]:  # fmt: skip
    r"""The most probable strings of each source with a proof, or all that are possible.

    The open prefixes of a source wait in the order of their probability. Each step of the model
    expands the ``width`` best ones of every source together; whether a string is proved does not
    depend on the width. Let :math:`s(x)` be the log-probability of prefix x. No further token has a
    probability above 1, so a string y through x has :math:`\log p(y) \le s(x)`. Therefore, with

    - **plain** scores :math:`\log p(y)`, y is proved to be among the best once none of the open
      prefixes x has :math:`s(x) > \log p(y)`. This holds among all strings, however long, because
      a prefix at the length limit is never expanded and stays open to the end;
    - **length-normalised** scores :math:`\log p(y) / (|y| + 1)`, where the end symbol counts,
      strings of at most L tokens have :math:`1 \le |y| + 1 \le L + 1`, and since
      :math:`s(x) \le 0`,

      .. math:: \frac{\log p(y)}{|y|+1} \;\le\; \frac{s(x)}{|y|+1} \;\le\; \frac{s(x)}{L+1}.

      The right side bounds all strings through x of at most L tokens, and the proof is one among
      those: longer strings may score better.

    Both bounds order prefixes in the same way, so both searches go in the order of s. A proof holds
    for the log-probabilities as the model rounds them.

    Parameters
    ----------
    model : Decodable
    source, source_mask, max_length, keep_attention : as in `beam_search`
    n_best : int or None
        Stop once this many strings are proved to be the best ones. None: list the whole support.
    budget : int
        The largest number of prefixes that are expanded for one source.
    normalize : bool
        Whether strings are compared by log-probability divided by length.
    width : int
        Prefixes of a source that share a step of the model. A width of 1 expands the fewest
        prefixes, which is fastest for the best strings of many sources; a larger one takes fewer
        steps.

    Returns
    -------
    list of B SearchResult
        Everything found, best score first. The first ``proved`` hypotheses are proved to be the
        best; ``bound`` and ``mass_bound`` limit what was not found. The list is ``exact`` if
        nothing was left open. The support of a dense mapping, or of one whose zeros are not proved
        (``model.output_is_sparse`` is False), is infinite, so its list is never exact, although its
        best strings can be proved.

    Raises
    ------
    ValueError
        As in `beam_search`, and if any other number is below 1.

    References
    ----------
    Peters, Niculae and Martins (2019), Sparse Sequence-to-Sequence Models, §4.1; Stahlberg and
    Byrne (2019), On NMT Search Errors and Model Errors: Cat Got Your Tongue?, §2 (exact search in
    dense models).

    Examples
    --------
    A model that ends with probability 0.1, 0.5 after one token, and always after two:

    >>> import numpy as np
    >>> from pyentmax.seq2seq.decoding import Step, exact_search
    >>> class Words:
    ...     bos, eos, output_is_sparse = 0, 1, True
    ...     table = np.array([[0, 0.1, 0.6, 0.3], [0, 0.5, 0, 0.5], [0, 1, 0, 0]])
    ...     def encode(self, source, source_mask):
    ...         return np.zeros(len(source), int)
    ...     def step(self, length, tokens, prove=True):
    ...         p = self.table[length]
    ...         with np.errstate(divide="ignore"):
    ...             return Step(np.log(p), p > 0, np.ones((len(p), 1))), length + 1
    >>> source = np.array([[4]])
    >>> [result] = exact_search(Words(), source, source > 0, n_best=None)
    >>> [(h.tokens, round(h.probability, 2)) for h in result.hypotheses]
    [((2,), 0.3), ((2, 3), 0.3), ((3,), 0.15), ((3, 3), 0.15), ((), 0.1)]
    >>> result.exact
    True
    >>> [result] = exact_search(Words(), source, source > 0, n_best=1, width=1)
    >>> result.best.tokens, result.proved
    ((2,), 1)
    >>> round(result.bound, 2), round(result.mass_bound, 2)
    (0.3, 0.6)
    >>> print(result.reason[:73])
    The best string is proved. No other has a probability above 0.3, all that
    """
    source, source_mask = as_source(source, source_mask)
    enough = math.inf if n_best is None else positive("n_best", n_best)
    budget, width = positive("budget", budget), positive("width", width)
    plan = Plan(True, width, enough, budget, normalize, max_length, keep_attention)
    return search(model, source, source_mask, plan)
