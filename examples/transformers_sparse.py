"""Hugging Face: a model that was trained with softmax becomes sparse.

    pip install 'pyentmax[transformers]' matplotlib
    python examples/transformers_sparse.py        # under a minute; saves transformers_sparse.png

A small Llama learns to repeat twelve random words. It is trained with softmax first, as the models
on the hub were. Then its attention is switched to α-entmax, and α rises from 1, which is softmax,
to 1.5, while training goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import pyentmax.torch as pt

WORDS, LENGTH = 16, 12


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--picture", type=Path, default=Path("transformers_sparse.png"))
    parser.add_argument("--updates", type=int, default=240, help="with softmax; then half as many")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the matrices are small
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0)
    new = examples(200)
    history = []

    def train(updates: int, last_alpha: float | None) -> None:
        for update in range(1, updates + 1):
            if last_alpha is not None:
                alpha = 1 + (last_alpha - 1) * min(1, 2 * update / updates)
                pt.transformers.register("entmax", alpha)  # for all models that use "entmax"
            loss = model(**examples(64)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if update % max(1, updates // 15) == 0:
                history.append(measure(model, new))

    train(options.updates, None)
    report("trained with softmax", history[-1])
    pt.transformers.register("entmax", alpha=1.5)
    model.set_attn_implementation("entmax")
    report("read with 1.5-entmax, not trained with it", measure(model, new))
    train(options.updates // 2, 1.5)
    report("trained on while α rose to 1.5", history[-1])
    draw(model, new, history).savefig(options.picture, dpi=150)
    print(f"saved {options.picture}")


def examples(n: int) -> dict[str, Tensor]:
    """Random words, and the same once more, which are to be predicted."""
    words = torch.randint(WORDS, (n, LENGTH))
    hidden = torch.full_like(words, -100)
    return {"input_ids": words.repeat(1, 2), "labels": torch.cat([hidden, words], 1)}


@torch.no_grad()
def measure(model: LlamaForCausalLM, batch: dict[str, Tensor]) -> tuple[float, float, float]:
    """Loss, share of right words, and share of the weights that are above zero."""
    implementation = model.config._attn_implementation
    if implementation == "sdpa":  # which gives no weights
        model.set_attn_implementation("eager")
    output = model(**batch, output_attentions=True)
    model.set_attn_implementation(implementation)
    guess, right = output.logits[:, :-1].argmax(-1), batch["labels"][:, 1:]
    counts = right >= 0
    weights = torch.stack(output.attentions)
    seen = torch.ones(weights.shape[-2:]).tril() > 0
    accuracy = (guess == right)[counts].float().mean().item()
    return output.loss.item(), accuracy, (weights > 0)[..., seen].float().mean().item()


def report(title: str, measured: tuple[float, float, float]) -> None:
    loss, accuracy, density = measured
    print(
        f"{title:42} loss {loss:.3f}, {accuracy:6.1%} right, {density:6.1%} of weights above 0",
        flush=True,
    )


def draw(model: LlamaForCausalLM, batch: dict[str, Tensor], history: list) -> plt.Figure:
    """Loss and density while it trained, and what a head of the last layer attends to."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    loss, _, density = zip(*history, strict=True)
    left.plot(loss, label="loss")
    left.plot(density, label="share of weights above 0")
    left.axvline(len(history) // 2 - 0.5, color="0.7", linestyle="--")
    left.set(xlabel="measurement: softmax, then α rises", ylim=(0, None))
    left.set_ylabel("loss (nats), and share of weights")
    left.legend(frameon=False, fontsize=9)
    with torch.no_grad():
        first = {"input_ids": batch["input_ids"][:1]}
        weights = model(**first, output_attentions=True).attentions[-1][0]
    sharpest = weights.square().sum((-1, -2)).argmax()
    shown = weights[sharpest].where(weights[sharpest] > 0, torch.nan)
    right.imshow(shown, cmap="Blues", vmin=-0.15, vmax=1)
    right.set(xlabel="position attended to", ylabel="position that attends")
    right.set_title("a head of the last layer; zeros are white", fontsize=9)
    return figure


if __name__ == "__main__":
    main()
