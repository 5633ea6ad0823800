"""The puzzles of notebook 15: what each wants, and in words what is still wrong with an attempt.

``@puzzle(n)`` above a function draws an example of what puzzle n wants, tries the function, and
says "to do", "right", or the first difference: "right for one row, not for ties: …". What is wanted
comes from the library and from functions here, which the function itself must not call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from exercises import difference, guard, read
from figures import puzzle_panels, show_described

import pyentmax
from pyentmax.seq2seq.analysis import epsilon_perplexity

__all__ = ["PUZZLES", "puzzle", "verdict"]

FAST = os.environ.get("PYENTMAX_FAST") == "1"
THOUSANDS = np.array([1000.0, 999.5, -1000.0])


class Puzzle(NamedTuple):
    """What is wanted, the names of its arguments, and the arguments to try, the picture's first."""

    wanted: Callable[..., Any]
    names: tuple[str, ...]
    output: str
    caption: str
    tries: tuple[tuple[str, tuple[Any, ...]], ...]
    level: float | None = None  # to draw into the scores


def rows(*shape: int, scale: float = 1.0) -> Any:
    """Random scores, always the same; two of the digits, so that they can be read in a message."""
    return np.round(scale * np.random.default_rng(sum(shape)).normal(size=shape), 2)


def divide(p: Any) -> Any:
    """Rows divided by their sums; a row of zeros stays."""
    total = p.sum(-1, keepdims=True)
    return np.divide(p, total, out=np.zeros_like(p), where=total > 0)


def halve(z: Any, alpha: float, low: Any, high: Any) -> Any:
    """The half of the bracket that holds the threshold."""
    middle = (low + high) / 2
    x = (alpha - 1) * z - middle[..., None]
    left = (np.maximum(x, 0) ** (1 / (alpha - 1))).sum(-1) < 1
    return np.where(left, low, middle), np.where(left, middle, high)


def mean_of_runs(u: Any, v: Any) -> Any:
    """Each v replaced by the mean of v over the run of equal u that it stands in."""
    means = np.empty(len(v))
    start = 0
    for end in range(1, len(u) + 1):
        if end == len(u) or u[end] != u[start]:
            means[start:end] = v[start:end].mean()
            start = end
    return means


def with_sink(z: Any, sink: Any) -> Any:
    """Sparsemax with one more score, whose probability is then left out."""
    longer = np.concatenate([z, np.broadcast_to(sink, (*z.shape[:-1], 1))], -1)
    return pyentmax.sparsemax(longer)[..., :-1]


def size(z: Any) -> Any:
    """The number of entries in the support of sparsemax."""
    return pyentmax.sparsemax.support(z).sum(-1)


def threshold(z: Any, support: Any) -> Any:
    """The score at which sparsemax with this support begins."""
    return np.where(support, z - pyentmax.sparsemax(z), 0).sum(-1) / support.sum(-1)


def warmest(z: Any) -> Any:
    """The T at which the threshold of sparsemax(z / T) reaches the smallest score."""
    return (z - z.min(-1, keepdims=True)).sum(-1)


Z = np.array([1.2, 0.9, 0.3, -0.6])
BATCH, WIDE = rows(3, 4), rows(2, 3, 5, scale=2)
TIES = np.array([[1.0, 1.0, 0.2, -1.0], [0.5, 0.5, 0.5, 0.5]])
MASK = np.array([True, False, True, True])
P = np.array([0.6, 0.3, 0.1, 0.0])
LABELS = np.array([0, 3, 1])
BATCH_P = pyentmax.entmax15(BATCH)
TOO_WIDE = np.array([0.4, 0.35, 0.3, 0.2])
ONE = "one row"


def of_scores(*more: tuple[str, Any]) -> tuple[tuple[str, tuple[Any]], ...]:
    """What a mapping of scores alone is tried on."""
    tries = ((ONE, Z), ("a batch", BATCH), ("three axes", WIDE), ("ties", TIES), *more)
    return tuple((label, (z,)) for label, z in tries)


def with_support(z: Any, support: Callable[..., Any]) -> tuple[Any, Any]:
    return z, support(z)


PUZZLES = {
    1: Puzzle(
        lambda z: divide((z == z.max(-1, keepdims=True)).astype(float)),
        ("z",),
        "p",
        "The largest score takes all. Two that are equally large share it.",
        of_scores(("scores of a thousand", THOUSANDS)),
    ),
    2: Puzzle(
        lambda z: divide(np.maximum(z, 0)),
        ("z",),
        "p",
        "Scores below zero are cut off, and what remains is divided by its sum.",
        (
            (ONE, (Z,)),
            ("a row without a positive score", (np.array([[-1.0, -2], [1, 3]]),)),
            *of_scores()[1:],
        ),
    ),
    3: Puzzle(
        lambda p: 1 / (p**2).sum(-1),
        ("p",),
        "effective number",
        "Four entries, but the third counts little and the fourth not at all.",
        (
            (ONE, (P,)),
            ("a batch", (BATCH_P,)),
            ("a certain prediction", (np.eye(3),)),
            ("a uniform one", (np.full((2, 5), 0.2),)),
        ),
    ),
    4: Puzzle(
        lambda p, share: divide(np.where(p >= share * p.max(-1, keepdims=True), p, 0)),
        ("p", "share"),
        "q",
        "The last two have less than a fifth of the largest: cut off, and the others rescaled.",
        (
            (ONE, (np.array([0.6, 0.28, 0.1, 0.02]), 0.2)),
            ("a batch", (pyentmax.softmax(BATCH), 0.3)),
            ("entries exactly at the limit", (np.array([[0.5, 0.25, 0.25], [1, 0, 0]]), 0.5)),
            ("an entry 1e-12 below the limit", (np.array([0.5, 0.25, 0.25 - 1e-12]), 0.5)),
        ),
    ),
    5: Puzzle(
        lambda p, y, epsilon: epsilon_perplexity(p, y, epsilon),
        ("p", "y", "epsilon"),
        "perplexity",
        "Two rows with the labels 0 and 3. The second label has probability zero; ε pays for it.",
        (
            ("two rows", (np.array([P, P]), np.array([0, 3]), 0.01)),
            ("certain and right", (np.eye(3), np.arange(3), 0.1)),
            ("other labels", (BATCH_P, LABELS, 1e-3)),
            ("a vocabulary of 50", (pyentmax.sparsemax(rows(9, 50)), np.arange(9), 1e-4)),
        ),
    ),
    6: Puzzle(
        threshold,
        ("z", "S"),
        "τ",
        "The first two scores are in the support. What stands out above τ must sum to 1.",
        tuple(
            (label, with_support(z, pyentmax.sparsemax.support))
            for label, z in ((ONE, Z), ("a batch", BATCH), ("three axes", WIDE), ("ties", TIES))
        ),
        level=0.55,
    ),
    7: Puzzle(
        pyentmax.topk_softmax,
        ("z", "k"),
        "p",
        "Softmax of the two largest scores; nothing for the others.",
        (
            (ONE, (Z, 2)),
            ("a batch", (BATCH, 3)),
            ("k = 1", (WIDE, 1)),
            ("ties at the k-th score, which all stay", (TIES, 2)),
            ("scores of a thousand", (THOUSANDS, 2)),
        ),
    ),
    8: Puzzle(
        lambda z, mask: pyentmax.softmax(z, mask=mask),
        ("z", "mask"),
        "p",
        "Softmax as if the second score were not there.",
        (
            (ONE, (Z, MASK)),
            ("a batch", (BATCH, BATCH > -0.5)),
            ("a masked score of a thousand", (np.array([0.2, 1000.0, 0.1, -1]), MASK)),
            ("a row that is masked altogether", (BATCH, np.array([[True], [False], [True]]))),
        ),
    ),
    9: Puzzle(
        size,
        ("z",),
        "size",
        "Sparsemax of these scores keeps two of the four. How many, without computing it?",
        of_scores(
            ("scores of a thousand", THOUSANDS),
            ("scores exactly at the threshold", np.array([[1.0, 0, -1], [2, 1, 1]])),
        ),
    ),
    10: Puzzle(
        pyentmax.sparsemax,
        ("z",),
        "p",
        "The water stands at τ; what stands out of it is p, and sums to 1.",
        of_scores(("scores of a thousand", THOUSANDS)),
        level=0.55,
    ),
    11: Puzzle(
        with_sink,
        ("z", "s"),
        "p",
        "The sink s = 1 takes its part and is left out: the rest sums to less than 1.",
        (
            (ONE, (Z, 1.0)),
            ("a sink that takes all", (Z, 3.0)),
            ("a sink that takes nothing", (Z, -3.0)),
            ("a batch", (BATCH, 0.5)),
            ("a sink for each row", (BATCH, np.array([[0.0], [1.0], [2.0]]))),
        ),
    ),
    12: Puzzle(
        lambda t: pyentmax.entmax15(np.stack([t, np.zeros_like(t)], -1))[..., 0],
        ("t",),
        "p₁",
        "The first probability of 1.5-entmax of (t, 0): curved, and flat from 2 on to both sides.",
        (
            ("a row of t", (np.linspace(-3, 3, 13),)),
            ("a single number", (np.float64(0.7),)),
            ("two axes", (rows(2, 3, scale=3),)),
        ),
    ),
    13: Puzzle(
        lambda z, support: pyentmax.entmax15(z),
        ("z", "S"),
        "p",
        "The first three are in the support: their levels above τ, squared, sum to 1.",
        tuple(
            (label, with_support(z, pyentmax.entmax15.support))
            for label, z in ((ONE, Z), ("a batch", BATCH), ("three axes", WIDE), ("ties", TIES))
        ),
    ),
    14: Puzzle(
        halve,
        ("z", "alpha", "low", "high"),
        "low, high",
        "At the middle, 0.1, the sum is 0.375, below 1: the threshold is in the lower half.",
        (
            (ONE, (Z, 1.5, np.float64(-0.4), np.float64(0.6))),
            ("a batch", (BATCH, 1.5, BATCH.max(-1) / 2 - 1, BATCH.max(-1) / 2)),
            ("α = 2", (WIDE, 2.0, WIDE.max(-1) - 1, WIDE.max(-1))),
            ("a sum of 1 at the middle", (np.array([1.0, 0]), 2.0, np.float64(-1), np.float64(1))),
            ("α = 1.1", (BATCH, 1.1, BATCH.max(-1) / 10 - 1, BATCH.max(-1) / 10)),
        ),
    ),
    15: Puzzle(
        lambda p, v, alpha: pyentmax.entmax.jvp(p, v, alpha),
        ("p", "v", "alpha"),
        "Jv",
        "Pushed along v, the probabilities move along Jv: zero stays zero, and the sum stays 1.",
        (
            (ONE, (P, np.array([1.0, 0.0, -1.0, 2.0]), 1.5)),
            ("α = 1, with zeros", (P, np.array([1.0, 0.0, -1.0, 2.0]), 1.0)),
            ("α = 3, where 0 to the power 2 − α is infinite", (P, Z, 3.0)),
            ("a probability of 1e-12", (np.array([1 - 1e-12, 1e-12, 0]), Z[:3], 2.0)),
            ("a batch", (BATCH_P, BATCH, 1.5)),
        ),
    ),
    16: Puzzle(
        lambda z, y: pyentmax.sparsemax.loss(z, y, reduction="none"),
        ("z", "y"),
        "loss",
        "Both labels are 1. First another score leads, then the lead is too small.",
        (
            ("two rows", (np.array([Z, [0.2, 1.1, 0.4, -0.6]]), np.array([1, 1]))),
            ("other labels", (BATCH, LABELS)),
            ("a lead of more than 1", (np.array([[2.0, 0.5, 0.0]]), np.array([0]))),
            ("scores of a thousand", (np.array([THOUSANDS]), np.array([2]))),
        ),
    ),
    17: Puzzle(
        lambda p, alpha: p,
        ("p", "alpha"),
        "α-entmax of your z",
        "The way back: α-entmax of your scores must be p again, zero included.",
        (
            (ONE, (P, 1.5)),
            ("α = 2", (P, 2.0)),
            ("α = 3", (P, 3.0)),
            ("a batch", (BATCH_P, 1.25)),
            ("one certain choice", (np.eye(4), 1.5)),
        ),
    ),
    18: Puzzle(
        warmest,
        ("z",),
        "T",
        "At T = 4.2 sparsemax(z / T) just still rules out the last; any warmer, and nothing.",
        of_scores(),
    ),
    19: Puzzle(
        mean_of_runs,
        ("u", "v"),
        "Jv",
        "The first two words share a weight, and the last three: each moves with its group's mean.",
        (
            (ONE, (np.array([0.7, 0.7, 0.4, 0.1, 0.1, 0.1]), np.array([1, 0, 2, 0.3, 0, -0.6]))),
            ("a value that comes back later", (np.array([1.0, 0, 0, 1]), np.array([1.0, 2, 3, 4]))),
            ("a single run", (np.ones(3), np.array([1.0, 2.0, 6.0]))),
            ("no runs", (np.arange(3.0), np.array([1.0, 2.0, 6.0]))),
        ),
    ),
    20: Puzzle(
        lambda z, u: pyentmax.csparsemax(z, u),
        ("z", "u"),
        "p",
        "Sparsemax, but nobody gets more than u: what the first may not have, the others share.",
        (
            (ONE, (Z, TOO_WIDE)),
            ("bounds that bind nowhere", (Z, np.ones(4))),
            ("bounds that sum to 1", (Z, np.array([0.1, 0.2, 0.3, 0.4]))),
            ("a bound of zero", (Z, np.array([0.0, 0.6, 0.6, 0.6]))),
            ("ties", (TIES[1], np.array([0.1, 0.1, 0.5, 0.5]))),
            ("a long row", (rows(40), np.full(40, 0.06))),
        ),
    ),
}

solved: set[int] = set()


def attempt(number: int, function: Any, args: tuple[Any, ...]) -> Any:
    """What the function returns; of scores that are asked for, what α-entmax makes of them."""
    yours = function(*args)
    return pyentmax.entmax(yours, args[1]) if number == 17 and yours is not None else yours


def verdict(number: int, function: Any) -> str:
    """ "right", "to do", or what is wrong with the function, in words."""
    task, guarded = PUZZLES[number], guard(function, f"puzzle {number}")
    passed: list[str] = []
    for label, args in task.tries:
        wanted = task.wanted(*args)
        try:
            divides = "raise" if number == 2 else "ignore"  # 0/0 is what puzzle 2 is about
            with np.errstate(all="ignore", divide=divides, invalid=divides):
                yours = attempt(number, guarded, args)
            wrong = difference(yours, wanted, task.output in ("p", "q") or number == 17)
        except NotImplementedError:
            return "to do"
        except Exception as error:
            yours, wrong = None, f"{type(error).__name__}: {error}"
            if "write it yourself" in wrong:
                return str(error)
        if not wrong and guarded._changed:  # type: ignore[attr-defined]
            wrong = "it changes its input"
        if wrong:
            so_far = f"right for {passed[-1]}, not for {label}: " if passed else ""
            shown = [*zip(task.names, args, strict=True), ("wanted", wanted), ("yours", yours)]
            told = [f"  {name:>7} = {read(a, ' ' * 12)}" for name, a in shown]
            return "\n".join([so_far + wrong, *told])
        passed.append(label)
    return "right"


def puzzle(number: int) -> Callable[[Any], Any]:
    """Above a function: draw what the puzzle wants, try the function and say what is wrong."""

    def check(function: Any) -> Any:
        task = PUZZLES[number]
        args = task.tries[0][1]
        wanted = task.wanted(*args)
        said = verdict(number, function)
        try:
            yours = attempt(number, guard(function, f"puzzle {number}"), args)
            drawable = said != "right" and np.isfinite(yours).all()
            drawable = drawable and np.shape(yours) == np.shape(wanted)
        except Exception:
            drawable = False  # the message says what it raised
        given = list(zip(task.names, args, strict=True))
        alt = "; ".join(f"{name} = {read(a)}" for name, a in given)
        if said != "right" or not FAST:
            show_described(
                puzzle_panels(given, task.output, wanted, yours if drawable else None, task.level),
                f"An example in bars. Given {alt}; wanted: {task.output} = {read(wanted)}.",
                task.caption,
            )
        if said == "right":
            solved.add(number)
            done = f" ({len(solved)} of {len(PUZZLES)})"
            print(f"Puzzle {number}: right{done}.")
        elif said == "to do":
            print(f"Puzzle {number}: to do. Replace the last line, then run this cell again.")
        else:
            print(f"Puzzle {number}: {said}")
        return function

    return check
