"""Readers of parallel text: what they give, and errors that name file and line."""

import pytest

from pyentmax.data import DataError
from pyentmax.tasks.translation import SentencePair, read_parallel, read_table


def files(tmp_path, source, target):
    paths = tmp_path / "train.de", tmp_path / "train.en"
    for path, text in zip(paths, (source, target), strict=True):
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return paths


def test_lines_belong_together_however_they_end(tmp_path):
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
        ("a\n\nb\n", "c\nd\ne\n", r"train.de, line 2: expected a sentence, got an empty line"),
        ("a\nb\n", "c\n   \n", r"train.en, line 2: expected a sentence, got an empty line"),
        ("a\n", b"\xff\n", r"train.en, line 1: expected UTF-8"),
        ("", "", "train.de: expected at least one sentence, got an empty file"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, source, target, message):
    with pytest.raises(DataError, match=message):
        read_parallel(*files(tmp_path, source, target))


def test_a_missing_file_is_named(tmp_path):
    paths = files(tmp_path, "a", "b")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_parallel(paths[0], tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc d\n", "line 2: expected source TAB target, got 1 columns"),
        ("a\tb\tc\n", "line 1: expected source TAB target, got 3 columns"),
        ("a\tb\n \tc\n", "line 2: the source is empty"),
        ("a\t\n", "line 1: the target is empty"),
        ("", "expected at least one pair"),
    ],
)
def test_a_table_with_a_bad_line(tmp_path, text, message):
    path = tmp_path / "pairs.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_table(path)
