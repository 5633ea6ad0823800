"""The planted corpus: its mark decides, and a head of a small model looks for it."""

from experiments.correia2019 import measured_heads as heads
from experiments.correia2019.planted import INTERROGATIVES, MARK, planted_questions, train, write
from experiments.tasks.translation.parallel import read_pairs
from pyentmax.seq2seq.training import RunOptions


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


def test_a_head_looks_for_the_planted_mark(tmp_path):
    """The best head puts nine tenths of the planted words' weight on the mark."""
    write(tmp_path)
    out = tmp_path / "run"
    train(RunOptions(out, progress=False))
    found = heads.measure([out], read_pairs([tmp_path / "planted-dev.tsv"]))[0]
    assert found.heads.marked.counts.sum() > 50
    assert found.heads.marked.mean.max() >= 0.9
