"""What sparsity saves and what it costs, against softmax: parts of a model, and a model.

CPU time of one thread, float32 unless a row says otherwise. All that a row compares takes its turn
in each round; the first round warms up. A ratio is the median over rounds of a side's time by that
of softmax: below 1, sparsity saves. Scores have the standard deviation that a row names: 0.02 to
0.05 is a model that begins, 1 one that has learned. Memory is by how much a process of its own
grows at its largest. A line says whether the machine was quiet.

Softmax is PyTorch's: `softmax`, `cross_entropy`, `scaled_dot_product_attention`. Beside it stand
SciPy, PyTorch's `linear_cross_entropy` (plain and in chunks), and the `entmax` package, where they
have such a function. The rows of a language model need the models that `own.two_ways` trains in
its folder beside --out.

What came out: `docs/results/what-it-saves.md`, row by row in `experiments/measurements/`. Slower
are steps of decoding over 2,000 classes, many short rows, attention of 512 tokens and more at the
start, and a small model's tokens after 512; most else is faster.
A quarter of an hour at most: what has not begun by then is left to the next call.

    python -m experiments.own.what_it_saves
    python -m experiments.own.what_it_saves --pictures docs/results    # and this processor's pages
    python -m experiments.own.what_it_saves --report --pictures docs/results    # the pages alone
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import pyentmax as pe
from experiments import runner
from experiments.own import two_ways
from experiments.runner import Experiment, Line, Options, Settings, Unready
from experiments.tables import markdown, values
from experiments.timing import seconds


def rows_of(row: str, **sizes: list[Any]) -> list[Settings]:
    """A row for each combination of sizes."""
    return [
        {"row": row, **dict(zip(sizes, each, strict=True))}
        for each in itertools.product(*sizes.values())
    ]


LAYER, STEP, BOTH = "output layer, training", "output layer, a step of decoding", [0.02, 1.0]
ROWS: list[Settings] = [
    *rows_of("mapping alone", shape=[[2048, 64], [1000, 1000], [64, 32000]]),
    *rows_of("loss alone", shape=[[1024, 2000], [256, 32000]]),
    *rows_of(LAYER, classes=[2000, 32000], dtype=["float32"], states=[1024], deviation=BOTH),
    # Some processors are so slow in bfloat16 that more states would take minutes.
    *rows_of(LAYER, classes=[2000], dtype=["bfloat16"], states=[64], deviation=BOTH),
    *rows_of(LAYER, classes=[32000], dtype=["bfloat16"], states=[8], deviation=BOTH),
    *rows_of(STEP, classes=[2000, 32000], dtype=["float32", "bfloat16"], states=[1]),
    *rows_of(STEP, classes=[32000], dtype=["float32"], states=[5]),
    *rows_of("attention, training", tokens=[128, 512, 2048, 8192], deviation=[0.05, 1.0]),
    *rows_of("one query", keys=[1024, 8192, 131072]),
    *rows_of("beam", hypotheses=[5]),
    *rows_of("language model, an update", done=[0, 0.25, 0.5, 1]),
    *rows_of("language model, a token", context=[512, 4096]),
]
MEMORY = (
    "32,000 classes, float32, 1,024",
    " 2,048 tokens,",
    " 8,192 tokens,",
    "an update: at",
    "100%",
)
"""Parts of the titles of rows whose memory is measured, too."""
SAID: dict[str, Callable[[Any], str]] = {
    "shape": lambda shape: f"{shape[0]:,} × {shape[1]:,}",
    "classes": lambda n: f"{n:,} classes",
    "dtype": str,
    "states": lambda n: f"{n:,} state{'s' * (n > 1)}",
    "tokens": lambda n: f"{n:,} tokens",
    "keys": lambda n: f"{n:,} keys",
    "hypotheses": lambda n: f"{n} hypotheses",
    "deviation": lambda std: "at the start" if std < 0.1 else "trained",
    "done": lambda share: f"after {share:.0%} of the training" if share else "at the start",
    "context": lambda n: f"after {n:,} tokens",
}
BEGAN, MINUTES = time.monotonic(), 14  # after which no row begins


def title(line: Line) -> str:
    """A row's name and sizes."""
    row = line["settings"]
    return f"{row['row']}: {', '.join(say(row[name]) for name, say in SAID.items() if name in row)}"


# --- measuring ------------------------------------------------------------------------------------
def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    add = parser.add_argument
    add("--row", nargs="+", default=[""], help="rows whose title contains one of these; all")
    add("--seconds", type=float, default=8.0, help="of a row, about, or 3 rounds (default: 8)")


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """The rows that were asked for."""
    rows = [row for row in ROWS if any(part in title({"settings": row}) for part in args.row)]
    return [[{**row, "seconds": args.seconds} for row in rows]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Compare the sides of a row."""
    try:
        from experiments.own import torch_sides
    except ImportError as error:
        raise Unready(f"PyTorch is needed: {error}") from error
    if time.monotonic() - BEGAN > 60 * MINUTES:
        raise Unready(f"the {MINUTES} minutes are over")
    models, name = folder.parent.with_name("two_ways"), title({"settings": settings})
    with pe.set_workers(1):
        sides = torch_sides.sides_of(settings, models)
        found = compare(sides, settings["seconds"], "" if options.quiet else name)
    if any(part in name for part in MEMORY):
        for side in ("pyentmax", next(iter(sides))):
            found["sides"][side]["memory_mb"] = torch_sides.memory(settings, models, side)
    kernels = getattr(sys.modules.get("pyentmax._cpu"), "INSTRUCTION_SET", "no kernels")
    found["processor"] = f"{runner.session()['machine']} ({kernels})"
    return found | {"torch": torch_sides.torch.__version__}


def compare(sides: dict[str, Any], budget: float, name: str = "") -> dict[str, Any]:
    """Run all sides in turns for some seconds, 3 to 50 rounds, after one that warms up."""
    from tqdm import tqdm

    rounds: list[list[float]] = []
    others = []
    started, used = time.perf_counter(), time.process_time()
    bar = tqdm(total=round(budget), desc=name, disable=not name, leave=False, unit="s")
    while len(rounds) < 4 or (len(rounds) < 51 and time.perf_counter() - started < budget):
        others.append(runnable())
        # Of one thread, whose CPU time is that of an idle machine, more or less.
        rounds.append([seconds(run, clock=time.process_time) for run in sides.values()])
        bar.update(sum(rounds[-1]))
    bar.close()
    waited = 1 - (time.process_time() - used) / (time.perf_counter() - started)
    times = np.array(rounds[1:])
    low, middle, high = np.percentile(times / times[:, :1], [25, 50, 75], axis=0).round(3).tolist()
    found = {
        side: {"ms": round(1e3 * float(np.median(each)), 4), "ratio": ratio, "half": [least, most]}
        for side, each, ratio, least, most in zip(sides, times.T, middle, low, high, strict=True)
    }
    quiet = {"others": round(float(np.mean(others)), 2), "waited": round(max(waited, 0.0), 3)}
    return {"sides": found, "rounds": len(times), **quiet}


def runnable() -> int:
    """How many other threads want a processor just now; 0 where the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1
    return 0


# --- the page -------------------------------------------------------------------------------------
def ratio(line: Line) -> float:
    """1.5-entmax's time by softmax's."""
    return float(line["result"]["sides"]["pyentmax"]["ratio"])


def times_softmax(line: Line | None, side: str = "pyentmax") -> str:
    """A ratio, and between what half of the rounds lie; a dash if it was not measured."""
    if line is None or side not in line["result"]["sides"]:
        return "–"
    found = line["result"]["sides"][side]
    return "{:.2f} ({:.2f} to {:.2f})".format(found["ratio"], *found["half"])


def by_title(lines: list[Line]) -> list[list[Line]]:
    """The lines of each row, one for each processor; what is slowest on one of them comes first."""
    rows: dict[str, list[Line]] = {}
    for line in lines:
        rows.setdefault(title(line), []).append(line)
    return sorted(rows.values(), key=lambda row: max(map(ratio, row)), reverse=True)


def over_processors(row: list[Line]) -> str:
    """The ratios of a row, from the least to the largest of its processors."""
    texts = [f"{x:.2f}" for x in sorted(map(ratio, row))]
    return " to ".join(dict.fromkeys((texts[0], texts[-1])))


def is_gain(row: list[Line]) -> bool:
    """Whether a gain is sparsity's: that PyTorch is slow in bfloat16 on some processors is not."""
    return row[0]["settings"].get("dtype") != "bfloat16"


def by_part(rows: list[list[Line]]) -> dict[str, list[list[Line]]]:
    """The rows of each part of a model, in the order of the first."""
    parts: dict[str, list[list[Line]]] = {}
    for row in rows:
        parts.setdefault(row[0]["settings"]["row"], []).append(row)
    return parts


def parts_table(rows: list[list[Line]]) -> str:
    """A line for each part: its slowest situation and its fastest, bfloat16 aside."""
    table = []
    for part, own in by_part(rows).items():
        shown = [own[0], ([row for row in own if is_gain(row)] or own)[-1]]
        sizes = [title(row[0]).removeprefix(f"{part}: ") for row in shown]
        table.append(
            [part, *(f"{over_processors(x)} ({y})" for x, y in zip(shown, sizes, strict=True))]
        )
    return markdown(["part", "slowest", "fastest, bfloat16 aside"], table)


def blocks(lines: list[Line], models: list[Line]) -> dict[str, str]:
    """What pages say, by the names in their comments; ``lines`` may be of several processors."""
    names = list(dict.fromkeys(values(lines, "processor")))
    rows = by_title(lines)
    slower = [row for row in rows if max(map(ratio, row)) > 1]
    faster = rows[len(slower) :][::-1]
    most = [", ".join(f"up to {over_processors(row)}" for row in slower[:1])]
    most += [f"down to {over_processors(row)}" for row in faster if is_gain(row)][:1]
    several = len(names) > 1
    columns = [f"1.5-entmax ÷ softmax, {x}" for x in names] if several else ["1.5-entmax ÷ softmax"]
    beside = [f"÷ softmax, {x}" for x in names] if several else ["÷ softmax"]
    table: list[list[str]] = []
    peers: list[list[str]] = []
    for row in rows:
        of = {line["result"]["processor"]: line for line in row}
        cells = [of.get(name) for name in names]
        (base, softmax), (_, entmax), *rest = row[0]["result"]["sides"].items()
        mb = [f"{side['memory_mb']:,.0f}" for side in (softmax, entmax) if side.get("memory_mb")]
        ms = [f"{x['result']['sides'][base]['ms']:,.4g}" if x else "–" for x in cells]
        name = title(row[0])
        table.append([name, " / ".join(ms), *map(times_softmax, cells), " → ".join(mb)])
        peers += [[name, side, *(times_softmax(x, side) for x in cells)] for side, _ in rest]
    memory = "–"
    for [line, *_] in rows:
        if line["settings"].get("tokens") == 8192 and line["settings"]["deviation"] < 0.1:
            softmax, entmax, *_ = (x.get("memory_mb", 0) for x in line["result"]["sides"].values())
            memory = f"{entmax:,.0f} MB instead of {softmax:,.0f}"
    # A second; ours by the ratio, so that no two numbers of the page disagree.
    tokens: list[str] = []
    for row in rows:
        for line in row if row[0]["settings"].get("context") == 4096 else []:
            softmax, entmax, *_ = line["result"]["sides"].values()
            each = 1e3 / softmax["ms"]
            speeds = f"{each / entmax['ratio']:,.0f} and softmax {each:,.0f} tokens a second"
            tokens.append(f"{speeds} on {line['result']['processor']}")
    machines = []
    for name in names:
        own = [line for line in lines if line["result"]["processor"] == name]
        dates = sorted({made["date"] for line in own for made in line["made_from"]})
        busy = [x for x in own if x["result"]["others"] > 0.5 or x["result"]["waited"] > 0.03]
        machines.append(
            f"{name}, one thread, PyTorch {own[0]['result']['torch']}, {dates[-1]}, "
            + (f"not quiet in {len(busy)} of {len(own)} rows" if busy else "quiet")
            + f" (other threads that wanted a processor: {max(values(own, 'others')):.1f} at most; "
            f"waiting: {max(values(own, 'waited')):.0%} of a row's time at most)."
        )
    machines.append(f"{len(names)} processors." if several else "One processor so far.")
    measured = {title(row[0]) for row in rows}
    missing = [name for row in ROWS if (name := title({"settings": row})) not in measured]
    where = f"on {', '.join(names)}"
    return {
        "answer": f"1.5-entmax is *slower* than softmax in {len(slower)} of {len(rows)} situations"
        f"{' on one of the processors at least' if several else ''}, {most[0]} times as long: "
        "short rows, short contexts, and models that have not trained yet. It is *faster* in "
        f"{len(faster)}, {most[-1]} of softmax's time (bfloat16 aside): long contexts, and large "
        f"vocabularies once trained. Measured {where}.",
        "extremes": f"slower in {len(slower)} of {len(rows)} situations, {most[0]} (short rows, "
        f"short contexts, models that have not trained yet), faster in {len(faster)}, {most[-1]} "
        f"(long contexts, large vocabularies once trained); {where}",
        "parts": parts_table(rows),
        "situations": markdown(["situation", "softmax, ms", *columns, "MB"], table),
        "peers": markdown(["situation", "what", *beside], peers),
        "machines": " ".join(machines),
        "missing": f"Not measured yet: {'; '.join(missing) or 'nothing'}.",
        "tokens": "; ".join(tokens) or "–",
        "memory": memory,
        "models": two_ways.report(models),
        "quality": two_ways.say_quality(models),
        "training": two_ways.say_speed(models),
        "heads": two_ways.say_heads(models),
        "swap": two_ways.say_swap(models),
    }


def keep(lines: list[Line]) -> list[Line]:
    """Add lines to those kept in the repository, a file for each processor; returns all of them."""
    recorded = EXPERIMENT.recorded
    paths = [recorded, *sorted(recorded.parent.glob(f"{recorded.stem}-*.jsonl"))]
    files = {path: runner.read_lines(path) for path in paths}
    of = {line["result"]["processor"]: path for path, own in files.items() for line in own}
    for line in lines:
        processor = line["result"]["processor"]
        name = re.sub(r"\W+", "-", processor).strip("-").lower()
        path = of.setdefault(processor, recorded.with_name(f"{recorded.stem}-{name}.jsonl"))
        if line not in files.get(path, []):
            runner.add_line(path, line)
    return [line for path in dict.fromkeys(of.values()) for line in runner.read_lines(path)]


def kept() -> dict[str, str]:
    """What pages say, from all lines that are kept in the repository."""
    return blocks(keep([]), runner.read_lines(two_ways.EXPERIMENT.recorded))


def filled(text: str, said: dict[str, str]) -> str:
    """A page with what the comments ``<!-- what-it-saves: NAME -->`` ask for, up to ``end``.

    Examples
    --------
    >>> filled("In <!-- what-it-saves: ms -->3<!-- end --> ms", {"ms": "4"})
    'In <!-- what-it-saves: ms -->4<!-- end --> ms'
    """
    asked = re.compile(r"(<!-- what-it-saves: (\w+) -->(\n?)).*?<!-- end -->", re.DOTALL)
    return asked.sub(lambda found: f"{found[1]}{said[found[2]]}{found[3]}<!-- end -->", text)


def pages() -> list[Path]:
    """The pages that have such comments."""
    root = runner.HOME.parent
    files = [root / "README.md", *sorted(root.glob("docs/**/*.md"))]
    files += sorted((runner.HOME / "measurements").glob("*.md"))
    return [path for path in files if "<!-- what-it-saves: " in path.read_text("utf-8")]


def report(lines: list[Line]) -> str:
    """All rows, what stood beside, and on what machine."""
    said = blocks(lines, runner.read_lines(two_ways.EXPERIMENT.recorded))
    return "\n\n".join(
        said[name] for name in ("answer", "situations", "peers", "machines", "missing")
    )


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """All rows by part of a model; where the page lies, numbers of all pages are written anew."""
    from matplotlib.figure import Figure

    from experiments.pictures import line_style
    from pyentmax.seq2seq.plotting import save_figure
    from pyentmax.seq2seq.plotting.palette import RULE

    written = []
    if folder.resolve() == runner.HOME.parent / "docs" / "results":
        lines = keep(lines)
        written, said = pages(), kept()
        for path in written:
            path.write_text(filled(path.read_text("utf-8"), said), "utf-8")
    parts = by_part(by_title(lines))
    figure = Figure(figsize=(8.2, 1.4 + 0.36 * len(parts)))
    figure.set_layout_engine("constrained")
    ax = figure.subplots()
    for y, rows in enumerate([*parts.values()][::-1]):
        ratios = [ratio(line) for row in rows for line in row]
        ax.plot([min(ratios), max(ratios)], [y, y], color=RULE, lw=6, solid_capstyle="round")
        for row in rows:
            for x in map(ratio, row):
                color = line_style(int(x > 1))["color"]
                fill = color if is_gain(row) else "white"
                ax.plot(x, y, "o", ms=6, mec=color, mfc=fill)
        for x, side, gap in ((min(ratios), "right", 0.9), (max(ratios), "left", 1.1)):
            if gap > 1 or len(rows) > 1:
                ax.text(x * gap, y, f"{x:.2f}", va="center", ha=side, fontsize=8)
    ax.set_xscale("log")
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2]
    ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
    ax.set_xticks([], minor=True)
    every = list(map(ratio, lines))
    ax.set_xlim(0.7 * min(every), 1.5 * max(1.0, *every))
    ax.set_yticks(range(len(parts)), [*parts][::-1])
    ax.axvline(1, color="black", lw=0.8)
    ax.grid(axis="x", color=RULE, lw=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("time of 1.5-entmax ÷ time of softmax (hollow: bfloat16)")
    for spine in ("top", "right", "left"):
        ax.spines[spine].set_visible(False)
    return [save_figure(ax, folder / "what-it-saves.png"), *written]


EXPERIMENT = Experiment("own/what_it_saves", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
