"""Greedy search and beams with trained models of translation, beside PyTorch's, one thread each.

    python benchmarks/translation_search.py RUN [RUN ...] --data FOLDER [--batches 8]

RUN is a folder of ``python -m pyentmax reproduce translation``, softmax's first. In each round all
models translate the same 64 sentences of val, of similar length, by greedy search and by a beam of
5, and so does the same model in PyTorch with the `entmax` package: in turns, in an order that moves
on with the round. Beams of either side prove nothing, and stop when five finished translations are
at least as probable as the best open prefix. *The whole list* is our beam of a sparse output, which
goes on until nothing is open and proves what it lists. Printed are medians of the ratios within
a round, in a table of Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from pyentmax.data import bucketed_batches, make_batch  # noqa: E402
from pyentmax.decoding import beam_search, greedy_search  # noqa: E402
from pyentmax.models.transformer import Transformer  # noqa: E402
from pyentmax.system.memory import keep_freed_memory  # noqa: E402
from pyentmax.tasks.translation.multi30k import read_multi30k  # noqa: E402
from pyentmax.tasks.translation.translator import Translator, best_by_length  # noqa: E402

Search = Callable[[np.ndarray, np.ndarray], list[Any]]
BEAM = 5


def ours(model: Any) -> dict[str, Search]:
    """Searches of this library; those of recurrent networks take the most probable translation."""
    best = best_by_length if isinstance(model, Transformer) else lambda result: result.best

    def beam(*, prove: bool) -> Search:
        return lambda source, mask: [
            list(best(result).tokens)
            for result in beam_search(
                model, source, mask, beam=BEAM, keep_attention=False, prove=prove
            )
        ]

    found: dict[str, Search] = {
        "greedy": lambda source, mask: [x.tolist() for x in greedy_search(model, source, mask)],
        "beam": beam(prove=False),
    }
    return found | ({"beam, the whole list": beam(prove=True)} if model.output_is_sparse else {})


def theirs(model: Any) -> dict[str, Search]:
    """The same in PyTorch."""
    import torch

    torch.set_num_threads(1)
    ends = model.bos, model.eos
    if isinstance(model, Transformer):
        from transformer import Theirs

        attention = model.config.attention
        side = Theirs(model, {"1": "softmax"}.get(attention, attention)).model.eval()
        return {
            "greedy": lambda source, mask: side.greedy(
                source, mask, *ends, steps=2 * mask.sum(axis=1) + 10
            ),
            "beam": lambda source, mask: side.beam(source, mask, *ends, BEAM),
        }
    from torch_seq2seq import TorchSeq2Seq
    from torch_seq2seq import beam_search as torch_beam
    from torch_seq2seq import greedy_search as torch_greedy

    config = model.config
    sizes = (config.source_size, config.target_size, config.hidden, config.layers)
    network = TorchSeq2Seq(*sizes, 0.0, config.attention, config.output).eval()
    network.load(model.params)

    def tensors(*arrays: np.ndarray) -> Any:
        return map(torch.from_numpy, arrays)

    return {
        "greedy": lambda source, mask: torch_greedy(network, *tensors(source, mask), *ends),
        "beam": lambda source, mask: [
            list(tokens) for tokens, _ in torch_beam(network, *tensors(source, mask), *ends, BEAM)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+", type=Path)
    add("--data", metavar="FOLDER", type=Path, help="with multi30k/tok")
    add("--batches", type=int, default=8, help="of 64 sentences")
    args = parser.parse_args()
    keep_freed_memory()
    sides: dict[tuple[str, str, str], Search] = {}
    batches: dict[str, list[Any]] = {}
    val = read_multi30k(args.data).val
    for run in args.runs:
        translator = Translator.load(run)
        pairs = translator.pairs(val)
        cut = bucketed_batches(pairs, 64)
        chosen = [cut[i * len(cut) // args.batches] for i in range(args.batches)]
        batches[run.name] = [make_batch(pairs, index) for index in chosen]
        for maker, searches in (("ours", ours), ("PyTorch", theirs)):
            for what, search in searches(translator.model).items():
                sides[run.name, what, maker] = search
    names = list(sides)
    seconds = {name: np.zeros(args.batches) for name in names}
    found: dict[tuple[str, str, str], list[Any]] = {name: [] for name in names}
    for i in range(-1, args.batches):  # one round to warm up
        for name in names[i % len(names) :] + names[: i % len(names)]:
            batch = batches[name[0]][max(i, 0)]
            start = time.perf_counter()
            translated = sides[name](batch.source, batch.source_mask)
            if i >= 0:
                seconds[name][i] = time.perf_counter() - start
                found[name] += translated
    print("| model | search | ms for 64 | × the first model's speed | × PyTorch's | the same |")
    print("| --- | --- | --- | --- | --- | --- |")
    for run, what, maker in names:
        if maker != "ours":
            continue
        own = seconds[run, what, maker]
        first = seconds[args.runs[0].name, what.split(",")[0], maker]
        other = run, what.split(",")[0], "PyTorch"
        same = np.mean([a == b for a, b in zip(found[run, what, maker], found[other], strict=True)])
        cells = [1000 * np.median(own), np.median(first / own), np.median(seconds[other] / own)]
        print(f"| {run} | {what} | {cells[0]:.0f} | {cells[1]:.2f} | {cells[2]:.2f} | {same:.1%} |")


if __name__ == "__main__":
    main()
