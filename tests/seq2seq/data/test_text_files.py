"""Text files: UTF-8, ends of lines, and errors that name the line."""

import importlib

import pytest

from pyentmax.seq2seq.data.text_files import decode, numbered_lines, read_text


def test_text_is_utf8_without_mark_and_carriage_returns(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffä\r\nb\u2028c\n".encode())
    assert read_text(path) == "ä\nb\u2028c\n"
    assert [line for _, line in numbered_lines(path)] == ["ä", "b\u2028c"]
    path.write_bytes("a\r\r\n\ufeffb\r".encode())
    assert read_text(path) == "a\nb"
    path.write_bytes(b"an old\rMac\r")
    assert [line for _, line in numbered_lines(path)] == ["an old", "Mac"]
    path.write_bytes(b"")
    assert list(numbered_lines(path)) == []


def test_bad_byte_is_named_with_its_line():
    with pytest.raises(ValueError, match="a.txt, line 2: expected UTF-8, got byte 0xff"):
        decode(b"one\n\xff", "a.txt")


@pytest.mark.parametrize("module", ["gzip", "bz2", "lzma"])
def test_compressed_file_is_named_as_such(module):
    packed = importlib.import_module(module).compress(b"walk\twalked\tV;PST\n" * 9)
    with pytest.raises(ValueError, match="words: expected text, got an? .* file; unpack it"):
        decode(packed, "words")
