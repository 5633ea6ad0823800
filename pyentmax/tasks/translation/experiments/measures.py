"""What is measured of a trained model: how much it attends to, and how well it translates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pyentmax.calls.devices import to_host
from pyentmax.data import Pair, bucketed_batches, make_batch
from pyentmax.decoding import forced_decoding
from pyentmax.models.transformer import KINDS, Transformer
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.translation.bleu import bleu_metric, sacrebleu_module
from pyentmax.tasks.translation.translator import Translator


@limit_blas()
def supports(
    translator: Translator, pairs: Sequence[Pair], batch_size: int = 64
) -> dict[str, float]:
    """Mean number of positions with a weight above zero, and of possible tokens, per query.

    The model reads the references (forced decoding). Of a Transformer's attentions, "encoder",
    "decoder" and "context", the mean goes over all heads and layers; a recurrent network has
    "context" only. "output" counts the tokens of the vocabulary.
    """
    sums: dict[str, list[float]] = {}
    for index in bucketed_batches(pairs, batch_size):
        batch = make_batch(pairs, index)
        measure = _of_transformer if isinstance(translator.model, Transformer) else _of_rnn
        for name, counts in measure(translator, batch, [pairs[i][1] for i in index]).items():
            total = sums.setdefault(name, [0.0, 0.0])
            total[0] += float(counts.sum())
            total[1] += counts.size
    return {name: total / number for name, (total, number) in sums.items()}


def _of_transformer(translator: Translator, batch: Any, _: Any) -> dict[str, np.ndarray]:
    model = translator.model
    weights = model.attention_weights(batch.source, batch.source_mask, batch.target_in)
    queries = dict.fromkeys(KINDS, batch.target_mask) | {"encoder": batch.source_mask}
    found = {}
    for kind, layers in weights.items():
        counts = [to_host((layer > 0).sum(axis=-1)) for layer in layers]  # (B, H, T) each
        found[kind] = np.stack(counts, axis=-1).swapaxes(1, 2)[queries[kind]]
    on_device = batch.on(model.xp)
    arrays = (on_device.source, on_device.source_mask, on_device.target_in)
    scores = model.scores(model.params, *arrays).data
    _, support = model.output.probabilities(scores)
    found["output"] = to_host(support.sum(axis=-1))[batch.target_mask]
    return found


def _of_rnn(translator: Translator, batch: Any, targets: list[Any]) -> dict[str, np.ndarray]:
    forced = forced_decoding(translator.model, batch.source, batch.source_mask, targets)
    return {
        "context": np.concatenate([(f.attention > 0).sum(axis=-1) for f in forced]),
        "output": np.concatenate([f.support.sum(axis=-1) for f in forced]),
    }


class Difference(NamedTuple):
    """BLEU of one system minus that of another, with the bounds of its 95% interval."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = 1000,
    seed: int = 0,
) -> Difference:
    """BLEU of the first system minus the second's, resampled by sentences (Koehn 2004).

    Raises
    ------
    ValueError
        If there are no sentences, or not as many of one system as of the other.

    Examples
    --------
    >>> references = ["a dog sees a cat .", "the old man sleeps ."] * 20
    >>> worse = ["a dog sees a cat .", "the man sleeps well ."] * 20
    >>> found = paired_bootstrap(references, worse, references)
    >>> 0 < found.low < found.difference < found.high
    True
    """
    lengths = len(first), len(second), len(references)
    if not references or len(set(lengths)) > 1:
        raise ValueError(
            "expected as many translations of either system as references, and at least one, got "
            f"{lengths[0]}, {lengths[1]} and {lengths[2]}"
        )
    counts = np.stack([_counts(system, references) for system in (first, second)])
    rng = np.random.default_rng(seed)
    n = len(references)
    drawn = [rng.integers(n, size=n) for _ in range(samples)]
    scores = [[_bleu_of(system[i].sum(axis=0)) for system in counts] for i in drawn]
    differences = np.array([a - b for a, b in scores])
    whole = _bleu_of(counts[0].sum(axis=0)) - _bleu_of(counts[1].sum(axis=0))
    low, high = np.percentile(differences, [2.5, 97.5])
    return Difference(whole, float(low), float(high))


def _counts(translations: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Per sentence: matching n-grams, all n-grams, and both lengths."""
    # Only counts are used; with its usual order sacrebleu would warn of short sentences, each time.
    metric = bleu_metric(effective_order=True)
    rows = []
    for translation, reference in zip(translations, references, strict=True):
        score = metric.sentence_score(translation, [reference])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows)


def _bleu_of(counts: np.ndarray) -> float:
    numbers = [int(x) for x in counts]
    compute = sacrebleu_module().BLEU.compute_bleu
    # `corpus_score` smooths like this where an order has no match; this function does not unasked.
    return float(compute(numbers[:4], numbers[4:8], *numbers[8:], smooth_method="exp").score)
