"""Readers of parallel text: what they give, and errors that name file and line."""

import pytest

from experiments.tasks.translation import SentencePair, read_parallel, read_table, toy_german
from experiments.tasks.translation.bleu import bleu
from experiments.tasks.translation.parallel import read_multi30k, read_pairs
from pyentmax.seq2seq.data import DataError


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


def test_pairs_of_a_script_may_be_reversed(tmp_path):
    table = tmp_path / "pairs.tsv"
    table.write_text("ein hund\ta dog\n", "utf-8")
    assert read_pairs([table]) == [("ein hund", "a dog")]
    assert read_pairs([table], reverse=True) == [("a dog", "ein hund")]
    assert read_pairs([*files(tmp_path, "ein hund", "a dog")]) == [("ein hund", "a dog")]
    assert read_pairs([type(table)("toy-german")]) == toy_german()[-200:]
    with pytest.raises(ValueError, match="expected one or two files of translation, got 3"):
        read_pairs([table] * 3)


# --- Multi30k -------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Toy German under the names of Multi30k, with few pairs held out."""
    monkeypatch.setattr("experiments.tasks.translation.parallel.MULTI30K_DEV", 10)
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
    monkeypatch.setattr("experiments.tasks.translation.parallel.MULTI30K_DEV", 70)
    with pytest.raises(DataError, match="expected more than the 70 training pairs"):
        read_multi30k(folder)


def test_bleu_is_that_of_tokenised_text():
    references = ["a man in the park .", "two dogs play &apos; here ."]
    found = bleu(references, references)
    assert found.score == pytest.approx(100, rel=1e-6, abs=1e-12)
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:exp")
