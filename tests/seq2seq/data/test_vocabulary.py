"""Vocabularies: tokens to ids and back, and errors that say what is known."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyentmax.seq2seq.data import BOS, EOS, PAD, SPECIALS, UNK, DataError, Vocabulary

ordinary = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda t: t not in SPECIALS)
sequences = st.lists(st.lists(ordinary))


@given(sequences)
def test_ids_and_tokens_round_trip(sequences):
    vocabulary = Vocabulary.build(sequences)
    for sequence in sequences:
        ids = vocabulary.encode(sequence)
        assert ids.dtype == np.int64
        assert ids.shape == (len(sequence),)
        assert np.all(ids > UNK)
        assert vocabulary.decode(ids) == sequence


@given(sequences)
def test_json_round_trip(sequences):
    vocabulary = Vocabulary.build(sequences)
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary


def test_special_tokens_come_first():
    vocabulary = Vocabulary.build(["bab"])
    assert vocabulary.decode([PAD, BOS, EOS, UNK]) == list(SPECIALS)
    assert vocabulary.tokens[4:] == ("a", "b")
    assert len(vocabulary) == 6
    assert "a" in vocabulary
    assert "c" not in vocabulary
    for tokens, message in (
        (("a", "b"), "must be <pad>, <s>, </s>, <unk>; got 'a', 'b'"),
        ((), "got none"),
        ((*SPECIALS, "a", "b", "c", "b"), "list each token once; got 'b' twice"),
    ):
        with pytest.raises(DataError, match=message):
            Vocabulary(tokens)
    with pytest.raises(DataError, match="token '<s>' is spelled like a special token; rename"):
        Vocabulary.build([["<s>", "a"]])


def test_unknown_characters_are_named():
    vocabulary = Vocabulary.build(["word", ["<V>"]])
    with pytest.raises(DataError, match="unknown character 'ß' in lemma 'wordß'; known: d o r w$"):
        vocabulary.encode("wordß", what="lemma 'wordß'")
    with pytest.raises(DataError, match="unknown token '<N>' in the tags; known: <V>$"):
        vocabulary.encode(["<N>"], what="the tags")


@pytest.mark.parametrize(("form", "other"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_other_unicode_normalization_is_named(form, other):
    vocabulary = Vocabulary.build([unicodedata.normalize(form, "été façon"), ["<V>"]])
    lemma = unicodedata.normalize(other, "façonné")
    message = f"differ in Unicode normalisation: normalise the text to {form}"
    with pytest.raises(DataError, match=message):
        vocabulary.encode(["<V>", *lemma], what="the lemma")
    accent = Vocabulary.build(["a\u0301"])
    with pytest.raises(DataError, match="unknown character '◌\u0300' in .*; known: a ◌\u0301$"):
        accent.encode("a\u0300")


def test_errors_name_the_closest_known_tokens():
    vocabulary = Vocabulary.build([[f"<TAG{i}>" for i in range(100)]])
    with pytest.raises(DataError, match="100 are known, the closest: .*<TAG10>"):
        vocabulary.encode(["<TAG100>"])
    with pytest.raises(DataError, match="'zzzzzzzz' in the sequence; 100 are known$"):
        vocabulary.encode(["zzzzzzzz"])


def test_unknown_tokens_can_be_mapped():
    vocabulary = Vocabulary.build(["ab"])
    assert vocabulary.encode("axb", unknown="<unk>").tolist() == [4, UNK, 5]
    with pytest.raises(DataError, match="unknown token '<oov>' in the argument 'unknown'"):
        vocabulary.encode("ab", unknown="<oov>")


@pytest.mark.parametrize("i", [-1, 6])
def test_an_id_without_a_token_is_an_error(i):
    with pytest.raises(DataError, match=f"expected token ids from 0 to 5, got {i}"):
        Vocabulary.build(["ab"]).decode([4, i])


@pytest.mark.parametrize(
    "text",
    ["", "{", '"abc"', "[1, 2]", '{"a": 1}', "[" + "1" * 5000 + "]"],
    ids=lambda text: text[:8],
)
def test_a_broken_json_vocabulary_is_an_error(text):
    with pytest.raises(DataError, match="expected a vocabulary as a JSON list of strings"):
        Vocabulary.from_json(text)


def test_words_spelled_like_special_tokens_are_unknown():
    """It ended the sentence, or was padding, in the middle of it."""
    vocabulary = Vocabulary.build([["a", "b"]])
    words = ["a", "</s>", "<pad>", "<s>", "<unk>", "c", "b"]
    assert vocabulary.encode(words, unknown="<unk>").tolist() == [4, UNK, UNK, UNK, UNK, UNK, 5]
    assert vocabulary.encode(["</s>"], unknown="a").tolist() == [4]
