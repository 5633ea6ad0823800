"""Files of models that are damaged: each is refused by one error that names what is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.tasks.captions import Captioner
from pyentmax.tasks.inflection import Example, Inflector
from pyentmax.tasks.translation.parallel import SentencePair
from pyentmax.tasks.translation.segmentation import Words
from pyentmax.tasks.translation.translator import Translator
from pyentmax.training import CheckpointError, load_checkpoint, save_checkpoint

VERBS = [Example("walk", "walked", ("V", "PST")), Example("play", "plays", ("V", "PRS"))]
PAIRS = [SentencePair("ein hund", "a dog"), SentencePair("eine katze", "a cat")]
HUGE = 10**9


def inflector():
    return Inflector.untrained(VERBS, np.random.default_rng(0), hidden=8)


def translator(architecture):
    shapes = {
        "rnn": {"hidden": 8},
        "transformer": {"width": 8, "layers": 1, "heads": 2, "inner": 8},
    }
    rng = np.random.default_rng(0)
    return Translator.untrained(architecture, PAIRS, Words(), rng, **shapes[architecture])


def captioner():
    rng = np.random.default_rng(0)
    return Captioner.untrained(rng, width=8, layers=1, heads=2, inner=8)


MODELS = {
    "inflection": (inflector, "inflection model"),
    "rnn": (lambda: translator("rnn"), "translation model"),
    "transformer": (lambda: translator("transformer"), "translation model"),
    "captions": (captioner, "caption model"),
}


@pytest.fixture(params=MODELS)
def saved(request, tmp_path):
    """The class of a model, its file, and what is in it."""
    make, kind = MODELS[request.param]
    model, path = make(), tmp_path / "best.npz"
    model.save(path)
    return type(model), path, kind


def refused(model, path, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        model.load(path)
    assert "best.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.astype(np.int64), "output.bias: expected float32, got int64"),
        (lambda x: x.astype(np.float64), "output.bias: expected float32, got float64"),
        (lambda x: x.astype("S4"), "output.bias: expected float32, got |S4"),
        (lambda x: x * np.nan, "output.bias: expected finite numbers, got NaN or infinity"),
        (lambda x: x[:, None], r"output.bias: expected shape \(\d+,\), got \(\d+, 1\)"),
    ],
    ids=["integers", "another precision", "text", "NaN", "another shape"],
)
def test_an_array_that_is_not_right_is_named(saved, change, message):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    save_checkpoint(path, params | {"output.bias": change(params["output.bias"])}, meta)
    refused(model, path, message)


def test_all_arrays_of_integers(saved):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    whole = {k: x if k == "segmenter.state" else x.astype(int) for k, x in params.items()}
    save_checkpoint(path, whole, meta)
    refused(model, path, "expected float32 or float64, got int64")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ">f4", np.float64])
def test_all_arrays_of_a_type_that_models_compute_in(saved, dtype):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    as_type = {k: x if k == "segmenter.state" else x.astype(dtype) for k, x in params.items()}
    save_checkpoint(path, as_type, meta)
    assert model.load(path).model.params["output.bias"].dtype == dtype


def test_all_arrays_of_a_wider_type_than_kernels_have(saved):
    """It loaded, and the first use ended in a traceback."""
    wider = np.dtype(np.longdouble)
    if wider.itemsize == 8:
        pytest.skip("this system has no wider type")
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    wide = {k: x if k == "segmenter.state" else x.astype(wider) for k, x in params.items()}
    save_checkpoint(path, wide, meta)
    refused(model, path, f"parameters: expected float32 or float64, got {wider}")


def test_a_vocabulary_that_is_too_short_is_named(saved):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    for name in meta.keys() & {"source", "target", "words"}:
        tokens = json.loads(meta[name])
        save_checkpoint(path, params, meta | {name: json.dumps(tokens[:-1])})
        expected = f"{name} vocabulary: expected {len(tokens)} tokens, got {len(tokens) - 1}"
        refused(model, path, expected)


def test_more_layers_than_any_model_has_are_refused_at_once(saved):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    save_checkpoint(path, params, meta | {"config": meta["config"] | {"layers": HUGE}})
    refused(model, path, "layers: expected at most 10,000, got")


@pytest.mark.parametrize("value", ["8", 1.5, True, None, [1]], ids=repr)
def test_a_size_that_is_no_whole_number_is_named(saved, value):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    save_checkpoint(path, params, meta | {"config": meta["config"] | {"layers": value}})
    refused(model, path, "layers: expected int, got")


@pytest.mark.parametrize("value", [None, True, ["1.5"]], ids=repr)
def test_a_mapping_that_is_no_text_is_named(saved, value):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    for name in ("attention", "output"):
        save_checkpoint(path, params, meta | {"config": meta["config"] | {name: value}})
        refused(model, path, f"{name}: expected str or float or int, got")


def test_a_field_that_is_missing_is_named(saved):
    """It took its default, such as another mapping."""
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    for name in meta["config"]:
        config = {other: value for other, value in meta["config"].items() if other != name}
        save_checkpoint(path, params, meta | {"config": config})
        refused(model, path, f"config: expected all its fields, {name} missing")


def test_members_that_do_not_belong_there_are_refused(saved):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    save_checkpoint(path, params | {"more": np.zeros(3, np.float32)}, meta)
    refused(model, path, r"parameter more: expected shape none, got \(3,\)")


@pytest.mark.parametrize("command", ["inflect", "force"])
def test_commands_refuse_a_model_with_a_nan(tmp_path, command, capsys):
    model = inflector()
    model.model.params["output.bias"][5] = np.nan
    model.save(tmp_path / "best.npz")
    form = ["walked"] if command == "force" else []
    assert main([command, str(tmp_path), "walk", "V;PST", *form]) == 1
    assert "output.bias: expected finite numbers, got NaN" in capsys.readouterr().err


@pytest.mark.parametrize(
    "every", [pytest.param(3, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.deep)]
)
def test_whatever_is_changed_in_a_file_it_loads_or_says_what_is_wrong(saved, every):
    model, path, kind = saved
    params, meta = load_checkpoint(path, kind)
    values = [None, True, -1, 0, 1, 7, 1.5, float("nan"), float("inf"), HUGE, 10**30, "", "2", "x"]
    values += ["[]", "[" * 100_000, "null", [], [1], {}, {"a": 1}, "normmax:nan", "learned"]
    changes = []

    def attempt(arrays, changed):
        changes.append((arrays, changed))

    for name in meta.keys() - {"kind"}:
        attempt(params, {k: x for k, x in meta.items() if k != name})
        for value in values:
            attempt(params, meta | {name: value})
    for name in [*meta["config"], "unheard_of"]:
        attempt(params, meta | {"config": {k: x for k, x in meta["config"].items() if k != name}})
        for value in values:
            attempt(params, meta | {"config": meta["config"] | {name: value}})
    for name, array in params.items():
        attempt({k: x for k, x in params.items() if k != name}, meta)
        shapes = [array[:0], array[..., None], np.zeros((), array.dtype), array[:-1]]
        kinds = [array.astype(t) for t in (np.int8, bool, complex, "U3", np.float16)]
        for changed in shapes + kinds:
            attempt(params | {name: changed}, meta)
    refusals = 0
    for arrays, changed in changes[::every]:
        save_checkpoint(path, arrays, changed)
        try:
            model.load(path)
        except CheckpointError:
            refusals += 1
    assert refusals > 300 // every
