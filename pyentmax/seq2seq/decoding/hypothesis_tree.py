"""The tree of hypotheses: common prefixes, branches, and the probability of each branch.

Peters et al. (2019) draw a complete beam like this in Figure 1: one path for the common beginning
of all hypotheses, a branch where they differ, and a leaf for each possible string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyentmax.seq2seq.decoding.hypotheses import Hypothesis

EMPTY = "(empty)"  # how a string of no tokens is listed
CUT_OFF = "…"  # ends a hypothesis that the length limit left unfinished


@dataclass(frozen=True)
class HypothesisNode:
    """A run of tokens without a branch inside, and the branches after it.

    Attributes
    ----------
    tokens : tuple of str
        The run. In a leaf it includes the end symbol. Only a root may have an empty run.
    prefix : tuple of str
        Everything before the run.
    probability : float
        Total probability of the listed strings that go through this node.
    share : float
        That probability divided by the parent's: the branch's share of the parent's mass.
    children : tuple of HypothesisNode
        Most probable first; empty in a leaf.
    """

    tokens: tuple[str, ...]
    prefix: tuple[str, ...]
    probability: float
    share: float
    children: tuple[HypothesisNode, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether a string ends here."""
        return not self.children

    def walk(self, depth: int = 0) -> Iterator[tuple[int, HypothesisNode]]:
        """This node and all below it with their depths, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


@dataclass(frozen=True)
class HypothesisTree:
    """Hypotheses merged into a tree by their common prefixes.

    Attributes
    ----------
    root : HypothesisNode
        The common prefix of all hypotheses; its probability is the total of the list.
    end : str
        How the end symbol is shown.
    separator : str
        What stands between the tokens of a string: "" for characters, " " for words.

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import Hypothesis, HypothesisTree
    >>> from math import log
    >>> letters = "drawedn"
    >>> words = {"drawed": 0.664, "drawn": 0.322, "draw": 0.014}
    >>> hypotheses = [
    ...     Hypothesis(tuple(letters.index(c) for c in word), log(p)) for word, p in words.items()
    ... ]
    >>> print(HypothesisTree.build(hypotheses, lambda token: letters[token]))
    draw        100.0%
    ├── ed</s>   66.4%  drawed
    ├── n</s>    32.2%  drawn
    └── </s>      1.4%  draw
    """

    root: HypothesisNode
    end: str = "</s>"
    separator: str = ""

    @classmethod
    def build(
        cls,
        hypotheses: Iterable[Hypothesis],
        decode: Callable[[int], str],
        *,
        end: str = "</s>",
        separator: str = "",
    ) -> HypothesisTree:
        """Merge hypotheses into their tree.

        Parameters
        ----------
        hypotheses : iterable of Hypothesis, not empty
            Such as ``result.hypotheses`` of a beam search. An unfinished one ends in "…".
        decode : callable
            The text of a token, such as ``vocabulary.tokens.__getitem__``.
        end, separator : str
            Become the tree's.
        """
        # In sorted order, strings with a common prefix are neighbours.
        return cls(_merge(sorted(spelled(hypotheses, decode, end))), end, separator)

    def string(self, node: HypothesisNode) -> str:
        """The string from the beginning to the end of ``node``, without the end symbol."""
        tokens = node.prefix + node.tokens
        if node.is_leaf and tokens[-1] == self.end:
            tokens = tokens[:-1]
        return self.separator.join(tokens)

    def label(self, tokens: Iterable[str]) -> str:
        """Tokens as text, with visible spaces."""
        return self.separator.join(token.replace(" ", "␣") for token in tokens)

    def text(self) -> str:
        """The tree as lines of text: run, probability, share of the branch, string.

        The share of the branch is shown if the tree branches more than once, because only then does
        it differ from the probability.
        """
        rows = list(_rows(self.root))
        shape = [lead + self.label(node.tokens) for lead, node in rows]
        if not shape[0]:
            shape[0] = "·"  # the strings have no common prefix
        width = max(map(len, shape))
        percents = [format_percent(node.probability) for _, node in rows]
        digits = max(map(len, percents))
        nested = any(not child.is_leaf for child in self.root.children)
        lines = []
        for text, percent, (_, node) in zip(shape, percents, rows, strict=True):
            line = f"{text:{width}}  {percent:>{digits}}"
            if nested:
                share = "" if node is self.root else f"{format_percent(node.share)} of branch"
                line += f"  {share:>16}"
            string = self.string(node) or EMPTY if node.is_leaf else ""
            lines.append(f"{line}  {string}".rstrip())
        return "\n".join(lines)

    __str__ = text


Symbol = tuple[str, bool]
"""A token, and whether it is the end symbol, which another token may be spelled like."""

Spelled = tuple[tuple[Symbol, ...], float]
"""A string and its probability."""


def spelled(
    hypotheses: Iterable[Hypothesis], decode: Callable[[int], str], end: str
) -> list[Spelled]:
    """Hypotheses as strings; a ValueError if there are none."""
    strings: list[Spelled] = []
    for h in hypotheses:
        last = (end if h.finished else CUT_OFF, True)
        strings.append(((*((decode(token), False) for token in h.tokens), last), h.probability))
    if not strings:
        raise ValueError("expected at least one hypothesis, got an empty list")
    return strings


def _merge(runs: Sequence[Spelled], start: int = 0, above: float | None = None) -> HypothesisNode:
    """The node of sorted strings that agree up to ``start``; ``above`` is the parent's mass."""
    first, last = runs[0][0], runs[-1][0]  # all others lie between these two in sorted order
    stop = start
    while stop < min(len(first), len(last)) and first[stop] == last[stop]:
        stop += 1
    mass = sum(probability for _, probability in runs)
    children = []
    if stop < len(first):
        for _, group in groupby(runs, key=lambda run: run[0][stop]):
            children.append(_merge(list(group), stop, mass))
    children.sort(key=lambda node: -node.probability)
    tokens = [token for token, _ in first]
    share = 1.0 if above is None else mass / above if above else 0.0
    return HypothesisNode(
        tuple(tokens[start:stop]), tuple(tokens[:start]), mass, share, tuple(children)
    )


def _rows(node: HypothesisNode, lead: str = "", below: str = "") -> Iterator[Any]:
    """Each node with the branch lines before it, in the order of the lines."""
    yield lead, node
    for child in node.children:
        last = child is node.children[-1]
        branch, rest = ("└── ", "    ") if last else ("├── ", "│   ")
        yield from _rows(child, below + branch, below + rest)


def format_percent(probability: float) -> str:
    """A probability as a percentage with one decimal; rounding never makes it 0% or 100%.

    Examples
    --------
    >>> [format_percent(p) for p in (1.0, 0.9999, 0.664, 0.0004, 1e-9, 0.0)]
    ['100.0%', '>99.9%', '66.4%', '0.04%', '<0.001%', '0.0%']
    """
    if 0.9995 <= probability < 1 - 1e-6:  # closer to 1 means a complete list, up to rounding
        return ">99.9%"
    if 0 < probability < 5e-6:
        return "<0.001%"
    if 0 < probability < 0.0005:
        return f"{100 * probability:.1g}%"
    return f"{100 * probability:.1f}%"
