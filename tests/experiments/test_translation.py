"""What the experiments on translation measure: supports, and differences in BLEU."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.translation import MODELS, ROWS, TRAININGS, paired_bootstrap, supports
from pyentmax.tasks.translation import Translator, Words, toy_german
from pyentmax.tasks.translation.bleu import bleu
from pyentmax.tasks.translation.translator import ARCHITECTURES
from pyentmax.training import TrainingConfig

SHAPES = {
    "transformer": {"width": 8, "layers": 2, "heads": 2, "inner": 8, "attention": "1.5"},
    "rnn": {"hidden": 8, "attention": "1.5"},
}


def test_every_row_has_settings_that_can_be():
    for row in ROWS.values():
        _, shape = ARCHITECTURES[row.architecture]
        shape(source_size=9, target_size=9, **{**MODELS[row.architecture], **row.model})
        TrainingConfig(**{**TRAININGS[row.architecture], **row.training})


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
