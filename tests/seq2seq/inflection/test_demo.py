"""The demonstration: its split, and a short run of it from end to end."""

import pytest

from pyentmax.seq2seq.inflection import demo, english_verbs


def test_no_verb_is_in_two_parts():
    train, dev, family = demo.demo_split(0)
    words = [{example.lemma for example in part} for part in (train, dev, family)]
    assert words[0].isdisjoint(words[1])
    assert (words[0] | words[1]).isdisjoint(words[2])
    assert sum(map(len, (train, dev, family))) == len(english_verbs())
    assert not any(lemma.endswith("draw") for lemma in words[0])
    assert {"draw", "withdraw", "overdraw"} <= words[2]
    assert demo.demo_split(1)[1] != dev


@pytest.mark.slow
def test_a_short_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "UPDATES", 100)
    monkeypatch.setattr(demo, "DEV_SHARE", 0.005)
    demo.run_demo(tmp_path, seed=0)
    text = capsys.readouterr().out
    assert "Held out: draw, outdraw" in text
    assert "draw  V;V.PTCP;PST" in text
    assert "complete" in text
    assert "forms right" in text
    pictures = {p.name for p in tmp_path.glob("*.png")}
    assert pictures == {
        "draw-V.V.PTCP.PST-tree.png",
        "draw-V.V.PTCP.PST-attention.png",
    }
    assert all(str(tmp_path / name) in text for name in pictures)
    assert {p.name for p in tmp_path.glob("*.npz")} == {"best.npz", "last.npz"}
