"""Reading and encoding examples: they come out unchanged, and what is wrong is named."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.inflection import Example, language_of, read_examples, source_tokens
from pyentmax.seq2seq.inflection.examples import LANGUAGE_MARK, tag_order

# What a column may hold: any character but the separators, and not only blanks.
columns = st.text(
    st.characters(exclude_characters="\t\n\r;\ufeff", exclude_categories=["Cs"]), min_size=1
).filter(str.strip)
tags = columns.map(str.strip).filter(lambda tag: not tag.startswith(LANGUAGE_MARK))  # refused


def write(tmp_path, content, name="english-dev"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_files_keep_order_and_language(tmp_path):
    paths = [
        write(tmp_path, "gehen\tging\tV\n", "german-train-low"),
        write(tmp_path, b"\xef\xbb\xbfgo\twent\tV\r\n\r\n  \ndo\tdid\tV\r\n", "english-dev"),
    ]
    found = read_examples(paths, languages=[language_of(path) for path in paths])
    places = [("gehen", "german"), ("go", "english"), ("do", "english")]
    assert [(e.lemma, e.language) for e in found] == places
    with pytest.raises(DataError, match="languages: expected one per file, 2, got 1"):
        read_examples(paths, languages=["english"])


def test_text_is_not_normalised(tmp_path):
    decomposed = unicodedata.normalize("NFD", "é")
    path = write(tmp_path, f"{decomposed} \té\tV\n")
    assert read_examples(path) == [Example(decomposed + " ", "é", ("V",))]


def test_marks_returns_and_blanks_are_not_letters(tmp_path):
    """Two files of Windows, joined, one of them converted twice."""
    path = write(tmp_path, "\ufeffwalk\twalked\tV;PST\r\r\n\ufefftalk\ttalked\tV; PST \r\r\n")
    tags = ("V", "PST")
    assert read_examples(path) == [Example("walk", "walked", tags), Example("talk", "talked", tags)]


@given(st.lists(st.tuples(columns, columns, st.lists(tags, min_size=1)), min_size=1))
def test_what_is_written_is_read(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("data") / "any"
    text = "".join(f"{lemma}\t{form}\t{';'.join(tags)}\n" for lemma, form, tags in rows)
    path.write_bytes(text.encode("utf-8"))
    assert read_examples(path) == [Example(lemma, form, tuple(tags)) for lemma, form, tags in rows]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("draw drawn V", r"got 1 column: 'draw drawn V'"),
        ("draw\tdrawn", r"got 2 columns: 'draw\\tdrawn'"),
        ("draw\tdrawn\tV\tx", "got 4 columns"),
        ("\tdrawn\tV", "got an empty lemma"),
        ("draw\t \tV", "got an empty form"),
        ("draw\tdrawn\t", "got an empty tag"),
        ("draw\tdrawn\tV;;PST", "got an empty tag"),
    ],
)
def test_malformed_line_is_named(tmp_path, line, message):
    path = write(tmp_path, f"go\twent\tV\n\n{line}\n")
    expected = "english-dev, line 3: expected lemma TAB form TAB tags;joined;by;semicolons, "
    with pytest.raises(DataError, match=expected + message):
        read_examples(path)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_empty_file_is_an_error(tmp_path, content):
    good = write(tmp_path, "go\twent\tV\n", "good")
    empty = write(tmp_path, content, "empty")
    with pytest.raises(DataError, match="empty: no examples; expected lines .* got an empty file"):
        read_examples([good, empty])


def test_tags_are_not_characters():
    example = Example("V3", "x", ("V", "3"))
    assert source_tokens(example) == ["<V>", "<3>", "V", "3"]
    assert source_tokens(example._replace(language="a")) == ["<lang=a>", "<V>", "<3>", "V", "3"]


def test_tag_like_a_language_mark_is_refused(tmp_path):
    # As a tag it could be learned, but never asked for: it is taken for the language.
    path = write(tmp_path, "go\twent\tV\nplay\tplayed\tV;lang=x\n")
    message = "english-dev, line 2: tag 'lang=x' looks like the mark .* rename it, .*--multilingual"
    for languages in (None, ["english"]):
        with pytest.raises(DataError, match=message):
            read_examples(path, languages=languages)


def test_tags_stand_in_either_column(tmp_path):
    rows = [("draw", "V;PST", "drew"), ("go", "V;PST", "went"), ("ox", "N", "ox")]
    for order in ((0, 1, 2), (0, 2, 1)):
        path = write(tmp_path, "".join("\t".join(row[i] for i in order) + "\n" for row in rows))
        expected = [Example(lemma, form, tuple(tags.split(";"))) for lemma, tags, form in rows]
        assert read_examples(path) == expected
    path = write(tmp_path, "draw\tV;PST\tdrew\ngo\twent\tV;PST\nsee\tV;PST\tsaw\n")
    with pytest.raises(DataError, match="line 2: expected tags in column 2, as in the other lines"):
        read_examples(path)


def test_tags_have_one_order_with_and_without_cycles():
    def order(*bundles):
        return tag_order([Example("go", "", tuple(bundle)) for bundle in bundles])

    assert order("VAB", "VAC", "VBC") == list("VABC")
    assert order("AB", "AB", "BA") == list("AB")
    assert order("XAB", "XBC", "XCA")[0] == "X"
    assert sorted(order("XAB", "XBC", "XCA")) == list("ABCX")


def test_tags_in_the_first_column_are_refused(tmp_path):
    """The tags were the lemma, and the lemma the tag, and a model learned that without a word."""
    path = write(tmp_path, "N;PL\tşabar\tşabarlar\nN;PL\tkedi\tkediler\n")
    message = "line 1: expected lemma TAB form TAB tags.* got the tags first: 'N;PL"
    with pytest.raises(DataError, match=message):
        read_examples(path)


def test_different_words_have_different_file_names():
    words = [
        "की",
        "का",
        "कु",
        "co\u0302te\u0301",
        "co\u0302te\u0300",
        "a b",
        "a.b",
        "a/b",
        "a" * 60,
        "a" * 61,
    ]
    bundles = [("V", "IND", *("SG" * 16), tense) for tense in ("PRS", "PST")]
    names = {Example(w, "", tags).file_name() for w in words for tags in [("V",), *bundles]}
    assert len(names) == 3 * len(words)
    assert all(len(name) <= 50 and "/" not in name and " " not in name for name in names)
    assert Example("की", "", ("V",)).file_name() == "की-V"
