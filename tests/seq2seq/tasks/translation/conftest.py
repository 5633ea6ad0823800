"""Files of toy German that the tests' configurations name."""

import pytest

from pyentmax.seq2seq.tasks.translation import toy_german


@pytest.fixture
def corpus(tmp_path):
    """A folder with 100 pairs in two files, and 20 more in a table."""
    pairs = toy_german()[:120]
    for side, name in enumerate(("train.de", "train.en")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs[:100]), "utf-8")
    (tmp_path / "dev.tsv").write_text("".join("\t".join(p) + "\n" for p in pairs[100:]), "utf-8")
    return tmp_path
