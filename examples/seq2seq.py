"""A sparse sequence-to-sequence model from the letters up: it inflects English verbs.

    python examples/seq2seq.py                         about a minute on one core
    python examples/seq2seq.py --word withdraw --tags "V;PST"

The model of Peters, Niculae and Martins (2019), on one page. It reads a verb and grammatical tags,
letter by letter, and writes the inflected form:

    encoder    h_1 … h_S  the states of two LSTMs, one in each direction
    decoder    s_t        the state of an LSTM that has read the letter before and õ_{t−1}
    attention  p = 1.5-entmax(z),  z_j = h_j · (s_t W)       c_t = Σ_j p_j h_j
    output     õ_t = tanh([c_t; s_t] W_o),  probabilities = 1.5-entmax(õ_t V + b)

1.5-entmax gives most letters a probability of exactly zero. So few strings are possible, a small
beam can hold all of them, and then the list that it prints is complete: *draw*, which is held out
from training, has a handful of past participles, and no other string has any probability at all.

From the library come the mapping and its loss, a tape that differentiates, and the table of verbs.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the matrices are small

import numpy as np  # noqa: E402

import pyentmax  # noqa: E402
from pyentmax.seq2seq import autograd as ag  # noqa: E402
from pyentmax.seq2seq.inflection import english_verbs  # noqa: E402

BOS, EOS = 0, 1  # the tokens that begin and end a form
WIDTH = 96  # of embeddings and states
Arrays = dict[str, np.ndarray]


# --- data: words as lists of numbers --------------------------------------------------------------
class Words:
    """The verbs as pairs of a source, letters and tags, and a target, letters."""

    def __init__(self, held_out: str) -> None:
        verbs = [e for e in english_verbs() if not e.lemma.endswith(held_out)]
        self.letters = ["<s>", "</s>", *sorted({letter for e in verbs for letter in e.form})]
        tags = sorted({tag for e in verbs for tag in e.tags})
        self.number = {token: i for i, token in enumerate(self.letters + tags)}
        # Batches of words of the same two lengths need no padding.
        self.by_length = defaultdict(list)
        for e in verbs:
            source, target = self.source(e.lemma, e.tags), [self.number[x] for x in e.form]
            self.by_length[len(source), len(target)].append((source, target))

    def source(self, lemma: str, tags: Any) -> list[int]:
        """The numbers of a verb's letters and of its tags."""
        return [self.number[token] for token in (*tags, *lemma)]

    def text(self, numbers: Any) -> str:
        """A form as text."""
        return "".join(self.letters[i] for i in numbers)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
        """Sources (batch, S) and targets (batch, T) in random order, without end."""
        while True:
            epoch = []
            for group in self.by_length.values():
                order = rng.permutation(len(group))
                epoch += [
                    [group[i] for i in order[k : k + size]] for k in range(0, len(group), size)
                ]
            for k in rng.permutation(len(epoch)):
                sources, targets = zip(*epoch[k], strict=True)
                yield np.array(sources), np.array(targets)


# --- the model ------------------------------------------------------------------------------------
def initialize(tokens: int, letters: int, rng: np.random.Generator) -> Arrays:
    """Random parameters; the scale of a weight is that of Glorot and Bengio (2010)."""
    n, half = WIDTH, WIDTH // 2

    def weight(inputs: int, outputs: int) -> np.ndarray:
        bound = (6 / (inputs + outputs)) ** 0.5
        return rng.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)

    def lstm(name: str, inputs: int, width: int) -> Arrays:
        bias = np.zeros(4 * width, np.float32)
        bias[width : 2 * width] = 1  # forget gates start open
        weights = {f"{name}.W": weight(inputs, 4 * width), f"{name}.U": weight(width, 4 * width)}
        return weights | {f"{name}.b": bias}

    return {
        "source": rng.standard_normal((tokens, n)).astype(np.float32),
        "target": rng.standard_normal((letters, n)).astype(np.float32),
        **lstm("forward", n, half),
        **lstm("backward", n, half),
        **lstm("decoder", 2 * n, n),
        "attention": weight(n, n),
        "combine": weight(2 * n, n),
        "output.W": weight(n, letters),
        "output.b": np.zeros(letters, np.float32),
    }


def lstm_step(a: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """The next state and cell, from the pre-activations of the gates and the last cell."""
    n = h.shape[-1]
    gates = ag.sigmoid(a[:, : 3 * n])
    i, f, o = gates[:, :n], gates[:, n : 2 * n], gates[:, 2 * n :]
    c = f * c + i * ag.tanh(a[:, 3 * n :])
    return o * ag.tanh(c), c


def encode(params: Any, source: np.ndarray, rng: Any = None) -> tuple[Any, Any]:
    """The states h_j, (batch, S, n), and what the decoder starts with: its state, cell and õ."""
    x = ag.dropout(ag.take_rows(params["source"], source.T), 0.2, rng)  # time comes first
    zeros = np.zeros((len(source), WIDTH // 2), np.float32)
    directions, last = [], []
    for name in ("forward", "backward"):
        inputs = list(ag.linear(x, params[f"{name}.W"], params[f"{name}.b"]))
        h, c, states = zeros, zeros, []
        for a in inputs[:: 1 if name == "forward" else -1]:
            h, c = lstm_step(a + h @ ag.as_tensor(params[f"{name}.U"]), h, c)
            states.append(h)
        directions.append(ag.stack(states[:: 1 if name == "forward" else -1]))
        last.append((h, c))
    memory = ag.dropout(ag.concatenate(directions), 0.2, rng).transpose(1, 0, 2)
    h, c = (ag.concatenate(parts) for parts in zip(*last, strict=True))
    return memory, (h, c, np.zeros(h.shape, np.float32))


def decode(params: Any, memory: Any, state: Any, letter: Any, rng: Any = None) -> tuple[Any, Any]:
    """The scores of the next letter of each row, and the new state."""
    h, c, feed = state
    x = ag.concatenate([ag.take_rows(params["target"], letter), feed])
    a = ag.linear(x, params["decoder.W"], params["decoder.b"])
    h, c = lstm_step(a + h @ ag.as_tensor(params["decoder.U"]), h, c)
    z = memory @ ag.linear(h, params["attention"])[:, :, None]
    p = ag.entmax15(z, axis=1)  # most positions get no attention at all
    context = (p.swapaxes(1, 2) @ memory)[:, 0]
    feed = ag.tanh(ag.linear(ag.concatenate([context, h]), params["combine"]))
    feed = ag.dropout(feed, 0.2, rng)
    return ag.linear(feed, params["output.W"], params["output.b"]), (h, c, feed)


def loss_of(params: Any, source: np.ndarray, target: np.ndarray, rng: Any) -> Any:
    """The mean Fenchel-Young loss of 1.5-entmax per letter, given the right letters before it."""
    memory, state = encode(params, source, rng)
    ends = np.full((len(source), 1), EOS)
    before, after = np.hstack([0 * ends + BOS, target]), np.hstack([target, ends])
    scores = []
    for letter in before.T:
        z, state = decode(params, memory, state, letter, rng)
        scores.append(z)
    return ag.fenchel_young_loss(ag.stack(scores), after.T, "entmax15")


# --- training -------------------------------------------------------------------------------------
def train(words: Words, updates: int, rng: np.random.Generator) -> Arrays:
    """Parameters after Adam (Kingma and Ba 2015), with a rate that falls to zero."""
    params = initialize(len(words.number), len(words.letters), rng)
    first, second = ({k: np.zeros_like(x) for k, x in params.items()} for _ in range(2))
    batches, recent, started = words.batches(64, rng), [], time.perf_counter()
    for update in range(updates):
        leaves = {name: ag.Tensor(x, requires_grad=True) for name, x in params.items()}
        loss = loss_of(leaves, *next(batches), rng)
        loss.backward()
        size = sum(float((leaf.grad**2).sum()) for leaf in leaves.values()) ** 0.5
        c1, c2 = 1 - 0.9 ** (update + 1), 1 - 0.999 ** (update + 1)
        for name, leaf in leaves.items():
            g = leaf.grad * min(1, 5 / size)  # clipped
            first[name] += 0.1 * (g - first[name])
            second[name] += 0.001 * (g * g - second[name])
            step = first[name] / c1 / (np.sqrt(second[name] / c2) + 1e-8)
            params[name] -= 0.003 * (1 - update / updates) * step
        recent.append(loss.item())
        if (update + 1) % 100 == 0 or update + 1 == updates:
            seconds = time.perf_counter() - started
            print(
                f"update {update + 1:5}  loss {np.mean(recent):.4f}  {seconds:4.0f} s", flush=True
            )
            recent = []
    return params


# --- beam search ----------------------------------------------------------------------------------
def beam_search(
    params: Arrays, source: list[int], beam: int = 10, longest: int = 30
) -> tuple[list[tuple[float, tuple[int, ...]]], bool]:
    """Possible forms with their probabilities, the best first, and whether these are all."""
    memory, state = encode(params, np.array([source]))
    prefixes: list[tuple[int, ...]] = [()]
    probability, finished, complete = np.ones(1), [], True
    for _ in range(longest):
        letters = np.array([prefix[-1] if prefix else BOS for prefix in prefixes])
        z, state = decode(params, memory, state, letters)
        p = probability[:, None] * pyentmax.entmax15(z.data.astype(float))
        finished += [(q, x) for q, x in zip(p[:, EOS].tolist(), prefixes, strict=True) if q > 0]
        p[:, EOS] = 0
        rows, letters = np.nonzero(p)  # all that is possible
        best = np.argsort(-p[rows, letters])[:beam]
        complete = complete and len(rows) <= beam  # else something possible is pruned
        rows, letters = rows[best], letters[best]
        probability = p[rows, letters]
        prefixes = [(*prefixes[i], k) for i, k in zip(rows, letters.tolist(), strict=True)]
        if not prefixes:
            return sorted(finished, reverse=True), complete
        state = tuple(ag.as_tensor(x).data[rows] for x in state)
    return sorted(finished, reverse=True), False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--word", default="draw", help="held out, with verbs that end like it")
    parser.add_argument("--tags", default="V;V.PTCP;PST", help="by default the past participle")
    parser.add_argument("--updates", type=int, default=1300)
    options = parser.parse_args()
    words = Words(held_out=options.word)
    params = train(words, options.updates, np.random.default_rng(1))
    source = words.source(options.word, options.tags.split(";"))
    forms, complete = beam_search(params, source)
    print(f"\n{options.word} ({options.tags}):")
    for p, letters in forms:
        print(f"  {p:6.1%}  {words.text(letters)}")
    total = sum(p for p, _ in forms)
    if complete:
        print(f"The list is complete: it sums to {total:.6f}, and no other string is possible.")
    else:
        print(f"The list holds {total:.1%} of the probability; other strings are possible.")


if __name__ == "__main__":
    main()
