"""Multi30k as the experiments and `analyse` read it, and BLEU of its tokenised sentences."""

from __future__ import annotations

import pytest

from pyentmax.data import DataError
from pyentmax.tasks.translation import toy_german
from pyentmax.tasks.translation.bleu import bleu
from pyentmax.tasks.translation.parallel import read_multi30k


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Toy German under the names of Multi30k, with few pairs held out."""
    monkeypatch.setattr("pyentmax.tasks.translation.parallel.MULTI30K_DEV", 10)
    pairs = toy_german()[:76]
    for split, chosen in (("train", pairs[:70]), ("val", pairs[70:])):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in chosen)
            (tmp_path / f"{split}.lc.norm.tok.{language}").write_text(text, "utf-8")
    return tmp_path


def test_last_training_pairs_are_held_out(folder):
    data = read_multi30k(folder)
    assert [len(part) for part in data] == [60, 10, 6]
    assert data.train + data.dev + data.val == toy_german()[:76]
    assert read_multi30k(folder, reverse=True).dev[0] == data.dev[0][::-1]


def test_missing_data_are_named(folder, monkeypatch):
    with pytest.raises(DataError, match=r"expected train.lc.norm.tok.de or multi30k/tok/train"):
        read_multi30k(folder / "elsewhere")
    monkeypatch.setattr("pyentmax.tasks.translation.parallel.MULTI30K_DEV", 70)
    with pytest.raises(DataError, match="expected more than the 70 training pairs"):
        read_multi30k(folder)


def test_bleu_is_that_of_tokenised_text():
    references = ["a man in the park .", "two dogs play &apos; here ."]
    found = bleu(references, references)
    assert found.score == pytest.approx(100, rel=1e-6, abs=1e-12)
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:exp")
