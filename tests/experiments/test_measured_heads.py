"""What is measured, written and drawn of the heads of Transformers; and the choice of k."""

import json

import numpy as np
import pytest

from experiments.analysis import PerSentence
from experiments.correia2019 import head_pictures, measured_heads, planted
from experiments.tasks.translation import Translator, Words
from pyentmax.seq2seq.training import save_checkpoint

SHAPE = {"width": 16, "layers": 2, "heads": 2, "inner": 16}


def untrained_translator(attention):
    pairs, rng = planted.planted_questions(200), np.random.default_rng(0)
    shape = {"attention": attention, **SHAPE}
    return Translator.untrained("transformer", pairs, Words(), rng, **shape)


@pytest.mark.slow
def test_script_writes_numbers_and_pictures(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    planted.write(tmp_path)
    models = {"dense": "1", "own": "learned", "top": "topk_softmax:2"}
    for name, attention in models.items():
        (tmp_path / name).mkdir()
        untrained_translator(attention).save(tmp_path / name / "best.npz")
    out = tmp_path / "out"
    names = [str(tmp_path / name) for name in models]
    options = ["--examples", str(tmp_path / "planted-dev.tsv"), "--first", "40", "--quiet"]
    more = ["--k", "1", "all", "--out", str(out)]
    assert head_pictures.main([*names, *options, *more]) == 0
    printed = capsys.readouterr().out
    assert "|  | softmax | α learned | top 2 |" in printed
    assert "heads.json" in printed
    found = json.loads((out / "heads.json").read_text("utf-8"))
    assert found["sentences"] == 40
    assert np.shape(found["models"]["α learned"]["alphas"]["context"]) == (2, 2)
    assert found["models"]["top 2"]["marked"]["tokens"] > 10
    assert set(found["diversity minus softmax"]) == {"α learned", "top 2"}
    drawn = {path.stem for path in out.glob("*.png")}
    assert drawn >= {"alpha_histograms", "density_histograms", "densities", "diversity", "question"}
    assert drawn >= {"positional", "previous_token", "patterns", "context", "choice_of_k"}
    assert not drawn & {"alpha_trajectories", "merging"}  # nothing followed, no sub-words


def test_recurrent_models_and_other_files_are_refused(tmp_path):
    pairs, rng = planted.planted_questions(20), np.random.default_rng(0)
    Translator.untrained("rnn", pairs, Words(), rng, hidden=8).save(tmp_path / "rnn.npz")
    save_checkpoint(tmp_path / "other.npz", {}, {"kind": "parrot"})
    for name, message in (("rnn", "got a recurrent network"), ("other", "'parrot'")):
        with pytest.raises(ValueError, match=message):
            measured_heads.measure([tmp_path / f"{name}.npz"], pairs)


def test_contrast_compares_sentences_of_one_length():
    pytest.importorskip("matplotlib")
    lengths = np.array([9.0, 10, 9, 10, 20, 20, 11])
    values = np.full((7, 2, 3), 0.5)
    values[[1, 3], 1, 2] = 0.9, 0.2  # both have 10 tokens
    values[[0, 1], 0, 0] = 0.1, 1.0  # not of one length
    values[[4, 5], 0, 1] = 0.0, 1.0  # too long to be shown
    found = head_pictures.largest_contrast(PerSentence(values, lengths))
    assert found.place == (1, 2)
    assert found.sentences == (3, 1)
    assert found.gap == pytest.approx(0.7, rel=1e-9, abs=0)
    assert head_pictures.largest_contrast(PerSentence(np.ones((7, 2, 3)), lengths)) is None


# --- choice of k ----------------------------------------------------------------------------------
def test_k_in_use_replaces_the_heads_mapping():
    pairs = planted.planted_questions(40)
    for attention, same in (("1", "all"), ("topk_softmax:2", "2")):
        translator = untrained_translator(attention)
        encoded = translator.pairs(pairs)
        plain = translator.validate(encoded)
        found = {
            k: measured_heads.use_with_k(translator, k, pairs, encoded) for k in ("1", "2", "all")
        }
        assert found[same]["loss"] == pytest.approx(plain.loss, rel=1e-6, abs=0)
        assert found[same]["accuracy"] == plain.accuracy
        losses = [x["loss"] for x in found.values()]
        assert len(set(losses)) == 3
