"""Models of translation: sub-words, files, validation, search and ensembles."""

import numpy as np
import pytest

from pyentmax.data import DataError, Vocabulary
from pyentmax.tasks.translation import (
    SentencePair,
    Subwords,
    Translator,
    Words,
    load_sentence_decoder,
    toy_german,
    train_translator,
)
from pyentmax.training import (
    CheckpointError,
    RunOptions,
    TrainingConfig,
    load_checkpoint,
    save_checkpoint,
)

PAIRS = toy_german()[:200]
SHAPES = {
    "rnn": {"hidden": 8, "dropout": 0.1, "label_smoothing": 0.1},
    "transformer": {"width": 8, "layers": 1, "heads": 2, "inner": 8, "attention": "learned"},
}


@pytest.fixture(scope="module")
def subwords():
    return Subwords.learn((side for pair in toy_german()[:500] for side in pair), 120)


def untrained(architecture="transformer", segmenter=None, seed=0, pairs=PAIRS, **changes):
    rng = np.random.default_rng(seed)
    shape = SHAPES[architecture] | changes
    return Translator.untrained(architecture, pairs, segmenter or Words(), rng, **shape)


# --- sub-words ------------------------------------------------------------------------------------
def test_subwords_spell_every_sentence(subwords):
    vocabulary = subwords.vocabulary()
    assert len(vocabulary) == 120
    for pair in toy_german()[:500]:
        for sentence in pair:
            pieces = subwords.split(sentence)
            assert all(piece in vocabulary for piece in pieces)
            assert subwords.join(pieces) == sentence


def test_the_same_sentences_give_the_same_subwords(subwords):
    again = Subwords.learn((side for pair in toy_german()[:500] for side in pair), 120)
    assert again.vocabulary() == subwords.vocabulary()


def test_a_vocabulary_that_the_sentences_do_not_allow():
    with pytest.raises(DataError, match="a vocabulary of 5000 sub-words: "):
        Subwords.learn(["ein hund", "eine katze"], 5000)
    with pytest.raises(DataError, match="of 1 sub-words: expected more than the special tokens, 4"):
        Subwords.learn(["ein hund", "eine katze"], 1)
    with pytest.raises(DataError, match="a vocabulary of 1099511627776 sub-words: "):
        Subwords.learn(["ein hund", "eine katze"], 2**40)


def test_a_seed_of_any_size_will_do():
    sentences = [side for pair in PAIRS for side in pair]
    assert len(Subwords.learn(sentences, 60, seed=2**32).vocabulary()) == 60


def test_a_sentence_that_sub_words_leave_nothing_of_is_quoted_before_training(tmp_path, subwords):
    """It ended the training at the batch, or at the validation, that came to it."""
    blank = [*PAIRS, SentencePair("\u200b", "a dog")]
    for pairs, dev in ((blank, PAIRS), (PAIRS, blank)):
        where, one = RunOptions(tmp_path, progress=False), TrainingConfig(updates=1)
        with pytest.raises(DataError, match=r"sentence '\\u200b': expected a word or a sub-word"):
            train_translator("rnn", pairs, dev, one, where, segmenter=subwords, **SHAPES["rnn"])
    assert not list(tmp_path.iterdir())


def test_a_broken_model_is_an_error(tmp_path, subwords):
    path = tmp_path / "broken.model"
    for damage in (b"", b"not a model", subwords.state()[: len(subwords.state()) // 2]):
        path.write_bytes(damage)
        with pytest.raises(DataError, match=r"broken.model: expected"):
            Subwords.read(path)
    path.write_bytes(subwords.state())
    assert Subwords.read(path).vocabulary() == subwords.vocabulary()


# --- files ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("architecture", SHAPES)
@pytest.mark.parametrize("cut", ["words", "subwords"])
def test_a_model_comes_back_from_its_file(tmp_path, architecture, cut, subwords):
    translator = untrained(architecture, subwords if cut == "subwords" else None)
    translator.save(tmp_path / "best.npz")
    loaded = Translator.load(tmp_path)
    assert loaded.description() == translator.description()
    assert loaded.architecture == architecture
    sentence = PAIRS[0].source
    one, other = (t.translate(sentence, max_length=6) for t in (translator, loaded))
    assert [h.tokens for h in one.hypotheses] == [h.tokens for h in other.hypotheses]
    assert [h.log_prob for h in one.hypotheses] == [h.log_prob for h in other.hypotheses]


def test_a_checkpoint_of_another_task_or_a_damaged_one(tmp_path, subwords):
    path = tmp_path / "best.npz"
    with pytest.raises(FileNotFoundError, match="No such file"):
        Translator.load(path)
    save_checkpoint(path, {"w": np.zeros(3)}, {"kind": "inflection model"})
    with pytest.raises(CheckpointError, match="expected 'translation model', .*'inflection model'"):
        Translator.load(path)
    untrained(segmenter=subwords).save(path)
    params, meta = load_checkpoint(path, "translation model")
    broken = params | {"segmenter.state": params["segmenter.state"][:50]}
    other = Subwords.learn((pair.source for pair in PAIRS), 60)
    for arrays, changed in (
        (broken, meta),
        (params | {"segmenter.state": np.frombuffer(other.state(), np.uint8)}, meta),
        (params, meta | {"architecture": "perceptron"}),
        (params, meta | {"config": meta["config"] | {"width": 10}}),
        ({k: x for k, x in params.items() if k != "segmenter.state"}, meta),
        (params, {k: x for k, x in meta.items() if k != "source"}),
    ):
        save_checkpoint(path, arrays, changed)
        with pytest.raises(CheckpointError, match=r"best.npz: parts are missing or do not fit"):
            Translator.load(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        Translator.load(path)


@pytest.mark.parametrize("early", [False, True])
def test_a_model_of_subwords_without_its_sentencepiece_model_is_refused(tmp_path, subwords, early):
    """It became a model of words, whose every source is unknown."""
    path = tmp_path / "best.npz"
    untrained(segmenter=subwords).save(path)
    params, meta = load_checkpoint(path, "translation model")
    if early:
        del meta["segmenter"]
        save_checkpoint(path, params, meta)
        assert Translator.load(path).segmenter.state() == subwords.state()
    save_checkpoint(path, params | {"segmenter.state": np.zeros(0, np.uint8)}, meta)
    with pytest.raises(CheckpointError, match="segmenter.state: expected that of sub-words, got"):
        Translator.load(path)


def test_an_early_file_of_words_is_read(tmp_path):
    """Also where they are somebody else's sub-words, marks and all, alike on both sides."""
    path = tmp_path / "best.npz"
    pieces = [SentencePair("\u2581ein \u2581hund e", "e \u2581hund \u2581ein")]
    for pairs in (PAIRS, pieces):
        translator = untrained(pairs=pairs)
        translator.save(path)
        params, meta = load_checkpoint(path, "translation model")
        assert meta.pop("segmenter") == "words"
        save_checkpoint(path, params, meta)
        assert Translator.load(path).source == translator.source


# --- use ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("architecture", SHAPES)
def test_validation_counts_tokens_that_are_the_most_probable(architecture):
    translator = untrained(architecture)
    pairs = translator.pairs(PAIRS[:20])
    validation = translator.validate(pairs, batch_size=8)
    right = tokens = 0
    for pair, (_, target) in zip(PAIRS[:20], pairs, strict=True):
        decoding = translator.force(*pair)
        right += (decoding.log_prob.argmax(axis=1) == [*target, 2]).sum()
        tokens += len(target) + 1
    assert validation.accuracy == pytest.approx(right / tokens, rel=1e-9, abs=0)
    everything = translator.validate(pairs, batch_size=100)
    # float32
    assert everything.loss == pytest.approx(validation.loss, rel=1e-5, abs=0)
    assert everything.accuracy == validation.accuracy


def test_unknown_words_are_never_right():
    translator = untrained()
    translator.model.params["output.bias"][3] = 100.0  # always <unk>
    known = translator.validate(translator.pairs([SentencePair("der hund", "the dog")]))
    strange = translator.validate(translator.pairs([SentencePair("der hund", "xyz xyz")]))
    assert known.accuracy == strange.accuracy == 0.0


def test_sentences_in_batches_get_what_they_get_alone():
    translator = untrained(seed=3)
    sentences = [pair.source for pair in PAIRS[:7]]
    together = translator.translate_all(sentences, beam=2, batch_size=3)
    alone = [translator.translate_all([sentence], beam=2)[0] for sentence in sentences]
    assert together == alone
    whole = translator.translate_all(sentences, beam=2, normalize=False)
    best = [translator.translate(s, beam=2).best.tokens for s in sentences]
    assert whole == [translator.sentence(tokens) for tokens in best]


def test_blocks_come_one_by_one_with_what_all_sentences_get_together():
    translator = untrained(seed=3)
    sentences = [pair.source for pair in PAIRS[:7]]
    together = translator.translate_all(sentences, beam=2)
    blocks = translator.translate_in_blocks(sentences, block_size=3, beam=2, batch_size=2)
    first = next(blocks)
    assert [first, *blocks] == [together[:3], together[3:6], together[6:]]
    assert list(translator.translate_in_blocks([])) == []
    with pytest.raises(DataError, match="expected a word or a sub-word"):
        next(translator.translate_in_blocks([*sentences, " "], block_size=1))
    with pytest.raises(ValueError, match="block_size: expected at least 1, got 0"):
        next(translator.translate_in_blocks(sentences, block_size=0))


def test_bad_requests():
    translator = untrained()
    with pytest.raises(DataError, match="expected a word or a sub-word"):
        translator.translate("  ")
    with pytest.raises(ValueError, match="search: expected 'beam' or 'exact', got 'depth'"):
        translator.translate("der hund", search="depth")
    with pytest.raises(ValueError, match="architecture: expected rnn or transformer"):
        Translator.untrained("mlp", PAIRS, Words(), np.random.default_rng(0))


def test_models_of_both_architectures_decode_as_one(tmp_path):
    paths = [tmp_path / f"{name}.npz" for name in SHAPES]
    for name, path in zip(SHAPES, paths, strict=True):
        untrained(name, output="softmax").save(path)
    ensemble = load_sentence_decoder(paths)
    pair = PAIRS[0]
    together = ensemble.force(*pair)
    members = [Translator.load(path).force(*pair) for path in paths]
    mean = np.mean([np.exp(member.log_prob) for member in members], axis=0)
    np.testing.assert_allclose(np.exp(together.log_prob), mean, rtol=1e-5, atol=1e-8)
    other = untrained(pairs=PAIRS[:50])
    other.save(paths[1])
    with pytest.raises(CheckpointError, match="its vocabularies are not those of"):
        load_sentence_decoder(paths)


def test_an_ensemble_cuts_sentences_in_one_way(tmp_path, subwords):
    """The tokens of the first model were given to all."""
    paths = [tmp_path / f"{name}.npz" for name in ("one", "words", "other")]
    one = untrained(segmenter=subwords)
    one.save(paths[0])
    vocabularies = (one.source, one.target)
    Translator(one.model, *vocabularies, Words()).save(paths[1])
    # The same pieces with one more field of the protocol buffer, as another model's file has.
    changed = Subwords(subwords.state() + b"\xc2\x0c\x01x")
    Translator(one.model, *vocabularies, changed).save(paths[2])
    assert load_sentence_decoder([paths[0], paths[0]]).segmenter.state() == subwords.state()
    with pytest.raises(CheckpointError, match=r"words.npz: it cuts .* words, and .* sub-words: "):
        load_sentence_decoder(paths[:2])
    with pytest.raises(CheckpointError, match=r"other.npz: it cuts .*of another sentencepiece"):
        load_sentence_decoder(paths[::2])


@pytest.mark.parametrize("architecture", SHAPES)
def test_training_is_fixed_by_the_seed_and_can_be_resumed(tmp_path, architecture):
    settings = TrainingConfig(updates=6, rate=0.01, validate_every=3)
    options = {"tokens": 200} | SHAPES[architecture]
    run = (architecture, PAIRS[:60], PAIRS[60:70], settings)
    one, first = train_translator(*run, RunOptions(tmp_path, progress=False), **options)
    again = RunOptions(tmp_path, progress=False, resume=True)
    _, second = train_translator(*run, again, **options)
    assert (first.dev_loss, first.loss) == (second.dev_loss, second.loss)
    assert Translator.load(tmp_path).description() == one.description()
    with pytest.raises(CheckpointError, match="belongs to another run"):
        train_translator(*run, again, **options | {"tokens": 300})


def test_words_know_what_occurs():
    assert isinstance(Words().vocabulary(["ein hund", "ein"]), Vocabulary)
    assert len(Words().vocabulary(["ein hund", "ein"])) == 6
