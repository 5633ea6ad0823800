"""Sparse attention compared with PyTorch's dense attention and the `entmax` package.

    python benchmarks/attention.py [TABLE ...] [--rounds 7] > experiments/measurements/attention.md
    python benchmarks/attention.py --draw experiments/measurements/attention.md

Prints Markdown, a row as soon as it is measured. A number is a median over rounds in which all that
a row compares takes its turn. PyTorch's is `scaled_dot_product_attention`, flash attention on the
CPU. Queries are normal with a standard deviation `scale`, keys and values with 1, so that scores
have about that scale.

Hot: nothing but the calls compared. Cold: before each call, outside the timing, 64 MiB of other
data are written. Freed memory stays with the process, for both sides.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

import pyentmax
from pyentmax import _cpu, attention, attention_vjp
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.attention import (
    LearnedEntmax,
    init_multi_head_attention,
    multi_head_attention,
)
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping

D = 64
LENGTHS = [256, 1024, 4096]
SCALES = [0.3, 1, 3]
ALPHAS = [1.33, 1.5, 2.0]
TOGETHER = {256: 16, 1024: 4}  # tokens: heads
OTHER = np.zeros(1 << 24, np.float32)  # 64 MiB

BY_LENGTH = "A step of training against length"

Run = Callable[[], object]


def main() -> None:
    """Print the stamp and the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved runs (default: 7)")
    parser.add_argument("--draw", metavar="PAGE", type=Path, help="only draw a page's table")
    args = parser.parse_args()
    if args.draw:
        draw(args.draw)
        return
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    keep_memory()
    print_stamp(args.rounds)
    for name in args.tables or TABLES:
        TABLES[name](args.rounds)


def keep_memory() -> None:
    """Let the C library keep what is freed, where it is one that can be told (glibc)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    trim_threshold, mmap_threshold = -1, -3  # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    mallopt(trim_threshold, 1 << 30)
    mallopt(mmap_threshold, 1 << 30)


def print_stamp(rounds: int) -> None:
    """What was measured, on what, when."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"""# Sparse attention, measured

`python benchmarks/attention.py`, {datetime.date.today()}, commit {commit or "unknown"}: float32,
one head of {D} features, medians of {rounds} interleaved rounds.

| | |
| --- | --- |
| processor | {processor()} |
| pyentmax | {pyentmax.__version__}, {_cpu.INSTRUCTION_SET}; {_cpu.BUILD_INFO} |
| PyTorch | {torch.__version__}, {torch.backends.cpu.get_cpu_capability()} |
| NumPy, Python, system | {np.__version__}, {platform.python_version()}, {platform.platform()} |""")


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def arrays(length: int, scale: float, heads: int = 1) -> list[np.ndarray]:
    """Query, key, value and the output's gradient."""
    rng = np.random.default_rng(0)
    shape = (length, D) if heads == 1 else (heads, length, D)
    drawn = [rng.standard_normal(shape).astype(np.float32) for _ in range(4)]
    drawn[0] *= np.float32(scale)
    return drawn


def runs_of(
    length: int, scale: float, alpha: float, workers: int, causal: bool, heads: int = 1
) -> dict[str, Run]:
    """What is compared."""
    query, key, value, g = arrays(length, scale, heads)
    *tensors, g_tensor = (
        torch.from_numpy(x.reshape(1, heads, length, D)) for x in (query, key, value, g)
    )
    for tensor in tensors:
        tensor.requires_grad_(True)
    rows = query.reshape(-1, D)
    keys = np.ascontiguousarray(key.reshape(heads, length, D).swapaxes(1, 2))
    tile = np.empty((64, length), np.float32)

    def bare() -> None:
        for top in range(0, heads * length, 64):
            np.matmul(rows[top : top + 64], keys[top // length], out=tile)

    def dense() -> object:
        with torch.no_grad():
            return scaled_dot_product_attention(*tensors, is_causal=causal)

    def dense_trained() -> object:
        output = scaled_dot_product_attention(*tensors, is_causal=causal)
        return torch.autograd.grad(output, tensors, g_tensor)

    def sparse() -> object:
        with pyentmax.set_workers(workers):
            return attention(query, key, value, alpha, causal=causal)

    def trained() -> object:
        options: dict[str, Any] = {"causal": causal}
        with pyentmax.set_workers(workers):
            output, weights = attention(query, key, value, alpha, return_weights=True, **options)
            return attention_vjp(weights, query, key, value, g, alpha, **options)

    return {
        "bare": bare,
        "dense": dense,
        "dense trained": dense_trained,
        "sparse": sparse,
        "sparse trained": trained,
    }


def medians(runs: dict[str, Run], rounds: int, cold: bool = False) -> dict[str, float]:
    """Seconds of each, taken in turns."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            if cold:
                OTHER[:] += 1
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {name: float(np.median(each)) for name, each in taken.items()}


def print_header(title: str, columns: list[str]) -> None:
    """The head of a table."""
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)


def speed(rounds: int, workers: int = 1, causal: bool = False, together: bool = False) -> None:
    """Speed-ups over PyTorch, forward and backward, and forward alone, of one head or several."""
    threads = "one thread" if workers == 1 else f"{workers} threads"
    title = f"Times as fast as PyTorch, hot / cold, {threads}{', causal' if causal else ''}"
    title += ", several heads in one call" if together else ""
    columns = ["heads, tokens" if together else "tokens", "scale", "α", "support"]
    columns += ["forward and backward", "forward"]
    columns += ["PyTorch, ms", "sparse, ms", "of the bare product Q Kᵀ"]
    print_header(title, columns)
    torch.set_num_threads(workers)
    lengths = list(TOGETHER) if together else LENGTHS
    cases = [(n, scale, alpha) for n in lengths for scale in SCALES for alpha in ALPHAS]
    cases += [(n, 0, 1.5) for n in lengths]
    if workers > 1 or causal:
        cases = [(n, scale, 1.5) for n in LENGTHS for scale in SCALES]
    for length, scale, alpha in cases:
        heads = TOGETHER[length] if together else 1
        runs = runs_of(length, scale, alpha, workers, causal, heads)
        query, key, value, _ = arrays(length, scale, heads)
        _, weights = attention(query, key, value, alpha, causal=causal, return_weights=True)
        more = rounds * max(1, 2048 // (heads * length))
        hot, cold = medians(runs, more), medians(runs, rounds, cold=True)
        both, alone = (
            " / ".join(f"{m[f'dense{what}'] / m[f'sparse{what}']:.2f}" for m in (hot, cold))
            for what in (" trained", "")
        )
        size = weights.support_sizes.mean()
        cells = [f"{heads}, {length:,}" if together else f"{length:,}"]
        cells += [f"{scale:g}", f"{alpha:g}", f"{size:.0f} ({weights.density:.1%})"]
        cells += [both, alone, f"{hot['dense trained'] * 1e3:.2f}"]
        cells += [f"{hot['sparse trained'] * 1e3:.2f}"]
        cells += [f"{hot['sparse trained'] / hot['bare']:.1f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    torch.set_num_threads(1)


def causality(rounds: int) -> None:
    """Causal attention as a share of the time of full attention."""
    print_header("Causal, as a share of the time of full attention", ["tokens", "trained"])
    for length in LENGTHS:
        runs = {
            str(causal): runs_of(length, 1, 1.5, 1, causal)["sparse trained"]
            for causal in (False, True)
        }
        taken = medians(runs, rounds * max(1, 2048 // length))
        print(f"| {length:,} | {taken['True'] / taken['False']:.2f} |", flush=True)


def by_length(rounds: int) -> None:
    """Time and peak memory of a step of training against length, each in a process of its own."""
    kinds = {"PyTorch": "PyTorch", "package": "the `entmax` package", "sparse": "sparse"}
    print_header(
        f"{BY_LENGTH}, α = 1.5, scores of scale 1, in a process of its own",
        ["tokens", *(f"{name}, {unit}" for unit in ("ms", "MiB") for name in kinds.values())],
    )
    for length in (256, 512, 1024, 2048, 4096, 8192, 16_384):
        found = {}
        for kind in kinds:
            if kind == "package" and length > 8192:
                found[kind] = "–", "–"  # arrays of a gigabyte
                continue
            taken, peak, _ = in_a_process(kind, length, 1.5, max(1, min(rounds, 16_384 // length)))
            found[kind] = f"{taken * 1e3:.2f}", f"{peak:.1f}"
        cells = [f"{length:,}", *(found[kind][i] for i in (0, 1) for kind in kinds)]
        print(f"| {' | '.join(cells)} |", flush=True)


def memory(rounds: int) -> None:
    """The peak of a step of training in a process of its own, and what it has to hold."""
    print_header(
        "Peak memory of a step of training, 16,384 tokens, in a process of its own",
        ["α", "arrays and weights, MiB", "peak above the start, MiB", "allowed, MiB"],
    )
    for alpha in (1.5, 2.0):
        _, peak, held = in_a_process("sparse", 16_384, alpha, 1)
        print(f"| {alpha:g} | {held:.0f} | {peak:.0f} | {1.2 * held + 32:.0f} |", flush=True)


def in_a_process(kind: str, length: int, alpha: float, rounds: int) -> tuple[float, float, float]:
    """Median seconds of a step, the peak above the start and what has to be held, both in MiB."""
    command = [sys.executable, __file__, "--steps", kind, str(length), str(alpha), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak, held = (float(word) for word in done.stdout.split())
    return seconds, peak, held


def steps(kind: str, length: int, alpha: float, rounds: int) -> None:
    """Print what `in_a_process` reads: first the peak of one step, then the time of several."""
    torch.set_num_threads(1)

    def sparse(query: Any, key: Any, value: Any, g: Any) -> tuple[Any, ...]:
        with pyentmax.set_workers(1):
            output, weights = attention(query, key, value, alpha, return_weights=True)
            return output, weights, *attention_vjp(weights, query, key, value, g, alpha)

    def with_torch(*arrays: Any) -> tuple[Any, ...]:
        *tensors, g = (torch.from_numpy(x)[None, None] for x in arrays)
        tensors = [x.requires_grad_(True) for x in tensors]
        if kind == "PyTorch":
            output = scaled_dot_product_attention(*tensors)
        else:
            output = attention_of_the_package(*tensors, alpha)
        return output, *torch.autograd.grad(output, tensors, g)

    step = sparse if kind == "sparse" else with_torch
    step(*arrays(8, 1))
    before = peak_mib(reset=True)
    given = arrays(length, 1)
    results = step(*given)
    peak = peak_mib() - before
    held = sum(x.nbytes for x in (*given, *results)) / 2**20
    del results
    keep_memory()
    print(medians({"step": lambda: step(*given)}, rounds)["step"], peak, held)


def attention_of_the_package(query: Any, key: Any, value: Any, alpha: float) -> Any:
    """Attention written with the `entmax` package."""
    import entmax

    scores = query @ key.mT * D**-0.5
    run = {1.5: entmax.entmax15, 2.0: entmax.sparsemax}.get(alpha)
    return (run(scores, -1) if run else entmax.entmax_bisect(scores, alpha, -1)) @ value


def layers(rounds: int) -> None:
    """Causal self-attention with its projections on the tape, by whole matrices and not."""
    print_header(
        "A layer of causal self-attention on the tape, width 128, 4 heads, one thread, trained",
        ["batch, tokens", "mapping", "weights left", "whole matrices, ms", "over the support, ms"]
        + ["times as fast", "softmax, ms"],
    )
    rng = np.random.default_rng(0)
    start = init_multi_head_attention(rng, "a", 128) | {"a.alpha_logit": np.zeros((4, 1), "f")}
    params = {name: Tensor(x, requires_grad=True) for name, x in start.items()}
    mappings = {
        "1.5-entmax": choose_mapping(1.5),
        "α learned, from 1.5": LearnedEntmax(params, "a"),
        "top-8 softmax": choose_mapping("topk_softmax:8"),
    }
    for batch, length in ((16, 64), (16, 128), (16, 256), (4, 512), (2, 1024)):
        x, g = rng.standard_normal((2, batch, length, 128)).astype(np.float32)

        def step(mapping, need_weights, x=x, g=g) -> Any:
            given = {"heads": 4, "causal": True, "need_weights": need_weights}
            output, weights = multi_head_attention(params, "a", x, x, x, mapping, **given)
            output.backward(g)
            return weights

        for name, mapping in mappings.items():
            runs: dict[str, Run] = {
                "whole": lambda mapping=mapping, step=step: step(mapping, True),
                "support": lambda mapping=mapping, step=step: step(mapping, False),
                "softmax": lambda step=step: step(choose_mapping(1), True),
            }
            with pyentmax.set_workers(1):
                left = np.mean(step(mapping, True).data > 0) * 2 * length / (length + 1)
                taken = medians(runs, rounds)
            cells = [f"{batch}, {length:,}", name, f"{left:.1%}", f"{taken['whole'] * 1e3:.1f}"]
            cells += [f"{taken['support'] * 1e3:.1f}", f"{taken['whole'] / taken['support']:.2f}"]
            cells.append(f"{taken['softmax'] * 1e3:.1f}")
            print(f"| {' | '.join(cells)} |", flush=True)


def draw(page: Path) -> None:
    """Draw the table by length of a page that this program printed."""
    from pyentmax.seq2seq.plotting import save_figure
    from pyentmax.seq2seq.plotting.palette import BLUE, GREY, RULE, VERMILION

    lines = page.read_text(encoding="utf-8").partition(f"## {BY_LENGTH}")[2].splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    rows = [[float(x.replace(",", "").replace("–", "nan")) for x in row] for row in table[2:9]]
    lengths, *columns = np.array(rows).T
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = {"milliseconds": columns[:3], "MiB above the start": columns[3:]}
    styles = [
        ("PyTorch, softmax", VERMILION, "s--"),
        ("PyTorch with entmax", GREY, "^:"),
        ("pyentmax.attention", BLUE, "o-"),
    ]
    for ax, (unit, curves) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for curve, (name, colour, style) in zip(curves, styles, strict=True):
            shown = curve > 0  # what is less than a page of memory has no logarithm
            ax.plot(lengths[shown], curve[shown], style, color=colour, label=name, ms=5)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(lengths, [f"{int(n):,}" for n in lengths], fontsize=8)
        ax.minorticks_off()
        ax.set(xlabel="tokens", ylabel=unit)
        ax.grid(color=RULE)
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    save_figure(figure.axes[0], Path(__file__).parents[1] / "docs" / "results" / "attention.png")


def peak_mib(reset: bool = False) -> float:
    """The most memory since the start, or the last reset (Linux)."""
    if reset:
        with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")
    with open("/proc/self/status", encoding="utf-8") as lines:
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def package(rounds: int) -> None:
    """Against attention written with the `entmax` package in PyTorch, 1,024 tokens."""
    print_header(
        "Against the `entmax` package in PyTorch, 1,024 tokens, one thread, hot",
        ["scale", "α", "times as fast, trained", "entmax, ms", "weights, MiB: all / kept"],
    )
    torch.set_num_threads(1)
    for scale in SCALES:
        for alpha in ALPHAS:
            query, key, value, g = arrays(1024, scale)
            tensors = [torch.from_numpy(x).requires_grad_(True) for x in (query, key, value)]
            g_tensor = torch.from_numpy(g)

            def theirs(alpha=alpha, tensors=tensors, g=g_tensor) -> object:
                output = attention_of_the_package(*tensors, alpha)
                return torch.autograd.grad(output, tensors, g)

            runs = {
                "theirs": theirs,
                "ours": runs_of(1024, scale, alpha, 1, False)["sparse trained"],
            }
            taken = medians(runs, rounds)
            _, weights = attention(query, key, value, alpha, return_weights=True)
            cells = [f"{scale:g}", f"{alpha:g}", f"{taken['theirs'] / taken['ours']:.1f}"]
            cells += [f"{taken['theirs'] * 1e3:.1f}", f"4 / {weights.nbytes / 2**20:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


TABLES: dict[str, Callable[[int], None]] = {
    "speed": speed,
    "heads": lambda rounds: speed(rounds, together=True),
    "causality": causality,
    "lengths": by_length,
    "layers": layers,
    "memory": memory,
    "package": package,
    "threads": lambda rounds: speed(rounds, workers=2),
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--steps"]:
        steps(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
