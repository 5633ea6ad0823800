"""Cases of attention, every two of whose options meet, and what whole matrices give for each.

`cases` builds calls of `pyentmax.attention`; `expected` answers them with `dense`, in float64,
from a mask and a bias of all scores. An implementation is tested by a table of its own over these.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from pyentmax import MAPPINGS, DistanceBias
from pyentmax.engine.calls.rows import reduce_to
from pyentmax.sparse_attention import dense
from pyentmax.sparse_attention.bias import array_of

BATCH, HEADS = 2, 6
SHARED = {
    "of their own": (6, 6),
    "three share": (2, 2),
    "all share": (1, 1),
    "values apart": (1, 6),
}
FACTORS: dict[str, tuple[str, ...]] = {
    "heads": tuple(SHARED),
    "keys": (
        "all", "mask", "mask by head", "causal", "causal cache", "mask causal", "packed",
        "packed causal", "packed mask",
        "csr", "csr causal", "numbers", "numbers causal", "numbers by head",
    ),
    "mapping": ("1.5", "per head", "1", "2", "2.5", "0.5", "top-k", "fused"),
    "sink": ("", "sink", "sinks"),
    "bias": ("", "scores", "keys", "distances", "slopes", "entries"),
    "scale": ("", "scales", "queries"),
}  # fmt: skip
BOOLS = tuple(x for x in FACTORS["keys"] if not x.startswith(("csr", "numbers")))
ALPHAS: dict[str, Any] = {
    "1.5": 1.5, "per head": np.array([1, 1.2, 1.5, 2, 1.7, 1]), "1": 1, "2": 2.0, "2.5": 2.5,
    "0.5": 0.5,
}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "top-k": ("topk_softmax", {"k": 3}), "fused": ("fusedmax", {"strength": 0.1}),
}  # fmt: skip


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    return rng.standard_normal(shape).astype(dtype)


def is_set(keys: str) -> bool:
    return keys.startswith(("csr", "numbers"))


def is_allowed(row: tuple[str, ...]) -> bool:
    _, keys, mapping, sink, bias, _ = row
    if is_set(keys) and (mapping in ("0.5", *OTHERS) or bias in ("scores", "keys")):
        return False
    return (is_set(keys) or bias != "entries") and not (mapping == "fused" and sink)


@functools.cache
def names(**factors: tuple[str, ...]) -> list[str]:
    """Combinations in which every two options that go together meet; of some, if they are named."""
    every = list(filter(is_allowed, product(*{**FACTORS, **factors}.values())))
    drawn = random.Random(0)

    def pairs(row: tuple[str, ...]) -> set[Any]:
        return set(combinations(enumerate(row), 2))

    missing, rows = set().union(*map(pairs, every)), []
    while missing:
        some = drawn.sample(every, min(200, len(every)))
        rows.append(max(some, key=lambda row: len(missing & pairs(row))))
        if not missing & pairs(rows[-1]):
            rows[-1] = next(row for row in every if missing & pairs(row))
        missing -= pairs(rows[-1])
    return [", ".join(row) for row in rows]


@dataclass
class Case:
    """The arguments of a call, and what they say of each score.

    `seen` (…, T, S) is which keys a query sees. The bias of a score is ``factor`` times the entry
    at `places` of the caller's array of numbers, flat.
    """

    arrays: list[Any]
    options: dict[str, Any]
    g: Any
    seen: Any
    places: Any = None
    factor: Any = None

    @property
    def learned(self) -> dict[str, Any]:
        """The arguments that get a gradient, by name."""
        named = dict(zip(("query", "key", "value"), self.arrays, strict=True))
        for name in ("scale", "sink", "bias"):
            if isinstance(array := array_of(self.options.get(name)), np.ndarray):
                named[name] = array
        return named

    def replaced(self, named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arrays and options with others in the places of those that are learned."""
        options, more = dict(self.options), dict(named)
        arrays = [more.pop(name) for name in ("query", "key", "value")]
        if isinstance(bias := options.get("bias"), DistanceBias):
            more["bias"] = bias.with_array(more["bias"])
        return arrays, options | more


def make(name: str, t: int = 20, s: int = 26, features: tuple[int, int] = (5, 3)) -> Case:
    """The case of a combination, for t queries and s keys, of keys and values of some features."""
    heads, keys, mapping, sink, bias, scale = name.split(", ")
    rng = np.random.default_rng(sum(map(ord, name)))
    n, m = SHARED[heads]
    d, dv = features
    shapes = (BATCH, HEADS, t, d), (BATCH, n, s, d), (BATCH, m, s, dv), (BATCH, HEADS, t, dv)
    *arrays, g = (rng.standard_normal(shape) for shape in shapes)
    arrays[0] *= 2
    seen = np.ones((BATCH, HEADS, t, s), bool)
    options: dict[str, Any] = {"alpha": ALPHAS[mapping]} if mapping in ALPHAS else {}
    if mapping in OTHERS:
        record, parameters = OTHERS[mapping]
        options = {"mapping": record, **parameters}
    row, column, offset = np.arange(t), np.arange(s), np.zeros(t, int)
    if keys.startswith("packed"):
        # One sequence has no queries, and one no keys.
        edges = [0, t // 3, t // 3, 2 * t // 3, t], [0, s // 2, s // 2 + 1, s // 2 + 1, s]
        own, other = (
            np.searchsorted(e, x, "right") - 1 for e, x in zip(edges, (row, column), strict=True)
        )
        row, column = row - np.array(edges[0])[own], column - np.array(edges[1])[other]
        seen &= own[:, None] == other
        options["cu_seqlens"] = tuple(map(np.array, edges))
        if keys == "packed causal":
            options["offset"] = np.array([2, 0, 1, 1])
            offset = options["offset"][own]
    elif "causal" in keys:
        options["offset"] = -1 if keys == "causal" else s - t - 2
        offset += options["offset"]
    if "causal" in keys:
        options["causal"] = True
        seen &= column <= (row + offset)[:, None]
    if "mask" in keys or is_set(keys):
        shape = (BATCH, HEADS, t, s) if "by head" in keys else (t, s)
        mask = rng.random(shape) < (0.6 if "mask" in keys else 0.4)
        mask[..., t // 2, :] = False
        options["mask"] = mask
    if is_set(keys):
        options["mask"], stored, entry = _as_set(mask, keys, rng)
    if "mask" in options:
        seen &= mask
    if sink:
        options["sink"] = 0.5 if sink == "sink" else rng.standard_normal(HEADS)
    if scale:
        options["scale"] = rng.random((HEADS, 1) if scale == "scales" else t) + 0.3
    case = Case(arrays, options, g, seen)
    distance = column - row[:, None]
    if bias in ("scores", "keys"):
        array = rng.standard_normal((HEADS, t, s) if bias == "scores" else (BATCH, 1, 1, s))
        case.places = np.arange(array.size).reshape(array.shape)
    elif bias == "distances":
        array = rng.standard_normal((HEADS, t + s - 1))
        case.places = np.where(np.abs(distance) < t + s, distance + t - 1, 0) % (t + s - 1)
        case.places = case.places + np.arange(HEADS)[:, None, None] * (t + s - 1)
    elif bias == "slopes":
        array = rng.random(HEADS) / 4
        case.places = np.arange(HEADS)[:, None, None]
        case.factor = -np.abs(distance - offset[:, None])
    elif bias == "entries":
        array = rng.standard_normal(stored if "by head" in keys else (HEADS, *stored))
        each = np.arange(HEADS)[:, None, None] * int(np.prod(stored))
        case.places = entry if "by head" in keys else entry + each
    if bias:
        by_distance = {"slopes": array} if bias == "slopes" else {"numbers": array}
        options["bias"] = DistanceBias(**by_distance) if bias in ("distances", "slopes") else array
    return case


def _as_set(mask: Any, keys: str, rng: Any) -> tuple[Any, tuple[int, ...], Any]:
    """A mask as a set of keys, the shape that stores its entries, and each score's entry, or 0."""
    entry = np.zeros(mask.shape, int)
    if keys.startswith("csr"):
        sparse = pytest.importorskip("scipy.sparse")
        stored = mask.copy()
        stored[len(mask) // 2, 1] = True
        matrix = sparse.csr_array(stored)
        last = matrix.indices[: matrix.indptr[1]]
        last[:] = last[::-1].copy()  # in any order
        matrix.has_sorted_indices = False
        rows = np.repeat(np.arange(len(mask)), np.diff(matrix.indptr))
        matrix.data[:] = mask[rows, matrix.indices]  # one entry is stored as False
        entry[rows, matrix.indices] = np.arange(matrix.nnz)
        return matrix, (matrix.nnz,), entry
    numbers = rng.permuted(np.where(mask, np.arange(mask.shape[-1]), -1), axis=-1)
    stored = np.nonzero(numbers >= 0)
    entry[(*stored[:-1], numbers[stored])] = np.flatnonzero(numbers >= 0)
    return numbers, numbers.shape, entry


class Rows:
    """A mapping of rows of scores as `dense` calls it, by the mapping's own rules."""

    skips_zeros = False

    def __init__(self, case: Case) -> None:
        options = {"mapping": "entmax", **case.options}
        self.record: Any = MAPPINGS[options["mapping"]]
        values = [np.broadcast_to(options[name], (HEADS,)) for name in self.record.parameters]
        self.values = [np.broadcast_to(x[:, None], case.seen.shape[:-1]) for x in values]
        self.sink = options.get("sink")

    def forward(self, scores: Any, mask: Any) -> Any:
        if self.sink is not None:
            last = np.broadcast_to(self.sink, (HEADS,))[:, None, None]
            if self.record.name.startswith("topk"):  # a sink takes none of the k places
                ranked = np.sort(np.where(mask, scores, -np.inf))[..., -3:]
                mask = mask & (scores >= ranked[..., :1])
                self.record, self.values = MAPPINGS[self.record.name.removeprefix("topk_")], []
            one = np.ones((*scores.shape[:-1], 1))
            scores = np.concatenate([scores, one * last], -1)
            mask = np.concatenate([mask, one > 0], -1)
        return np.where(mask, self.record.reference(scores, *self.values, mask=mask), 0)

    def vjp(self, weights: Any, g: Any, mask: Any) -> Any:
        return self.record.vjp.reference(weights, g, *self.values, mask=mask)

    def vjp_alpha(self, weights: Any, g: Any) -> Any:
        return self.record.parameter_vjp.reference(weights, g, *self.values)


def expected(case: Case, added: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Output, weights and those of sinks; and gradients by the names of the arguments.

    `added` is a gradient of all weights, (…, T, S), with one more of a sink, beside that of the
    output.
    """
    query, key, value = (
        np.broadcast_to(np.repeat(x, HEADS // x.shape[1], 1), (BATCH, HEADS, *x.shape[2:]))
        for x in case.arrays
    )
    options, rows = case.options, Rows(case)
    scale = np.broadcast_to(options.get("scale", query.shape[-1] ** -0.5), query.shape[:-1])[
        ..., None
    ]
    bias = None
    if case.places is not None:
        number = array_of(options["bias"]).ravel()[case.places]
        bias = number if case.factor is None else number * case.factor
    output, weights = dense.forward(query * scale, key, value, rows, case.seen, bias)
    results = {"output": output, "weights": weights[..., : key.shape[-2]]}
    mask = case.seen
    if "sink" in options:
        mask, results["sink"] = None, weights[..., -1]
    *each, g_scores = dense.vjp(weights, query * scale, key, value, case.g, rows, mask, added)
    gradients = dict(zip(("query", "key", "value"), each, strict=True))
    gradients["scale"] = (gradients["query"] * query).sum(-1)
    gradients["query"] = gradients["query"] * scale
    gradients["sink"] = g_scores[..., -1].sum(-1)
    for name, like in case.learned.items():
        if name == "bias":
            g_scores = g_scores[..., : key.shape[-2]] * (1 if case.factor is None else case.factor)
            places = np.broadcast_to(case.places, g_scores.shape)
            summed = np.bincount(places.ravel(), g_scores.ravel(), like.size).reshape(like.shape)
        elif name in ("key", "value"):
            summed = gradients[name].reshape(BATCH, like.shape[1], -1, *like.shape[2:]).sum(2)
        else:
            summed = reduce_to(gradients[name], like.shape)
        gradients[name] = summed
    if "alpha" in options:
        by_row = dense.vjp_alpha(weights, value, case.g, rows, added)
        gradients["alpha"] = reduce_to(by_row.sum(-1), np.shape(options["alpha"]))
    return results, {
        name: gradients[name] for name in (*case.learned, "alpha") if name in gradients
    }
