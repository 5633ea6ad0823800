"""Attention of single queries, one after the other, and random inputs of every kind to try."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyentmax import MAPPINGS


@dataclass
class Case:
    """Arguments of one call."""

    query: Any
    key: Any
    value: Any
    alpha: Any = 1.5
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        return self.query, self.key, self.value


def spread_heads(array: Any, batch: tuple[int, ...]) -> Any:
    """Keys or values for every query head, neighbours sharing one."""
    if batch and array.ndim > 2 and array.shape[-3] not in (1, batch[-1]):
        array = np.repeat(array, batch[-1] // array.shape[-3], axis=-3)
    return np.broadcast_to(array, (*batch, *array.shape[-2:]))


def visible(case: Case, batch: tuple[int, ...]) -> np.ndarray:
    """Which key each query sees, of shape batch + (T, S)."""
    t, s = case.query.shape[-2], case.key.shape[-2]
    seen = np.ones((*batch, t, s), bool)
    if case.options.get("mask") is not None:
        seen &= case.options["mask"]
    if case.options.get("causal"):
        for i in range(t):
            seen[..., i, max(0, i + case.options.get("offset", 0) + 1) :] = False
    return seen


def with_sink(scores: np.ndarray, sink: float, name: str, parameters: list[Any]) -> np.ndarray:
    """The weights of a row of scores, and behind them that of a sink."""
    if name.startswith("topk"):  # the sink takes none of the k places
        (k,) = parameters
        scores = np.where(scores >= np.sort(scores)[-k:][0], scores, -np.inf)
        name, parameters = name.removeprefix("topk_"), []
    return MAPPINGS[name].forward.reference(np.append(scores, sink), *parameters)


def one_by_one(case: Case, batch: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Output and weights in float64, each query by itself, with no key but those it sees."""
    query, key, value = (spread_heads(np.asarray(x, np.float64), batch) for x in case.arrays)
    alpha = np.broadcast_to(case.alpha, batch)
    record = MAPPINGS[case.options.get("mapping") or "entmax"]
    scale = case.options.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scale = np.broadcast_to(scale, query.shape[:-1])
    sink = np.broadcast_to(case.options.get("sink", -np.inf), batch)
    seen = visible(case, batch)
    weights, output = np.zeros(seen.shape), np.zeros((*seen.shape[:-1], value.shape[-1]))
    for row in np.ndindex(seen.shape[:-1]):
        head, keys = row[:-1], np.flatnonzero(seen[row])
        if len(keys):
            parameters = [
                alpha[head] if name == "alpha" else case.options[name] for name in record.parameters
            ]
            scores = scale[row] * key[head][keys] @ query[row]
            weights[row][keys] = with_sink(scores, sink[head], record.name, parameters)[:-1]
            output[row] = weights[row][keys] @ value[head][keys]
    return output, weights


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def random_case(seed: int, dtype: Any = np.float64) -> tuple[Case, tuple[int, ...]]:
    """A call of random shape, α, mask, causality and grouping, and its batch shape."""
    rng = np.random.default_rng(seed)
    t, s, d, dv = (int(n) for n in rng.integers(1, [40, 70, 9, 7]))
    batches: list[tuple[tuple[int, ...], ...]] = [
        ((), (), ()),
        ((3,), (3,), (3,)),
        ((2, 4), (2, 2), (2, 2)),
        ((2, 4), (2, 1), (1,)),
        ((2, 4), (2,), (2, 4)),
        ((1, 4), (3, 2), (3, 2)),
        ((1,), (5,), (5,)),
    ]
    q, k, v = batches[rng.integers(len(batches))]
    batch = (*np.broadcast_shapes(q[:-1], k[:-1], v[:-1]), max(q[-1:] + k[-1:] + v[-1:], default=0))
    batch = () if not q else batch
    arrays = [normal(rng, shape, dtype) for shape in ((*q, t, d), (*k, s, d), (*v, s, dv))]
    arrays[0] *= rng.choice([0.3, 1, 3])
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        options["mask"] = rng.random((t, s)) < 0.6
    elif rng.random() < 0.5:
        options["mask"] = rng.random((*batch, 1, s)) < 0.7
    if rng.random() < 0.4:
        options |= {"causal": True, "offset": int(rng.integers(-3, 20))}
    if rng.random() < 0.3:
        options["scale"] = 0.7
    alpha: Any = float(rng.choice([1, 1.01, 1.33, 1.5, 1.75, 2, 2.5]))
    if batch and rng.random() < 0.5:
        alpha = rng.choice([1, 1.25, 1.5, 2], batch[-1])
    if rng.random() < 0.5:
        options["sink"] = normal(rng, batch[-1:] if rng.random() < 0.5 else ())
    if rng.random() < 0.3:
        options["scale"] = (
            rng.random((*batch, 1)) if batch and rng.random() < 0.5 else rng.random(t)
        )
    mapping = rng.choice(["topk_softmax", "topk_sparsemax", *[""] * 6])
    options |= {"mapping": mapping, "k": int(rng.integers(1, 9))} if mapping else {}
    return Case(*arrays, alpha, options), batch
