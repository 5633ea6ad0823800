"""The files of models: what is written comes back, and what is damaged is named."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pyentmax.seq2seq.inflection import Example, Inflector
from pyentmax.seq2seq.training import CheckpointError, load_checkpoint, save_checkpoint

VERBS = [Example("walk", "walked", ("V", "PST")), Example("play", "plays", ("V", "PRS"))]


@pytest.fixture
def saved(tmp_path):
    """A model and its file."""
    model = Inflector.untrained(VERBS, np.random.default_rng(0), hidden=8)
    model.save(tmp_path / "best.npz")
    return model, tmp_path / "best.npz"


def test_model_comes_back_from_file_or_folder(saved):
    model, path = saved
    for place in (path, path.parent):
        loaded = type(model).load(place)
        assert loaded.description() == model.description()
        for name, x in model.model.params.items():
            np.testing.assert_array_equal(loaded.model.params[name], x)


@pytest.mark.parametrize("fertility", [None, 1.5])
def test_only_models_without_a_fertility_load(saved, fertility):
    model, path = saved
    arrays, meta = load_checkpoint(path, model.kind)
    save_checkpoint(path, arrays, meta | {"config": meta["config"] | {"fertility": fertility}})
    if fertility is None:  # as earlier versions wrote it
        assert type(model).load(path).description() == model.description()
        return
    with pytest.raises(CheckpointError, match="unexpected keyword argument 'fertility'"):
        type(model).load(path)


def test_sizes_in_a_file_cost_nothing_before_it_is_refused(saved):
    model, path = saved
    kind = model.kind
    arrays, meta = load_checkpoint(path, kind)
    sizes = [k for k, v in meta["config"].items() if type(v) is int and v > 1 or k == "layers"]
    assert {"layers"} < {*sizes}
    tracemalloc.start()
    try:
        for name in sizes:
            changed = meta | {"config": meta["config"] | {name: 2**50}}
            save_checkpoint(path, arrays, changed)
            with pytest.raises(CheckpointError, match="do not fit together"):
                type(model).load(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_files_of_the_other_byte_order_are_read(saved):
    model, path = saved
    arrays = {name: x.astype(x.dtype.newbyteorder()) for name, x in model.arrays().items()}
    save_checkpoint(path, arrays, {"kind": model.kind, **model.description()})
    loaded = type(model).load(path)
    for name, x in model.model.params.items():
        np.testing.assert_array_equal(loaded.model.params[name], x)
        assert loaded.model.params[name].dtype.isnative


def test_missing_and_foreign_files_are_named(saved, tmp_path):
    model, path = saved
    with pytest.raises(FileNotFoundError, match="other"):
        type(model).load(tmp_path / "other")
    run = tmp_path / "run"
    run.mkdir()
    (run / "last.npz").touch()
    with pytest.raises(FileNotFoundError, match="no best.npz in .*: the first validation writes"):
        type(model).load(run)
    save_checkpoint(path, {"w": np.zeros(3)}, {"kind": "parrot"})
    with pytest.raises(CheckpointError, match=f"best.npz: expected '{model.kind}', .*'parrot'"):
        type(model).load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="best.npz"):
        type(model).load(path)


def test_parts_that_are_missing_are_named(saved):
    model, path = saved
    arrays, description = load_checkpoint(path, model.kind)
    for changed, described in (
        (arrays, {name: x for name, x in description.items() if name != "config"}),
        (arrays, description | {"config": description["config"] | {"unheard_of": 1}}),
        ({name: x for name, x in arrays.items() if name != "output.bias"}, description),
        (arrays | {"output.bias": arrays["output.bias"][1:]}, description),
    ):
        save_checkpoint(path, changed, described)
        with pytest.raises(CheckpointError, match="best.npz: parts are missing or do not fit"):
            type(model).load(path)


# --- ensembles ------------------------------------------------------------------------------------
def test_ensemble_of_words_averages_probabilities(tmp_path):
    paths = [tmp_path / f"{seed}.npz" for seed in range(2)]
    members = [Inflector.untrained(VERBS, np.random.default_rng(s), hidden=8) for s in range(2)]
    for member, path in zip(members, paths, strict=True):
        member.save(path)
    together = Inflector.load_ensemble(paths).force("walk", "V;PST", "walked")
    first = [np.exp(m.force("walk", "V;PST", "walked").log_prob[0]) for m in members]
    np.testing.assert_allclose(np.exp(together.log_prob[0]), np.mean(first, axis=0), rtol=1e-5)
    longer = [*VERBS, Example("zip", "zips", ("V", "PRS"))]
    Inflector.untrained(longer, np.random.default_rng(0), hidden=8).save(paths[1])
    with pytest.raises(CheckpointError, match=r"1\.npz: its source vocabulary is not that of"):
        Inflector.load_ensemble(paths)
    with pytest.raises(ValueError, match="models: expected at least one checkpoint, got none"):
        Inflector.load_ensemble([])
