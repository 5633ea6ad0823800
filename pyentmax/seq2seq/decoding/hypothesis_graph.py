"""The graph of hypotheses: a tree whose branches merge where they have the same continuations.

The tree of :mod:`pyentmax.seq2seq.decoding.hypothesis_tree` merges common beginnings of strings.
Translations often differ only in the middle, and then most of the tree appears several times. Here
two prefixes with the same continuations are one place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyentmax.seq2seq.decoding.hypotheses import Hypothesis
from pyentmax.seq2seq.decoding.hypothesis_tree import Symbol, spelled

_Symbols = tuple[Symbol, ...]
_Place = tuple[Symbol, frozenset[_Symbols]]  # a symbol, and all that may follow it


@dataclass(frozen=True)
class GraphNode:
    """A run of tokens without a branch inside, and where it leads.

    Attributes
    ----------
    tokens : tuple of str
        The run; that of a last node ends with the end symbol.
    probability : float
        Total probability of the listed strings that go through this node.
    strings : tuple of int
        Which strings of the list these are, in its order.
    following : dict of int to float
        Numbers of the next nodes, with the probability of the strings that go there from here.
    """

    tokens: tuple[str, ...]
    probability: float
    strings: tuple[int, ...]
    following: dict[int, float]


@dataclass(frozen=True)
class HypothesisGraph:
    """Hypotheses merged by their common beginnings and by their common ends.

    Attributes
    ----------
    nodes : tuple of GraphNode
        Each before those that follow it.
    first : tuple of int
        Numbers of the nodes with which strings begin.
    separator : str
        What stands between the tokens of a string: "" for characters, " " for words.

    Examples
    --------
    >>> from pyentmax.seq2seq.decoding import Hypothesis
    >>> words = ["a", "dog", "cat", "sleeps", "now"]
    >>> strings = [((0, 1, 3), -0.7), ((0, 2, 3), -1.6), ((0, 1, 3, 4), -2.3), ((0, 2, 3, 4), -2.3)]
    >>> hypotheses = [Hypothesis(tokens, log_prob) for tokens, log_prob in strings]
    >>> print(HypothesisGraph.build(hypotheses, words.__getitem__, separator=" "))
    a       89.9% → dog, cat
    dog     59.7% → sleeps
    cat     30.2% → sleeps
    sleeps  89.9% → </s>, now
    now     20.1% → </s>
    </s>    89.9%
    """

    nodes: tuple[GraphNode, ...]
    first: tuple[int, ...]
    separator: str = ""

    @classmethod
    def build(
        cls,
        hypotheses: Iterable[Hypothesis],
        decode: Callable[[int], str],
        *,
        end: str = "</s>",
        separator: str = "",
    ) -> HypothesisGraph:
        """Merge hypotheses into their graph; parameters as for `HypothesisTree.build`."""
        listed = spelled(hypotheses, decode, end)
        # A place is identified by its continuations: all ends of strings that begin with it.
        ends: dict[_Symbols, set[_Symbols]] = defaultdict(set)
        for string, _ in listed:
            for i in range(1, len(string) + 1):
                ends[string[:i]].add(string[i:])
        places = {begin: (begin[-1], frozenset(rest)) for begin, rest in ends.items()}
        paths = [[places[string[:i]] for i in range(1, len(string) + 1)] for string, _ in listed]
        after: dict[_Place | None, set[_Place]] = defaultdict(set)
        before: dict[_Place, set[_Place | None]] = defaultdict(set)
        for path in paths:
            for one, other in zip([None, *path], path, strict=False):
                after[one].add(other)
                before[other].add(one)
        # A place joins the run before it if that leads only there, and nothing else does. A run is
        # known by its first place.
        tokens: dict[_Place, list[str]] = {}
        strings: dict[_Place, list[int]] = defaultdict(list)
        edges: dict[_Place, dict[_Place, float]] = defaultdict(dict)
        for number, (path, (_, p)) in enumerate(zip(paths, listed, strict=True)):
            run: _Place | None = None
            for one, other in zip([None, *path], path, strict=False):
                if run is None or len(after[one]) > 1 or len(before[other]) > 1:
                    if run is not None:
                        edges[run][other] = edges[run].get(other, 0.0) + p
                    run, tokens[other] = other, []
                    strings[run].append(number)
                tokens[run].append(other[0][0])
        # The depth of a node is its longest path from a root. Continuations get shorter along every
        # path, so that in this order a node's depth is known before it is needed.
        depth = dict.fromkeys(tokens, 0)
        for start in sorted(tokens, key=lambda place: -max(map(len, place[1]))):
            for other in edges[start]:
                depth[other] = max(depth[other], depth[start] + 1)
        order = sorted(tokens, key=lambda place: (depth[place], strings[place]))
        number_of = {place: number for number, place in enumerate(order)}
        nodes = tuple(
            GraphNode(
                tuple(tokens[start]),
                sum(listed[i][1] for i in strings[start]),
                tuple(strings[start]),
                {number_of[other]: p for other, p in edges[start].items()},
            )
            for start in order
        )
        roots = sorted(number_of[place] for place in after[None])
        return cls(nodes, tuple(roots), separator)

    def label(self, node: GraphNode) -> str:
        """A node's tokens as text, with visible spaces."""
        return self.separator.join(token.replace(" ", "␣") for token in node.tokens)

    def text(self) -> str:
        """The nodes as lines of text: run, probability, and the runs that may follow."""
        labels = [self.label(node) for node in self.nodes]
        width = max(map(len, labels))
        lines = []
        for label, node in zip(labels, self.nodes, strict=True):
            line = f"{label:{width}} {100 * node.probability:5.1f}%"
            if node.following:
                line += f" → {', '.join(labels[i] for i in node.following)}"
            lines.append(line)
        return "\n".join(lines)

    __str__ = text
