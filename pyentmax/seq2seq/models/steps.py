"""A model for the decoders from anybody's function that scores the next token.

Prefixes of different lengths may share a step of a search. A network that cannot read them together
reads them in parts, one for each length. Most of Hugging Face's models can: they have one part,
padded on the left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple, Protocol

import numpy as np

from pyentmax.engine.calls.devices import to_host
from pyentmax.seq2seq.models.outputs import OutputRule
from pyentmax.seq2seq.models.protocol import BoolArray, FloatArray, IntArray, Step, take


class Network(Protocol):
    """A reader of tokens for a `StepModel`. A part is its state for some rows, never changed: a
    tuple whose first entry has that many rows."""

    def start(self, source: IntArray, mask: BoolArray) -> tuple[list[tuple[IntArray, Any]], Any]:
        """Rows and part of all that is read first, and the token of each row that is read next."""

    def key(self, part: Any) -> Any:
        """Parts with the same key can be read together."""

    def gather(self, chosen: Sequence[tuple[Any, IntArray]]) -> Any:
        """One part of the given rows of several parts, in their order; a row may be repeated."""

    def read(self, part: Any, tokens: IntArray) -> tuple[Any, Any]:
        """Read a token per row; return (rows, vocabulary) scores and the new part."""


class StepState(NamedTuple):
    """The parts of a network, and the rows of a decoder in them; a step gathers what it reads."""

    parts: tuple[Any, ...]
    part: IntArray  # (rows,): the part of each row
    row: IntArray  # (rows,): its row there
    unread: IntArray  # (rows,): the token to be read in place of bos, then −1
    positions: int  # of the source

    @staticmethod
    def take_rows(states: Sequence[StepState], which: IntArray | None, rows: IntArray) -> StepState:
        """As `take`: parts are the network's, and not arrays."""
        parts: list[Any] = []
        columns = []
        for state in states:
            columns.append((state.part + len(parts), state.row, state.unread))
            parts += state.parts
        part, row, unread = take(columns, which, rows)
        return StepState(tuple(parts), part, row, unread, states[0].positions)


class StepModel:
    """A network and an output rule as a model for the decoders; see `from_steps`.

    Its hypotheses come with attention weights of 0, since functions and the fast kernels of other
    libraries give none.
    """

    def __init__(self, network: Network, output: OutputRule, bos: int) -> None:
        self.network, self.output = network, output
        self.bos, self.eos = bos, output.ends[0]

    @property
    def output_is_sparse(self) -> bool:
        """Whether the output rule can give a token the probability 0, and this is proved."""
        return self.output.is_sparse

    def encode(self, source: IntArray, source_mask: BoolArray) -> StepState:
        """The state before the first token."""
        if not source_mask.any(axis=1).all():
            row = int(source_mask.any(axis=1).argmin())
            raise ValueError(f"source: row {row} is empty; expected at least one token to read")
        parts, unread = self.network.start(source, source_mask)
        place = np.empty((2, len(source)), np.int64)
        for number, (rows, _) in enumerate(parts):
            place[0, rows], place[1, rows] = number, np.arange(len(rows))
        whole = tuple(part for _, part in parts)
        return StepState(whole, place[0], place[1], unread, source.shape[1])

    def step(
        self, state: StepState, tokens: IntArray, prove: bool = True
    ) -> tuple[Step, StepState]:
        """Read one token per row; return what may come next, on the host, and the new state."""
        tokens = np.where(state.unread >= 0, state.unread, tokens)
        alike: dict[Any, list[int]] = {}
        for number in np.unique(state.part).tolist():
            alike.setdefault(self.network.key(state.parts[number]), []).append(number)
        scores, places, parts = [], [], []
        for numbers in alike.values():
            rows = [np.flatnonzero(state.part == number) for number in numbers]
            chosen = [(state.parts[n], state.row[r]) for n, r in zip(numbers, rows, strict=True)]
            part, read = chosen[0]
            if len(chosen) > 1 or not np.array_equal(read, np.arange(len(part[0]))):
                part = self.network.gather(chosen)
            places.append(np.concatenate(rows))
            z, part = self.network.read(part, tokens[places[-1]])
            scores.append(self._checked(as_scores(z), len(places[-1])))
            parts.append(part)
        back = np.argsort(np.concatenate(places))
        number = np.repeat(np.arange(len(parts)), list(map(len, places)))[back]
        row = np.concatenate([np.arange(len(rows)) for rows in places])[back]
        z = scores[0] if len(scores) == 1 else np.concatenate(scores)
        z = z if np.array_equal(back, np.arange(len(back))) else z[back]
        after = StepState(tuple(parts), number, row, np.full_like(row, -1), state.positions)
        return self.output(z, state.positions, prove=prove), after

    def _checked(self, z: FloatArray, rows: int) -> FloatArray:
        most = max(self.output.ends)
        if z.ndim != 2 or len(z) != rows or z.shape[1] <= most:
            raise ValueError(
                f"scores: expected shape ({rows}, vocabulary), a row for each prefix and a column "
                f"for each token, the end ({most}) among them; got {z.shape}"
            )
        return z

    def reread(self, source: IntArray, strings: Sequence[Sequence[int]]) -> FloatArray | None:
        """Log-probabilities of whole strings for one source, read at once and without a cache.

        None if the network cannot do that.
        """
        if (reread := getattr(self.network, "reread", None)) is None:
            return None
        log_probs = []
        for z, string in zip(reread(source, strings), strings, strict=True):
            tokens = [*string, self.eos]
            log_prob = self.output(as_scores(z), 0).log_prob[np.arange(len(tokens)), tokens]
            log_probs.append(log_prob.sum(dtype=np.float64))
        return np.array(log_probs)


def from_steps(
    fn: Callable[[IntArray, Any], tuple[Any, Any]],
    *,
    eos: int | Sequence[int],
    mapping: str | float = "softmax",
    keep: str | None = None,
    temperature: float = 1.0,
) -> StepModel:
    """A model for the decoders from a function that scores the next token.

    Parameters
    ----------
    fn : callable
        ``fn(prefixes, state) -> (scores, state)``. ``prefixes`` is a (rows, length) array: the
        tokens of the source, then those that were written. ``scores`` is a (rows, vocabulary) array
        or tensor. ``state`` is None for a source, and for what continues a prefix what ``fn``
        returned for it: None, or arrays or tensors with a row for each prefix, or tuples, lists or
        dicts of them. It must not be changed in place.
    eos : int or sequence of int
        The token that ends a string, or several.
    mapping : str or float, default "softmax"
        From scores to probabilities: a name in `pyentmax.MAPPINGS` or an α, as in
        ``"sparsemax"``, ``1.5``, ``"topk_softmax:8"``.
    keep : str, optional
        A set of `pyentmax.keep` to which the scores are cut first, ``"min_p=0.05"``, or several,
        one after the other, ``"top_k=50,min_p=0.05"``.
    temperature : float, default 1.0
        The scores are divided by it before.

    Returns
    -------
    StepModel

    Raises
    ------
    ValueError
        If a choice is unknown, a number out of its range, or ``eos`` empty; in a step, if scores or
        states do not have a row for each prefix.
    TypeError
        In a step, if the state holds anything else.

    Examples
    --------
    Two letters, of which the same may not come twice; a softmax cut to its two best.

    >>> from pyentmax.seq2seq.decoding import exact_search
    >>> def fn(prefixes, state):
    ...     scores = np.tile([1.0, 0.5, 0.0], (len(prefixes), 1))  # the end, a, b
    ...     repeated = prefixes[:, -1:] == np.arange(3)
    ...     return np.where(repeated, -9.0, scores), state
    >>> model = from_steps(fn, eos=0, keep="top_k=2")
    >>> [result] = exact_search(model, [[1]], [[True]], n_best=None, max_length=2)
    >>> [h.tokens for h in result.hypotheses]
    [(), (2,), (2, 1)]
    """
    ends = checked_ends(eos)
    return StepModel(_Prefixes(fn), OutputRule(mapping, keep, temperature, ends), ends[0])


def checked_ends(eos: Any) -> list[int]:
    """The tokens that end a string, one or several; a ValueError if there is none."""
    try:
        ends = [index(eos)]  # arrays and tensors of one token, too
    except TypeError:
        ends = [] if eos is None else list(eos)
    if not ends or any(index(end) < 0 for end in ends):
        raise ValueError(
            f"eos: expected the id of the token that ends a string, or several, got {ends}: "
            "without an end every string goes on forever, and no list is complete"
        )
    return [index(end) for end in ends]


def as_scores(z: Any) -> FloatArray:
    """An array or tensor as an array of float32 or float64 on the host."""
    if hasattr(z, "detach"):  # a tensor; NumPy has no bfloat16
        z = z.detach()
        z = (z.float() if z.element_size() < 4 else z).cpu().numpy()
    z = np.asarray(to_host(z))
    if z.dtype in (np.float32, np.float64):
        return z
    small = z.dtype.itemsize < 4 and z.dtype.kind not in "iub"
    return z.astype(np.float32 if small else np.float64)


class _Part(NamedTuple):
    prefixes: IntArray
    state: Any


class _Prefixes:
    """A network of one function, which gets prefixes of one length at a time."""

    def __init__(self, fn: Callable[[IntArray, Any], tuple[Any, Any]]) -> None:
        self.fn = fn

    def start(self, source: IntArray, mask: BoolArray) -> tuple[list[Any], IntArray]:
        lengths, unread, parts = mask.sum(axis=1), np.empty(len(source), np.int64), []
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            prompts = source[rows][mask[rows]].reshape(len(rows), length)
            unread[rows] = prompts[:, -1]
            parts.append((rows, _Part(prompts[:, :-1], None)))
        return parts, unread

    def read(self, part: _Part, tokens: IntArray) -> tuple[Any, _Part]:
        prefixes = np.concatenate([part.prefixes, tokens[:, None]], axis=1)
        scores, state = self.fn(prefixes, part.state)

        def check(x: Any) -> None:
            if not x.shape or x.shape[0] != len(prefixes):
                raise ValueError(
                    f"state: expected arrays with a row for each of {len(prefixes)} prefixes, got "
                    f"one of shape {tuple(x.shape)}"
                )

        _mapped(check, state)
        return scores, _Part(prefixes, state)

    def key(self, part: _Part) -> Any:
        return part.prefixes.shape[1], part.state is None

    def gather(self, chosen: Sequence[tuple[_Part, IntArray]]) -> _Part:
        prefixes = np.concatenate([part.prefixes[rows] for part, rows in chosen])
        states = [_mapped(lambda x, rows=rows: x[rows], part.state) for part, rows in chosen]
        return _Part(prefixes, states[0] if len(states) == 1 else _mapped(_concatenated, *states))


def _concatenated(*arrays: Any) -> Any:
    """Arrays of one library, one below the other."""
    library = sys.modules[type(arrays[0]).__module__.partition(".")[0]]
    if library.__name__.startswith("jax"):
        library = arrays[0].__array_namespace__()
    return library.concatenate(arrays)


def _mapped(fn: Callable[..., Any], *states: Any) -> Any:
    """A function of all arrays that have the same place in some states."""
    first = states[0]
    if first is None:
        return None
    if hasattr(first, "shape"):
        return fn(*states)
    if isinstance(first, dict):
        return {k: _mapped(fn, *(s[k] for s in states)) for k in first}
    if isinstance(first, tuple | list):
        parts = [_mapped(fn, *group) for group in zip(*states, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    raise TypeError(
        "state: expected None, arrays or tensors with a row for each prefix, or tuples, lists or "
        f"dicts of them; got {type(first).__name__}"
    )
