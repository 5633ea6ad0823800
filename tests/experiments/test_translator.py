"""Models of translation: sub-words, validation and search."""

import numpy as np
import pytest

from experiments.peters2019 import figure2
from experiments.tasks.translation import (
    SentencePair,
    Subwords,
    Translator,
    Words,
    toy_german,
    train_translator,
)
from experiments.tasks.translation.segmentation import learn_subwords
from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.training import TrainingConfig

PAIRS = toy_german()[:200]
SHAPES = {
    "rnn": {"hidden": 8, "dropout": 0.1, "label_smoothing": 0.1},
    "transformer": {"width": 8, "layers": 1, "heads": 2, "inner": 8, "attention": "learned"},
}


def test_words_of_a_sentence_are_refused():
    rng = np.random.default_rng(0)
    shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    pairs = [SentencePair("ein hund", "a dog")]
    translator = Translator.untrained("transformer", pairs, Words(), rng, **shape)
    with pytest.raises(TypeError, match="expected a str, got .*; translate_all translates several"):
        translator.translate(["ein", "hund"])


@pytest.fixture(scope="module")
def subwords():
    return Subwords.learn((side for pair in toy_german()[:500] for side in pair), 120)


def untrained(architecture="transformer", seed=0):
    rng = np.random.default_rng(seed)
    return Translator.untrained(architecture, PAIRS, Words(), rng, **SHAPES[architecture])


# --- sub-words ------------------------------------------------------------------------------------
def test_subwords_spell_every_sentence(subwords):
    vocabulary = subwords.vocabulary()
    assert len(vocabulary) == 120
    for pair in toy_german()[:500]:
        for sentence in pair:
            pieces = subwords.split(sentence)
            assert all(piece in vocabulary for piece in pieces)
            assert subwords.join(pieces) == sentence


def test_byte_pair_encoding_merges_by_rank():
    sentences = ["low low low low low lower lower newest newest newest widest"] * 2
    learned = Subwords.learn(sentences, 30, algorithm="bpe")
    pieces = learned.vocabulary().tokens[4:]
    # The pairs that occur most often are merged first: l+o (7 times in a line), then lo+w.
    assert pieces[:2] == ("lo", "low")
    assert learned.join(learned.split(sentences[0])) == sentences[0]


def test_separate_subwords_cut_each_side_in_its_own_way():
    learned = learn_subwords(toy_german()[:500], 90, separate=True)
    assert sorted(learned) == ["segmenter", "target_segmenter"]
    rng, shape = np.random.default_rng(0), SHAPES["transformer"]
    model = Translator.untrained("transformer", PAIRS, rng=rng, **learned, **shape)
    assert len(model.source) == len(model.target) == 90
    assert "▁hund" not in model.target
    assert "▁dog" not in model.source
    for pair, (source, target) in zip(PAIRS, model.pairs(PAIRS), strict=True):
        assert 3 not in [*source, *target], "no <unk>"
        assert model.sentence(target) == pair.target
        assert model.segmenter.join(model.source.decode(source)) == pair.source


def test_subwords_keep_characters_unless_normalized():
    sentence = "½ m² of ﬁsh"
    for options, expected in ({}, sentence), ({"normalization": "nfkc"}, "1⁄2 m2 of fish"):
        learned = Subwords.learn([sentence, "m of fish and fish of m"], 18, **options)
        again = Subwords(learned.state())  # the model keeps its normalisation
        assert again.join(again.split(sentence)) == expected


@pytest.mark.parametrize("size", [1, 5000, 2**40])
def test_impossible_vocabulary_is_named(size):
    with pytest.raises(DataError, match=f"a vocabulary of {size} sub-words: "):
        Subwords.learn(["ein hund", "eine katze"], size)


def test_sentence_without_tokens_is_quoted_before_training(tmp_path, subwords):
    blank = [*PAIRS, SentencePair(" ", "a dog")]
    for pairs, dev in ((blank, PAIRS), (PAIRS, blank)):
        with pytest.raises(DataError, match="sentence . .: expected a word or a sub-word"):
            train_translator(
                "rnn", pairs, dev, TrainingConfig(updates=1), segmenter=subwords, **SHAPES["rnn"]
            )


def test_broken_sentencepiece_model_is_named(tmp_path, subwords):
    path = tmp_path / "broken.model"
    for damage in (b"", b"not a model", subwords.state()[: len(subwords.state()) // 2]):
        path.write_bytes(damage)
        with pytest.raises(DataError, match=r"broken.model: expected"):
            Subwords.read(path)
    path.write_bytes(subwords.state())
    assert Subwords.read(path).vocabulary() == subwords.vocabulary()


# --- use ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("architecture", SHAPES)
def test_validation_counts_tokens_that_are_most_probable(architecture):
    translator = untrained(architecture)
    pairs = translator.pairs(PAIRS[:20])
    validation = translator.validate(pairs, batch_size=8)
    right = tokens = 0
    for pair, (_, target) in zip(PAIRS[:20], pairs, strict=True):
        decoding = translator.force(*pair)
        right += (decoding.log_prob.argmax(axis=1) == [*target, 2]).sum()
        tokens += len(target) + 1
    assert validation.accuracy == pytest.approx(right / tokens, rel=1e-9, abs=0)
    at_once = translator.validate(pairs, batch_size=100)
    assert at_once.loss == pytest.approx(validation.loss, rel=1e-5, abs=0)  # float32
    assert at_once.accuracy == validation.accuracy


def test_unknown_words_are_never_right():
    translator = untrained()
    translator.model.params["output.bias"][3] = 100.0  # always <unk>
    for target in ("the dog", "xyz xyz"):
        pairs = translator.pairs([SentencePair("der hund", target)])
        assert translator.validate(pairs).accuracy == 0.0


def test_sentences_in_batches_get_what_they_get_alone():
    translator = untrained(seed=3)
    sentences = [pair.source for pair in PAIRS[:4]]
    together = list(translator.translate_all(sentences, beam=2))
    in_blocks = translator.translate_all(sentences, beam=2, block_size=3, batch_size=2)
    alone = [t for sentence in sentences for t in translator.translate_all([sentence], beam=2)]
    assert together == list(in_blocks) == alone
    whole = list(translator.translate_all(sentences, beam=2, normalize=False))
    best = [translator.translate(s, beam=2).best.tokens for s in sentences]
    assert whole == [translator.sentence(tokens) for tokens in best]
    assert list(translator.translate_all([])) == []


def test_steps_of_a_translation_are_printed_and_drawn(tmp_path, capsys):
    untrained().save(tmp_path / "best.npz")
    source, target = PAIRS[0]
    figure2.main([str(tmp_path), source, target, "--pictures", str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.startswith(f"{source}\n\n  step  forced")
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "1-forced.png",
        "1-forced-attention.png",
    }
