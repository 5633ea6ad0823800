"""How many passes over the scores the threshold of attention takes on a GPU.

The steps of `pyentmax/torch/triton_attention.py` in double precision, on rows of scores of many
kinds: a start from a sample of 64 keys, then a model of 64 groups of keys after each pass, until
|Σp − 1| is at most 1e-4 in every row of a block.

    python -m experiments.own.attention_passes --rows 10000

Prints for each α and kind the passes of the worst block of 64 rows, their mean over blocks, and
what |Σp − 1| is at most after the step behind the last, which no pass verifies. With `--results` a
kind that is already in the file is not run again, and others are added to it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

GROUPS, TOLERANCE, MOST = 64, 1e-4, 16
BLOCK = 64  # rows that pass together, until the last of them is done
ALPHAS = ("1.01", "1.1", "1.25", "1.5", "1.75", "2", "mixed")
LENGTHS = (64, 512, 4096)

Array = Any
Draw = Callable[[np.random.Generator, int, int], Array]


def _normal(scale: float) -> Draw:
    return lambda rng, rows, n: scale * rng.standard_normal((rows, n))


def _spike(rng: np.random.Generator, rows: int, n: int) -> Array:
    z = rng.standard_normal((rows, n))
    z[:, n // 3] = 3 + 20 * rng.random(rows)
    return z


def _sinks(rng: np.random.Generator, rows: int, n: int) -> Array:
    z = rng.standard_normal((rows, n))
    z[:, :4] += 8 * rng.random((rows, 1))
    return z


def _clusters(rng: np.random.Generator, rows: int, n: int) -> Array:
    share = n ** -rng.random((rows, 1))
    low = rng.random((rows, n)) > share
    spread = 10 ** (-1 - 4 * rng.random((rows, 1)))
    return -2 * rng.random((rows, 1)) * low + spread * rng.standard_normal((rows, n))


def _causal(rng: np.random.Generator, rows: int, n: int) -> Array:
    z = (0.3 + 3 * rng.random((rows, 1))) * rng.standard_normal((rows, n))
    length = np.ceil(n ** rng.random((rows, 1)))
    return np.where(np.arange(n) < length, z, -np.inf)


KINDS: dict[str, Draw] = {
    "normal, 0.1": _normal(0.1),
    "normal, 1": _normal(1),
    "normal, 3": _normal(3),
    "normal, 10": _normal(10),
    "Student's t, 3": lambda rng, rows, n: rng.standard_t(3, (rows, n)),
    "a spike": _spike,
    "all but equal": _normal(1e-3),
    "clusters": _clusters,
    "sinks": _sinks,
    "causal": _causal,
}


def powers(u: Array, inverse: Array) -> tuple[Array, Array]:
    """[u]₊^{1/β − 1} and [u]₊^{1/β}."""
    inside = u > 0
    curvature = np.where(inside, np.where(inside, u, 1) ** (inverse - 1), 0)
    return curvature, curvature * np.maximum(u, 0)


def newton(total: Array, slope: Array, beta: Array) -> Array:
    """Newton's step for Σp = 1, on (Σp)^β; 0 where nothing is above the threshold."""
    some = slope > 0
    total, slope = np.where(some, total, 1), np.where(some, slope, 1)
    return np.where(some, np.expm1(-beta * np.log(total)) * total / slope, 0)


def start(x: Array, beta: Array) -> Array:
    """t from every n/64-th score, each of the weight of those that it stands for."""
    n = x.shape[1]
    stride = max(1, -(-n // GROUPS))
    sample = x[:, stride // 2 :: stride]
    drawn = (sample > -np.inf).sum(1, keepdims=True)
    weight = (x > -np.inf).sum(1, keepdims=True) / np.maximum(drawn, 1)
    top = np.where(drawn > 0, sample.max(1, keepdims=True), 0)
    t = np.ones_like(beta)
    for _ in range(6):
        curvature, p = powers(sample - top + t, 1 / beta)
        total, slope = (weight * s.sum(1, keepdims=True) for s in (p, curvature))
        t = t + newton(total, slope, beta)
    return np.where(drawn > 0, t - top, 1)


def step(x: Array, t: Array, beta: Array) -> tuple[Array, Array]:
    """Σp at t in a pass over x ≤ 0, and the next t by the model of the groups."""
    inverse, n = 1 / beta, x.shape[1]
    curvature, p = powers(x + t, inverse)
    shape = (len(x), n // GROUPS, GROUPS)
    group_d, group_p = (s.reshape(shape).sum(1) for s in (curvature, p))
    largest = x.reshape(shape).max(1)
    total, slope = group_p.sum(1, keepdims=True), group_d.sum(1, keepdims=True)
    known = (slope > 0) & (total < 1e18)
    curvature, p = powers(largest + t, inverse)
    rest_d, rest_p = np.maximum(group_d - curvature, 0), np.maximum(group_p - p, 0)
    has_rest = (rest_d > 1e-5 * group_d) & (rest_p > 0) & known
    u = np.where(has_rest, rest_p / np.where(has_rest, rest_d, 1), 1)
    rest_d = np.where(has_rest, rest_d, 0)
    before = np.where(known, t, 1)
    after = before
    least = (x > -np.inf).sum(1, keepdims=True) ** -beta
    for _ in range(2):
        curvature, p = powers(largest + after, inverse)
        mass_d, mass_p = powers(1 + (after - before) / u, inverse)
        model_d = (curvature + rest_d * mass_d).sum(1, keepdims=True)
        model_p = (p + rest_d * u * mass_p).sum(1, keepdims=True)
        moved = np.where(model_d > 0, after + newton(model_p, model_d, beta), 1)
        after = np.clip(moved, least, 1)
    return np.where(known, np.abs(total - 1), 1), after


def passes(z: Array, alpha: Array) -> tuple[int, float]:
    """Passes for rows of scores, and the largest |Σp − 1| behind the last step."""
    beta = alpha - 1
    x = beta * (z - z.max(1, keepdims=True))
    t, count, error = start(x, beta), 0, 1.0
    while error > TOLERANCE and count < MOST:
        off, t = step(x, t, beta)
        count, error = count + 1, float(off.max())
    return count, float(np.abs(powers(x + t, 1 / beta)[1].sum(1) - 1).max())


def measured(kind: str, rows: int, seed: int) -> Iterator[dict[str, Any]]:
    """The worst and the mean number of passes, and the largest error, for each α."""
    for alpha in ALPHAS:
        counts, errors = [], []
        for length in LENGTHS:
            rng = np.random.default_rng([seed, length])
            for _ in range(-(-rows // (BLOCK * len(LENGTHS)))):
                z = KINDS[kind](rng, BLOCK, length)
                mixed = 1.01 + 0.99 * rng.random((BLOCK, 1))
                one = mixed if alpha == "mixed" else np.full((BLOCK, 1), float(alpha))
                count, error = passes(z, one)
                counts.append(count)
                errors.append(error)
        yield {
            "kind": kind, "alpha": alpha, "rows": BLOCK * len(counts), "seed": seed,
            "worst": max(counts), "mean": round(float(np.mean(counts)), 2), "error": max(errors),
        }  # fmt: skip


def table(
    alphas: tuple[str, ...], file: Path | None, measure: Callable[[str], Iterator[dict[str, Any]]]
) -> None:
    """Print a row for each kind; a file has the rows measured before, and gets the others."""
    text = file.read_text() if file and file.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    print(f"| kind | {' | '.join(alphas)} |\n|{' --- |' * (len(alphas) + 1)}")
    for kind in KINDS:
        known = [line for line in lines if line["kind"] == kind]
        if not known:
            known = list(measure(kind))
            if file:
                with file.open("a") as added:
                    added.writelines(json.dumps(line) + "\n" for line in known)
        cells = [f"{x['worst']} ({x['mean']:.1f}), {x['error']:.0e}" for x in known]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=10_000, help="of each kind and α, over three lengths"
    )
    parser.add_argument("--seed", type=int, default=58)
    parser.add_argument("--results", type=Path, help="a file of lines of JSON to read and add to")
    args = parser.parse_args()
    table(ALPHAS, args.results, lambda kind: measured(kind, args.rows, args.seed))


if __name__ == "__main__":
    main()
