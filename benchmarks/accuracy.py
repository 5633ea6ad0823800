"""How much of the accuracy contract the mappings use up, on millions of rows of every kind.

    python benchmarks/accuracy.py [--rows 10_000_000] [--dtype float32] [--state accuracy.json]

Each row is solved in the dtype by the function that users call, and again in twice the digits by
the NumPy body, which the tests compare with 50 digits. A use of 1 is the largest error that the
contract allows:

- 1 ≤ α ≤ 2: |p − p*| over 4ε p* + 16ε s* max(1, max over the support of |z − max z|), where
  s* = p*^(2−α); at the threshold, where p*^(α−1) is 16ε max(…) at most, or 0, p^(α−1) may be off
  by as much;
- α > 2, where p is ill-conditioned: the move of the scores that would make p exact, over
  8ε max(…);
- all: |Σp − 1| over 4ε√d.

With --state the script can be stopped at any time, and continues from there. Block k of a seed
always contains the same rows: the report names the block and row of each largest use.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import pyentmax
from pyentmax.engine.system.files import replacing

WIDER = {"float32": np.float64, "float64": np.longdouble}
KINDS = ["random", "ascending", "descending", "constant", "tied", "outlier", "offset"]
KINDS += ["two levels", "crowd"]
BLOCK_ENTRIES = 1 << 17
LONGEST = 2048  # beyond, rows are rare: one block in LONG_EVERY
LONG, LONG_EVERY = 32_000, 64
SAVE_EVERY = 5.0  # seconds


@dataclass
class Worst:
    """The row that uses most of one contract."""

    use: float
    where: str


@dataclass
class State:
    """What was checked so far."""

    dtype: str
    seed: int
    backend: str
    blocks: int = 0
    rows: int = 0
    worst: dict[str, Worst] = field(default_factory=dict)

    def note(self, check: str, uses: np.ndarray, describe: Callable[[int], str]) -> None:
        """Keep the largest of the uses of a contract, one per row."""
        uses = np.where(np.isnan(uses), np.inf, uses)
        row = int(np.argmax(uses))
        if check not in self.worst or uses[row] > self.worst[check].use:
            self.worst[check] = Worst(float(uses[row]), describe(row))


def main() -> None:
    """Check rows until there are enough, then print the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="default: 10 million")
    parser.add_argument("--dtype", choices=list(WIDER), default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, help="file to go on from and to keep")
    args = parser.parse_args()
    state = resumed(args.state, args.dtype, args.seed)
    check_until(state, args.rows, args.state, progress=True)
    print(report(state))
    if any(worst.use > 1 for worst in state.worst.values()):
        sys.exit("the contract is broken")


def resumed(path: Path | None, dtype: str, seed: int) -> State:
    """The state in the file, or a fresh one."""
    fresh = State(dtype, seed, pyentmax.show_config()["instruction_set"] or "no kernels")
    if path is None or not path.exists():
        return fresh
    kept = json.loads(path.read_text())
    kept["worst"] = {check: Worst(**worst) for check, worst in kept["worst"].items()}
    state = State(**kept)
    if (state.dtype, state.seed, state.backend) != (dtype, seed, fresh.backend):
        sys.exit(
            f"{path} was made with dtype {state.dtype}, seed {state.seed} and {state.backend}, not "
            f"{dtype}, {seed} and {fresh.backend}; choose another --state file"
        )
    return state


def check_until(state: State, rows: int, path: Path | None = None, progress: bool = False) -> None:
    """Check block after block until so many rows are done."""
    bar = progress_bar(rows, state.rows) if progress else None
    saved = time.monotonic()
    while state.rows < rows:
        before = state.rows
        check_block(state)
        if bar is not None:
            bar.update(state.rows - before)
        if path is not None and (time.monotonic() - saved > SAVE_EVERY or state.rows >= rows):
            with replacing(path) as file:
                file.write(json.dumps(asdict(state), indent=1).encode())
            saved = time.monotonic()
    if bar is not None:
        bar.close()


def progress_bar(total: int, done: int) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        sys.exit("the progress bar needs tqdm: pip install 'pyentmax[models]'")
    return tqdm(total=total, initial=done, unit="row", unit_scale=True, mininterval=1)


def check_block(state: State) -> None:
    """Solve the next block of rows by every mapping, and note the worst uses."""
    rng = np.random.default_rng([state.seed, state.blocks])
    d = LONG if state.blocks % LONG_EVERY == LONG_EVERY - 1 else int(LONGEST ** rng.random())
    kind, z = rows_of_every_kind(rng, max(1, BLOCK_ENTRIES // max(d, 64)), d, state.dtype)
    for name, alpha, solve in mappings(rng, len(z)):
        put_crowds(rng, z, kind, alpha)
        p = solve(pyentmax, z)
        uses = {"Σp = 1": use_of_the_sum(p)}
        if name.endswith("α > 2"):
            uses["p"] = use_of_moved_scores(p, z, alpha)
        else:
            uses["p"] = use_of_errors(p, solve(Reference, z.astype(WIDER[state.dtype])), z, alpha)
        for check, each in uses.items():
            state.note(
                f"{name}: {check}",
                each,
                lambda row, alpha=alpha: (
                    f"{KINDS[kind[row]]}, d = {d}, α = {alpha[row, 0]:.9g}, "
                    f"block {state.blocks}, row {row}"
                ),
            )
    state.blocks += 1
    state.rows += len(z)


def rows_of_every_kind(
    rng: np.random.Generator, count: int, d: int, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """So many rows, and the kind of each."""
    scale = 10 ** rng.uniform(-3, 2, (count, 1))
    z = scale * rng.standard_normal((count, d))
    kind = rng.integers(len(KINDS), size=count)

    def among(name: str) -> np.ndarray:
        return np.flatnonzero(kind == KINDS.index(name))

    z[among("ascending")] = np.sort(z[among("ascending")])
    z[among("descending")] = np.sort(z[among("descending")])[:, ::-1]
    z[among("constant")] = z[among("constant"), :1]
    z[among("tied")] = np.round(z[among("tied")])
    leads = among("outlier")
    z[leads, rng.integers(d, size=len(leads))] += 10 ** rng.uniform(-1, 2, len(leads))
    shifted = among("offset")
    sign = rng.choice([-1, 1], (len(shifted), 1))
    z[shifted] += sign * 10 ** rng.uniform(2, 6, (len(shifted), 1))
    flat = among("two levels")  # one entry leads by about what the margin of some α is
    z[flat] = -rng.uniform(0.2, 3, (len(flat), 1))
    z[flat, rng.integers(d, size=len(flat))] = 0
    return kind, z.astype(dtype)


def put_crowds(
    rng: np.random.Generator, z: np.ndarray, kind: np.ndarray, alpha: np.ndarray
) -> None:
    """Make the rows with many ties: one score leads, the others are at the threshold for this α.

    All of them may be in the support, or none, depending on how the threshold is rounded; they get
    little each, but it is the leader that pays for all.
    """
    rows = np.flatnonzero((kind == KINDS.index("crowd")) & (alpha[:, 0] > 1))
    d, beta, epsilon = z.shape[-1], alpha[rows] - 1, float(np.finfo(z.dtype).eps)
    above = epsilon * 10 ** rng.uniform(-3, 4, (len(rows), 1))
    with np.errstate(under="ignore"):
        t = (1 - np.minimum(d * above ** (1 / beta), 0.5)) ** beta
    spread = epsilon * rng.choice([0, 1, 10, 1000], (len(rows), 1))
    z[rows] = (above - t + spread * rng.uniform(-1, 1, (len(rows), d))) / beta
    z[rows, rng.integers(d, size=len(rows))] = 0


class Reference:
    """The NumPy bodies under the names of the public functions."""

    softmax = staticmethod(pyentmax.softmax.reference)
    sparsemax = staticmethod(pyentmax.sparsemax.reference)
    entmax15 = staticmethod(pyentmax.entmax15.reference)
    entmax = staticmethod(pyentmax.entmax.reference)


def mappings(
    rng: np.random.Generator, count: int
) -> Iterator[tuple[str, np.ndarray, Callable[[Any, np.ndarray], np.ndarray]]]:
    """Name, α of each row, and how to solve rows with the functions of a given namespace."""

    def constant(alpha: float) -> np.ndarray:
        return np.full((count, 1), alpha)

    yield "softmax", constant(1), lambda lib, z: lib.softmax(z)
    yield "entmax15", constant(1.5), lambda lib, z: lib.entmax15(z)
    yield "sparsemax", constant(2), lambda lib, z: lib.sparsemax(z)
    near_1 = 1 + 10 ** rng.uniform(-6, 0, (count, 1))
    between = np.where(rng.random((count, 1)) < 0.5, near_1, rng.uniform(1, 2, (count, 1)))
    yield "entmax, 1 < α ≤ 2", between, lambda lib, z: lib.entmax(z, between[:, 0])
    above = 2 + 10 ** rng.uniform(-3, 1, (count, 1))
    yield "entmax, α > 2", above, lambda lib, z: lib.entmax(z, above[:, 0])


def use_of_the_sum(p: np.ndarray) -> np.ndarray:
    """|Σp − 1| of each row, as a part of what is allowed."""
    error = np.abs(np.sum(p, axis=-1, dtype=WIDER[p.dtype.name]) - 1)
    return (error / (4 * np.finfo(p.dtype).eps * np.sqrt(p.shape[-1]))).astype(float)


def use_of_errors(p: np.ndarray, best: np.ndarray, z: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The largest error of each row, 1 ≤ α ≤ 2, as a part of what is allowed."""
    room = 16 * float(np.finfo(p.dtype).eps) * reach(z, best > 0)
    on = best > 0
    slope = np.where(on, np.where(on, best, 1) ** (2 - alpha), 0)
    allowed = 4 * np.finfo(p.dtype).eps * best + slope * room
    tiny = np.finfo(p.dtype).tiny
    error = np.abs(p - best) / np.maximum(allowed, tiny)
    # At the threshold, where p^(α−1) is a difference of scores, rounding decides about all of it.
    ours, exact = (np.where(a > 0, a, 0) ** (alpha - 1) for a in (p.astype(best.dtype), best))
    moved = np.where((ours > 0) | (exact > 0), np.abs(ours - exact), 0) / room
    at_threshold = exact <= room
    error = np.where(at_threshold, np.where(on, np.minimum(error, moved), moved), error)
    return np.max(error, axis=-1).astype(float)


def use_of_moved_scores(p: np.ndarray, z: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The move of the scores that makes p exact, α > 2, as a part of what is allowed.

    p is exact for scores z' with z'_i = c + p_i^β/β on the support, β = α − 1, and z'_i ≤ c off it.
    The best c is in the middle of what the entries ask for.
    """
    beta, on = alpha - 1, p > 0
    y = z.astype(WIDER[p.dtype.name])
    y = y - np.max(y, axis=-1, keepdims=True)
    wish = np.where(on, y - p.astype(y.dtype) ** beta / beta, y)
    spread = np.max(wish, axis=-1) - np.min(np.where(on, wish, np.inf), axis=-1)
    room = 8 * np.finfo(p.dtype).eps * reach(z, on)[:, 0]
    return (spread / 2 / room).astype(float)


def reach(z: np.ndarray, on: np.ndarray) -> np.ndarray:
    """max(1, max over the support of |z − max z|) of each row."""
    z = z.astype(WIDER[z.dtype.name])
    gap = np.max(z, axis=-1, keepdims=True) - z
    return np.maximum(1, np.max(np.where(on, gap, 0), axis=-1, keepdims=True))


def report(state: State) -> str:
    """The worst uses as a table."""
    lines = [
        f"{datetime.date.today()}, {platform.machine()}, {state.backend}, NumPy {np.__version__}: "
        f"{state.rows:,} rows of {state.dtype} in {state.blocks:,} blocks of seed {state.seed}",
        "",
        "| contract | largest use | by the row |",
        "| --- | --- | --- |",
    ]
    for check, worst in sorted(state.worst.items()):
        lines.append(f"| {check} | {worst.use:.3f} | {worst.where} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
