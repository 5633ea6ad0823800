"""How many passes over the scores FlexAttention takes, and how far its weights are from exact ones.

`pyentmax/torch/flex_attention.py` itself, in float32, with a stand-in for PyTorch's FlexAttention
that takes rows of scores as they are: keys and values are unit vectors, so that the scores are the
queries and the output is the weights. The kinds of rows are those of `attention_passes`.

    python -m experiments.own.flex_passes

Prints for each α and kind the passes in all, the last two included, of the worst call of 1,024
rows, and the largest Σ|p − p*| of a row, p* from double precision: in float32, for scores rounded
to half precision, and with the number of passes that a compiled graph has. With `--results` a kind
that is already in the file is not run again, and others are added to it.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention.flex_attention import AuxOutput

import pyentmax
from experiments.own.attention_passes import ALPHAS, KINDS, table
from pyentmax.torch.flex_attention import flex_attention

HEADS, ROWS = 16, 64  # of a call; for mixed α, each head has its own
SHARES = {64: 0.4, 512: 0.5, 4096: 0.1}  # of the calls, by the number of keys
SETTINGS = ("float32", "half precision", "a graph")

Tensor = Any


class ByScores:
    """FlexAttention's semantics where keys and values are unit vectors; it counts its passes."""

    def __init__(self, mask: Tensor) -> None:
        self.mask, self.passes = mask, 0

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Tensor],
        return_aux: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        self.passes += 1
        places = (torch.arange(n).view(-1, *[1] * (3 - i)) for i, n in enumerate(query.shape))
        scores = torch.where(self.mask, score_mod(query, *places), -torch.inf)
        top = scores.amax(-1)
        weights = torch.exp(scores - torch.where(top > -torch.inf, top, 0)[..., None])
        sums = weights.sum(-1)
        output = weights / torch.where(sums > 0, sums, 1)[..., None]
        aux = AuxOutput(lse=sums.log() + top, max_scores=top)
        return output if return_aux is None else (output, aux)


def passes(z: np.ndarray, alpha: float | np.ndarray, setting: str) -> tuple[int, float]:
    """Passes in all for scores of shape (heads, rows, n), and the largest Σ|p − p*| of a row."""
    half = setting == "half precision"
    z = z.astype(np.float16 if half else np.float32)
    mask = torch.from_numpy(z > -np.inf)[None]
    query = torch.where(mask, torch.from_numpy(z)[None], 0)
    unit = torch.eye(z.shape[-1], dtype=query.dtype).expand(1, 1, -1, -1)
    by_scores = ByScores(mask)
    fixed = None if setting != "a graph" else 4 if np.all(alpha <= 1.5) else 8
    given: Any = alpha if isinstance(alpha, float) else torch.tensor(alpha, dtype=torch.float32)
    output = flex_attention(
        query, unit, unit, given, scale=1.0, passes=fixed, flex=by_scores,
        mask=None if mask.all() else mask,
    )  # fmt: skip
    at = alpha if isinstance(alpha, float) else given.double().numpy()[:, None]
    exact = pyentmax.entmax(z.astype(np.float64), at)
    return by_scores.passes, float(np.abs(output[0].numpy() - exact).sum(-1).max())


def measured(kind: str, setting: str, rows: int, seed: int) -> Iterator[dict[str, Any]]:
    """The worst number of passes, and the largest error, for each α."""
    calls = -(-rows // (HEADS * ROWS))
    for name in alphas(setting):
        found = []
        for length, share in SHARES.items():
            rng = np.random.default_rng([seed, length])
            for _ in range(round(share * calls)):
                z = KINDS[kind](rng, HEADS * ROWS, length).reshape(HEADS, ROWS, length)
                mixed = 1.01 + 0.99 * rng.random(HEADS)
                found.append(passes(z, mixed if name == "mixed" else float(name), setting))
        counts, errors = zip(*found, strict=True)
        yield {
            "kind": kind, "alpha": name, "rows": HEADS * ROWS * len(found), "seed": seed,
            "worst": max(counts), "error": max(errors),
        }  # fmt: skip


def alphas(setting: str) -> tuple[str, ...]:
    """Beyond 1.5 half precision takes the passes of float32."""
    return ALPHAS[:4] if setting == "half precision" else ALPHAS


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=10_240, help="of each kind and α, of 64, 512 and 4,096 keys"
    )
    parser.add_argument("--seed", type=int, default=58)
    parser.add_argument("--setting", nargs="+", choices=SETTINGS, default=SETTINGS)
    parser.add_argument("--results", type=Path, help="a folder of lines of JSON to read and add to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for setting in args.setting:
        print(f"\n{setting}\n")
        name = f"flex_passes_{setting.split()[-1]}.jsonl"
        measure = functools.partial(measured, setting=setting, rows=args.rows, seed=args.seed)
        table(alphas(setting), args.results and args.results / name, measure)


if __name__ == "__main__":
    main()
