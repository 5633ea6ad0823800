"""`analyse` of Transformers: what is measured, printed, written and drawn."""

import json
import re
import shutil

import numpy as np
import pytest
from commands import run

import pyentmax as pe
from experiments.correia2019 import planted
from pyentmax.seq2seq.tasks.translation import Translator, Words, heads, toy_german
from pyentmax.seq2seq.tasks.translation.commands import read_pairs
from pyentmax.seq2seq.training import save_checkpoint

SHAPE = {"width": 16, "layers": 2, "heads": 2, "inner": 16}


def untrained_translator(attention, architecture="transformer", **shape):
    shape = {"attention": attention, **(shape or SHAPE)}
    rng = np.random.default_rng(0)
    return Translator.untrained(architecture, planted.planted_questions(200), Words(), rng, **shape)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Untrained models, one for each attention, in folders as of runs; and planted questions."""
    folder = tmp_path_factory.mktemp("models")
    planted.write(folder)
    for name, attention in (("dense", "1"), ("top", "topk_softmax:2"), ("own", "learned")):
        (folder / name).mkdir()
        untrained_translator(attention).save(folder / name / "best.npz")
    untrained_translator("1.5", "rnn", hidden=8).save(folder / "rnn.npz")
    save_checkpoint(folder / "other.npz", {}, {"kind": "parrot"})
    return folder


# --- the command ----------------------------------------------------------------------------------
def test_analyse_prints_models_side_by_side(models, capsys):
    names = [models / name for name in ("dense", "own", "top")]
    options = ("--limit", 40, "--quiet")
    assert run("analyse", *names, models / "planted-dev.tsv", *options) == 0
    text = capsys.readouterr().out
    assert "|  | softmax | α learned | top 2 |" in text
    assert re.search(r"density, encoder.*\| 1\.00 \(1\.00 to 1\.00\) \|", text)
    assert re.search(r"α \(least to most\) \| – \| 1\.\d+ \(1\.\d+ to 1\.\d+\) \| – \|", text)


def test_analyse_writes_numbers_and_picture(models, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    names, out = [models / name for name in ("dense", "own")], tmp_path / "out"
    options = ("--limit", 20, "--out", out, "--quiet")
    assert run("analyse", *names, models / "planted-dev.tsv", *options) == 0
    assert "heads.json" in capsys.readouterr().out
    found = json.loads((out / "heads.json").read_text("utf-8"))
    assert list(found) == ["softmax", "α learned"]
    assert np.shape(found["α learned"]["alphas"]["context"]) == (2, 2)
    assert np.shape(found["softmax"]["positional"]["decoder -1"]) == (2, 2)
    assert [path.name for path in out.glob("*.png")] == ["densities.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["other.npz", "toy-german"], "the file holds 'parrot'"),
        (["dense", "other.npz", "toy-german"], "the file holds 'parrot'"),
        (["rnn.npz", "toy-german"], "expected a Transformer"),
        (["none.npz", "toy-german"], "none.npz: No such file"),
        (["dense", "none.tsv"], "none.tsv: No such file"),
        (["dense", "toy-german", "--beam", "3"], "--beam: has no effect on 'translation model'"),
        (["dense", "--examples", "a", "b", "c"], "expected one or two files"),
    ],
)
def test_analyse_refuses(models, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(models)
    assert run("analyse", *arguments) == 2
    assert message in capsys.readouterr().err


def test_data_may_be_reversed(tmp_path):
    table = tmp_path / "pairs.tsv"
    table.write_text("ein hund\ta dog\n", "utf-8")
    assert read_pairs([table]) == [("ein hund", "a dog")]
    assert read_pairs([table], reverse=True) == [("a dog", "ein hund")]
    assert read_pairs([type(table)("toy-german")]) == toy_german()[-200:]


def test_equal_attentions_are_labelled_by_folder(models, tmp_path):
    pairs = planted.planted_questions()[:4]
    folders = [
        shutil.copytree(models / "dense", tmp_path / name) for name in ("dense", "dense-late")
    ]
    found = heads.measure(folders, pairs)
    assert list(found) == ["softmax (dense)", "softmax (dense-late)"]


def listing_a4(query, key, value, k):
    """`sparse_dot_product` of Explicit Sparse Transformer, App. A.4, line by line, for one head.

    Its scores lack the division by √d of the paper's own equation. As printed it cannot run: it
    swaps axes 2 and 3, which arrays of three axes do not have.
    """
    scores = query @ key.swapaxes(1, 2)
    k = min(k, key.shape[1])
    if k:
        v = -np.sort(-scores, axis=-1)[..., :k]
        vk = v[:, :, -1:]
        scores = np.where(scores < vk, -1e18, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_top_k_attention_equals_listing_a4_unscaled(k):
    rng = np.random.default_rng(2)
    query, key, value = rng.normal(size=(3, 2, 6, 16))
    output, weights = listing_a4(query, key, value, k)
    scores = query @ key.swapaxes(1, 2)
    np.testing.assert_allclose(pe.topk_softmax(scores, k), weights, rtol=1e-12, atol=1e-15)
    found = pe.attention(query, key, value, mapping="topk_softmax", k=k, scale=1.0)
    np.testing.assert_allclose(found, output, rtol=1e-12, atol=1e-14)
    # With the equation's scale the same positions stay, and the weights are flatter.
    scaled = pe.topk_softmax(scores / 4, k)
    np.testing.assert_array_equal(scaled > 0, weights > 0)
    if k > 1:
        assert scaled.max() < weights.max()
