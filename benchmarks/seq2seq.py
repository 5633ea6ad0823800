"""The sequence-to-sequence model compared with PyTorch: training, decoding, memory, in one run.

    python benchmarks/seq2seq.py                      all cases
    python benchmarks/seq2seq.py --case 128 1 64 1.5  one: hidden size, layers, batch size, α

Both train the same architecture (encoder of two half-width LSTMs, input feeding, bilinear
attention, dropout 0.3, Adam, clipping at 5) on the same batches of the bundled verbs, and decode
the same words with the same trained weights; that losses and strings agree is checked first. α = 1
is softmax attention and cross-entropy, in PyTorch its own.

Decoding is timed twice. In the whole search ours lists all strings and, if the mapping is sparse,
proves the list complete, while PyTorch's ends when as many strings as the beam is wide are settled.
Both leave the search for the best string (n_best = 1) as soon as that is settled.

Each library runs in its own process, so that its peak of memory can be measured, and the two take
turns, a block of batches each, or a batch in decoding. The ratio is taken turn by turn, so that a
drift of the machine's speed hits both. With one thread the time is that of the processor, with more
that of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

CASES = [(128, 1, 64, "1"), (128, 1, 64, "1.5"), (300, 2, 64, "1"), (300, 2, 64, "1.5")]
LIBRARIES = ("pyentmax", "PyTorch")
BEAM = 5
WORDS = 256  # decoded
UPDATES = 400  # after which a model decodes as a trained one does
RATE = 3e-3


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", nargs=4, metavar=("HIDDEN", "LAYERS", "BATCH", "ALPHA"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case and args.case[3] not in ("1", "1.5", "2"):
        parser.error(f"--case: expected α = 1, 1.5 or 2, which PyTorch has too, got {args.case[3]}")
    if args.worker:
        work(args)
        return
    cases = [(*map(int, args.case[:3]), args.case[3])] if args.case else CASES
    print(
        "| hidden, layers, batch | α | training, examples/s | ratio | beam, words/s | ratio "
        "| beam to the best, words/s | ratio | peak while training, MB |\n|" + 9 * " --- |"
    )
    for case in cases:
        stamp = compare(case, args.threads, args.rounds)
    print("\n" + stamp)


def compare(case: tuple[Any, ...], threads: int, rounds: int) -> str:
    """Print the row of one case; what it ran with."""
    with tempfile.TemporaryDirectory() as folder:
        weights = str(Path(folder) / "weights.npz")
        # The first writes the trained weights that both decode with.
        ours, theirs = (Worker(library, case, threads, weights) for library in LIBRARIES)
        assert_alike(ours.ask("answers"), theirs.ask("answers"))
        decoding = [take_turns(ours, theirs, f"decode {what}", rounds) for what in ("all", "best")]
        ours.close(), theirs.close()
        ours, theirs = (Worker(library, case, threads, weights) for library in LIBRARIES)
        training = [take_turns(ours, theirs, "train", rounds)]
        peaks = [worker.ask("peak") for worker in (ours, theirs)]
        stamp = f"{ours.stamp}; {theirs.stamp}; {threads} thread(s), {rounds} rounds"
        ours.close(), theirs.close()
    hidden, layers, batch, alpha = case
    cells = [f"{hidden}, {layers}, {batch}", "softmax" if alpha == "1" else alpha]
    for mine, others, ratios in (*training, *decoding):
        cells += [
            f"{mine:,.0f} : {others:,.0f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
        ]
    cells.append(f"{peaks[0]:.0f} : {peaks[1]:.0f}")
    print("| " + " | ".join(cells) + " |", flush=True)
    return stamp


def assert_alike(ours: Any, theirs: Any) -> None:
    """Stop unless both gave the same loss and the same strings, up to rounding."""
    if abs(ours["loss"] - theirs["loss"]) > 1e-4 * abs(ours["loss"]) + 1e-6:
        raise SystemExit(f"losses differ: {ours['loss']} and {theirs['loss']}")
    for which in ("all", "best"):
        pairs = list(zip(ours[which], theirs[which], strict=True))
        different = sum(mine[0] != others[0] for mine, others in pairs)
        if different > len(pairs) // 100:  # rounding may decide between two that are as probable
            raise SystemExit(f"{different} of {len(pairs)} strings differ")


def take_turns(
    ours: Worker, theirs: Worker, what: str, rounds: int
) -> tuple[float, float, list[float]]:
    """The median speed of both, and the ratio in each round."""
    speeds: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        for worker, seen in zip((ours, theirs), speeds, strict=True):
            speed = worker.ask(what)
            if turn:  # the first round warms up
                seen.append(speed)
    mine, others = (statistics.median(seen) for seen in speeds)
    return mine, others, [a / b for a, b in zip(*speeds, strict=True)]


class Worker:
    """A library at work in another process, which answers a line with a line."""

    def __init__(self, library: str, case: tuple[Any, ...], threads: int, weights: str) -> None:
        numbers = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", library, "--threads", str(threads)]
            + ["--case", *map(str, case), "--weights", weights],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ} | dict.fromkeys(numbers, str(threads)),
        )
        self.stamp = self._answer()

    def ask(self, what: str) -> Any:
        """Send a word, wait for the answer."""
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended early, with code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


# --- in a worker ----------------------------------------------------------------------------------
def work(args: argparse.Namespace) -> None:
    """Answer the words on the standard input until it ends."""
    from pyentmax.engine.system.memory import keep_freed_memory, peak_memory

    keep_freed_memory()  # as training does; PyTorch gains from it just as well
    hidden, layers, batch, alpha = *map(int, args.case[:3]), args.case[3]
    setup = pyentmax_side if args.worker == "pyentmax" else torch_side
    stamp, actions = setup(hidden, layers, batch, alpha, args.threads, Path(args.weights))
    clock = time.process_time if args.threads == 1 else time.perf_counter
    print(json.dumps(stamp), flush=True)
    for line in sys.stdin:
        what = line.strip()
        if what == "peak":
            answer: Any = peak_memory()
        elif what == "answers":
            answer = actions[what]()
        else:
            started = clock()
            count = actions[what]()
            answer = count / (clock() - started)
        print(json.dumps(answer), flush=True)


class Data:
    """The words that both see: batches to train on, a few to decode."""

    def __init__(self, hidden: int, layers: int, batch: int, alpha: str, weights: Path) -> None:
        import numpy as np

        from pyentmax.seq2seq.data import bucketed_batches, make_batch
        from pyentmax.seq2seq.inflection import Inflector, english_verbs

        examples = english_verbs()
        self.inflector = Inflector.untrained(
            examples,
            np.random.default_rng(0),
            hidden=hidden,
            layers=layers,
            dropout=0.3,
            attention=alpha,
            output=alpha,
        )
        self.model = self.inflector.model
        pairs = self.inflector.pairs(examples)
        rng = np.random.default_rng(1)
        order = [index for index in bucketed_batches(pairs, batch, rng) if len(index) == batch]
        self.training = [make_batch(pairs, index) for index in order]
        chosen = rng.permutation(len(pairs))[:WORDS]
        some = [pairs[i] for i in chosen]
        self.decoding = [make_batch(some, index) for index in bucketed_batches(some, batch)]
        self.at_once = max(2, 1500 // hidden)  # batches a block to train on: half a second or so
        self._place = 0

    def next(self, batches: list[Any], count: int) -> list[Any]:
        """So many batches from where the last call stopped, around and around."""
        places = [(self._place + k) % len(batches) for k in range(count)]
        self._place += count
        return [batches[place] for place in places]


def pyentmax_side(
    hidden: int, layers: int, batch: int, alpha: str, threads: int, weights: Path
) -> tuple[str, dict[str, Callable[[], Any]]]:
    """What pyentmax does, and with what."""
    import numpy as np

    import pyentmax
    from pyentmax.seq2seq.autograd import Tensor
    from pyentmax.seq2seq.decoding import beam_search
    from pyentmax.seq2seq.nn.optim import Adam, clip_gradients

    data = Data(hidden, layers, batch, alpha, weights)
    model, rng = data.model, np.random.default_rng(2)
    optimizer = Adam(model.params)

    def update(b: Any) -> None:
        params = {name: Tensor(x, requires_grad=True) for name, x in model.params.items()}
        loss = model.loss(params, b, rng)
        loss.backward()
        gradients = {name: tensor.grad for name, tensor in params.items()}
        clip_gradients(gradients, 5.0)
        optimizer.step(gradients, RATE)
        loss.item()

    if weights.exists():
        model.params.update(np.load(weights))
    else:
        for k in range(UPDATES if hidden < 200 else UPDATES // 4):
            update(data.training[k % len(data.training)])
        np.savez(weights, **model.params)

    def train() -> int:
        block = data.next(data.training, data.at_once)
        for b in block:
            update(b)
        return sum(map(len, block))

    def search(b: Any, n_best: int | None) -> Any:
        return beam_search(
            model, b.source, b.source_mask, beam=BEAM, n_best=n_best, keep_attention=False
        )

    def decode(n_best: int | None = None) -> int:
        [b] = data.next(data.decoding, 1)
        return len(search(b, n_best))

    def strings(n_best: int | None = None) -> Any:
        best = [result.best for b in data.decoding for result in search(b, n_best)]
        return [(list(h.tokens), h.log_prob) for h in best]

    def answers() -> Any:
        loss = model.loss(model.params, data.training[0]).item()
        return {"loss": loss, "all": strings(), "best": strings(1)}

    stamp = (
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()} {platform.system()}, Python "
        f"{platform.python_version()}, pyentmax {pyentmax.__version__}, NumPy {np.__version__} "
        f"with {blas_in_use()}"
    )
    actions = {"train": train, "decode all": decode, "decode best": partial(decode, 1)}
    return stamp, {**actions, "answers": answers}


def blas_in_use() -> str:
    """NumPy's BLAS and, where it is OpenBLAS in a wheel, the processor it takes this one for."""
    import ctypes

    import numpy as np

    blas = np.__config__.CONFIG["Build Dependencies"]["blas"]  # type: ignore[attr-defined]
    name = f"{blas['name']} {blas['version']}"
    for library in Path(np.__file__).parents[1].glob("numpy.libs/libscipy_openblas64*"):
        core = ctypes.CDLL(str(library)).scipy_openblas_get_corename64_
        core.restype = ctypes.c_char_p
        return f"{name} ({core().decode()} kernels)"
    return name


def torch_side(
    hidden: int, layers: int, batch: int, alpha: str, threads: int, weights: Path
) -> tuple[str, dict[str, Callable[[], Any]]]:
    """What PyTorch does, and with what."""
    from importlib.metadata import version

    import numpy as np
    import torch

    sys.path.insert(0, str(Path(__file__).parent))
    from torch_seq2seq import TorchSeq2Seq, beam_search

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    data = Data(hidden, layers, batch, alpha, weights)
    sizes = data.model.config.source_size, data.model.config.target_size
    model = TorchSeq2Seq(*sizes, hidden, layers, 0.3, alpha, alpha)
    model.load(dict(np.load(weights)))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)

    def tensors(b: Any) -> list[Any]:
        arrays = (b.source, b.source_mask, b.target_in, b.target_out, b.target_mask)
        return [torch.from_numpy(x) for x in arrays]

    training, decoding = ([tensors(b) for b in part] for part in (data.training, data.decoding))

    def train() -> int:
        model.train()
        block = data.next(training, data.at_once)
        for b in block:
            optimizer.zero_grad()
            loss = model(*b)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            loss.item()
        return sum(len(b[0]) for b in block)

    def search(b: Any, n_best: int | None) -> Any:
        model.eval()
        return beam_search(model, b[0], b[1], data.model.bos, data.model.eos, BEAM, n_best)

    def decode(n_best: int | None = None) -> int:
        [b] = data.next(decoding, 1)
        return len(search(b, n_best))

    def strings(n_best: int | None = None) -> Any:
        return [pair for b in decoding for pair in search(b, n_best)]

    def answers() -> Any:
        found = {"all": strings(), "best": strings(1)}  # before the loss: without dropout
        with torch.inference_mode():
            return {"loss": model(*training[0]).item(), **found}

    mkl = next(
        line.strip(" -") for line in torch.__config__.show().splitlines() if "Math Kernel" in line
    )
    cpu = torch.backends.cpu.get_cpu_capability()
    stamp = f"PyTorch {torch.__version__} ({cpu}, {mkl}), entmax {version('entmax')}"
    actions = {"train": train, "decode all": decode, "decode best": partial(decode, 1)}
    return stamp, {**actions, "answers": answers}


if __name__ == "__main__":
    main()
