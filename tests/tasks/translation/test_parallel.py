"""Readers of parallel text: what they give, and errors that name file and line."""

import pytest

from pyentmax.data import DataError
from pyentmax.tasks.translation import SentencePair, read_parallel, read_table
from pyentmax.tasks.translation.planted import INTERROGATIVES, MARK, planted_questions


def files(tmp_path, source, target):
    paths = tmp_path / "train.de", tmp_path / "train.en"
    for path, text in zip(paths, (source, target), strict=True):
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return paths


def test_lines_belong_together(tmp_path):
    expected = [SentencePair("ein hund", "a dog"), SentencePair("der hund", "the dog")]
    for source, target in (
        ("ein hund\nder hund\n", "a dog\nthe dog"),
        ("ein hund\r\nder hund\r\n", "a dog\nthe dog\n"),
        ("ein  hund \n\tder hund", "a dog\nthe dog\n"),
        ("\ufeffein hund\nder hund\n", "\ufeffa dog\nthe dog\n"),
    ):
        assert read_parallel(*files(tmp_path, source, target)) == expected


def test_only_a_line_feed_ends_a_line(tmp_path):
    [pair] = read_parallel(*files(tmp_path, "ein\x85hund\u2028bellt\n", "a dog barks\n"))
    assert pair.source == "ein hund bellt"


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\n", "c\n", "as many lines in both files .* 2 in .*train.de and 1 in .*train.en"),
        ("a\n\nb\n", "c\nd\ne\n", r"train.de, line 2: expected a sentence, got an empty one"),
        ("a\nb\n", "c\n   \n", r"train.en, line 2: expected a sentence, got an empty one"),
        ("a\n", b"\xff\n", r"train.en, line 1: expected UTF-8"),
        ("", "", "train.de: expected at least one sentence, got an empty file"),
    ],
)
def test_bad_line_is_named(tmp_path, source, target, message):
    with pytest.raises(DataError, match=message):
        read_parallel(*files(tmp_path, source, target))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc d\n", "line 2: expected source TAB target, got 1 columns"),
        ("a\tb\tc\n", "line 1: expected source TAB target, got 3 columns"),
        ("a\tb\n \tc\n", "line 2: expected a sentence, got an empty one"),
        ("a\t\n", "line 1: expected a sentence, got an empty one"),
        ("", "expected at least one pair"),
    ],
)
def test_bad_line_of_table_is_named(tmp_path, text, message):
    path = tmp_path / "pairs.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_table(path)


# --- planted questions ----------------------------------------------------------------------------
def test_mark_decides_what_planted_words_mean():
    pairs = planted_questions()
    assert len({pair.source for pair in pairs}) == len(pairs) == 2400
    translations = dict(pairs)
    questions = [pair for pair in pairs if pair.source.endswith(MARK)]
    assert 0.4 < len(questions) / len(pairs) < 0.6
    both = 0
    for pair in questions:
        words = pair.source.split()
        assert words.count(MARK) == 1
        asked = {INTERROGATIVES[word][0] for word in words if word in INTERROGATIVES}
        assert asked <= set(pair.target.split())
        statement = translations.get(pair.source.replace(MARK, "."))
        if statement and asked:
            both += 1
            assert statement != pair.target.replace(MARK, ".")
            assert not asked & set(statement.split())
    assert both > 20
