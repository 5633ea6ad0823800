"""The graph of hypotheses: a tree whose branches merge where they have the same continuations.

The tree of :mod:`pyentmax.decoding.hypothesis_tree` merges common beginnings of strings.
Translations often differ only in the middle, and then most of the tree appears several times. Here
two prefixes with the same continuations are one place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyentmax.decoding.hypotheses import Hypothesis
from pyentmax.decoding.hypothesis_tree import CUT_OFF

_Tokens = tuple[str, ...]
# A token, and whether it is the end symbol: another token may have the same text.
_Symbol = tuple[str, bool]
_Symbols = tuple[_Symbol, ...]
_Place = tuple[_Symbol, frozenset[_Symbols]]  # a symbol, and all that may follow it


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

    tokens: _Tokens
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
    >>> from pyentmax.decoding import Hypothesis
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
        listed: list[tuple[_Symbols, float]] = []
        for h in hypotheses:
            last = (end if h.finished else CUT_OFF, True)
            listed.append(((*((decode(token), False) for token in h.tokens), last), h.probability))
        if not listed:
            raise ValueError("a graph needs at least one hypothesis, but the list is empty")
        # A place is identified by its continuations: all ends of strings that begin with it.
        ends: dict[_Symbols, set[_Symbols]] = defaultdict(set)
        for string, _ in listed:
            for i in range(1, len(string) + 1):
                ends[string[:i]].add(string[i:])
        places = {begin: (begin[-1], frozenset(rest)) for begin, rest in ends.items()}
        paths: list[list[_Place]] = [
            [places[string[:i]] for i in range(1, len(string) + 1)] for string, _ in listed
        ]
        after: dict[_Place, set[_Place]] = defaultdict(set)
        before: dict[_Place, set[_Place | None]] = defaultdict(set)
        for path in paths:
            for one, other in zip([None, *path], path, strict=False):
                before[other].add(one)
                if one is not None:
                    after[one].add(other)
        # A place joins the run before it if that leads only there, and nothing else does.
        runs: list[list[tuple[_Place, _Tokens]]] = []
        for path in paths:
            run: list[tuple[_Place, _Tokens]] = []
            for previous, place in zip([None, *path], path, strict=False):
                joins = previous is not None and len(after[previous]) == len(before[place]) == 1
                if joins:
                    first, tokens = run[-1]
                    run[-1] = (first, (*tokens, place[0][0]))
                else:
                    run.append((place, (place[0][0],)))
            runs.append(run)
        strings: dict[_Place, list[int]] = defaultdict(list)
        run_tokens: dict[_Place, _Tokens] = {}
        for number, run in enumerate(runs):
            for place, tokens in run:
                strings[place].append(number)
                run_tokens[place] = tokens
        following: dict[_Place, set[_Place]] = defaultdict(set)
        for run in runs:
            for (one, _), (other, _) in zip(run, run[1:], strict=False):
                following[one].add(other)
        # The depth of a node is its longest path from a root. Continuations get shorter along every
        # path, so that in this order a node's depth is known before it is needed.
        depth: dict[_Place, int] = dict.fromkeys(run_tokens, 0)
        for one in sorted(run_tokens, key=lambda place: -max(map(len, place[1]))):
            for other in following[one]:
                depth[other] = max(depth[other], depth[one] + 1)
        order = sorted(run_tokens, key=lambda place: (depth[place], strings[place]))
        numbers = {place: number for number, place in enumerate(order)}
        edges: dict[_Place, dict[int, float]] = {place: {} for place in order}
        for run, (_, p) in zip(runs, listed, strict=True):
            for (one, _), (other, _) in zip(run, run[1:], strict=False):
                total = edges[one].get(numbers[other], 0.0)
                edges[one][numbers[other]] = total + p
        nodes = tuple(
            GraphNode(
                run_tokens[place],
                sum(listed[i][1] for i in strings[place]),
                tuple(strings[place]),
                edges[place],
            )
            for place in order
        )
        roots = sorted({numbers[run[0][0]] for run in runs})
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
