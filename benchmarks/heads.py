"""The best words of an output layer compared with PyTorch's product and choice.

    python benchmarks/heads.py [--rounds 15] [--dense] [--model] [--head FILE.npz]

Prints Markdown. A number is a median of the processor time of interleaved rounds on one thread,
divided by that of PyTorch's product with `argmax`, `topk`, or softmax and `multinomial`, in float32
and in bfloat16. Scores have a standard deviation of 3; "scored" are the words that bounds leave.
With --dense, rows that are nearly equal, of which the bounds decide nothing. With --model, tokens a
second of a Llama of the shape of a model of 0.6 billion parameters, all 28 layers, random weights.
With --head, candidates of a trained head: arrays W (n, d) and x (states, d).
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pyentmax as pe
import pyentmax.torch as pt
from pyentmax.sparse_attention.exact_heads import Head

SHAPES = ((151_936, 1_024), (32_000, 512))


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="interleaved runs (default: 15)")
    parser.add_argument("--dense", action="store_true", help="rows that are nearly equal")
    parser.add_argument("--model", action="store_true", help="tokens a second of a whole model")
    parser.add_argument("--head", help="candidates of a trained head")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"pyentmax {pe.__version__}, PyTorch {torch.__version__}, {datetime.date.today()}\n")
    with pe.set_workers(1), torch.no_grad():
        if args.model:
            model_rows(args.rounds)
        elif args.head:
            with np.load(args.head) as file:
                trained_rows(file["W"], file["x"])
        else:
            print("| rows, states | task | float32 | of float32 | of bfloat16 | scored |\n|"
                  + " --- |" * 6)  # fmt: skip
            for n, d in SHAPES:
                for states in (1, 5):
                    head_rows(n, d, states, args)


def medians(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median processor time of each, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if i:  # the first warms up
                times[name].append(time.process_time() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def scored(x: np.ndarray, rows: Any, k: int, margin: float = 0.0, added: Any = None) -> str:
    """The mean number of words that are scored."""
    parts = Head(x, rows.screened, None, 1.0).scored(k, margin, added, 0 if len(x) <= 8 else None)
    return f"{np.mean([len(words) for words, _ in parts]):,.0f}"


def head_rows(n: int, d: int, states: int, args: argparse.Namespace) -> None:
    """Four tasks of one shape."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((n, d), np.float32)
    x = rng.standard_normal((states, d), np.float32) * np.float32(3 / np.sqrt(d))
    if args.dense:
        matrix += 150 * rng.standard_normal(d, np.float32)
    w, q = torch.from_numpy(matrix), torch.from_numpy(x)
    half, short = w.bfloat16(), q.bfloat16()
    rows, halves = pt.ScreenedRows(w), pt.ScreenedRows(half)
    generator = torch.Generator().manual_seed(0)
    tasks: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any], tuple[Any, ...]]] = {
        "greedy": (lambda z: z.argmax(-1), pt.linear_argmax, (1,)),
        "top-50": (lambda z: z.topk(50), lambda x, rows: pt.linear_top_k(x, rows, 50), (50,)),
        "min-p 0.05": (
            lambda z: z.topk(50),
            lambda x, rows: pt.linear_min_p(x, rows, 0.05),
            (1, -np.log(0.05)),
        ),
        "draw": (
            lambda z: torch.multinomial(z.float().softmax(-1), 1, generator=generator),
            lambda x, rows: pt.linear_sample(x, rows, generator=generator),
            (1, 0.0, rng.gumbel(size=(states, n))),
        ),
    }  # fmt: skip
    assert torch.equal(pt.linear_argmax(q, rows)[0], (q @ w.T).argmax(-1)) or args.dense
    for name, (choose, ours, rule) in tasks.items():
        taken = medians(
            {
                "float32": lambda choose=choose: choose(q @ w.T),
                "bfloat16": lambda choose=choose: choose(short @ half.T),
                "ours": lambda ours=ours: ours(q, rows),
                "ours, half": lambda ours=ours: ours(short, halves),
            },
            args.rounds,
        )
        print(
            f"| {n:,} × {d:,}, {states} | {name} | {1e3 * taken['float32']:.2f} ms | "
            f"{taken['ours'] / taken['float32']:.2f} | "
            f"{taken['ours, half'] / taken['bfloat16']:.2f} | {scored(x, rows, *rule)} |",
            flush=True,
        )


def trained_rows(matrix: np.ndarray, states: np.ndarray) -> None:
    """Words that are scored of a trained head."""
    rows, n = pt.ScreenedRows(torch.from_numpy(matrix)), len(matrix)
    x = states[np.random.default_rng(0).permutation(len(states))[:200]]
    noise = np.random.default_rng(1)
    drawn = [scored(s[None], rows, 1, 0.0, noise.gumbel(size=(1, n))) for s in x]
    print("| rows | std of scores | greedy | top-50 | min-p 0.05 | draw |\n|" + " --- |" * 6)
    print(
        f"| {n:,} × {matrix.shape[1]} | {(x @ matrix.T).std():.2f} | {scored(x, rows, 1)} | "
        f"{scored(x, rows, 50)} | {scored(x, rows, 1, -np.log(0.05))} | "
        f"{np.mean([float(each.replace(',', '')) for each in drawn]):,.1f} |"
    )


def model_rows(rounds: int) -> None:
    """Tokens a second of `generate`, greedy, with the head and with it screened."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=151_936, hidden_size=1_024, intermediate_size=3_072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
        pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    print("| type | calls | tokens a second | screened | ratio | same ids |\n|" + " --- |" * 6)
    for dtype in (torch.float32, torch.bfloat16):
        model = model.to(dtype)
        for name, options in {"greedy": {}, "top_k=50": {"do_sample": True, "top_k": 50}}.items():
            times: list[list[float]] = [[], []]
            same = True
            for i in range(rounds + 1):
                ids = [generated(model, options, screen, times, i) for screen in (False, True)]
                same &= torch.equal(*ids)
            plain, screened = (8 / statistics.median(each) for each in times)
            print(
                f"| {str(dtype).removeprefix('torch.')} | {name} | {plain:.2f} | {screened:.2f} | "
                f"{screened / plain:.2f} | {'yes' if same else 'no'} |",
                flush=True,
            )


def generated(
    model: Any, options: dict[str, Any], screen: bool, times: list[list[float]], seed: int
) -> torch.Tensor:
    """Eight words behind eight, and note the time but in the first round."""
    torch.manual_seed(seed)
    ids = torch.randint(1, 151_936, (1, 8))
    screened = pt.transformers.screen_head(model) if screen else None
    if screened is not None:
        model.generate(ids, do_sample=False, max_new_tokens=1)  # makes the copies
    torch.manual_seed(seed)
    start = time.process_time()
    result = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, min_new_tokens=8,
        **{"do_sample": False, **options},
    )  # fmt: skip
    if seed:
        times[screen].append(time.process_time() - start)
    if screened is not None:
        screened.remove()
    return result


if __name__ == "__main__":
    main()
