"""All that a model can say: the complete list of its outputs, or a bound on what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyentmax.seq2seq.decoding.exact import exact_search
from pyentmax.seq2seq.decoding.hypotheses import Hypothesis, SearchResult
from pyentmax.seq2seq.decoding.hypothesis_tree import HypothesisTree
from pyentmax.seq2seq.decoding.truncated import Truncated
from pyentmax.seq2seq.models.hugging_face import from_transformers
from pyentmax.seq2seq.models.protocol import BoolArray, IntArray
from pyentmax.seq2seq.training.progress import counting

REREAD = 16  # strings of a list that are read a second time
TOLERANCE = 1e-4  # of a total mass


@dataclass(frozen=True, eq=False, repr=False)
class OutputList:
    """The outputs of a model for one input.

    Attributes
    ----------
    hypotheses : tuple of Hypothesis
        Those that ended, most probable first.
    texts : tuple of str or None
        Those of the tokenizer, in the same order.
    total : float
        The probability of all that are listed.
    complete : bool
        Whether it is proved that no other output has a probability above 0.
    reason : str
        Why the list is complete, or why it is not.
    rest : float
        Upper bound on the probability of all outputs that are not listed; 0 if ``complete``.
    unfinished : tuple of Hypothesis
        If nothing ended: the prefixes that were reached.
    """

    hypotheses: tuple[Hypothesis, ...]
    texts: tuple[str, ...] | None
    total: float
    complete: bool
    reason: str
    rest: float
    decode: Callable[[Sequence[int]], str] | None = None
    unfinished: tuple[Hypothesis, ...] = ()

    def __repr__(self) -> str:
        """A line, since the list may be long."""
        state = "complete" if self.complete else f"not complete, at most {self.rest:.3g} missing"
        return f"OutputList({len(self.hypotheses)} outputs, total {self.total:.6g}, {state})"

    def by_text(self) -> dict[str, float]:
        """The probability of each text: several outputs may be spelled alike.

        Raises
        ------
        ValueError
            If the list was made without a tokenizer.
        """
        sums: dict[str, float] = {}
        for text, hypothesis in zip(self._texts(), self.hypotheses, strict=True):
            sums[text] = sums.get(text, 0.0) + hypothesis.probability
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def at_most(self, condition: Callable[[str], bool]) -> float:
        """Upper bound on the probability of an output whose text meets a condition.

        It is 0 only if the list is complete and none meets it.

        Raises
        ------
        ValueError
            As `by_text`.
        """
        listed = [p for text, p in self.by_text().items() if condition(text)]
        # A probability that is too small for a float is not 0.
        tiny = float(np.finfo(float).tiny)
        return min(sum(max(p, tiny) for p in listed) + self.rest, 1.0)

    def tree(self, decode: Callable[[int], str] | None = None, **options: Any) -> HypothesisTree:
        """The tree of the outputs; tokens are spelled by the tokenizer, or by ``decode``."""
        if decode is None and (spell := self.decode) is not None:
            decode = lambda token: spell([token])  # noqa: E731
        return HypothesisTree.build(self.hypotheses or self.unfinished, decode or str, **options)

    def _texts(self) -> tuple[str, ...]:
        if self.texts is None:
            raise ValueError("expected a list with texts: pass a tokenizer to list_outputs")
        return self.texts


def list_outputs(
    model: Any,
    inputs: Any,
    tokenizer: Any = None,
    *,
    mapping: str | float = "softmax",
    keep: str | None = None,
    temperature: float = 1.0,
    eos: int | Sequence[int] | None = None,
    max_length: int | None = None,
    budget: int = 1000,
    width: int = 32,
    progress: bool = True,
) -> list[OutputList]:
    """Everything that a model can say, with a proof that it is everything.

    A sparse output mapping, or a softmax that is cut to a keep-set, gives most tokens a probability
    of 0. Prefixes are expanded best first until none is open, or the budget is used up; then what
    was not reached has at most the probability ``rest``. A complete list is checked twice: its
    probabilities sum to 1, and a part of its strings is read again, each at once and without the
    cache, for models of ``transformers``. A list that fails is not called complete.

    Parameters
    ----------
    model : transformers.PreTrainedModel, or a model of `pyentmax.seq2seq.models`
        As `from_transformers` takes it, or any model that the decoders do.
    inputs : str, sequence of str, of lists of token ids, (batch, length) int array, or mapping
        What the model reads. In an array all tokens count: for padding, pass lists, or what a
        tokenizer returns, with ``input_ids`` and ``attention_mask``.
    tokenizer : optional
        With ``encode(text)`` → ids and ``decode(ids)`` → text, as those of ``transformers``.
    mapping, keep, temperature, eos : as in `from_transformers`
        A model of `pyentmax.seq2seq.models` has a mapping, and takes ``keep`` only.
    max_length : int, optional
        The most tokens of an output, end not counted; by default 2 × input length + 10.
    budget : int, default 1000
        The largest number of prefixes that are expanded for each input.
    width : int, default 32
        Prefixes of an input that share a step. Fewer need less memory.
    progress : bool, default True
        Show a bar after two seconds.

    Returns
    -------
    list of OutputList
        One for each input.

    Raises
    ------
    TypeError
        If token ids are not integers, or the model or ``keep`` is of the wrong kind.
    ValueError
        If the mapping is dense and there is no keep-set, since every string would be possible; if
        there is nothing to read; as in `from_transformers` and `exact_search`.

    Examples
    --------
    >>> from pyentmax.seq2seq.models import from_steps
    >>> def fn(prefixes, state):  # after the source: the end, or one of two letters and the end
    ...     written = prefixes.shape[1] > 1
    ...     return np.tile([5.0, 0, 0] if written else [0.6, 1.0, 1.0], (len(prefixes), 1)), state
    >>> [outputs] = list_outputs(from_steps(fn, eos=0, mapping="sparsemax"), [[1]])
    >>> [(h.tokens, round(h.probability, 3)) for h in outputs.hypotheses]
    [((1,), 0.467), ((2,), 0.467), ((), 0.067)]
    >>> outputs
    OutputList(3 outputs, total 1, complete)
    """
    adapted = _adapted(model, mapping, keep, temperature, eos)
    source, mask = _read_inputs(inputs, tokenizer)
    with counting(None, "prefix", progress) as count:
        results = exact_search(
            _Counted(adapted, count),
            source,
            mask,
            n_best=None,
            budget=budget,
            max_length=max_length,
            width=width,
            keep_attention=False,
        )
    return [
        _outputs(_checked(result, adapted, ids[row]), tokenizer)
        for result, ids, row in zip(results, source, mask, strict=True)
    ]


def _adapted(
    model: Any,
    mapping: str | float,
    keep: str | None,
    temperature: float,
    eos: int | Sequence[int] | None,
) -> Any:
    """The model as the decoders take it, with an output that can be complete."""
    if not hasattr(model, "step"):
        if not hasattr(model, "config"):
            raise TypeError(
                "model: expected one of transformers or of pyentmax.seq2seq.models, got "
                f"{type(model).__name__}; from_steps makes one from a function"
            )
        options: Any = {"temperature": temperature, "eos": eos}
        adapted: Any = from_transformers(model, mapping=mapping, keep=keep, **options)
    else:
        if (mapping, temperature, eos) != ("softmax", 1.0, None):
            raise ValueError(
                "mapping, temperature, eos: expected none for a model of pyentmax.seq2seq.models, "
                f"which has its own; got {mapping!r}, {temperature} and {eos}"
            )
        adapted = model if keep is None else Truncated(model, keep)
    if not adapted.output_is_sparse:
        raise ValueError(
            "mapping: expected one whose zeros are certain, such as 1.5 or 'sparsemax', or a "
            "keep-set, such as keep='min_p=0.05', got neither: a softmax gives every string a "
            "probability above 0, so that no list is complete"
        )
    return adapted


def _read_inputs(inputs: Any, tokenizer: Any) -> tuple[IntArray, BoolArray]:
    """Token ids of all inputs, padded, and where they are real."""
    hidden = None
    if isinstance(inputs, Mapping):  # of a tokenizer
        if "input_ids" not in inputs:
            raise TypeError(f"inputs: expected input_ids in a mapping, got {', '.join(inputs)}")
        inputs, hidden = inputs["input_ids"], inputs.get("attention_mask")
        if len(inputs) and not np.ndim(inputs[0]):
            inputs, hidden = [inputs], None if hidden is None else [hidden]
    rows = [inputs] if isinstance(inputs, str) else list(inputs)
    if any(isinstance(row, str) for row in rows):
        if tokenizer is None:
            raise ValueError(
                "inputs: expected token ids, or a tokenizer for texts, got texts alone"
            )
        encoded = [tokenizer.encode(row) for row in rows]
        rows = [getattr(row, "ids", row) for row in encoded]  # of the package tokenizers
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in rows]  # from devices, too
    if any(np.ndim(row) != 1 for row in rows):
        raise ValueError("inputs: expected a batch, a list of texts or of lists of token ids")
    if hidden is not None:
        pairs = zip(rows, hidden, strict=True)
        rows = [[x for x, seen in zip(*pair, strict=True) if seen] for pair in pairs]
    if strange := {type(x).__name__ for row in rows for x in row if not _is_integer(x)}:
        raise TypeError(f"inputs: expected integers as token ids, got {', '.join(sorted(strange))}")
    lengths = np.array([len(row) for row in rows], np.int64)
    if (lengths == 0).any():
        raise ValueError(
            f"inputs: input {lengths.argmin()} has no token, expected at least one, such as the "
            "token that begins a text"
        )
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    source = np.zeros(mask.shape, np.int64)
    if rows:
        source[mask] = np.concatenate([np.asarray(row) for row in rows])
    return source, mask


def _is_integer(x: Any) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


class _Counted:
    """A model that counts the prefixes it expands."""

    def __init__(self, model: Any, count: Callable[[int], Any]) -> None:
        self.model, self.count = model, count

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def step(self, state: Any, tokens: IntArray, prove: bool = True) -> Any:
        self.count(len(tokens))
        return self.model.step(state, tokens, prove)


def _checked(result: SearchResult, model: Any, source: IntArray) -> SearchResult:
    """A result that claims to be complete only if its mass and a second reading agree."""
    doubts = []
    total = result.mass + (0.0 if result.exact else result.mass_bound)
    if abs(total - 1) > TOLERANCE * max(1, *(len(h.tokens) for h in result.hypotheses)):
        doubts.append(f"what is listed and what is open sum to {total:.6g} and not to 1")
    reread = getattr(model, "reread", None)
    if result.exact and reread is not None:
        listed = [h for h in result.hypotheses if h.finished]
        places = np.linspace(0, len(listed) - 1, min(len(listed), REREAD)).astype(int)
        again = [listed[i] for i in places.tolist()]
        log_prob = reread(source, [h.tokens for h in again])
        if log_prob is not None:
            first, near = np.array([h.log_prob for h in again]), [len(h.tokens) + 1 for h in again]
            wrong = ~(abs(log_prob - first) <= model.network.tolerance * np.array(near))
            if wrong.any():
                doubts.append(
                    f"{wrong.sum()} of {len(again)} strings have another probability when they are "
                    "read again without the cache"
                )
    if not doubts:
        return result
    reason = f"Not proved complete: {' and '.join(doubts)}."
    return replace(result, exact=False, reason=reason, proved=0, bound=1.0, mass_bound=1.0)


def _outputs(result: SearchResult, tokenizer: Any) -> OutputList:
    listed = tuple(h for h in result.hypotheses if h.finished)
    texts, unfinished = None, () if listed else result.hypotheses
    if tokenizer is not None:
        texts = tuple(tokenizer.decode(list(h.tokens)) for h in listed)
    rest = 0.0 if result.exact else min(result.mass_bound, 1.0)
    decode = None if tokenizer is None else tokenizer.decode
    state = result.mass, result.exact, result.reason, rest
    return OutputList(listed, texts, *state, decode, unfinished)
