"""What the experiments on translation measure: supports, and differences in BLEU."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.analysis import PerSentence
from experiments.attention_start import StartConfig
from experiments.correia2019 import measured_heads as heads
from experiments.correia2019.heads import best_head, by_layer, specialised
from experiments.peters2019.figure4_translation import right_tokens
from experiments.tasks.translation import Subwords, Translator, Words, toy_german
from experiments.tasks.translation.bleu import bleu
from experiments.tasks.translation.translator import ARCHITECTURES
from experiments.translation import MODELS, ROWS, TRAININGS, paired_bootstrap, supports
from experiments.zhao2019.table5 import dense_by_layer, dense_in, weight_outside
from pyentmax.seq2seq.data import make_batch
from pyentmax.seq2seq.models.transformer import KINDS

SHAPES = {
    "transformer": {"width": 8, "layers": 2, "heads": 2, "inner": 8, "attention": "1.5"},
    "rnn": {"hidden": 8, "attention": "1.5"},
}


def test_every_row_has_settings_that_can_be():
    for row in ROWS.values():
        _, shape = ARCHITECTURES[row.architecture]
        shape(source_size=9, target_size=9, **{**MODELS[row.architecture], **row.model})
        StartConfig(**{**TRAININGS[row.architecture], **row.training})


@pytest.mark.parametrize("architecture", SHAPES)
def test_supports_leave_padding_out(architecture):
    pairs = toy_german()[:9]
    rng = np.random.default_rng(0)
    translator = Translator.untrained(architecture, pairs, Words(), rng, **SHAPES[architecture])
    for name, x in translator.model.params.items():
        if "query" in name or "attention" in name or "output" in name:
            x *= 30
    encoded = translator.pairs(pairs)
    found = supports(translator, encoded, batch_size=4)
    forced = [translator.force(*pair) for pair in pairs]
    steps = sum(len(target) + 1 for _, target in encoded)
    output = sum(one.support.sum() for one in forced) / steps
    assert found["output"] == pytest.approx(output, rel=1e-6, abs=1e-12)
    if architecture == "rnn":
        context = sum((one.attention > 0).sum() for one in forced) / steps
        assert found == pytest.approx({"context": context, "output": output}, rel=1e-6, abs=1e-12)
        return
    counts = {"encoder": [], "decoder": [], "context": []}
    for source, target in encoded:
        read = np.concatenate([[translator.model.bos], target])[None]
        weights = translator.model.attention_weights(source[None], source[None] > 0, read)
        for kind, layers in weights.items():
            counts[kind] += [(layer > 0).sum(-1).ravel() for layer in layers]
    for kind, those in counts.items():
        assert found[kind] == pytest.approx(np.concatenate(those).mean(), rel=1e-6, abs=1e-12)


def test_dense_use_of_every_layer_is_that_of_softmax():
    pairs = toy_german()[:12]
    shape = {**SHAPES["transformer"], "attention": "topk_softmax:2", "output": "1"}
    rng = np.random.default_rng(0)
    translator = Translator.untrained("transformer", pairs, Words(), rng, **shape)
    for name, x in translator.model.params.items():
        if "query" in name or "output" in name:
            x *= 9
    encoded = translator.pairs(pairs)
    found = dense_by_layer(translator, encoded)
    assert list(found) == [f"{k} {n}" for k in KINDS for n in (1, 2)] + ["all"]
    losses = {k: heads.use_with_k(translator, k, pairs, encoded)["loss"] for k in ("2", "all")}
    gap = losses["all"] - losses["2"]
    assert found["all"]["difference"] == pytest.approx(gap, abs=1e-4, rel=0)  # four decimals
    assert abs(gap) > 0.01
    for place in found.values():
        assert place["low"] <= place["difference"] <= place["high"]
        assert 0 < place["outside"] < 1
    first = translator.model.attention_weights(*_batch(encoded[:1]))["encoder"][0]
    with dense_in([("encoder", 0)]):
        changed = translator.model.attention_weights(*_batch(encoded[:1]))
    outside = (changed["encoder"][0] * (first == 0)).sum(axis=-1).mean()
    alone = weight_outside(translator, encoded[:1])[("encoder", 0)]
    assert alone == pytest.approx(outside, rel=1e-5, abs=0)
    assert ((changed["encoder"][1] > 0).sum(axis=-1) <= 2).all()


def _batch(pairs):
    batch = make_batch(pairs, np.arange(len(pairs)))
    return batch.source, batch.source_mask, batch.target_in


def test_bootstrap_is_paired_and_repeatable(caplog):
    references = [f"a man sees dog number {i} ." for i in range(50)]
    worse = [r if i % 3 else r.replace("man sees", "woman sees") for i, r in enumerate(references)]
    difference, low, high = paired_bootstrap(worse, references, references, samples=50)
    whole = bleu(worse, references).score - bleu(references, references).score
    assert difference == pytest.approx(whole, rel=1e-6, abs=1e-12)
    assert low < difference < high < 0
    again = paired_bootstrap(worse, references, references, samples=50)
    assert again == (difference, low, high)
    assert paired_bootstrap(worse, worse, references, samples=50) == (0, 0, 0)
    assert not caplog.records, "no warning for each sentence"


def test_bootstrap_smooths_orders_without_a_match():
    poor, poorer, references = (
        [text] * 3 for text in ("a man saw the cat .", "a dog", "a man sees the dog .")
    )
    found, _, _ = paired_bootstrap(poor, poorer, references, samples=9)
    whole = bleu(poor, references).score - bleu(poorer, references).score
    assert found == pytest.approx(whole, rel=1e-6, abs=0)
    assert found > 1


def test_best_head_is_chosen_on_one_half_and_measured_on_the_other():
    values = np.zeros((6, 1, 2))
    chosen, rest = np.split(np.random.default_rng(0).permutation(6), 2)
    values[chosen, 0, 1], values[rest, 0, 1], values[rest, 0, 0] = 0.6, 0.2, 0.9
    found = best_head(PerSentence(values, np.ones(6)))
    assert found == {"head": [0, 1], "mean": [0.2, 0.2, 0.2]}


def test_last_layer_is_compared_with_the_first():
    values = np.random.default_rng(0).normal([[0.5], [0.9], [0.7]], 0.01, size=(40, 3, 4))
    found = by_layer(PerSentence(values, np.ones(40)))
    assert found["mean"] == pytest.approx([0.5, 0.9, 0.7], abs=0.01, rel=0)
    difference, low, high = found["last minus first"]
    assert 0.19 < low < difference < high < 0.21


def test_specialised_heads_have_confidences_and_merging_scores():
    pairs = toy_german()[:40]
    segmenter = Subwords.learn([side for pair in pairs for side in pair], 60)
    shape = SHAPES["transformer"]
    rng = np.random.default_rng(0)
    translator = Translator.untrained("transformer", pairs, segmenter, rng, **shape)
    found = specialised(heads.Measured("", translator, None, {}, {}), pairs)["best heads"]
    assert set(found["encoder"]) == {"-3", "-2", "-1", "+0", "+1", "+2", "+3"}
    assert set(found["decoder"]) == {"-3", "-2", "-1", "+0"}
    words = [len(pair.source.split()) for pair in pairs]
    assert found["merging"]["all"]["count"] == sum(words)
    assert 0 < found["merging"]["pieces"]["count"] < sum(words)


def test_right_tokens_are_those_of_the_validation():
    pairs = toy_german()[:9]
    rng = np.random.default_rng(0)
    translator = Translator.untrained("rnn", pairs, Words(), rng, **SHAPES["rnn"])
    encoded = translator.pairs(pairs)
    expected = translator.validate(encoded).accuracy
    assert right_tokens(translator, encoded).mean == pytest.approx(expected, abs=1e-12, rel=0)
